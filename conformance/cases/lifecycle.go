package cases

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// lifecycleCases are about the ends of sessions and Executors.
func lifecycleCases() []Case {
	return []Case{
		{
			ID: "close/session", PerLanguage: true, Programs: []string{"print"},
			Doc: "Close ends the session: every later call fails with ErrClosed and RanNo, and Close itself may be repeated.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.ok(s, t.Program("print", "text", "x"))
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						t.noError(s.Close(), "close")
					})
				}
				wg.Wait()
				closedSession(t, s)
			}),
		},
		{
			ID: "close/destroy", PerLanguage: true, Programs: []string{"spin"},
			Doc: "Destroy of a session that the Executor itself holds ends it, with a run in progress, and needs no feature.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.endsRun(s, func() error { return t.Executor().Destroy(t.Context(), s.Info().Handle) })
				_, err := s.Run(t.Context(), executor.Request{Language: t.Language()}, nil)
				if !errors.Is(err, executor.ErrNotFound) && !errors.Is(err, executor.ErrClosed) {
					t.Errorf("a run after destroy: got %v, want ErrNotFound or ErrClosed", err)
				}
			}),
		},
		{
			ID:  "close/during-create",
			Doc: "Closing an Executor while it creates a sandbox leaves none.",
			Positive: func(t *T) {
				x := t.Open(nil)
				created := make(chan error, 1)
				go func() { // it is waited for below
					s, err := x.Create(t.Context(), t.Spec())
					if err == nil {
						_, err = s.Run(t.Context(), executor.Request{Language: t.Language()}, nil)
					}
					created <- err
				}()
				t.noError(x.Close(), "close")
				// It may have been faster, down to the end of its run; else it is told.
				if err := <-created; err != nil && !errors.Is(err, executor.ErrClosed) && !errors.Is(err, executor.ErrNotFound) {
					t.Errorf("create of an Executor that was closed: got %v, want ErrClosed", err)
				}
				t.eventuallyNone("what was half made is removed")
			},
		},
		{
			ID: "close/during-run", PerLanguage: true, Programs: []string{"spin"},
			Doc: "Close during a run ends the run, which says so.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.endsRun(s, s.Close)
			}),
		},
		{
			ID: "close/executor", PerLanguage: true, Programs: []string{"print"},
			Doc: "Close of an Executor destroys its sessions; then calls fail with ErrClosed, and Close may be repeated.",
			Positive: func(t *T) {
				x := t.Open(nil)
				var sessions []executor.Session
				for range 2 {
					s := t.Created(x.Create(t.Context(), t.Spec()))
					sessions = append(sessions, s)
				}
				t.ok(sessions[0], t.Program("print", "text", "x"))
				for range 2 {
					t.noError(x.Close(), "close")
				}
				for _, s := range sessions {
					closedSession(t, s)
				}
				t.isNo("create after close", errorOf(x.Create(t.Context(), t.Spec())), executor.ErrClosed)
				t.eventuallyNone("the sandboxes are gone")
			},
		},
		{
			ID: "close/executor-during-run", PerLanguage: true, Programs: []string{"spin"},
			Doc: "Close of an Executor ends runs in progress.",
			Positive: func(t *T) {
				x := t.Open(nil)
				s := t.Created(x.Create(t.Context(), t.Spec()))
				t.endsRun(s, x.Close)
			},
		},
		{
			ID: "refresh/alive", PerLanguage: true, Programs: []string{"print"},
			Doc: "Refresh of a living session tells what Info did, before, between and after runs.",
			Positive: shared(func(t *T, s executor.Session) {
				for range 2 {
					i, err := s.Refresh(t.Context())
					t.must(err, "refresh")
					if i.Handle.Session != s.Info().Handle.Session || i.State != executor.SessionRunning || i.MaxRun != s.Info().MaxRun {
						t.Errorf("got %+v, want what Info tells: %+v", i, s.Info())
					}
					t.ok(s, t.Program("print", "text", "x"))
				}
			}),
		},
		{
			ID: "lifecycle/killed-host", PerLanguage: true, Programs: []string{"spin"}, Bound: 2 * time.Minute, Alone: true,
			Doc: "When the process that holds a session is killed in the middle of a run, the sandbox ends by its idle TTL.",
			Positive: func(t *T) {
				before := t.remains()
				c := t.StartChild("spin", nil)
				id := string(c.Receive())
				c.Kill()
				// Where the provider does not count use, the end was moved beyond what the run
				// might take, and the time to stop it.
				t.Eventually(30*time.Second, "the sandbox "+id+" of the killed process ends", func() bool {
					left := t.remains()
					return !slices.ContainsFunc(left, func(what string) bool { return !slices.Contains(before, what) })
				})
			},
		},
	}
}

