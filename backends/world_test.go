package backends_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// world has the backends "a", "b" and "c" in memory. Their type is "fake", with the setting on:
// NAME.
type world struct {
	*testing.T
	at   map[string]*fake.Backend
	reg  *backends.Registry
	wrap func(driver.Env, executor.Executor) executor.Executor // wraps the backends; nil: no wrapper
}

type fakeConfig struct {
	On string `json:"on"`
}

func newWorld(t *testing.T, opts fake.Options) *world {
	w := &world{T: t, at: map[string]*fake.Backend{}}
	for _, n := range []string{"a", "b", "c"} {
		w.at[n] = fake.New(opts)
	}
	w.reg = backends.NewRegistry(driver.NewFactory(fake.Type, func(_ context.Context, env driver.Env, c fakeConfig) (executor.Executor, error) {
		b, ok := w.at[c.On]
		if !ok {
			return nil, driver.At("on", errors.New("no such provider"))
		}
		x, err := b.Open(env)
		if err == nil && w.wrap != nil {
			x = w.wrap(env, x)
		}
		return x, err
	}, nil))
	return w
}

// bubble runs f in a synctest bubble and checks that nothing is left afterwards.
func bubble(t *testing.T, opts fake.Options, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, opts)
		f(w)
		for name, b := range w.at {
			if left := b.Sandboxes(); len(left) > 0 {
				t.Errorf("%d sandboxes left on %s", len(left), name)
			}
		}
	})
}

func (w *world) open(file string, opts ...backends.Option) *backends.Broker {
	w.Helper()
	return w.openAs("", file, opts...)
}

// openAs opens a broker that the caller closes with w.close.
func (w *world) openAs(instance, file string, opts ...backends.Option) *backends.Broker {
	w.Helper()
	b, err := backends.Open(w.Context(), driver.Env{Owner: "me", Instance: instance}, w.reg, parse(w.T, file), opts...)
	if err != nil {
		w.Fatal(err)
	}
	return b
}

func (w *world) close(b *backends.Broker) {
	w.Helper()
	if err := b.Close(); err != nil {
		w.Error(err)
	}
}

func (w *world) create(x executor.Executor, spec executor.Spec) executor.Session {
	w.Helper()
	s, err := x.Create(w.Context(), spec)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// says runs code and compares its output.
func (w *world) says(s executor.Session, code, want string) *executor.Result {
	w.Helper()
	r, err := s.Run(w.Context(), executor.Request{Code: code}, nil)
	if err != nil {
		w.Fatal(err)
	}
	if got := string(r.Stdout); got != want {
		w.Errorf("got %q, want %q", got, want)
	}
	return r
}

// fails checks that err has the kind and says that nothing ran.
func (w *world) fails(err, kind error) *executor.Error {
	w.Helper()
	var e *executor.Error
	if !errors.As(err, &e) || !errors.Is(e.Kind, kind) || e.Ran != executor.RanNo || e.Op == "" || e.Backend == "" {
		w.Fatalf("got %#v, want %v", err, kind)
	}
	return e
}

// unavailable is the error of a provider that is down.
var unavailable = driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("down"))
