package e2b

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// The keys of two clients.
const (
	alice = "e2b_a11ce"
	bob   = "e2b_b0b"
)

// world is a server over a fake backend.
type world struct {
	*testing.T
	b *fake.Backend
	s *Server
}

// newWorld makes a server. What it leaves behind when the test ends fails the test.
func newWorld(t *testing.T, o fake.Options, cfg Config) world {
	t.Helper()
	w := world{T: t, b: fake.New(o)}
	x, err := w.b.Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Keys == nil {
		cfg.Keys = []string{alice, bob}
	}
	if w.s, err = New(x, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
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

// bubble runs f with a server in a bubble of its own time.
func bubble(t *testing.T, o fake.Options, cfg Config, f func(world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t, o, cfg)) })
}

// do sends a request of alice, unless a header says otherwise. Headers are names and values in
// turn.
func (w world) do(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	w.Helper()
	r := httptest.NewRequestWithContext(w.Context(), method, target, strings.NewReader(body))
	r.Host = "localhost"
	r.Header.Set("X-API-KEY", alice)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	rec := httptest.NewRecorder()
	w.s.ServeHTTP(rec, r)
	return rec
}

// want does and checks the status.
func (w world) want(status int, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	w.Helper()
	rec := w.do(method, target, body, headers...)
	if rec.Code != status {
		w.Fatalf("%s %s: got %d %s, want %d", method, target, rec.Code, rec.Body, status)
	}
	if e := (apiError{}); status >= 400 {
		if err := json.Unmarshal(rec.Body.Bytes(), &e); err != nil || e.Message == "" || e.Status != status {
			w.Errorf("%s %s: got an error of another shape: %s", method, target, rec.Body)
		}
	}
	return rec
}

func decode[T any](t *testing.T, rec *httptest.ResponseRecorder) (v T) {
	t.Helper()
	if err := json.Unmarshal(rec.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, rec.Body)
	}
	return v
}

// create makes a sandbox from the fields of a body.
func (w world) create(fields string, headers ...string) sandboxAnswer {
	w.Helper()
	if fields != "" {
		fields = ", " + fields
	}
	return decode[sandboxAnswer](w.T, w.want(http.StatusCreated, "POST", "/v2/sandboxes", `{"templateID": "base"`+fields+`}`, headers...))
}

func (w world) detail(id string) sandboxDetail {
	w.Helper()
	return decode[sandboxDetail](w.T, w.want(http.StatusOK, "GET", "/sandboxes/"+id, ""))
}
