package jupyter

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/complete"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/server"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// The keys of the tests, each of another subject.
const (
	alice = "key-of-alice-0123456789"
	bob   = "key-of-bob-0123456789"
)

// world is a server over a backend in memory.
type world struct {
	*testing.T
	b *fake.Backend
	s *Server
	h *httptest.Server
}

func newWorld(t *testing.T, o fake.Options, cfg Config) *world {
	t.Helper()
	for key, c := range map[string]server.Client{alice: {Subject: "alice", Attributes: map[string]string{"plan": "pro"}}, bob: {Subject: "bob"}} {
		if err := cfg.Keys.Add(key, c); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.New(o)
	x, err := b.Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(own{x}, cfg)
	if err != nil {
		x.Close()
		t.Fatal(err)
	}
	w := &world{t, b, s, httptest.NewServer(s)}
	t.Cleanup(func() {
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		w.h.Close()
		if left := b.Sandboxes(); len(left) > 0 {
			t.Errorf("%d sandboxes are left", len(left))
		}
		x.Close()
	})
	return w
}

// own is for the language of the fake, which cannot run the server's own code: questions have the
// answers of this wrapper.
type own struct{ executor.Executor }

func (o own) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	x, err := o.Executor.Create(ctx, spec)
	return ownSession{x}, err
}

type ownSession struct{ executor.Session }

func (s ownSession) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	if strings.Contains(req.Code, `"<execbroker>"`) {
		answer := `["alpha", "alps"]`
		if strings.Contains(req.Code, `\"op\":\"explain\"`) {
			answer = `"Type: int"`
		}
		req.Code = "display(show(\"" + complete.MIME + "\", " + text(answer) + "))"
	}
	return s.Session.Run(ctx, req, emit)
}

// text is a value in JSON.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// do sends a request with alice's key. Headers are alternating names and values; an empty value
// removes a header.
func (w *world) do(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	w.Helper()
	r := httptest.NewRequestWithContext(w.Context(), method, "http://localhost:3000"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "token "+alice)
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
func ask[T any](w *world, status int, method, path, body string, headers ...string) (answer T) {
	w.Helper()
	rec := w.do(method, path, body, headers...)
	if rec.Code != status {
		w.Fatalf("%s %s: got %d %s, want %d", method, path, rec.Code, rec.Body, status)
	}
	if rec.Body.Len() > 0 {
		if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil {
			w.Fatalf("%s %s: %v in %s", method, path, err, rec.Body)
		}
	}
	return answer
}

// start makes a kernel of alice.
func (w *world) start(name string) string {
	w.Helper()
	return ask[kernelModel](w, 201, "POST", "/api/kernels", `{"name": "`+name+`"}`).ID
}

// client is a client of the channels of a kernel.
type client struct {
	*testing.T
	ws   *websocket.Conn
	f    framing
	next func() (message, error)
}

// connect connects to a kernel with alice's key in the URL.
func (w *world) connect(kernel string, f framing) *client {
	w.Helper()
	return w.connectAs(kernel, f, "s")
}

func (w *world) connectAs(kernel string, f framing, session string) *client {
	w.Helper()
	cfg, err := websocket.NewConfig("ws"+strings.TrimPrefix(w.h.URL, "http")+"/api/kernels/"+kernel+"/channels?session_id="+session+"&token="+alice, w.h.URL)
	if err != nil {
		w.Fatal(err)
	}
	if cfg.Protocol = []string{"other"}; f.payload == websocket.BinaryFrame {
		cfg.Protocol = []string{"other", protocolV1}
	}
	ws, err := cfg.DialContext(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { ws.Close() })
	ws.PayloadType = f.payload
	if err := ws.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		w.Fatal(err)
	}
	return &client{T: w.T, ws: ws, f: f, next: f.decoder(&limited{ws, 1 << 40})}
}

// send sends a request, and returns its ID.
func (c *client) send(channel, kind string, content any) string {
	c.Helper()
	m, err := answer(channel, kind, "client", nil, content)
	if err != nil {
		c.Fatal(err)
	}
	var h header
	raw, err := c.f.encode(m)
	if err == nil {
		err = json.Unmarshal(m.Header, &h)
	}
	if err == nil {
		_, err = c.ws.Write(raw)
	}
	if err != nil {
		c.Fatal(err)
	}
	return h.ID
}

// hear returns the messages up to one that is the last, each as its channel, its type and its
// content.
func (c *client) hear(isLast func(m, parent string) bool) (all []string) {
	c.Helper()
	for {
		m, err := c.next()
		var h, parent header
		if err == nil {
			err = errors.Join(json.Unmarshal(m.Header, &h), json.Unmarshal(m.Parent, &parent))
		}
		if err != nil {
			c.Fatalf("%v after\n%s", err, strings.Join(all, "\n"))
		}
		all = append(all, m.Channel+" "+h.Type+" "+string(m.Content))
		if isLast(all[len(all)-1], parent.ID) {
			return all
		}
	}
}

// until returns the messages up to the one that begins with something.
func (c *client) until(begin string) []string {
	c.Helper()
	return c.hear(func(m, _ string) bool { return strings.HasPrefix(m, begin) })
}

// ends returns the messages up to the last about a request.
func (c *client) ends(id string) []string {
	c.Helper()
	return c.hear(func(m, parent string) bool { return m == isIdle && parent == id })
}

// Beginnings of messages.
const (
	isIdle = `iopub status {"execution_state":"idle"}`
	isBusy = `iopub status {"execution_state":"busy"}`
)

// run runs a cell and returns the messages of it.
func (c *client) run(code string) []string {
	c.Helper()
	return c.ends(c.send(shell, "execute_request", map[string]any{"code": code}))
}

// has checks that the messages have some that begin so, in this order.
func (c *client) has(messages []string, want ...string) {
	c.Helper()
	at := 0
	for _, m := range messages {
		if at < len(want) && strings.HasPrefix(m, want[at]) {
			at++
		}
	}
	if at < len(want) {
		c.Errorf("got no %s in\n%s", want[at], strings.Join(messages, "\n"))
	}
}
