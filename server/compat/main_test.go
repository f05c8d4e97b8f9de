package compat

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/server"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// The keys of the tests, each of another subject.
const (
	alice    = "key-of-alice-0123456789"
	bob      = "key-of-bob-0123456789"
	operator = "key-of-operator-0123456789"
)

// world is a server with a front of each interface, below a path with its name, over a backend in
// memory.
type world struct {
	t *testing.T
	b *fake.Backend
	s *Server
}

func allFronts() (fronts []Front) {
	for _, name := range Names() {
		fronts = append(fronts, Front{API: name, Path: "/" + name})
	}
	return fronts
}

func testKeys(t *testing.T) (keys server.Keys) {
	t.Helper()
	for key, c := range map[string]server.Client{
		alice: {Subject: "alice", Attributes: map[string]string{"plan": "pro"}}, bob: {Subject: "bob"}, operator: {Subject: "operator", Operator: true},
	} {
		if err := keys.Add(key, c); err != nil {
			t.Fatal(err)
		}
	}
	return keys
}

// newWorld makes a world. Config gets all fronts and keys if it has no fronts.
func newWorld(t *testing.T, o fake.Options, cfg Config) *world {
	t.Helper()
	if cfg.Fronts == nil {
		cfg.Fronts, cfg.Keys = allFronts(), testKeys(t)
	}
	b := fake.New(o)
	x, err := b.Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(scripts{x}, cfg)
	if err != nil {
		x.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if left := b.Sandboxes(); len(left) > 0 {
			t.Errorf("%d sandboxes are left", len(left))
		}
		x.Close()
	})
	return &world{t, b, s}
}

// do sends a request with alice's key. Headers are alternating names and values; an empty value
// removes a header.
func (w *world) do(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, "http://localhost:3000"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+alice)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		switch name, value := headers[i], headers[i+1]; {
		case name == "Host":
			r.Host = value
		case value == "":
			r.Header.Del(name)
		default:
			r.Header.Set(name, value)
		}
	}
	rec := httptest.NewRecorder()
	w.s.ServeHTTP(rec, r)
	return rec
}

// ask is do for an answer in JSON with a status.
func (w *world) ask(status int, method, path, body string, headers ...string) (answer map[string]any) {
	w.t.Helper()
	rec := w.do(method, path, body, headers...)
	if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil || rec.Code != status {
		w.t.Fatalf("%s %s: got %d %s, %v, want %d", method, path, rec.Code, rec.Body, err, status)
	}
	return answer
}

// want compares what an answer has under a path of keys, as JSON.
func want(t *testing.T, answer map[string]any, values map[string]any) {
	t.Helper()
	for key, w := range values {
		var got any = answer
		for k := range strings.SplitSeq(key, ".") {
			m, _ := got.(map[string]any)
			v, ok := m[k]
			if got = v; !ok {
				got = "(absent)"
			}
		}
		if g, w := text(t, got), text(t, w); g != w {
			t.Errorf("%s: got %s, want %s, in %s", key, g, w, text(t, answer))
		}
	}
}

// text is a value in JSON.
func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// scripts are for the language of the fake: its scripts have their arguments in a variable, and it
// runs the scripts for bash as its own.
type scripts struct{ executor.Executor }

func (s scripts) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	x, err := s.Executor.Create(ctx, spec)
	return script{x}, err
}

type script struct{ executor.Session }

func (s script) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	if list, ok := strings.CutPrefix(req.Code, `__import__("sys").argv[:] = `); ok {
		req.Code = "argv = " + list
	}
	if len(req.Command) > 2 && req.Command[0] == "bash" {
		req.Command = append([]string{"script", req.Command[2]}, req.Command[4:]...)
	}
	return s.Session.Run(ctx, req, emit)
}