// remains returns what there is of the sandboxes of the case, wherever the suite can look.
func (t *T) remains() (all []string) {
	if t.Has(executor.FeatureList) {
		for _, i := range t.listed(t.Executor()) {
			if i.State != executor.SessionDead { // that one ended, and waits to be removed
				all = append(all, "sandbox "+i.Handle.Session)
			}
		}
	}
	for k, name := range t.Processes() {
		all = append(all, "process "+k+" "+name)
	}
	return all
}

// closedSession checks that every method of a closed session says so, those for undeclared features
// by refusing.
func closedSession(t *T, s executor.Session) {
	ctx := t.Context()
	check := func(what string, err error, f executor.Feature) {
		if f != "" && !t.Has(f) && errors.Is(err, executor.ErrUnsupported) {
			return
		}
		t.isNo(what+" of a closed session", err, executor.ErrClosed)
	}
	res, err := s.Run(ctx, executor.Request{Language: t.Language()}, nil)
	check("run", err, "")
	if res != nil {
		t.Errorf("run of a closed session: got the result %s", describe(res))
	}
	_, err = s.Refresh(ctx)
	check("refresh", err, "")
	_, err = s.Install(ctx, executor.Packages{Language: t.Language(), Names: []string{"x"}}, nil)
	check("install", err, executor.FeaturePackages)
	check("reset", s.Reset(ctx, executor.Interpreter{}), executor.FeatureState)
	_, err = s.Files().Stat(ctx, ".")
	check("files.stat", err, executor.FeatureFiles)
	check("files.write", s.Files().Write(ctx, "a", strings.NewReader("x"), 0), executor.FeatureFiles)
	_, err = s.KeepAlive(ctx, time.Minute)
	check("keep-alive", err, executor.FeatureKeepAlive)
}

// endsRun ends a sandbox during a run of s, and checks what the run says.
func (t *T) endsRun(s executor.Session, end func() error) {
	run := t.spins(s)
	start := time.Now()
	t.must(end(), "ending the sandbox")
	t.prompt("ending the sandbox", start, 10*time.Second)
	res, err := run.wait(5 * time.Second)
	sandboxEnded(t, "the run", res, err, executor.ErrClosed)
}

// sandboxEnded checks what a run says whose sandbox ended under it: that it was killed, or that its
// end is not known, with an error of one of the kinds.
func sandboxEnded(t *T, what string, res *executor.Result, err error, kinds ...error) {
	switch {
	case err == nil && res == nil:
		t.Errorf("%s: neither a result nor an error", what)
	case err == nil:
		if res.Status != executor.StatusKilled || res.Reason != executor.ReasonLifetime && res.Reason != executor.ReasonSandbox {
			t.Errorf("%s: got %s, want killed with the reason lifetime", what, describe(res))
		}
	default:
		kinds = append(kinds, executor.ErrNotFound, executor.ErrUnavailable)
		if !slices.ContainsFunc(kinds, func(k error) bool { return errors.Is(err, k) }) {
			t.Errorf("%s: got the error %v, want one of %v", what, err, kinds)
		}
		var e *executor.Error
		if errors.As(err, &e) && e.Ran == executor.RanNo {
			t.Errorf("%s: the error says that the code has not run: %v", what, err)
		}
		if res != nil && res.Status != executor.StatusLost && res.Status != executor.StatusCanceled {
			t.Errorf("%s: got %s with the error %v, want the status lost or canceled", what, describe(res), err)
		}
	}
}

// children are the functions that cases call in another process.
func lifecycleChildren() map[string]Child {
	return map[string]Child{
		// spin creates a session with a short idle TTL, runs code in it that does not end, says so,
		// and waits to be killed.
		"spin": func(t *T, _ []byte) []byte {
			s, _ := t.sessionFor(2*time.Second, idleFor)
			t.begin(s, limited(t.Program("spin", "text", "ready"), 2*time.Second))
			t.Send([]byte(s.Info().Handle.Session))
			t.Receive()
			return nil
		},
	}
}
