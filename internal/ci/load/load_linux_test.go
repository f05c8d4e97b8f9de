package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/leaktest"
	api "github.com/execbroker/execbroker/server"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// Many users at once lose nothing, and leave no memory behind. The server is in this process, where
// the race detector sees it.
func TestUsers(t *testing.T) {
	for _, backend := range []string{"docker", "pyodide"} {
		t.Run(backend, func(t *testing.T) {
			text, err := config(backend)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := backends.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			box, err := backends.Open(t.Context(), driver.Env{Name: "load", Owner: "load-" + strconv.FormatInt(time.Now().UnixNano(), 36)}, all.Registry(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			p := plan{users: 12, arrive: time.Second, lasts: 5 * time.Second, think: 200 * time.Millisecond}
			const key = "key-of-the-load-0123456789"
			var keys api.Keys
			if err := keys.Add(key, api.Client{}); err != nil {
				t.Fatal(err)
			}
			a, err := api.New(box, api.Config{Keys: keys, MaxSessions: p.users, MaxRuns: p.users})
			if err != nil {
				t.Fatal(err)
			}
			h := httptest.NewServer(a)
			defer func() {
				h.Close()
				if err := errors.Join(a.Close(), box.Close()); err != nil {
					t.Error(err)
				}
			}()
			var heap [3]uint64
			m := p.drive(t.Context(), server{url: h.URL, key: key}, func(k int) {
				var s runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&s)
				heap[k] = s.HeapAlloc
			})
			if err := verdict([]column{{name: backend, measured: m}}); err != nil {
				t.Error(err)
			}
			if len(m.cold.took) != p.users {
				t.Errorf("got %d first runs of %d users", len(m.cold.took), p.users)
			}
			if heap[2] > 2*heap[1]+8<<20 {
				t.Errorf("the heap has grown: %d bytes", heap)
			}
		})
	}
}

// What fails is counted and named, and does not pass for fast.
func TestFailuresAreSeen(t *testing.T) {
	for name, c := range map[string]struct {
		answer, want string
	}{
		"session": {answer: "", want: "got 503"},
		"run":     {answer: `{"status": "failed", "stdout": ""}`, want: `got failed ""`},
		"mix-up":  {answer: `{"status": "ok", "stdout": "7 1 333283335000\n"}`, want: `want "0 1 333283335000\n"`},
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Header.Get("Authorization") != "Bearer key":
					t.Errorf("got the key %q", r.Header.Get("Authorization"))
				case c.answer == "":
					http.Error(w, "busy", http.StatusServiceUnavailable)
				case r.URL.Path == "/v1/sessions":
					w.WriteHeader(http.StatusCreated)
					_ = json.NewEncoder(w).Encode(map[string]string{"id": "a"})
				default:
					_, _ = w.Write([]byte(c.answer))
				}
			}))
			defer h.Close()
			m := plan{users: 1, lasts: time.Millisecond}.drive(t.Context(), server{url: h.URL, key: "key"}, func(int) {})
			got := column{name: "box", measured: m}
			err := verdict([]column{got})
			if !errors.Is(err, errFailed) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			_, text, _ := strings.Cut(table([]column{got}), "session and first run: number, failed")
			if fields := strings.Join(strings.Fields(text), " "); !strings.HasPrefix(fields, "1, 1 p50, p95, p99, longest -, -, -, -") {
				t.Errorf("got\n%s", text)
			}
		})
	}
}

func TestPercentiles(t *testing.T) {
	var took []time.Duration
	for ms := range 1000 {
		took = append(took, time.Duration(999-ms)*time.Millisecond)
	}
	for percent, want := range map[int]string{50: "500 ms", 95: "950 ms", 99: "990 ms", 100: "999 ms"} {
		if got := at(took, percent); got != want {
			t.Errorf("%d: got %s, want %s", percent, got, want)
		}
	}
}

// What is read of the machine is what it says.
func TestMachine(t *testing.T) {
	if got := resident(os.Getpid()); got < 1<<20 {
		t.Errorf("got %d bytes for this process", got)
	}
	if got := used(); got < resident(os.Getpid()) {
		t.Errorf("got %d bytes in use", got)
	}
	if processors() <= 0 || processor() == "" {
		t.Errorf("got %v s of %q", processors(), processor())
	}
	for _, args := range [][]string{{"-users", "0"}, {"-for", "0s"}, {"-think", "-1s"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%s: got no error", args)
		}
	}
}
