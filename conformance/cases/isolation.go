package cases

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// isolationCases are about several sessions.
func isolationCases() []Case {
	return []Case{
		{
			ID: "isolation/variables", PerLanguage: true, Programs: []string{"remember", "recall"},
			Doc: "Two sessions do not see each other's variables.",
			Positive: func(t *T) {
				a, b := t.Shared(), t.Session()
				t.ok(a, t.Program("remember", "value", "of a"))
				t.says(b, t.Program("recall"), "absent")
				t.ok(b, t.Program("remember", "value", "of b"))
				if t.Has(executor.FeatureState) {
					t.says(a, t.Program("recall"), "of a")
				}
			},
		},
		{
			ID: "isolation/files", PerLanguage: true, Needs: []executor.Feature{executor.FeatureFiles}, Programs: []string{"write-file", "read-file"},
			Doc: "Two sessions do not see each other's files, in the working directory or elsewhere.",
			Positive: func(t *T) {
				a, b := t.Shared(), t.Session()
				for _, name := range []string{"of-a.txt", "/tmp/of-a.txt"} {
					t.ok(a, t.Program("write-file", "name", name, "text", "of a"))
					t.says(b, t.Program("read-file", "name", name), "absent")
					if got, err := t.get(b.Files(), name); err == nil {
						t.Errorf("Files of another session has %q: %q", name, got)
					}
				}
			},
		},
		{
			ID: "isolation/close", PerLanguage: true, Programs: []string{"print", "spin"},
			Doc: "Closing a session, and stopping code in it, leaves other sessions alone.",
			Positive: func(t *T) {
				a, b, c := t.Shared(), t.Session(), t.Session()
				run := t.begin(a, limited(t.Program("spin", "text", "ready"), 1500*time.Millisecond))
				t.noError(b.Close(), "close")
				t.says(c, t.Program("print", "text", "others live"), "others live")
				run.ends("the run in the other session", 5*time.Second, executor.StatusTimedOut, executor.ReasonWallTime)
				t.says(c, t.Program("print", "text", "still"), "still")
			},
		},
		{
			ID: "parallel/sessions", PerLanguage: true, Programs: []string{"lines", "print"},
			Doc: "Sessions are created, used and closed at the same time, and each run gets its own output.",
			Positive: func(t *T) {
				const many = 4
				sessions := make([]executor.Session, many)
				var wg sync.WaitGroup
				for i := range many {
					wg.Go(func() {
						s, err := t.Executor().Create(t.Context(), t.Spec())
						if err != nil {
							t.Errorf("create: %v", err)
							return
						}
						sessions[i] = s
						for n := range 3 {
							want := fmt.Sprintf("session %d run %d", i, n)
							req := t.Program("print", "text", want)
							res, err := s.Run(t.Context(), req, nil)
							if err != nil || string(res.Stdout) != want+"\n" {
								t.Errorf("%s: got %v, %v", want, res, err)
							}
						}
						t.noError(s.Close(), "close")
					})
				}
				wg.Wait()
				seen := map[string]bool{}
				for _, s := range sessions {
					if s != nil {
						seen[s.Info().Handle.Session] = true
					}
				}
				if len(seen) != many && !t.Failed() {
					t.Errorf("got %d different names of %d sessions", len(seen), many)
				}
			},
		},
		{
			ID: "parallel/busy", PerLanguage: true, Programs: []string{"spin", "print"},
			Doc: "A second run in a busy interpreter fails at once with ErrBusy and RanNo, and does not disturb the first.",
			Positive: shared(func(t *T, s executor.Session) {
				t.inTime(1500*time.Millisecond, func(wall time.Duration) error {
					start := time.Now()
					run := t.begin(s, limited(t.Program("spin", "text", "ready"), wall))
					if time.Since(start) >= wall {
						run.ends("the first run", wall+5*time.Second, executor.StatusTimedOut, executor.ReasonWallTime)
						return errors.New("what the run printed first came when its wall time was over")
					}
					start = time.Now()
					res, err := s.Run(t.Context(), t.Program("print", "text", "second"), nil)
					if err == nil && run.over() {
						return errors.New("a second run was not refused before the first one had ended")
					}
					t.prompt("the refusal", start, time.Second)
					t.isNo("a second run", err, executor.ErrBusy)
					t.noResult("the run", res)
					t.notRetryable(err)
					t.printed(run.ends("the first run", wall+5*time.Second, executor.StatusTimedOut, executor.ReasonWallTime), "ready\n")
					return nil
				})
				t.says(s, t.Program("print", "text", "third"), "third")
			}),
		},
		{
			ID: "parallel/runs", PerLanguage: true, Feature: executor.FeatureParallelRuns, Programs: []string{"wait-for-file", "write-file", "spin", "command-wait", "command-write"},
			Doc: "Different interpreters and commands of a session run at the same time.",
			Positive: fresh(func(t *T, s executor.Session) {
				waits, wakes, other := t.Program("wait-for-file", "name", "go.txt"), t.Program("write-file", "name", "go.txt", "text", "woken"), false
				if t.Has(executor.FeatureContexts) {
					wakes.Context, other = "other", true
					meet(t, s, waits, wakes)
				}
				if t.Has(executor.FeatureCommand) {
					other = true
					meet(t, s, t.Program("wait-for-file", "name", "go2.txt"), t.command("command-write", "name", "go2.txt", "text", "woken"))
					meet(t, s, t.command("command-wait", "name", "go3.txt"), t.command("command-write", "name", "go3.txt", "text", "woken"))
				}
				if !other {
					t.Errorf("parallel runs are declared, but there is nothing that a run could be parallel to: no contexts, no commands")
				}
			}),
			Negative: shared(func(t *T, s executor.Session) {
				run := t.spins(s)
				if t.Has(executor.FeatureContexts) {
					req := t.Program("write-file", "name", "go.txt", "text", "x")
					req.Context = "other"
					t.runFails("a run in another context", s, req, executor.ErrBusy)
				}
				if t.Has(executor.FeatureCommand) {
					t.runFails("a command during a run", s, t.command("command-write", "name", "go.txt", "text", "x"), executor.ErrBusy)
				}
				t.runFails("a second run", s, executor.Request{Language: t.Language()}, executor.ErrBusy)
				run.stop()
			}),
		},
	}
}

// meet runs a request that waits for a file, and while it does, one that makes the file.
func meet(t *T, s executor.Session, waits, wakes executor.Request) {
	run := t.begin(s, limited(waits, 25*time.Second))
	t.ok(s, wakes)
	t.mentions(run.ends("the run that waited for the other", 10*time.Second, executor.StatusOK, ""), "woken")
}
