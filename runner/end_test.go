package runner_test

import (
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// TestAfterEnd: a session hears that its sandbox has ended, or has another holder, and not of what
// it does itself.
func TestAfterEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, l *local, x executor.Executor, s executor.Session){
		"killed": func(t *testing.T, l *local, _ executor.Executor, s executor.Session) {
			if err := l.boxes[s.Info().Handle.Session].cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		},
		"idle": func(t *testing.T, _ *local, _ executor.Executor, s executor.Session) {
			if _, err := s.KeepAlive(t.Context(), 100*time.Millisecond); err != nil {
				t.Error(err)
			}
		},
		"fenced": func(t *testing.T, _ *local, x executor.Executor, s executor.Session) {
			h := s.Info().Handle
			h.Fence = 7
			later, err := x.Attach(t.Context(), h)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { later.Close() })
		},
		"detached": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &local{}
			x := open(t, l)
			s := create(t, x)
			var e executor.Ender
			if !executor.As(s, &e) {
				t.Fatal("it is no Ender")
			}
			heard := make(chan struct{})
			stop := e.AfterEnd(func() { close(heard) })
			if end == nil {
				h := s.Info().Handle
				if err := s.Detach(); err != nil {
					t.Error(err)
				}
				if !stop() {
					t.Error("it heard of its own Detach")
				}
				if err := x.Destroy(t.Context(), h); err != nil {
					t.Error(err)
				}
				return
			}
			end(t, l, x, s)
			select {
			case <-heard:
			case <-time.After(time.Minute):
				t.Error("it has not heard of it")
			}
			again := make(chan struct{})
			e.AfterEnd(func() { close(again) })
			<-again
			s.Close()
		})
	}
}
