package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// able is what an engine says that has everything.
func able() facts {
	return facts{apiVersion: minAPI, components: []string{"Engine", "containerd"}, info: system.Info{
		OSType: "linux", Architecture: "x86_64", MemoryLimit: true, SwapLimit: true, CPUCfsQuota: true, CPUCfsPeriod: true, PidsLimit: true,
		SecurityOptions: []string{"name=apparmor", "name=seccomp,profile=builtin"},
		Runtimes:        map[string]system.RuntimeWithStatus{"runc": {}},
		NCPU:            4, MemTotal: 8 << 30, CgroupVersion: "2",
	}}
}

func TestRefusedEngines(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*facts)
		cfg     Config
		missing []string
	}{
		"able":              {func(*facts) {}, Config{}, nil},
		"newer":             {func(f *facts) { f.apiVersion = "1.52" }, Config{Runtime: "runc"}, nil},
		"older":             {func(f *facts) { f.apiVersion = "1.40" }, Config{}, []string{"api>=1.41"}},
		"podman":            {func(f *facts) { f.components = []string{"Podman Engine", "Conmon"} }, Config{}, []string{"engine"}},
		"windows":           {func(f *facts) { f.info.OSType = "windows" }, Config{}, []string{"linux"}},
		"rootless":          {func(f *facts) { f.info.MemoryLimit, f.info.CPUCfsQuota, f.info.PidsLimit = false, false, false }, Config{}, []string{"limit-memory", "limit-cpu", "limit-processes"}},
		"no-seccomp":        {func(f *facts) { f.info.SecurityOptions = []string{"name=apparmor"} }, Config{}, []string{"seccomp"}},
		"seccomp-no-filter": {func(f *facts) { f.info.SecurityOptions = []string{"name=seccomp,profile=unconfined"} }, Config{}, []string{"seccomp"}},
		"no-runtime":        {func(*facts) {}, Config{Runtime: "runsc"}, []string{"runtime:runsc"}},
		"strict":            {func(*facts) {}, Config{StrictMemory: true}, nil},
		"strict-version-1":  {func(f *facts) { f.info.CgroupVersion = "1" }, Config{StrictMemory: true}, []string{"limit-memory"}},
		"strict-gvisor": {func(f *facts) {
			f.info.CgroupVersion, f.info.Runtimes = "1", map[string]system.RuntimeWithStatus{"runsc": {}}
		}, Config{StrictMemory: true, Runtime: "runsc"}, nil},
		"version-1": {func(f *facts) { f.info.CgroupVersion = "1" }, Config{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := able()
			c.edit(&f)
			err := f.refuse(&c.cfg)
			if c.missing == nil {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			var e *executor.Error
			if !errors.As(err, &e) || e.Kind != executor.ErrUnsupported || e.Ran != executor.RanNo || !slices.Equal(e.Missing, c.missing) || e.Err == nil {
				t.Errorf("got %#v, want missing %q", err, c.missing)
			}
		})
	}
}

// listen returns the address of a new Unix socket in a short directory and its listener.
func listen(t *testing.T) (string, net.Listener) {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "docker.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return "unix://" + path, l
}

