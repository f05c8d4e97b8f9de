package mcp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/tool"
	"github.com/execbroker/execbroker/tool/mcp"
)

// The keys of two clients.
const (
	alice = "key-of-alice-0123456789"
	bob   = "key-of-bob-0123456789"
)

// bearer sends a key with every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func serveHTTP(t *testing.T, o mcp.HTTPOptions) (*mcp.Server, *fake.Backend, *httptest.Server) {
	t.Helper()
	s, b := newServer(t, fake.Options{}, tool.Options{}, sessions.Options{})
	if o.Authenticate == nil {
		o.Authenticate = func(key string) (string, map[string]string, bool) {
			return key[:min(len(key), 10)], nil, key == alice || key == bob
		}
	}
	srv := httptest.NewServer(s.Handler(o))
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		srv.Close()
	})
	t.Cleanup(func() { // before the server waits for open connections
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, b, srv
}

func dial(t *testing.T, url, key string, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: bearer(key)}, MaxRetries: -1,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestHTTP(t *testing.T) {
	_, b, srv := serveHTTP(t, mcp.HTTPOptions{})
	one, two, other := dial(t, srv.URL, alice, nil), dial(t, srv.URL, alice, nil), dial(t, srv.URL, bob, nil)
	code(t, one, `x = 41`)
	has(t, code(t, one, `print(x + 1)`), "42")
	has(t, code(t, two, `print(x)`), "NameError") // a separate session with the same key
	has(t, code(t, other, `print(x)`), "NameError")
	if n := len(b.Sandboxes()); n != 3 {
		t.Errorf("got %d sandboxes, want 3", n)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	only(t, b, 2, "the sandbox of a session ends with it")
}

func TestHTTPCancel(t *testing.T) {
	_, _, srv := serveHTTP(t, mcp.HTTPOptions{})
	o, started := listener()
	c := dial(t, srv.URL, alice, o)
	code(t, c, `x = 41`)
	ctx, cancel := context.WithCancel(t.Context())
	done := begun(t, ctx, c, started)
	cancel()
	<-done
	has(t, code(t, c, `print(x + 1)`), "42")
}

// Ending a session does not wait for its runs.
func TestHTTPSessionEndsInTheMiddle(t *testing.T) {
	_, b, srv := serveHTTP(t, mcp.HTTPOptions{})
	o, started := listener()
	c := dial(t, srv.URL, alice, o)
	done := begun(t, t.Context(), c, started)
	if got := send(t, srv.URL, request{method: http.MethodDelete, session: c.ID(), key: bob}); got.status != http.StatusForbidden {
		t.Errorf("another key ends the session: %d %s", got.status, got.body)
	}
	if n := len(b.Sandboxes()); n != 1 {
		t.Fatalf("got %d sandboxes after another key has tried", n)
	}
	if got := send(t, srv.URL, request{method: http.MethodDelete, session: c.ID(), key: alice}); got.status != http.StatusNoContent {
		t.Errorf("got %d %s", got.status, got.body)
	}
	only(t, b, 0, "the sandbox of a session ends with it")
	c.Close()
	<-done
}

type request struct {
	method, key, session, body string
	headers                    []string
}

type response struct {
	status  int
	body    string
	session string
}

// send sends a raw request.
func send(t *testing.T, url string, q request) response {
	t.Helper()
	if q.method == "" {
		q.method = http.MethodPost
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, q.method, url, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if q.key != "" {
		r.Header.Set("Authorization", "Bearer "+q.key)
	}
	if q.session != "" {
		r.Header.Set("Mcp-Session-Id", q.session)
	}
	for i := 0; i+1 < len(q.headers); i += 2 {
		r.Header.Set(q.headers[i], q.headers[i+1])
		if q.headers[i] == "Host" {
			r.Host = q.headers[i+1]
		}
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{res.StatusCode, string(b), res.Header.Get("Mcp-Session-Id")}
}

const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

func TestHTTPHostile(t *testing.T) {
	_, b, srv := serveHTTP(t, mcp.HTTPOptions{MaxSessions: 2})
	c := dial(t, srv.URL, alice, nil)
	run := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print(1)"}}}`
	for name, test := range map[string]struct {
		request
		status int
	}{
		"no-key":            {request{body: list}, 401},
		"wrong-key":         {request{body: list, key: "wrong"}, 401},
		"open-key":          {request{body: list, key: "-"}, 401},
		"basic":             {request{body: list, headers: []string{"Authorization", "Basic " + alice}}, 401},
		"two-keys":          {request{body: list, headers: []string{"Authorization", "Bearer " + alice + " " + bob}}, 401},
		"another-session":   {request{body: run, key: bob, session: c.ID()}, 403},
		"another-stream":    {request{method: "GET", key: bob, session: c.ID()}, 403},
		"session-no-key":    {request{body: run, session: c.ID()}, 401},
		"unknown-session":   {request{body: run, key: alice, session: "x"}, 404},
		"session-path":      {request{body: run, key: alice, session: "../" + c.ID()}, 404},
		"no-json":           {request{body: "{", key: alice, session: c.ID()}, 400},
		"not-a-message":     {request{body: `{"a":1}`, key: alice, session: c.ID()}, 400},
		"too-large":         {request{body: strings.Repeat(" ", tool.MaxInput+2<<20), key: alice, session: c.ID()}, 413},
		"type":              {request{body: list, key: alice, headers: []string{"Content-Type", "text/plain"}}, 415},
		"method":            {request{method: "PUT", key: alice}, 405},
		"rebound":           {request{body: list, key: alice, session: c.ID(), headers: []string{"Host", "evil.example"}}, 421},
		"other-host":        {request{body: list, key: alice, session: c.ID(), headers: []string{"Origin", "https://evil.example"}}, 403},
		"version":           {request{body: list, key: alice, session: c.ID(), headers: []string{"Mcp-Protocol-Version", "1999-01-01"}}, 400},
		"resume-of-nothing": {request{method: "GET", key: alice, session: c.ID(), headers: []string{"Last-Event-ID", "../../x_1"}}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			got := send(t, srv.URL, test.request)
			if got.status != test.status {
				t.Errorf("got %d %s, want %d", got.status, got.body, test.status)
			}
			if strings.Contains(got.body, alice) || strings.Contains(got.body, "goroutine") {
				t.Errorf("got %s", got.body)
			}
		})
	}
	has(t, code(t, c, `print(6 * 7)`), "42") // nothing was lost
	if n := len(b.Sandboxes()); n != 1 {
		t.Errorf("got %d sandboxes, want 1", n)
	}
}

// begin sends the request that begins a session, and returns the session ID.
func begin(t *testing.T, url, key string) (status int, session string) {
	t.Helper()
	got := send(t, url, request{key: key, body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`})
	return got.status, got.session
}

// begins begins a session as soon as it can: another one has its answer before it is idle and gives
// way.
func begins(t *testing.T, url, key string) (session string) {
	t.Helper()
	waittest.Until(t, "a session begins", func() error {
		status, id := begin(t, url, key)
		if session = id; status != http.StatusOK {
			return fmt.Errorf("got %d", status)
		}
		return nil
	})
	return session
}

// only waits until no more than n sandboxes are there.
func only(t *testing.T, b *fake.Backend, n int, what string) {
	t.Helper()
	waittest.Until(t, what, func() error {
		if all := b.Sandboxes(); len(all) > n {
			return fmt.Errorf("got %q, want %d", all, n)
		}
		return nil
	})
}

// Clients that never end their sessions do not block others: the least recently used session of the
// key is ended, or one of the key with the most sessions. A session in use is never ended.
func TestHTTPSessionsGiveWay(t *testing.T) {
	_, b, srv := serveHTTP(t, mcp.HTTPOptions{MaxSessions: 3, MaxSessionsPerKey: 2})
	o, started := listener()
	busy := dial(t, srv.URL, alice, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := begun(t, ctx, busy, started)
	first := dial(t, srv.URL, alice, nil)
	code(t, first, `x = 1`)
	second := begins(t, srv.URL, alice)
	if got := send(t, srv.URL, request{key: alice, session: first.ID(), body: list}); got.status != http.StatusNotFound {
		t.Errorf("the session that gave way: got %d %s", got.status, got.body)
	}
	only(t, b, 1, "the sandbox of a session that gave way ends")
	if got := send(t, srv.URL, request{key: alice, session: second, body: list}); got.status != http.StatusOK {
		t.Errorf("the new session: got %d %s", got.status, got.body)
	}
	third := begins(t, srv.URL, alice)
	if got := send(t, srv.URL, request{key: alice, session: third, body: list}); got.status != http.StatusOK {
		t.Errorf("a third session of a key: got %d %s", got.status, got.body)
	}
	// All clients together can have three sessions. bob gets one of them, and a second one only
	// from a key that has more than he.
	for range 3 {
		if status, _ := begin(t, srv.URL, bob); status != http.StatusOK { // the sessions were never in use
			t.Errorf("another key: got %d", status)
		}
	}
	if got := send(t, srv.URL, request{key: alice, session: third, body: list}); got.status != http.StatusOK {
		t.Errorf("bob has taken a session of alice: got %d %s", got.status, got.body)
	}
	cancel()
	<-done
	has(t, code(t, busy, `print(6 * 7)`), "42")
}

// A key gets no further session while all its sessions are in use.
func TestHTTPSessionsInUse(t *testing.T) {
	_, _, srv := serveHTTP(t, mcp.HTTPOptions{MaxSessionsPerKey: 1})
	o, started := listener()
	c := dial(t, srv.URL, alice, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := begun(t, ctx, c, started)
	if status, _ := begin(t, srv.URL, alice); status != http.StatusTooManyRequests {
		t.Errorf("got %d", status)
	}
	if status, _ := begin(t, srv.URL, bob); status != http.StatusOK {
		t.Errorf("another key: got %d", status)
	}
	cancel()
	<-done
}

// A client that first asks for the capabilities of the server and then begins a session counts
// once, and many at once do not exceed the limit.
func TestHTTPSessionsAreCountedOnce(t *testing.T) {
	for range 20 {
		_, _, srv := serveHTTP(t, mcp.HTTPOptions{MaxSessions: 1})
		dial(t, srv.URL, alice, nil)
	}
	_, _, srv := serveHTTP(t, mcp.HTTPOptions{MaxSessions: 3})
	var clients sync.WaitGroup
	var open sync.Map
	for range 30 {
		clients.Go(func() {
			switch status, id := begin(t, srv.URL, bob); status {
			case http.StatusOK:
				open.Store(id, true)
			case http.StatusServiceUnavailable: // while all free sessions are being taken
			default:
				t.Errorf("got %d", status)
			}
		})
	}
	clients.Wait()
	left := 0
	open.Range(func(id, _ any) bool {
		if send(t, srv.URL, request{key: bob, session: id.(string), body: list}).status == http.StatusOK {
			left++
		}
		return true
	})
	if left < 1 || left > 3 {
		t.Errorf("got %d sessions, want 3 at most", left)
	}
}

// A body that arrives too slowly gets an answer, and delays no other request.
func TestHTTPSlowBody(t *testing.T) {
	_, _, srv := serveHTTP(t, mcp.HTTPOptions{BodyTime: 50 * time.Millisecond})
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 1000\r\n\r\n{", srv.Listener.Addr(), alice)
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusRequestTimeout {
		t.Fatalf("got %v, %v", res, err)
	}
	res.Body.Close()
}

// Without keys everybody who can reach the address is admitted, each with a separate session.
func TestHTTPOpen(t *testing.T) {
	_, _, srv := serveHTTP(t, mcp.HTTPOptions{Authenticate: func(key string) (string, map[string]string, bool) { return "all", nil, key == "" }})
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: srv.URL, MaxRetries: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	has(t, code(t, c, `print(6 * 7)`), "42")
	if got := send(t, srv.URL, request{body: list, key: "wrong"}); got.status != 401 {
		t.Errorf("got %d %s", got.status, got.body)
	}
}
