package cases

import (
	"errors"
	"fmt"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// ttlCases are about the lives of sandboxes.
func ttlCases() []Case {
	const idle = 2 * time.Second
	none := func(t *T) {
		t.Refused("keep-alive", errorOf(t.Shared().KeepAlive(t.Context(), time.Minute)), executor.FeatureKeepAlive)
	}
	return []Case{
		{
			ID: "ttl/idle", PerLanguage: true, Programs: []string{"print"},
			Doc: "A sandbox ends when it was not used for its idle TTL, and looking at it is not use.",
			Positive: func(t *T) {
				var s executor.Session
				t.inTime(idle, func(idle time.Duration) error {
					created := time.Now()
					s, idle = t.sessionFor(idle, idleFor)
					start := time.Now()
					if res, err := s.Run(t.Context(), t.Program("print", "text", "x"), nil); errors.Is(err, executor.ErrNotFound) && time.Since(created) >= idle {
						return fmt.Errorf("the sandbox has ended before its first run: %w", err)
					} else if err != nil || string(res.Stdout) != "x\n" {
						t.Fatalf("got %v, %v, want an ordinary run", res, err)
					}
					t.Eventually(idle+3*time.Second, "the idle sandbox ends", func() bool { return t.gone(s) })
					if lived := time.Since(start); lived < idle {
						t.Errorf("the sandbox ended after %v, before its idle TTL of %v", lived, idle)
					}
					return nil
				})
				res, err := s.Run(t.Context(), t.Program("print", "text", "x"), nil)
				t.isNo("a run in a sandbox that ended", err, executor.ErrNotFound)
				t.noResult("the run", res)
				t.noError(s.Close(), "close of a session whose sandbox ended")
			},
		},
		{
			ID: "ttl/run-is-use", PerLanguage: true, Programs: []string{"nap", "print"},
			Doc: "A run in progress is use, and the idle TTL counts anew after it.",
			Positive: func(t *T) {
				t.inTime(idle, func(idle time.Duration) error {
					used := time.Now()
					s, idle := t.sessionFor(idle, idleFor)
					says := func(req executor.Request, want string) error {
						res, err := s.Run(t.Context(), req, nil)
						if e := (*executor.Error)(nil); errors.As(err, &e) && e.Kind == executor.ErrNotFound && e.Ran == executor.RanNo && time.Since(used) >= idle {
							return fmt.Errorf("the sandbox has ended before a run: %w", err)
						}
						t.must(err, "run")
						t.printed(res, want)
						return nil
					}
					nap, began := idle*7/4, time.Now()
					if err := says(limited(t.Program("nap", "ms", nap.Milliseconds()), nap+20*time.Second), "begin\nend\n"); err != nil {
						return err
					}
					used = began.Add(nap) // at the earliest; this process may have been told later
					return says(t.Program("print", "text", "alive"), "alive\n")
				})
			},
		},
		{
			ID: "ttl/max-life", PerLanguage: true, Programs: []string{"spin"},
			Doc: "A sandbox ends at its maximum life although it is in use: the run is killed with ReasonLifetime.",
			Positive: func(t *T) {
				noLimit := t.Executor().Info().Capabilities.MaxRun.WallTime == 0
				var start time.Time
				s, life := t.sessionFor(3*time.Second, func(life time.Duration) func(*executor.Spec) {
					start = time.Now()
					return func(spec *executor.Spec) {
						spec.MaxLife = life
						if noLimit {
							spec.Run.WallTime = executor.NoLimit
						}
					}
				})
				if noLimit { // else no run fits into so short a life
					run := t.start(s, t.Program("spin", "text", "ready"), nil)
					res, err := run.wait(life + 5*time.Second)
					// A start that takes as long as the life is over before it.
					if e := (*executor.Error)(nil); errors.As(err, &e) && e.Kind == executor.ErrNotFound && e.Ran == executor.RanNo && !run.seen(executor.EventStarted) {
						t.Logf("the interpreter did not start within the life of %v", life)
					} else {
						sandboxEnded(t, "the run", res, err)
					}
				}
				t.Eventually(life+5*time.Second, "the sandbox ends", func() bool { return t.gone(s) })
				if lived := time.Since(start); lived < life*9/10 {
					t.Errorf("the sandbox ended after %v, before its maximum life of %v", lived, life)
				}
				_, err := s.Run(t.Context(), limited(t.Program("spin", "text", "x"), time.Second), nil)
				if !errors.Is(err, executor.ErrNotFound) && !errors.Is(err, executor.ErrInvalid) {
					t.Errorf("a run after the end: got %v, want ErrNotFound, or ErrInvalid since it cannot fit", err)
				}
			},
		},
		{
			ID: "ttl/too-long-a-run", PerLanguage: true, Programs: []string{"remember", "recall"},
			Doc: "A run whose wall time does not fit into what is left of the life of the sandbox is ErrInvalid, and does not begin.",
			Positive: func(t *T) {
				s := t.Session(func(spec *executor.Spec) {
					spec.MaxLife, spec.Run.WallTime = 2*time.Minute, time.Second
					spec.MaxRun.WallTime = t.longest(10 * time.Minute)
				})
				wall := t.longest(10 * time.Minute)
				if wall < 2*time.Minute {
					t.Logf("no run of this backend is longer than the life")
					return
				}
				t.runFails("a run that is longer than the life", s, limited(t.Program("remember", "value", kept), wall), executor.ErrInvalid)
				t.says(s, t.Program("recall"), "absent")
			},
		},
		{
			ID: "keep-alive/extend", Feature: executor.FeatureKeepAlive, Programs: []string{"print"},
			Doc: "KeepAlive sets the idle TTL, counts it from now and tells when the sandbox will end, longer and shorter.",
			Positive: func(t *T) {
				var s executor.Session
				t.inTime(idle, func(idle time.Duration) error {
					created := time.Now()
					s, idle = t.sessionFor(idle, idleFor)
					for _, ttl := range []time.Duration{idle + 18*time.Second, idle} {
						start := time.Now()
						end, err := s.KeepAlive(t.Context(), ttl)
						if ttl > idle && errors.Is(err, executor.ErrNotFound) && time.Since(created) >= idle {
							return fmt.Errorf("the sandbox has ended before its TTL was set: %w", err)
						}
						t.must(err, "keep-alive")
						if d := end.Sub(start.Add(ttl)).Abs(); d > t.Grace() {
							t.Errorf("got the end %v, want %v after the call at %v", end, ttl, start)
						}
						if ttl > idle {
							// Not a sleep for effect: that it still lives can be seen only when its
							// first TTL is over.
							time.Sleep(idle + 2*time.Second)
							t.says(s, t.Program("print", "text", "alive"), "alive")
						}
					}
					t.Eventually(idle+3*time.Second, "the sandbox ends by its shorter TTL", func() bool { return t.gone(s) })
					return nil
				})
				t.isNo("keep-alive of a sandbox that ended", errorOf(s.KeepAlive(t.Context(), time.Minute)), executor.ErrNotFound)
			},
			Negative: none,
		},
		{
			ID: "keep-alive/invalid", Feature: executor.FeatureKeepAlive,
			Doc: "KeepAlive by nothing, or by less, is ErrInvalid.",
			Positive: shared(func(t *T, s executor.Session) {
				for _, d := range []time.Duration{0, -time.Second} {
					t.isNo("keep-alive by "+d.String(), errorOf(s.KeepAlive(t.Context(), d)), executor.ErrInvalid)
				}
			}),
			Negative: none,
		},
	}
}

// sessionFor creates a session that lives, or is idle, for a short time, and returns it with that
// time: longer where a busy machine takes longer to start it than it may live.
func (t *T) sessionFor(short time.Duration, edit func(time.Duration) func(*executor.Spec)) (executor.Session, time.Duration) {
	for longest := 8 * short; ; short *= 2 {
		s, err := t.Executor().Create(t.Context(), t.Spec(edit(short)))
		if !errors.Is(err, executor.ErrNotFound) && !errors.Is(err, executor.ErrUnavailable) || short >= longest {
			return t.Created(s, err), short
		}
	}
}

// longest returns d, or the longest wall time of the backend if that is less.
func (t *T) longest(d time.Duration) time.Duration {
	if m := t.Executor().Info().Capabilities.MaxRun.WallTime; m > 0 {
		return min(m, d)
	}
	return d
}

// gone reports whether the sandbox of a session has ended.
func (t *T) gone(s executor.Session) bool {
	i, err := s.Refresh(t.Context())
	if err != nil && !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("refresh: got %v, want no error or ErrNotFound", err)
	}
	return err != nil || i.State == executor.SessionDead
}
