package cases

import (
	"fmt"
	"strings"
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
				a, b := t.Session(), t.Session()
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
				a, b := t.Session(), t.Session()
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
				a, b, c := t.Session(), t.Session(), t.Session()
				run := t.start(a, limited(t.Program("spin", "text", "ready"), 1500*time.Millisecond), nil)
				run.awaitStart()
				if err := b.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				t.says(c, t.Program("print", "text", "others live"), "others live")
				res, err := run.wait(5 * time.Second)
				if err != nil || res == nil || res.Status != executor.StatusTimedOut {
					t.Errorf("the run in the other session: got %s, want timed out", run.outcome())
				}
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
						if err := s.Close(); err != nil {
							t.Errorf("close: %v", err)
						}
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
			Positive: func(t *T) {
				s := t.Session()
				run := t.start(s, limited(t.Program("spin", "text", "ready"), 1500*time.Millisecond), nil)
				run.awaitStart()
				start := time.Now()
				res, err := s.Run(t.Context(), t.Program("print", "text", "second"), nil)
				t.prompt("the refusal", start, time.Second)
				t.isNo("a second run", err, executor.ErrBusy)
				if res != nil {
					t.Errorf("got the result %s", describe(res))
				}
				if executor.Retryable(err) {
					t.Errorf("ErrBusy is retryable: that is for failures of the backend")
				}
				first, err := run.wait(5 * time.Second)
				if err != nil || first.Status != executor.StatusTimedOut || string(first.Stdout) != "ready\n" {
					t.Errorf("the first run: got %s, want timed out with its own output", run.outcome())
				}
				t.says(s, t.Program("print", "text", "third"), "third")
			},
		},
		{
			ID: "parallel/runs", PerLanguage: true, Feature: executor.FeatureParallelRuns, Programs: []string{"wait-for-file", "write-file", "spin", "command-wait", "command-write"},
			Doc: "Different interpreters and commands of a session run at the same time.",
			Positive: func(t *T) {
				s := t.Session()
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
			},
			Negative: func(t *T) {
				s := t.Session()
				run := t.start(s, limited(t.Program("spin", "text", "ready"), 25*time.Second), nil)
				run.awaitStart()
				if t.Has(executor.FeatureContexts) {
					req := t.Program("write-file", "name", "go.txt", "text", "x")
					req.Context = "other"
					_, err := s.Run(t.Context(), req, nil)
					t.isNo("a run in another context", err, executor.ErrBusy)
				}
				if t.Has(executor.FeatureCommand) {
					_, err := s.Run(t.Context(), t.command("command-write", "name", "go.txt", "text", "x"), nil)
					t.isNo("a command during a run", err, executor.ErrBusy)
				}
				_, err := s.Run(t.Context(), executor.Request{Language: t.Language()}, nil)
				t.isNo("a second run", err, executor.ErrBusy)
				run.cancel()
				run.wait(5 * time.Second)
			},
		},
	}
}

// meet runs a request that waits for a file, and while it does, one that makes the file.
func meet(t *T, s executor.Session, waits, wakes executor.Request) {
	run := t.start(s, limited(waits, 25*time.Second), nil)
	run.awaitStart()
	t.ok(s, wakes)
	res, err := run.wait(10 * time.Second)
	if err != nil || !strings.Contains(string(res.Stdout), "woken") {
		t.Errorf("the run that waited for the other: got %s, want that they met", run.outcome())
	}
}
