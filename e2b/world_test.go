package e2b

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// world is an adapter and a stand-in over containers, with something between them that tests break.
type world struct {
	*testing.T
	*e2btest.Server
	owner string
	cache string
	x     executor.Executor
	b     *backend
	// hook answers requests in place of the server if it returns true.
	hook *atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler) bool]
}

// newWorld makes one. A container that is left when the test ends fails the test.
func newWorld(t *testing.T, edit ...func(*Config)) *world {
	t.Helper()
	return newWorldOver(t, containersWithRoom, edit...)
}

// newWorldOver is newWorld with sandboxes of a configuration.
func newWorldOver(t *testing.T, containers docker.Config, edit ...func(*Config)) *world {
	t.Helper()
	w := &world{T: t, owner: "e2b-" + strings.ToLower(rand.Text()), cache: t.TempDir(), hook: new(atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler) bool])}
	var err error
	w.Server, err = e2btest.Start(t.Context(), e2btest.Options{
		Owner: w.owner, Docker: containers, Jupyter: containers.Image == dockertest.Jupyter,
		Wrap: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if h := w.hook.Load(); h == nil || !(*h)(rw, r, next) {
					next.ServeHTTP(rw, r)
				}
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := emulated(w.URL)
	for _, f := range edit {
		f(&cfg)
	}
	env := driver.Env{Owner: w.owner, Instance: "here", CacheDir: w.cache}
	if w.b, err = newBackend(env, cfg); err != nil {
		t.Fatal(err)
	}
	if w.x, err = w.b.open(env); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer func() {
			if err := w.Server.Close(); err != nil {
				t.Error(err)
			}
		}()
		w.hook.Store(nil)
		w.SetFaults(e2btest.Faults{})
		if err := w.x.Close(); err != nil {
			t.Error(err)
		}
		host, err := dockertest.Host()
		if err != nil {
			t.Fatal(err)
		}
		// The stand-in removes what was killed; what nobody has killed is there until it closes.
		waittest.Until(t, "no container is left", func() error {
			left, err := dockertest.Containers(context.Background(), host, driver.LabelOwner+"="+w.owner)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("got %q", left)
			}
			return err
		})
	})
	return w
}

// in is w as a subtest sees it.
func (w *world) in(t *testing.T) *world {
	of := *w
	of.T = t
	return &of
}

func (w *world) between(h func(rw http.ResponseWriter, r *http.Request, next http.Handler) bool) {
	w.hook.Store(&h)
}

func (w *world) session() executor.Session {
	w.Helper()
	s, err := w.x.Create(w.Context(), executor.Spec{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = s.Close() }) // the world sees what is left
	return s
}

// outcome is what became of a run.
type outcome struct {
	res     *executor.Result
	err     error
	started bool
}

func (w *world) run(s executor.Session, code string) (o outcome) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 3*time.Minute)
	defer cancel()
	o.res, o.err = s.Run(ctx, executor.Request{Code: code}, func(e executor.Event) error {
		o.started = o.started || e.Kind == executor.EventStarted
		return nil
	})
	return o
}

// count returns what the interpreter has counted, when it is done with what it was doing.
func (w *world) count(s executor.Session) (n string) {
	w.Helper()
	waittest.Until(w, "the interpreter is free", func() error {
		o := w.run(s, "print(n)")
		switch {
		case o.err == nil && o.res.Status != executor.StatusOK:
			w.Fatalf("got %+v", o.res)
		case o.err == nil:
			n = strings.TrimSpace(string(o.res.Stdout))
		case !errors.Is(o.err, executor.ErrBusy) && !executor.Retryable(o.err):
			w.Fatal(o.err)
		}
		return o.err
	})
	return n
}
