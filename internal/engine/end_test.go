package engine_test

import (
	"testing"
	"testing/synctest"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// TestAfterEnd: a session does not hear of the end that its own Close or Detach is.
func TestAfterEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(b *fake.Backend, s executor.Session) error
		want int
	}{
		"broken": {func(b *fake.Backend, s executor.Session) error { b.Break(s.Info().Handle.Session); return nil }, 1},
		"closed": {func(_ *fake.Backend, s executor.Session) error { return s.Close() }, 0},
		"detached": {func(b *fake.Backend, s executor.Session) error {
			err := s.Detach()
			b.Break(s.Info().Handle.Session)
			return err
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fake.New(fake.Options{})
				x, err := b.Open(driver.Env{})
				if err != nil {
					t.Fatal(err)
				}
				defer x.Close()
				s := create(t, x, executor.Spec{})
				var e executor.Ender
				if !executor.As(s, &e) {
					t.Fatal("it is no Ender")
				}
				heard := 0
				e.AfterEnd(func() { heard++ })
				stop := e.AfterEnd(func() { t.Error("a call that was prevented") })
				if !stop() {
					t.Error("it was not prevented")
				}
				if err := c.end(b, s); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if heard != c.want {
					t.Errorf("heard %d times, want %d", heard, c.want)
				}
				s.Close()
			})
		})
	}
}
