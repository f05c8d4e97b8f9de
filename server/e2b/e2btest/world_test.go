package e2btest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/execbroker/execbroker/executor/driver"
	pb "github.com/execbroker/execbroker/internal/envd/processpb"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/server/e2b"
)

// world is a server with faults over a fake backend.
type world struct {
	*testing.T
	b *fake.Backend
	f *faulty
}

func newWorld(t *testing.T, now Faults, cfg e2b.Config) world {
	t.Helper()
	w := world{T: t, b: fake.New(fake.Options{})}
	x, err := w.b.Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Keys = []string{Key}
	var s *e2b.Server
	if w.f, s, err = newFaulty(x, cfg, now); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []func() error{s.Close, x.Close} {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
	})
	return w
}

// bubble runs f with a server in a bubble of its own time.
func bubble(t *testing.T, now Faults, cfg e2b.Config, f func(world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t, now, cfg)) })
}

// do sends a request. Headers are names and values in turn.
func (w world) do(ctx context.Context, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	r.Host = "localhost"
	r.Header.Set("X-API-KEY", Key)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	w.f.ServeHTTP(rec, r)
	return rec
}

// want sends a request and checks the status.
func (w world) want(status int, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	w.Helper()
	rec := w.do(w.Context(), method, target, body, headers...)
	if rec.Code != status {
		w.Fatalf("%s %s: got %d %s, want %d", method, target, rec.Code, rec.Body, status)
	}
	return rec
}

const base = `{"templateID": "base"}`

// create makes a sandbox.
func (w world) create() (m made) {
	w.Helper()
	if err := json.Unmarshal(w.want(http.StatusCreated, "POST", "/v2/sandboxes", base).Body.Bytes(), &m); err != nil {
		w.Fatal(err)
	}
	return m
}

// at returns the headers that address a port of a sandbox.
func at(m made, port int, more ...string) []string {
	return append([]string{"E2b-Sandbox-Id", m.SandboxID, "E2b-Sandbox-Port", fmt.Sprint(port), "X-Access-Token", m.EnvdAccessToken}, more...)
}

// body makes the body of a request with code from its other fields.
func body(code string, fields ...string) string {
	b, err := json.Marshal(code)
	if err != nil {
		panic(err)
	}
	return "{" + strings.Join(append(fields, `"code": `+string(b)), ", ") + "}"
}

type line map[string]any

// run executes code and returns what it did, as far as ctx lets it.
func (w world) run(ctx context.Context, m made, body string) (all []line) {
	w.Helper()
	rec := w.do(ctx, "POST", "/execute", body, at(m, interpreterPort)...)
	for text := range strings.Lines(rec.Body.String()) {
		var l line
		if strings.TrimSpace(text) != "" {
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				w.Fatalf("%v: %s", err, text)
			}
			all = append(all, l)
		}
	}
	return all
}

// leave is run with a client that leaves after a time.
func (w world) leave(m made, body string, after time.Duration) []line {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), after)
	defer cancel()
	return w.run(ctx, m, body)
}

// the returns the first line of a type.
func the(all []line, typ string) line {
	i := slices.IndexFunc(all, func(l line) bool { return l["type"] == typ })
	if i < 0 {
		return nil
	}
	return all[i]
}

// daemon is envd of one sandbox, over a connection.
type daemon struct {
	world
	box   made
	url   string
	http  *http.Client
	procs pb.ProcessClient
}

// addressed adds what every request to a sandbox has.
type addressed struct {
	http.RoundTripper
	m    made
	port int
}

func (a addressed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for i, h := 0, at(a.m, a.port); i < len(h); i += 2 {
		r.Header.Set(h[i], h[i+1])
	}
	return a.RoundTripper.RoundTrip(r)
}

func newDaemon(t *testing.T) daemon {
	t.Helper()
	w := newWorld(t, Faults{}, e2b.Config{})
	srv := httptest.NewServer(w.f)
	t.Cleanup(srv.Close)
	d := daemon{world: w, box: w.create(), url: srv.URL}
	d.http = d.client(envdPort)
	d.procs = pb.NewProcessClient(d.http, d.url)
	return d
}

// client returns a client of a port of the sandbox.
func (d daemon) client(port int) *http.Client {
	tr := http.DefaultTransport.(*http.Transport).Clone()
	d.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: addressed{tr, d.box, port}}
}

// start starts a command, whose code is a script of the fake backend.
func (d daemon) start(ctx context.Context, script string, change func(*pb.StartRequest)) (pid uint32, s *connect.ServerStreamForClient[pb.StartResponse]) {
	d.Helper()
	no := false
	m := &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "script", Args: []string{script}}, Stdin: &no}
	if change != nil {
		change(m)
	}
	s, err := d.procs.Start(ctx, connect.NewRequest(m))
	if err != nil {
		d.Fatal(err)
	}
	if !s.Receive() || s.Msg().Event.GetStart() == nil {
		d.Fatalf("got %v, %v", s.Msg(), s.Err())
	}
	return s.Msg().Event.GetStart().Pid, s
}

// follow receives what a command does until its output has a text, or to its end.
func follow[M any](s *connect.ServerStreamForClient[M], event func(*M) *pb.ProcessEvent, text string) (out string, end *pb.ProcessEvent_EndEvent) {
	for s.Receive() {
		e := event(s.Msg())
		out += string(e.GetData().GetStdout())
		if text != "" && strings.Contains(out, text) {
			return out, nil
		}
		if e.GetEnd() != nil {
			end = e.GetEnd()
		}
	}
	return out, end
}

func wantCode(t *testing.T, what string, err error, want connect.Code) {
	t.Helper()
	if got := connect.CodeOf(err); err == nil || got != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func byPID(pid uint32) *pb.ProcessSelector {
	return &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: pid}}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	waittest.Until(t, what, func() error {
		if !ok() {
			return errors.New("it does not hold")
		}
		return nil
	})
}
