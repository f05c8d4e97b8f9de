package sessions_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// cutStore is a Store that a process cannot reach while cut is set.
type cutStore struct {
	sessions.Store
	cut atomic.Bool
}

var errCut = errors.New("the store cannot be reached")

func (s *cutStore) Get(ctx context.Context, key string) (sessions.Entry, error) {
	if s.cut.Load() {
		return sessions.Entry{}, errCut
	}
	return s.Store.Get(ctx, key)
}

func (s *cutStore) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	if s.cut.Load() {
		return "", errCut
	}
	return s.Store.Put(ctx, key, e)
}

// reap returns the IDs of the sandboxes that a process reaps.
func (p *process) reap(grace time.Duration) (ids []string) {
	p.w.Helper()
	for i, err := range p.m.Reap(p.w.Context(), grace, false) {
		if err != nil {
			p.w.Error(err)
			continue
		}
		ids = append(ids, i.Handle.Session)
	}
	return ids
}

// TestReapSparesWhatIsInUse: a process that has only lost the store keeps the sandboxes that it
// holds, used or not, until they end by their idle TTL. A minute after the end of its connections
// they are reaped.
func TestReapSparesWhatIsInUse(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		shared := w.store
		lost := &cutStore{Store: shared}
		w.store = lost
		one := w.start("one")
		w.store = shared
		two := w.start("two")
		create := func() executor.Session {
			s, err := one.x.Create(w.Context(), executor.Spec{MaxRun: executor.RunLimits{WallTime: time.Hour}, IdleTTL: 3 * time.Hour})
			w.do(err)
			return s
		}
		busy, idle := create(), create()
		synctest.Wait()
		lost.cut.Store(true)
		ended := make(chan *executor.Result)
		go func() {
			r, err := busy.Run(context.Background(), executor.Request{Code: "sleep(600000)\nprint(1)", Limits: executor.RunLimits{WallTime: time.Hour}}, nil)
			if err != nil {
				w.Error(err)
			}
			ended <- r
		}()
		time.Sleep(5 * time.Minute)
		if ids := two.reap(time.Minute); len(ids) > 0 {
			w.Errorf("reaped %q, which the process that lost the store holds", ids)
		}
		if r := <-ended; r == nil || r.Status != executor.StatusOK {
			w.Errorf("the run ended as %+v", r)
		}
		if n := w.b.Calls(fake.OpAttach); n > 0 {
			w.Errorf("the look-up attached %d times", n)
		}
		one.kill()
		time.Sleep(59 * time.Second)
		if ids := two.reap(0); len(ids) > 0 {
			w.Errorf("reaped %q within a minute", ids)
		}
		time.Sleep(2 * time.Second)
		if ids := two.reap(time.Hour); len(ids) > 0 {
			w.Errorf("reaped %q, which are younger than the grace", ids)
		}
		if ids := two.reap(time.Minute); len(ids) != 2 {
			w.Errorf("reaped %q, want the two of the process that has ended", ids)
		}
		for _, s := range []executor.Session{busy, idle} {
			w.do(s.Close())
		}
	})
}

// TestReapPartitionedForEver: the idle TTL ends a sandbox that its holder does not use, however
// long the holder stays connected.
func TestReapPartitionedForEver(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		one, two := w.start("one"), w.start("two")
		s, err := one.x.Create(w.Context(), executor.Spec{IdleTTL: time.Hour})
		w.do(err)
		one.m.Crash() // the store no longer hears of it, but it is still connected
		time.Sleep(59 * time.Minute)
		if ids := two.reap(time.Minute); len(ids) > 0 || len(w.b.Sandboxes()) != 1 {
			w.Errorf("reaped %q before the idle TTL", ids)
		}
		time.Sleep(2 * time.Minute)
		if left := w.b.Sandboxes(); len(left) > 0 {
			w.Errorf("%q outlived the idle TTL", left)
		}
		s.Close()
	})
}

// TestReapWhereNobodyCanTell: age and lease decide where the backend cannot tell who is connected,
// and a backend that does not answer keeps its sandboxes.
func TestReapWhereNobodyCanTell(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		reaped int
	}{
		"unsupported": {driver.Fail(executor.ErrUnsupported, executor.RanNo, nil), 1},
		"unavailable": {driver.Fail(executor.ErrUnavailable, executor.RanNo, nil), 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				one, two := w.start("one"), w.start("two")
				s, err := one.x.Create(w.Context(), executor.Spec{})
				w.do(err)
				one.m.Crash()
				time.Sleep(2 * time.Minute)
				w.b.Fail(fake.OpLastContact, -1, c.err)
				reaped := 0
				for i, err := range two.m.Reap(w.Context(), time.Minute, false) {
					if err == nil {
						reaped++
					} else if !errors.Is(err, c.err) && !errors.Is(err, executor.ErrUnavailable) || i.Handle.Session == "" {
						w.Errorf("%s: %v", i.Handle.Session, err)
					}
				}
				if reaped != c.reaped {
					w.Errorf("reaped %d, want %d", reaped, c.reaped)
				}
				s.Close()
			})
		})
	}
}
