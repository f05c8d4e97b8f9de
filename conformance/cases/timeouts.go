package cases

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// timeoutCases are about the wall time of runs.
func timeoutCases() []Case {
	// Code that ends by no other means, each with whether it heeds the interrupt of its language:
	// what does not may cost the state.
	endless := func(id, program, doc string, heeds bool, feature executor.Feature) Case {
		return Case{
			ID: id, PerLanguage: true, Feature: feature, Doc: doc, Programs: []string{program, "remember", "recall"},
			Positive: remembering(func(t *T, s executor.Session) {
				res := t.timesOutWithin(4*time.Second, s, limited(t.Program(program, "text", "ready"), 300*time.Millisecond))
				if heeds {
					t.keeps(s, res)
				} else {
					t.aftermath(s, res)
				}
			}),
		}
	}
	return []Case{
		endless("timeouts/loop", "spin", "An endless loop is stopped at its wall time, and the session goes on.", false, ""),
		endless("timeouts/sleep", "sleep", "Code that sleeps is stopped at its wall time, and the session goes on.", false, ""),
		endless("timeouts/regex", "regex", "A regular expression that backtracks for ever is stopped at its wall time, and the session goes on.", false, ""),
		endless("timeouts/native", "native-loop", "A loop in native code is stopped at its wall time, and the session goes on.", false, ""),
		endless("timeouts/swallow", "swallow", "Code that swallows interrupts is stopped at its wall time all the same, and the session goes on.", false, ""),
		endless("interrupt/loop", "spin", "An endless loop that is stopped at its wall time keeps its state.", true, executor.FeatureInterrupt),
		endless("interrupt/sleep", "sleep", "Code that is stopped while it sleeps keeps its state.", true, executor.FeatureInterrupt),
		{
			ID: "interrupt/await", Feature: executor.FeatureInterrupt, Needs: []executor.Feature{executor.FeatureTopLevelAwait},
			Programs: []string{"await-forever", "remember", "recall"},
			Doc:      "Code that is stopped while it awaits keeps its state.",
			Positive: remembering(func(t *T, s executor.Session) {
				res := t.timesOut(s, limited(t.Program("await-forever", "text", "ready"), 300*time.Millisecond))
				t.keeps(s, res)
			}),
		},
		{
			ID: "interrupt/output", Feature: executor.FeatureInterrupt, Programs: []string{"flood", "remember", "recall"},
			Doc: "Code that is stopped by the output limit keeps its state.",
			Positive: remembering(func(t *T, s executor.Session) {
				res := t.ends(s, bounded(limited(t.Program("flood"), 20*time.Second), 10000), executor.StatusKilled, executor.ReasonOutput)
				t.keeps(s, res)
			}),
		},
		{
			ID: "interrupt/cancel", Feature: executor.FeatureInterrupt, Programs: []string{"spin", "remember", "recall"},
			Doc: "Code that is stopped because the context ended keeps its state.",
			Positive: remembering(func(t *T, s executor.Session) {
				run := t.spins(s)
				t.keeps(s, run.canceled(5*time.Second))
			}),
		},
		{
			ID: "interrupt/repeated", Feature: executor.FeatureInterrupt, Needs: []executor.Feature{executor.FeatureState},
			Programs: []string{"spin", "remember", "recall"},
			Doc:      "The state survives many interrupts, whenever they come.",
			Positive: remembering(func(t *T, s executor.Session) {
				for i := range 8 {
					res := t.timesOut(s, limited(t.Program("spin", "text", "ready"), time.Duration(40+37*i)*time.Millisecond))
					t.keeps(s, res)
				}
			}),
		},
		{
			ID: "timeouts/output-kept", PerLanguage: true, Programs: []string{"spin", "swallow"},
			Doc: "What code wrote before it was stopped at its wall time is kept, also if it had to be killed.",
			Positive: shared(func(t *T, s executor.Session) {
				for _, program := range []string{"spin", "swallow"} {
					t.inTime(700*time.Millisecond, func(wall time.Duration) error {
						res, events := t.events(s, limited(t.Program(program, "text", "before"), wall))
						if string(res.Stdout) != "before\n" || text(events, executor.EventStdout) != "before\n" {
							return fmt.Errorf("%s: stdout: got %q, and %q in the events, want what was printed before", program, res.Stdout, text(events, executor.EventStdout))
						}
						return nil
					})
				}
			}),
		},
		{
			ID: "timeouts/clock", PerLanguage: true, Programs: []string{"spin"},
			Doc: "Wall time counts from the started event, not from the call, and Queued and Duration say how long each took.",
			Positive: shared(func(t *T, s executor.Session) {
				const wall = 500 * time.Millisecond
				var started time.Time
				begin := time.Now()
				res, err := s.Run(t.Context(), limited(t.Program("spin", "text", "ready"), wall), func(ev executor.Event) error {
					if ev.Kind == executor.EventStarted {
						started = time.Now()
					}
					return nil
				})
				took := time.Since(begin)
				t.must(err, "run")
				// A tenth is for clocks that tick differently in the sandbox.
				if res.Duration < wall*9/10 || res.Duration > took {
					t.Errorf("the run was stopped after %v, want its wall time of %v", res.Duration, wall)
				}
				if res.Queued < 0 || res.Queued > took-res.Duration+time.Millisecond {
					t.Errorf("Queued is %v and Duration %v, of %v that the call took", res.Queued, res.Duration, took)
				}
				if t.Has(executor.FeatureStreaming) && started.Sub(res.Started).Abs() > time.Second+t.Grace() {
					t.Errorf("Started is %v, the started event came at %v", res.Started, started)
				}
			}),
		},
		{
			ID: "timeouts/not-early", PerLanguage: true, Programs: []string{"nap"},
			Doc: "Code that ends within its wall time is not stopped.",
			Positive: func(t *T) {
				t.inTime(1200*time.Millisecond, func(wall time.Duration) error { return t.naps(t.Session(), wall/2, wall) })
			},
		},
		{
			ID: "timeouts/request", PerLanguage: true, Programs: []string{"spin", "nap"},
			Doc: "Request.Limits counts for its run only; other runs have the default of the session.",
			Positive: func(t *T) {
				t.inTime(800*time.Millisecond, func(wall time.Duration) error {
					s := t.Session(func(spec *executor.Spec) {
						spec.Run.WallTime, spec.MaxRun.WallTime = wall, 40*time.Second
					})
					t.timesOut(s, limited(t.Program("spin", "text", "x"), wall/4))
					if err := t.naps(s, wall*3/8, 0); err != nil {
						return err
					}
					t.timesOut(s, t.Program("spin", "text", "x"))
					return t.naps(s, wall*5/4, 40*time.Second)
				})
			},
		},
		{
			ID: "timeouts/ceiling", PerLanguage: true, Programs: []string{"remember", "recall"},
			Doc: "A request for more than SessionInfo.MaxRun is ErrInvalid, and nothing of it runs.",
			Positive: func(t *T) {
				s := t.Session(func(spec *executor.Spec) {
					spec.Run = executor.RunLimits{WallTime: 5 * time.Second, OutputBytes: 1 << 20}
					spec.MaxRun = executor.RunLimits{WallTime: 10 * time.Second, OutputBytes: 2 << 20}
				})
				if got := s.Info(); got.Run.WallTime != 5*time.Second || got.MaxRun.WallTime != 10*time.Second ||
					got.Run.OutputBytes != 1<<20 || got.MaxRun.OutputBytes != 2<<20 {
					t.Errorf("got default %+v and ceiling %+v, want those of the spec", got.Run, got.MaxRun)
				}
				for _, l := range []executor.RunLimits{{WallTime: 11 * time.Second}, {WallTime: executor.NoLimit}, {OutputBytes: 2<<20 + 1}} {
					req := t.Program("remember", "value", kept)
					req.Limits = l
					res, err := s.Run(t.Context(), req, nil)
					t.isNo("a request for more than the ceiling", err, executor.ErrInvalid)
					t.noResult("the run", res)
				}
				t.says(s, t.Program("recall"), "absent")
				t.ok(s, bounded(limited(t.Program("recall"), 10*time.Second), 2<<20))
			},
		},
		{
			ID: "timeouts/no-limit", PerLanguage: true, Programs: []string{"nap", "spin"},
			Doc: "NoLimit lets code run until it ends or its context does; a backend with a bound refuses it.",
			Positive: func(t *T) {
				if t.Executor().Info().Capabilities.MaxRun.WallTime > 0 {
					t.refusesSpec("a spec without a limit", withoutLimit)
					return
				}
				s := t.Session(withoutLimit)
				t.says(s, t.Program("nap", "ms", 500), "begin\nend")
				run := t.begin(s, t.Program("spin", "text", "ready"))
				run.canceled(5 * time.Second)
			},
		},
		{
			ID: "timeouts/code-stops", PerLanguage: true, Needs: []executor.Feature{executor.FeatureFiles}, Programs: []string{"tick-file"},
			Doc: "Code that has timed out no longer does anything.",
			Positive: shared(func(t *T, s executor.Session) {
				t.timesOut(s, limited(t.Program("tick-file", "name", "ticks"), 600*time.Millisecond))
				t.still(s, "ticks")
			}),
		},
		{
			ID: "timeouts/files", PerLanguage: true, Needs: []executor.Feature{executor.FeatureFiles},
			Programs: []string{"write-file", "read-file", "swallow"},
			Doc:      "Files of completed runs outlive code that must be killed, unless FilesLost says that they are gone.",
			Positive: shared(func(t *T, s executor.Session) {
				t.ok(s, t.Program("write-file", "name", keptFile, "text", t.own()))
				res := t.Run(s, limited(t.Program("swallow", "text", "x"), 600*time.Millisecond))
				want := t.own()
				if res.FilesLost {
					want = "absent"
				}
				t.says(s, t.Program("read-file", "name", keptFile), want)
				if res.FilesLost && !res.StateLost && t.Has(executor.FeatureState) {
					t.Errorf("FilesLost without StateLost")
				}
			}),
		},
	}
}

