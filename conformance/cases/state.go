package cases

import (
	"strconv"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// stateCases are about what is kept from run to run, and about the resetting of it.
func stateCases() []Case {
	state := executor.FeatureState
	// A form for backends without state: nothing is kept.
	none := func(t *T) {
		s := t.Shared()
		t.ok(s, t.Program("remember", "value", kept))
		t.says(s, t.Program("recall"), "absent")
	}
	noReset := func(t *T) {
		t.Refused("reset", t.Shared().Reset(t.Context(), executor.Interpreter{}), state)
	}
	return []Case{
		{
			ID: "state/variables", Feature: state, Programs: []string{"remember", "recall"},
			Doc: "Variables and functions of a run are there in the next, and may be defined again.",
			Positive: shared(func(t *T, s executor.Session) {
				t.ok(s, t.Program("remember", "value", "first"))
				t.says(s, t.Program("recall"), "first")
				t.ok(s, t.Program("remember", "value", t.own()))
				t.says(s, t.Program("recall"), t.own())
			}),
			Negative: none,
		},
		{
			ID: "state/fresh", Feature: state, Programs: []string{"remember", "recall"},
			Doc: "StateFresh says of the first run in an interpreter, and only of that, that it began without variables.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.anew(s)
				t.remembers(s)
				if res := t.says(s, t.Program("recall"), t.own()); res.StateFresh || res.StateLost || res.FilesLost {
					t.Errorf("StateFresh %v, StateLost %v, FilesLost %v of an ordinary run, want none", res.StateFresh, res.StateLost, res.FilesLost)
				}
			}),
			Negative: none,
		},
		{
			ID: "state/after-exception", Feature: state, Programs: []string{"remember", "recall", "raise"},
			Doc: "Variables survive an exception, and so do those that the failed code had set.",
			Positive: shared(func(t *T, s executor.Session) {
				if t.Has(executor.FeatureFiles) {
					t.put(s.Files(), keptFile, t.own())
				}
				res := t.Run(s, executor.Request{Language: t.Language(), Code: t.Program("remember", "value", t.own()).Code + "\n" + t.Program("raise", "message", "boom").Code})
				failed(t, res)
				t.keeps(s, res)
			}),
			Negative: none,
		},
		{
			ID: "state/once", Feature: state, Programs: []string{"count"},
			Doc: "Each run happens once.",
			Positive: fresh(func(t *T, s executor.Session) {
				for i := 1; i <= 5; i++ {
					t.says(s, t.Program("count"), strconv.Itoa(i))
				}
			}),
			Negative: fresh(func(t *T, s executor.Session) {
				for range 2 {
					t.says(s, t.Program("count"), "1")
				}
			}),
		},
		{
			ID: "state/reset", Feature: state, Programs: []string{"remember", "recall", "print"},
			Doc: "Reset ends the interpreter: the next run begins anew and says so, and the one after it does not.",
			Positive: shared(func(t *T, s executor.Session) {
				for _, which := range []executor.Interpreter{{}, {Language: t.Language()}} {
					t.remembers(s)
					t.must(s.Reset(t.Context(), which), "reset")
					if res := t.says(s, t.Program("recall"), "absent"); !res.StateFresh || res.Cell > 1 {
						t.Errorf("StateFresh %v and cell %d of the first run after a reset, want true and 1", res.StateFresh, res.Cell)
					}
					if res := t.ok(s, t.Program("print", "text", "x")); res.StateFresh {
						t.Errorf("StateFresh of the second run after a reset: got true")
					}
				}
			}),
			Negative: noReset,
		},
		{
			ID: "state/reset-idle", Feature: state, Programs: []string{"recall"},
			Doc: "Reset of a session in which nothing has run, and a second Reset, are not errors.",
			Positive: fresh(func(t *T, s executor.Session) {
				for range 2 {
					t.noError(s.Reset(t.Context(), executor.Interpreter{}), "reset")
				}
				t.says(s, t.Program("recall"), "absent")
			}),
			Negative: noReset,
		},
		{
			ID: "state/reset-run", Feature: state, Programs: []string{"remember", "recall", "spin"},
			Doc: "Reset ends a run in progress with ReasonReset; what it had written is kept.",
			Positive: remembering(func(t *T, s executor.Session) {
				run := t.spins(s)
				t.must(s.Reset(t.Context(), executor.Interpreter{}), "reset")
				res := run.ends("the run that was reset", 5*time.Second, executor.StatusKilled, executor.ReasonReset)
				t.mentions(res, "ready")
				t.anew(s)
			}),
			Negative: noReset,
		},
		{
			ID: "state/reset-files", Feature: state, Needs: []executor.Feature{executor.FeatureFiles}, Programs: []string{"write-file", "read-file"},
			Doc: "Reset leaves the files.",
			Positive: shared(func(t *T, s executor.Session) {
				t.ok(s, t.Program("write-file", "name", keptFile, "text", t.own()))
				t.must(s.Reset(t.Context(), executor.Interpreter{}), "reset")
				t.says(s, t.Program("read-file", "name", keptFile), t.own())
			}),
			Negative: noReset,
		},
		{
			ID: "state/reset-leftovers", Feature: state, Needs: []executor.Feature{executor.FeatureFiles},
			Programs: []string{"leave-ticker", "pause"},
			Doc:      "What code left running lives on after its run, or where there are no threads while a later one awaits, and Reset ends it with the interpreter.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.says(s, leaving(t.Program("leave-ticker", "name", "ticks")), "left")
				first := t.size(s, "ticks")
				pause := func() {
					if t.Has(executor.FeatureTopLevelAwait) {
						t.ok(s, t.Program("pause", "ms", 300))
					}
				}
				if t.Has(executor.FeatureThreads) {
					t.Eventually(2*time.Second, "what was left running goes on", func() bool { return t.size(s, "ticks") > first })
				} else if pause(); t.Has(executor.FeatureTopLevelAwait) && t.size(s, "ticks") == first {
					t.Errorf("what was left running does not go on while a run awaits")
				}
				t.must(s.Reset(t.Context(), executor.Interpreter{}), "reset")
				left := t.size(s, "ticks")
				pause()
				if now := t.size(s, "ticks"); now != left {
					t.Errorf("what was left running goes on after a reset: the file has grown from %d to %d bytes", left, now)
				}
				t.still(s, "ticks")
			}),
			Negative: noReset,
		},
		{
			ID: "state/reset-dead", Feature: executor.FeatureSubprocess, Only: executor.Python,
			Needs: []executor.Feature{executor.FeatureFiles, state}, Programs: []string{"leave-dead-ticker"},
			Doc: "A process that shows as dead and is not, because one of its threads lives, lives on after its run, and Reset ends it.",
			Positive: fresh(func(t *T, s executor.Session) {
				if res := t.Run(s, t.Program("leave-dead-ticker", "name", "ticks")); string(res.Stdout) != "left\n" {
					t.says(s, t.Program("leave-dead-ticker", "name", "ticks"), "none")
					return
				}
				t.grows(s, "ticks")
				t.must(s.Reset(t.Context(), executor.Interpreter{}), "reset")
				t.still(s, "ticks")
			}),
			Negative: func(t *T) { t.says(t.Shared(), t.Program("leave-dead-ticker", "name", "ticks"), "none") },
		},
	}
}

// size returns the size of a file of s; 0 if there is none.
func (t *T) size(s executor.Session, name string) int64 {
	i, err := s.Files().Stat(t.Context(), name)
	if err != nil {
		return 0
	}
	return i.Size
}

// grows checks that a file that some code lets grow every few milliseconds does.
func (t *T) grows(s executor.Session, name string) {
	first := t.size(s, name)
	t.Eventually(2*time.Second, "what was left running goes on", func() bool { return t.size(s, name) > first })
}

// pause waits for d, or for the end of the case.
func (t *T) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// still checks that a file that some code let grow every few milliseconds no longer grows.
func (t *T) still(s executor.Session, name string) {
	before := t.size(s, name)
	// Not a sleep for effect: that nothing happens can be seen only over time.
	t.pause(400 * time.Millisecond)
	if after := t.size(s, name); after != before {
		t.Errorf("the code still runs: it has grown the file %s from %d to %d bytes", name, before, after)
	}
}
