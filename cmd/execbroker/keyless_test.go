package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/server/compat"
	"github.com/execbroker/execbroker/server/e2b"
	"github.com/execbroker/execbroker/server/jupyter"
	"github.com/execbroker/execbroker/server/nemo"
	"github.com/execbroker/execbroker/tool"
	"github.com/execbroker/execbroker/tool/mcp"
)

// counted is a body without end that counts what is read of it.
type counted struct{ n int64 }

func (c *counted) Read(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func (c *counted) Close() error { return nil }

// untouched counts what reaches a backend.
type untouched struct {
	executor.Executor
	created int
}

func (u *untouched) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	u.created++
	return u.Executor.Create(ctx, spec)
}

// No server reads a byte of the body of a request without a key, or asks the backend for anything.
func TestWorkWithoutKey(t *testing.T) {
	const key = "key-of-alice-0123456789"
	below, err := fake.New(fake.Options{}).Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	x := &untouched{Executor: below}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var keys server.Keys
	must(keys.Add(key, server.Client{Subject: "alice"}))
	var fronts []compat.Front
	for _, name := range compat.Names() {
		fronts = append(fronts, compat.Front{API: name, Path: "/" + name})
	}
	native, err := server.New(x, server.Config{Keys: keys})
	must(err)
	services, err := compat.New(x, compat.Config{Fronts: fronts, Keys: keys})
	must(err)
	boxes, err := e2b.New(x, e2b.Config{Keys: []string{key}})
	must(err)
	notebooks, err := jupyter.New(x, jupyter.Config{Keys: keys})
	must(err)
	rails, err := nemo.New(x, nemo.Config{Keys: keys})
	must(err)
	m, err := sessions.New(x, sessions.NewMemoryStore(), sessions.Options{Instance: "a"})
	must(err)
	tl, err := tool.New(x, m, tool.Options{})
	must(err)
	tools := mcp.New(tl, mcp.Options{})
	t.Cleanup(func() {
		for _, c := range []func() error{
			native.Close, services.Close, boxes.Close, notebooks.Close, rails.Close, tools.Close,
			func() error { return m.Close(context.WithoutCancel(t.Context())) }, x.Close,
		} {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
	})
	for name, c := range map[string]struct {
		h     http.Handler
		paths []string
	}{
		"native":  {native, []string{"/v1/run", "/v1/sessions", "/v1/sessions/a/run", "/v1/conversations/a/run"}},
		"e2b":     {boxes, []string{"/sandboxes", "/v2/sandboxes", "/sandboxes/a/timeout", "/files?path=a", "/files?path=a&signature=v1_a"}},
		"jupyter": {notebooks, []string{"/api/kernels", "/api/sessions", "/api/kernels/a/interrupt"}},
		"nemo":    {rails, []string{"/execute"}},
		"mcp": {tools.Handler(mcp.HTTPOptions{Authenticate: func(k string) (string, map[string]string, bool) { return "alice", nil, k == key }}),
			[]string{"/", "/mcp"}},
		"services": {services, []string{
			"/piston/api/v2/execute", "/judge0/submissions", "/judge0/submissions/batch", "/dify/v1/sandbox/run", "/librechat/exec", "/librechat/upload", "/onyx/v1/execute", "/terrarium/",
		}},
	} {
		for _, path := range c.paths {
			for _, header := range []string{"", "Bearer wrong-key-0123456789"} {
				body := &counted{}
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost:3000"+path, io.NopCloser(body))
				r.ContentLength = -1
				r.Header.Set("Content-Type", "application/json")
				if header != "" {
					r.Header.Set("Authorization", header)
					r.Header.Set("X-API-Key", "wrong-key-0123456789")
				}
				rec := httptest.NewRecorder()
				c.h.ServeHTTP(rec, r)
				if rec.Code != http.StatusUnauthorized && (name != "jupyter" || rec.Code != http.StatusForbidden) { // as Jupyter does
					t.Errorf("%s: POST %s: got %d %s", name, path, rec.Code, rec.Body)
				}
				if body.n > 0 {
					t.Errorf("%s: POST %s: read %d bytes of the body", name, path, body.n)
				}
			}
		}
	}
	if x.created > 0 {
		t.Errorf("%d sandboxes were made", x.created)
	}
}

// A request has at most 64 KiB before its body, the key included, and a handler is not asked about
// more.
func TestHeadersAreBounded(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	asked := make(chan struct{}, 1)
	address, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- (&app{}).listen(ctx, "127.0.0.1:0", nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }),
			func() {}, func(a net.Addr) error { address <- a; return nil })
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+(<-address).String()+"/?"+strings.Repeat("x", 128<<10), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge || len(asked) > 0 {
		t.Errorf("got %s, and the handler was asked %d times", res.Status, len(asked))
	}
	stop()
	<-ended
}