// naps runs code that waits for a while and ends, with a wall time; zero is that of the session.
func (t *T) naps(s executor.Session, nap, wall time.Duration) error {
	res := t.Run(s, limited(t.Program("nap", "ms", nap.Milliseconds()), wall))
	if res.Status != executor.StatusOK || string(res.Stdout) != "begin\nend\n" {
		return fmt.Errorf("got %s and %q, want that code which takes %v ends by itself", describe(res), res.Stdout, nap)
	}
	return nil
}

// cancelCases are about the caller's context.
func cancelCases() []Case {
	return []Case{
		{
			ID: "cancel/before", PerLanguage: true, Programs: []string{"remember", "recall"},
			Doc: "A run whose context has ended already does not begin: no result, and RanNo.",
			Positive: shared(func(t *T, s executor.Session) {
				ctx := t.over()
				res, err := s.Run(ctx, t.Program("remember", "value", t.own()), func(ev executor.Event) error {
					t.Errorf("the event %s of a run that must not begin", ev.Kind)
					return nil
				})
				t.isNo("a run with a context that has ended", err, context.Canceled)
				t.noResult("the run", res)
				if got := t.stdout(s, t.Program("recall")); got == "" || got == t.own() {
					t.Errorf("after a run that must not begin: got %q, want what was there before", got)
				}
			}),
		},
		{
			ID: "cancel/during", PerLanguage: true, Programs: []string{"spin", "remember", "recall"},
			Doc:      "When the context ends the code is stopped: the error has its kind and RanYes, the result StatusCanceled; the session goes on.",
			Positive: cancels(context.Canceled),
		},
		{
			ID: "cancel/deadline", PerLanguage: true, Programs: []string{"spin", "remember", "recall"},
			Doc:      "The deadline of the context is not a timeout of the code: the error is DeadlineExceeded, the status canceled.",
			Positive: cancels(context.DeadlineExceeded),
		},
		{
			ID: "cancel/output-kept", PerLanguage: true, Needs: []executor.Feature{executor.FeatureStreaming}, Programs: []string{"spin"},
			Doc: "What code wrote before it was cancelled is in the result.",
			Positive: func(t *T) {
				run := t.begin(t.Shared(), limited(t.Program("spin", "text", "before"), 25*time.Second))
				if res, _ := run.stop(); res == nil || string(res.Stdout) != "before\n" {
					t.Errorf("got %s, want a result with what was printed before", run.outcome())
				}
			},
		},
		{
			ID: "cancel/code-stops", PerLanguage: true, Needs: []executor.Feature{executor.FeatureFiles}, Programs: []string{"tick-file", "print"},
			Doc: "Code of a run that is reported as cancelled no longer does anything.",
			Positive: shared(func(t *T, s executor.Session) {
				run := t.begin(s, limited(t.Program("tick-file", "name", "ticks"), 25*time.Second))
				res, _ := run.stop()
				if res != nil && res.Status == executor.StatusLost {
					t.Fatalf("got %s, want that a backend which is not disturbed can stop code", run.outcome())
				}
				t.still(s, "ticks")
				t.says(s, t.Program("print", "text", "next"), "next")
			}),
		},
		{
			ID: "cancel/swallow", PerLanguage: true, Programs: []string{"swallow", "remember", "recall"},
			Doc: "Code that swallows interrupts is cancelled all the same.",
			Positive: remembering(func(t *T, s executor.Session) {
				run := t.begin(s, limited(t.Program("swallow", "text", "ready"), 30*time.Second))
				t.aftermath(s, run.canceled(10*time.Second))
			}),
		},
	}
}

// cancels ends the context of a run in progress by one of its two errors.
func cancels(kind error) func(*T) {
	return remembering(func(t *T, s executor.Session) {
		var res *executor.Result
		var err error
		req := limited(t.Program("spin", "text", "ready"), 25*time.Second)
		if errors.Is(kind, context.DeadlineExceeded) {
			// Long enough for the code to start, since before that there would be no result.
			t.inTime(1500*time.Millisecond, func(enough time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), enough)
				defer cancel()
				start := time.Now()
				res, err = s.Run(ctx, req, nil)
				t.prompt("stopping the code", start, enough+6*time.Second)
				if e := (*executor.Error)(nil); errors.As(err, &e) && e.Ran == executor.RanNo {
					return fmt.Errorf("the code did not start before the deadline: %w", err)
				}
				return nil
			})
		} else {
			run := t.begin(s, req)
			run.cancel()
			res, err = run.wait(5 * time.Second)
		}
		t.is("a run whose context ended", err, kind, executor.RanYes)
		t.notRetryable(err)
		if res == nil {
			t.Fatalf("no result of a run that had started")
		}
		t.ended(res, executor.StatusCanceled, "")
		t.aftermath(s, res)
	})
}