// scripted is an engine that answers as a test says. It stands for engines that a test machine does
// not have.
func scripted(t *testing.T, routes map[string]http.HandlerFunc) *engine {
	t.Helper()
	host, l := listen(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", minAPI) })
	for pattern, h := range routes {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /v"+minAPI+path, h)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	s.Start()
	t.Cleanup(s.Close)
	c, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return newEngine(c, endpoint{host: host, from: "test"}, engineTimeout)
}

// answer writes JSON with a status.
func answer(status int, body any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(body) // a client that has gone is its own affair
	}
}

func message(text string) map[string]string { return map[string]string{"message": text} }

// An engine is asked to remove a few containers at a time, however many end together, and those
// that it is removing already are waited for without keeping others from it.
func TestRemovals(t *testing.T) {
	const many = 20
	var now, most atomic.Int32
	asked, release := make(chan struct{}), make(chan struct{})
	var refused sync.Map // names
	e := scripted(t, map[string]http.HandlerFunc{"DELETE /containers/{name}": func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		asked <- struct{}{}
		<-release
		if _, again := refused.LoadOrStore(r.PathValue("name"), true); !again {
			answer(409, message("removal is already in progress"))(w, r)
			return
		}
		w.WriteHeader(204)
	}})
	g, ctx := errgroup.WithContext(t.Context())
	for i := range many {
		g.Go(func() error { return e.destroy(ctx, strconv.Itoa(i)) })
	}
	for range maxRemovals {
		<-asked
	}
	release <- struct{}{}
	for range 2*many - maxRemovals {
		<-asked
		release <- struct{}{}
	}
	for range maxRemovals - 1 {
		release <- struct{}{}
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if got := most.Load(); got != maxRemovals {
		t.Errorf("got %d removals at once, want %d", got, maxRemovals)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range maxRemovals {
		e.removals <- struct{}{}
	}
	if err := e.destroy(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("given up in the queue: got %v", err)
	}
}

func TestImages(t *testing.T) {
	const name = "example.org/a:1"
	present := answer(200, map[string]any{"Id": "sha256:1", "Os": "linux", "Architecture": "amd64", "Config": map[string]any{"Volumes": map[string]any{"/data": nil, "/cache": nil}}})
	missing := answer(404, message("No such image"))
	lines := func(lines ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Join(lines, "\n")) }
	}
	for testName, c := range map[string]struct {
		policy   Pull
		inspect  []http.HandlerFunc // the answers in turn, then the last one again
		pull     http.HandlerFunc   // nil: must not be asked
		kind     error
		text     string
		progress []executor.Progress
	}{
		"present":       {policy: PullMissing, inspect: []http.HandlerFunc{present}},
		"present-never": {policy: PullNever, inspect: []http.HandlerFunc{present}},
		"never":         {policy: PullNever, inspect: []http.HandlerFunc{missing}, kind: executor.ErrUnavailable, text: "image example.org/a:1 is not there and pull is never; docker pull example.org/a:1 gets it"},
		"pulled": {
			inspect: []http.HandlerFunc{missing, present},
			pull: lines(`{"status":"Pulling from a","id":"1"}`, `{"status":"Downloading","id":"x","progressDetail":{"current":1,"total":10}}`,
				`{"status":"Downloading","id":"y","progressDetail":{"current":5,"total":20}}`, `{"status":"Extracting","id":"x","progressDetail":{"current":9,"total":10}}`,
				`{"status":"Downloading","id":"x","progressDetail":{"current":10,"total":10}}`),
			progress: []executor.Progress{{What: "pulling " + name, Done: 1, Total: 10}, {What: "pulling " + name, Done: 6, Total: 30}, {What: "pulling " + name, Done: 15, Total: 30}},
		},
		"always":       {policy: PullAlways, inspect: []http.HandlerFunc{present}, pull: lines(`{"status":"Status: Image is up to date"}`)},
		"always-fails": {policy: PullAlways, inspect: []http.HandlerFunc{present}, pull: answer(500, message("no route to host")), kind: executor.ErrUnavailable, text: "image example.org/a:1: "},
		"half-way":     {inspect: []http.HandlerFunc{missing}, pull: lines(`{"status":"Pulling","id":"1"}`, `{"errorDetail":{"message":"unexpected EOF"},"error":"unexpected EOF"}`), kind: executor.ErrUnavailable, text: "image example.org/a:1: unexpected EOF"},
		"no-such":      {inspect: []http.HandlerFunc{missing}, pull: answer(404, message("manifest unknown")), kind: executor.ErrUnavailable, text: "image example.org/a:1: "},
		"no-right":     {inspect: []http.HandlerFunc{missing}, pull: answer(403, message("denied")), kind: executor.ErrAuth, text: "docker login"},
		"stalled": {inspect: []http.HandlerFunc{missing}, kind: executor.ErrUnavailable, text: "makes no progress", pull: func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, `{"status":"Pulling","id":"1"}`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}},
		"architecture": {inspect: []http.HandlerFunc{answer(200, map[string]any{"Id": "sha256:1", "Os": "linux", "Architecture": "arm64"})}, kind: executor.ErrUnsupported, text: "is for linux/arm64 and the engine runs linux/amd64"},
		"system":       {inspect: []http.HandlerFunc{answer(200, map[string]any{"Id": "sha256:1", "Os": "windows", "Architecture": "amd64"})}, kind: executor.ErrUnsupported, text: "is for windows/amd64"},
		"silent":       {inspect: []http.HandlerFunc{func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}, kind: executor.ErrUnavailable, text: "the engine does not answer within"},
		"garbage":      {inspect: []http.HandlerFunc{lines("<html>")}, kind: executor.ErrUnavailable, text: ""},
	} {
		t.Run(testName, func(t *testing.T) {
			asked, pulled := 0, false
			e := scripted(t, map[string]http.HandlerFunc{
				"GET /images/{name...}": func(w http.ResponseWriter, r *http.Request) {
					c.inspect[min(asked, len(c.inspect)-1)](w, r)
					asked++
				},
				"POST /images/create": func(w http.ResponseWriter, r *http.Request) {
					if pulled = true; c.pull == nil {
						t.Error("was pulled")
						return
					}
					c.pull(w, r)
				},
			})
			var got []executor.Progress
			ctx := executor.WithProgress(t.Context(), func(p executor.Progress) { got = append(got, p) })
			f := able()
			if testName == "silent" || testName == "stalled" {
				e.timeout = 2 * time.Second
			}
			img, err := e.image(ctx, name, c.policy, &f)
			if pulled != (c.pull != nil) {
				t.Errorf("got pulled %v", pulled)
			}
			if c.kind != nil {
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("got %v, want %v: %s", err, c.kind, c.text)
				}
				return
			}
			if err != nil || img.id != "sha256:1" || !slices.Equal(img.volumes, []string{"/cache", "/data"}) {
				t.Errorf("got %+v, %v", img, err)
			}
			if !slices.Equal(got, c.progress) {
				t.Errorf("got progress %v, want %v", got, c.progress)
			}
		})
	}
}

