package sessions_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// skewed is a Store with a clock, as a process sees it whose clock is ahead of that.
type skewed struct {
	sessions.Store
	ahead time.Duration
}

func (s *skewed) Now(context.Context) (time.Time, error) { return time.Now().Add(-s.ahead), nil }

func (s *skewed) Get(ctx context.Context, key string) (sessions.Entry, error) {
	e, err := s.Store.Get(ctx, key)
	if !e.Expires.IsZero() {
		e.Expires = e.Expires.Add(-s.ahead)
	}
	return e, err
}

func (s *skewed) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	if !e.Expires.IsZero() {
		e.Expires = e.Expires.Add(s.ahead)
	}
	return s.Store.Put(ctx, key, e)
}

// TestReapOfWrongClocks: a process whose clock differs from that of the store by more than a lease
// removes nothing and says so, and the others know that it lives. The backend cannot tell who is
// connected.
func TestReapOfWrongClocks(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Hour, -2 * time.Hour, 31 * time.Second, -31 * time.Second, 29 * time.Second, 0} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				w.b.Fail(fake.OpLastContact, -1, driver.Fail(executor.ErrUnsupported, executor.RanNo, nil))
				shared := w.store
				w.store = &skewed{shared, ahead}
				wrong := w.start("wrong")
				w.store = &skewed{shared, 0}
				right, gone := w.start("right"), w.start("gone")
				for _, p := range []*process{wrong, right, gone} {
					_, err := p.x.Create(w.Context(), executor.Spec{IdleTTL: 24 * time.Hour})
					w.do(err)
				}
				synctest.Wait()
				time.Sleep(5 * time.Minute)
				gone.kill()
				time.Sleep(2 * time.Minute)
				left := 3
				for i, err := range wrong.m.Reap(w.Context(), time.Minute, false) {
					if ahead.Abs() <= 30*time.Second {
						left--
						continue
					}
					if !errors.Is(err, executor.ErrUnavailable) || !strings.Contains(err.Error(), "the clock of this machine is "+ahead.Abs().String()) || i.Handle.Session != "" {
						w.Errorf("got %q, %v", i.Handle.Session, err)
					}
				}
				if got := len(w.b.Sandboxes()); got != left || left < 2 {
					w.Errorf("%d sandboxes are left, want %d", got, left)
				}
				right.reap(time.Minute)
				if got := len(w.b.Sandboxes()); got != 2 {
					w.Errorf("%d sandboxes are left, want those of the two that live", got)
				}
				w.do(wrong.x.Close())
				w.do(right.x.Close())
			})
		})
	}
}
