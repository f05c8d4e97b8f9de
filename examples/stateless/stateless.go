//go:build unix

package stateless

import (
	"context"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// Type is what configuration calls this backend.
const Type = "unsafe-local"

// Config is what configuration says beside the type: here, nothing.
type Config struct{}

// Open opens the backend. Like every constructor of an adapter it does no remote I/O and returns what driver.New makes.
func Open(_ context.Context, env driver.Env, _ Config) (executor.Executor, error) {
	return driver.New(backend{}, env, driver.Options{Type: Type})
}

// Factory is for registries.
func Factory() driver.Factory { return driver.NewFactory(Type, Open, nil) }

// backend implements driver.Driver.
type backend struct{}

var _ driver.Driver = backend{}

// Capabilities declares what always works, and nothing else: the suite checks that the rest is refused or absent.
func (backend) Capabilities() executor.Capabilities {
	return executor.Capabilities{
		Isolation: executor.IsolationProcess,
		Features:  []executor.Feature{executor.FeatureCode, executor.FeatureNetworkFull},
		Languages: []executor.Runtime{{
			Language: executor.Python,
			Features: []executor.Feature{
				executor.FeatureStreaming, executor.FeatureEnv, executor.FeatureExitCode, executor.FeatureSubprocess, executor.FeatureThreads,
			},
		}},
		// Every run has a clock, so that NoLimit is refused.
		MaxRun: executor.RunLimits{WallTime: 24 * time.Hour},
	}
}

// Create makes a sandbox: here nothing but clocks that end it, since each run brings a process and a directory of its own.
func (backend) Create(_ context.Context, c *driver.Create) (driver.Session, error) {
	s := &session{id: c.ID, env: c.Spec.Env, ttl: c.Spec.IdleTTL, over: make(chan struct{})}
	s.idle = time.AfterFunc(s.ttl, s.end)
	if c.Spec.MaxLife > 0 {
		s.life = time.AfterFunc(c.Spec.MaxLife, s.end)
	}
	return s, nil
}

func (backend) Close() error { return nil }

// session implements driver.Session.
type session struct {
	id         string
	env        map[string]string
	ttl        time.Duration
	idle, life *time.Timer // life may be nil
	once       sync.Once
	over       chan struct{} // closed when the sandbox has ended
}

var _ driver.Session = (*session)(nil)

// end is the end of the sandbox, whoever brings it about.
func (s *session) end() { s.once.Do(func() { close(s.over) }) }

func (s *session) Info() executor.SessionInfo {
	i := executor.SessionInfo{Handle: executor.Handle{Session: s.id}, State: executor.SessionRunning}
	select {
	case <-s.over:
		i.State = executor.SessionDead
	default:
	}
	return i
}

func (s *session) Destroy(context.Context) error {
	s.end()
	s.idle.Stop()
	if s.life != nil {
		s.life.Stop()
	}
	return nil
}