func TestNobodyAnswers(t *testing.T) {
	closed, l := listen(t)
	l.Close() // removes the socket; a file in its place stands for what a crashed engine leaves
	if err := os.WriteFile(strings.TrimPrefix(closed, "unix://"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hung, hl := listen(t)
	t.Cleanup(func() { hl.Close() })
	for name, c := range map[string]struct {
		host string
		kind error
		text string
	}{
		"missing":  {"unix:///nowhere/docker.sock", executor.ErrUnavailable, "/nowhere/docker.sock (host): file does not exist; install and start Docker"},
		"stopped":  {closed, executor.ErrUnavailable, "the engine is not running"},
		"frozen":   {hung, executor.ErrUnavailable, "the engine does not answer within 200ms"},
		"no-route": {"tcp://127.0.0.1:1", executor.ErrUnavailable, "tcp://127.0.0.1:1 (host)"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Host: c.host}
			if name == "frozen" { // the others have to answer in time
				cfg.Timeout = driver.Duration(200 * time.Millisecond)
			}
			x, err := Open(t.Context(), driver.Env{Owner: "test"}, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			_, err = x.Create(t.Context(), executor.Spec{})
			var e *executor.Error
			if !errors.As(err, &e) || e.Kind != c.kind || e.Ran != executor.RanNo || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v with %q", err, c.kind, c.text)
			}
			if !executor.Retryable(err) {
				t.Errorf("%v is not retryable", err)
			}
			checks := Doctor(t.Context(), driver.Env{Owner: "test"}, cfg)
			if len(checks) != 1 || checks[0].OK || checks[0].Fix == "" {
				t.Errorf("got %+v, want one finding", checks)
			} else if strings.Contains(checks[0].Detail, checks[0].Fix) {
				t.Errorf("got %+v, which says twice what to do", checks[0])
			}
		})
	}
}

// The caller's own impatience is not the engine's failure.
func TestCallerGivesUp(t *testing.T) {
	host, l := listen(t)
	t.Cleanup(func() { l.Close() })
	x, err := Open(t.Context(), driver.Env{Owner: "test"}, Config{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := x.Create(ctx, executor.Spec{}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// An engine that has been cut off goes on making the container that it was asked for, and finds it
// only when it is made. Of one that has not heard the request nothing comes.
func TestUndo(t *testing.T) {
	for name, heard := range map[string]bool{"heard": true, "not-heard": false} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			there, busy := false, 0 // how many questions it takes until the container is made
			e := scripted(t, map[string]http.HandlerFunc{
				"POST /containers/create": func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case busy > 0 || there:
						answer(409, message("the name is in use"))(w, r)
					case heard:
						heard, busy = false, 4
						panic(http.ErrAbortHandler)
					default:
						there = true
						answer(201, map[string]any{"Id": "1"})(w, r)
					}
				},
				"DELETE /containers/{name}": func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					found := there
					there = false
					if busy--; busy == 0 {
						there = true
					}
					if !found {
						answer(404, message("no such container"))(w, r)
					}
				},
			})
			b := &backend{engine: e}
			o := client.ContainerCreateOptions{Name: containerName("x"), Config: &container.Config{Image: "x"}}
			failure := error(&unansweredError{errors.New("not sent"), o})
			if heard {
				_, _, failure = b.launch(t.Context(), o, nil)
			}
			if err := e.undo(t.Context(), "x", failure); err != nil || there || busy > 0 {
				t.Errorf("got %v; a container is left: %v, or is still made: %v", err, there, busy > 0)
			}
		})
	}
}
