package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
)

// cloud is the control plane of a service in memory, that knows whose its sandboxes are.
type cloud struct {
	mu     sync.Mutex
	living map[string]string // owners, by ID
	made   int
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, id, _ := strings.Cut(r.URL.Path, "/sandboxes/")
	switch {
	case r.Header.Get("X-Api-Key") != "e2b_key_of_the_test":
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodPost:
		c.made++
		id := fmt.Sprintf("i%d", c.made)
		c.living[id] = r.Header.Get("Owner")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"sandboxID":%q}`, id)
	case r.Method == http.MethodDelete:
		delete(c.living, id)
		w.WriteHeader(http.StatusNoContent)
	default:
		var ids []string
		for id, owner := range c.living {
			if owner == r.Header.Get("Owner") {
				ids = append(ids, id)
			}
		}
		if err := json.NewEncoder(w).Encode(ids); err != nil {
			panic(err)
		}
	}
}

// client is a backend over a cloud that creates and forgets.
type client struct {
	executor.BaseExecutor
	at, owner string
}

func (c *client) ask(ctx context.Context, method, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, method, c.at+path, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("X-API-KEY", "e2b_key_of_the_test")
	r.Header.Set("Owner", c.owner)
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := hc.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode >= 300:
		return errors.New(res.Status)
	case into == nil:
		return nil
	}
	return json.Unmarshal(data, into)
}

func (c *client) Info() executor.Info { return executor.Info{Name: "cloud", Type: "e2b"} }

func (c *client) Create(ctx context.Context, _ executor.Spec) (executor.Session, error) {
	if err := c.ask(ctx, http.MethodPost, "/v2/sandboxes", nil); err != nil {
		return nil, err
	}
	return nil, errors.New("made and forgotten")
}

func (c *client) Attach(context.Context, executor.Handle) (executor.Session, error) {
	return nil, executor.ErrUnsupported
}

func (c *client) Destroy(ctx context.Context, h executor.Handle) error {
	return c.ask(ctx, http.MethodDelete, "/sandboxes/"+h.Session, nil)
}

func (c *client) Sessions(ctx context.Context, _ map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		var ids []string
		if err := c.ask(ctx, http.MethodGet, "/v2/sandboxes", &ids); err != nil {
			yield(executor.SessionInfo{}, err)
		}
		for _, id := range ids {
			if !yield(executor.SessionInfo{Handle: executor.Handle{Session: id}}, nil) {
				return
			}
		}
	}
}

func (c *client) Close() error { return nil }

// TestReapsWhateverHappens ends runs in several ways over a backend that forgets what it creates.
func TestReapsWhateverHappens(t *testing.T) {
	t.Setenv("LIVE_TEST_KEY", "e2b_key_of_the_test")
	for name, c := range map[string]struct {
		progress func(context.CancelCauseFunc)
		budget   float64
		panics   bool
		stopped  string
	}{
		"failed-suite": {},
		"panic":        {progress: func(context.CancelCauseFunc) { panic("of the test") }, panics: true},
		"interrupted":  {progress: func(stop context.CancelCauseFunc) { stop(errors.New("stopped by the test")) }, stopped: "stopped by the test"},
		"money":        {budget: 0.05, stopped: errMoney.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			// One of an earlier run, and one of somebody else.
			cl := &cloud{living: map[string]string{"i100": "me.live.other", "i101": "somebody"}}
			srv := httptest.NewServer(cl)
			defer srv.Close()
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			budget := 2.0
			if c.budget > 0 {
				budget = c.budget
			}
			o := Options{ // and a backend that reaches the cloud through the proxy
				Type: "e2b", Owner: "me.live", Dir: t.TempDir(), Bounds: Bounds{USD: budget, Sandboxes: 20, Time: time.Minute},
				Settings: map[string]json.RawMessage{"api_url": json.RawMessage(fmt.Sprintf("%q", srv.URL)), "api_key": json.RawMessage(`{"env":"LIVE_TEST_KEY"}`)},
				Open: func(_ context.Context, settings map[string]json.RawMessage, owner string) (executor.Executor, error) {
					c := &client{owner: owner}
					return c, json.Unmarshal(settings["api_url"], &c.at)
				},
				Target: conformance.Target{
					Implementation: conformance.Implementation{Name: "cloud", Version: "1"}, Mode: conformance.Fake,
					Programs: []conformance.Programs{{Language: executor.Python, Source: map[string]string{}}}, Child: []string{},
					Only: []string{"create/*", "python/create/*"},
				},
				Traps: []string{"none"},
			}
			if c.progress != nil {
				o.Target.Progress = func(conformance.Line) {
					cl.mu.Lock()
					made := cl.made
					cl.mu.Unlock()
					if made > 0 {
						c.progress(stop)
					}
				}
			}
			var r *Result
			var err error
			panicked := func() (p any) {
				defer func() { p = recover() }()
				r, err = Run(ctx, o)
				return nil
			}()
			if (panicked != nil) != c.panics {
				t.Fatalf("got a panic of %v", panicked)
			}
			cl.mu.Lock()
			defer cl.mu.Unlock()
			if cl.made == 0 || len(cl.living) != 1 || cl.living["i101"] == "" {
				t.Errorf("made %d, left %v, want what is somebody else's alone", cl.made, cl.living)
			}
			if c.panics {
				return
			}
			if r == nil || r.Before != 1 || r.Spent.Sandboxes != cl.made || r.Holds() || !strings.Contains(r.Stopped, c.stopped) || (c.stopped == "") != (r.Stopped == "") {
				t.Errorf("made %d, got %+v, %v", cl.made, r, err)
			}
		})
	}
}
