package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/waittest"
)

// ownEngine starts an engine that the test may break, with an image in it.
func ownEngine(t *testing.T) *dockertest.Engine {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root starts engines")
	}
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		t.Fatal(err)
	}
	e, err := dockertest.Start(t.Context(), dockertest.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := dockertest.CopyImage(t.Context(), host, e.Host, dockertest.Trixie); err != nil {
		t.Fatal(err)
	}
	return e
}

// The engine dies, hangs or is restarted in the middle of a run: the error says that the code was
// running, nothing of this process waits for ever, and when the engine is back the next session
// works.
func TestBrokenEngine(t *testing.T) {
	e := ownEngine(t)
	for _, c := range []struct {
		name    string
		breaks  func(t *testing.T)
		restore func(t *testing.T)
	}{
		{
			name:    "dies",
			breaks:  func(t *testing.T) { check(t, e.Kill(t.Context())) },
			restore: func(t *testing.T) { check(t, e.Restart(t.Context())) },
		},
		{
			name:    "restarts",
			breaks:  func(t *testing.T) { check(t, e.Stop(t.Context())); check(t, e.Restart(t.Context())) },
			restore: func(*testing.T) {},
		},
		{
			name:    "hangs",
			breaks:  func(t *testing.T) { check(t, e.Freeze(t.Context())) },
			restore: func(t *testing.T) { check(t, e.Thaw()) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(leaktest.Others())
			x := openAt(t, e.Host, func(cfg *Config) { cfg.Image = dockertest.Trixie })
			s := create(t, x, executor.Spec{MaxRun: executor.RunLimits{WallTime: time.Hour}})
			says(t, s, "print('ready')", "ready")
			// Only an engine that hangs has to be given up, and not while it works, however slowly.
			hasty, req := x, executor.Request{Code: "import time\nprint('on', flush=True)\nwhile True: time.sleep(1)", Limits: executor.RunLimits{WallTime: time.Hour}}
			if c.name == "hangs" {
				hasty = openAt(t, e.Host, func(cfg *Config) { cfg.Image, cfg.Timeout = dockertest.Trixie, driver.Duration(2*time.Second) })
				h := s.Info().Handle
				check(t, s.Detach())
				waittest.Until(t, "the session is attached", func() (err error) {
					s, err = hasty.Attach(t.Context(), h)
					return err
				})
				req.Limits.WallTime = 4 * time.Second // the supervisor's last word is not heard
			}
			res, err := s.Run(t.Context(), req, func(ev executor.Event) error {
				if ev.Kind == executor.EventStdout {
					c.breaks(t)
				}
				return nil
			})
			var failure *executor.Error
			if !errors.As(err, &failure) || failure.Kind != executor.ErrUnavailable || failure.Ran != executor.RanYes {
				t.Errorf("got %v, want ErrUnavailable with RanYes", err)
			}
			if res == nil || res.Status != executor.StatusLost || res.Stdout.String() != "on\n" {
				t.Errorf("got %+v, want lost, with what was printed", res)
			}
			if c.name != "restarts" {
				if _, err := hasty.Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrUnavailable) || !executor.Retryable(err) {
					t.Errorf("create meanwhile: got %v, want ErrUnavailable", err)
				}
			}
			c.restore(t)
			n := create(t, x, executor.Spec{})
			says(t, n, "print(6*7)", "42")
			check(t, n.Close())
			waittest.Until(t, "the session is closed", s.Close)
			check(t, hasty.Close())
			check(t, x.Close())
			waittest.Until(t, "no goroutine is left", func() error {
				if n := len(leaktest.Others()); n > before {
					return fmt.Errorf("got %d, before %d", n, before)
				}
				return nil
			})
		})
	}
}

// A user who may not use the engine is told so, and by whom it can be changed.
func TestNoRight(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody with fewer rights")
	}
	host, l := listen(t)
	t.Cleanup(func() { l.Close() })
	e := &engine{at: endpoint{host: host, from: "test"}}
	runtime.LockOSThread() // the user of file operations belongs to the thread
	defer runtime.UnlockOSThread()
	check(t, syscall.Setfsuid(65534))
	err := e.diagnose(t.Context(), errors.New("refused"))
	check(t, syscall.Setfsuid(0))
	if !errors.Is(err, executor.ErrAuth) || !strings.Contains(err.Error(), "group docker") {
		t.Errorf("got %v, want ErrAuth with advice", err)
	}
}
