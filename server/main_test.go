package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/waittest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// The keys of two clients.
const (
	alice = "key-of-alice-0123456789"
	bob   = "key-of-bob-0123456789"
)

// forever is longer than anything takes that must happen.
const forever = 2 * time.Minute

// world is a server over a backend in memory.
type world struct {
	*testing.T
	b *fake.Backend
	s *Server
	h *httptest.Server
}

// newWorld makes a server. The test fails if anything is left when it ends.
func newWorld(t *testing.T, o fake.Options, cfg Config) world {
	t.Helper()
	w := world{T: t, b: fake.New(o)}
	x, err := w.b.Open(driver.Env{Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	for key, c := range map[string]Client{alice: {Subject: "alice", Attributes: map[string]string{"plan": "pro"}}, bob: {}} {
		if err := cfg.Keys.Add(key, c); err != nil {
			t.Fatal(err)
		}
	}
	if w.s, err = New(x, cfg); err != nil {
		t.Fatal(err)
	}
	w.h = httptest.NewServer(w.s)
	t.Cleanup(func() {
		w.h.CloseClientConnections()
		w.h.Close()
		for _, c := range []func() error{w.s.Close, w.s.Close, x.Close} {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
		if left := w.b.Sandboxes(); len(left) > 0 {
			t.Errorf("%d sandboxes left", len(left))
		}
	})
	return w
}

// do sends a request of alice over the network, unless a header says otherwise. Headers are
// alternating names and values.
func (w world) do(method, target, body string, headers ...string) (*http.Response, string) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.h.URL+target, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+alice)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	res, err := w.h.Client().Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer res.Body.Close()
	var b strings.Builder
	if _, err := copyTo(&b, res.Body); err != nil {
		w.Fatal(err)
	}
	return res, b.String()
}

// want calls do, and checks the status and, for an error, the form of the problem.
func (w world) want(status int, method, target, body string, headers ...string) string {
	w.Helper()
	res, got := w.do(method, target, body, headers...)
	if res.StatusCode != status {
		w.Fatalf("%s %s: got %d %s, want %d", method, target, res.StatusCode, got, status)
	}
	if !front.RequestIDForm.MatchString(res.Header.Get(front.RequestIDHeader)) {
		w.Errorf("%s %s: got request ID %q", method, target, res.Header.Get("X-Request-Id"))
	}
	if p := (Problem{}); status >= 400 {
		if err := json.Unmarshal([]byte(got), &p); err != nil || p.Message == "" || p.Status != status || p.Kind == "" || p.Request != res.Header.Get("X-Request-Id") {
			w.Errorf("%s %s: got an error of another shape: %s", method, target, got)
		}
	}
	return got
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// session creates a session and returns the prefix of its paths.
func (w world) session(body string, headers ...string) string {
	w.Helper()
	return "/v1/sessions/" + decode[Session](w.T, w.want(http.StatusCreated, "POST", "/v1/sessions", body, headers...)).ID
}

// until waits for a condition.
func (w world) until(what string, is func() bool) {
	w.Helper()
	waittest.Until(w, what, func() error {
		if !is() {
			return errors.New("it does not happen")
		}
		return nil
	})
}

func has(t testing.TB, got string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}
