package e2b

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	fspb "github.com/execbroker/execbroker/internal/envd/filesystempb"
	pb "github.com/execbroker/execbroker/internal/envd/processpb"
	"github.com/execbroker/execbroker/internal/fake"
)

const base = `{"templateID": "base"}`

func TestFaultsOfThePlane(t *testing.T) {
	create := func(w world) *httptest.ResponseRecorder { return w.do("POST", "/v2/sandboxes", base) }
	for name, c := range map[string]struct {
		faults Faults
		status int
		body   string
		retry  string
	}{
		"rate-limit":             {Faults{RateLimited: 1, RetryAfter: 1500 * time.Millisecond}, 429, "Rate limit exceeded", "2"},
		"rate-limit-without-end": {Faults{RateLimited: 1}, 429, "Rate limit exceeded", ""},
		"quota":                  {Faults{QuotaExceeded: 1}, 429, "maximum number of concurrent E2B sandboxes", ""},
		"no-capacity":            {Faults{NoCapacity: 1}, 503, "sandbox_capacity_unavailable", ""},
		"placement":              {Faults{PlacementFailed: 1}, 500, "Failed to place sandbox", ""},
		"foreign-error":          {Faults{ForeignErrors: 1}, 504, "upstream request timeout", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fake.Options{}, Config{Faults: c.faults})
			rec := create(w)
			if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.body) || rec.Header().Get("Retry-After") != c.retry {
				t.Errorf("got %d %s, Retry-After %q", rec.Code, rec.Body, rec.Header().Get("Retry-After"))
			}
			if n := len(w.b.Sandboxes()); n != 0 {
				t.Errorf("got %d sandboxes after a refusal", n)
			}
			if rec := create(w); rec.Code != 201 {
				t.Errorf("got %d after the fault", rec.Code)
			}
		})
	}
}

func TestFaultOldPaths(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{Faults: Faults{OldPaths: true}})
	w.want(404, "POST", "/v2/sandboxes", base)
	w.want(404, "GET", "/v2/sandboxes", "")
	w.want(201, "POST", "/sandboxes", base)
}

func TestFaultNoIdempotency(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{Faults: Faults{NoIdempotency: true}})
	for range 2 {
		w.want(201, "POST", "/v2/sandboxes", base, "Idempotency-Key", "k")
	}
	if n := len(w.b.Sandboxes()); n != 2 {
		t.Errorf("got %d sandboxes, want 2", n)
	}
}

func TestFaultChanging(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.create("").SandboxID
	w.s.SetFaults(Faults{Changing: 1})
	w.want(409, "POST", "/v2/sandboxes/"+id+"/connect", "")
	w.want(200, "POST", "/v2/sandboxes/"+id+"/connect", "")
}

// The client does not know of a sandbox that there is, until it asks again with its key.
func TestFaultLostAnswer(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{Faults: Faults{LostAnswers: 1}})
	srv := httptest.NewServer(w.s)
	defer srv.Close()
	ask := func() (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/v2/sandboxes", io.NopCloser(strings.NewReader(base)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-KEY", alice)
		r.Header.Set("Idempotency-Key", "k")
		return srv.Client().Do(r)
	}
	if res, err := ask(); err == nil {
		res.Body.Close()
		t.Fatalf("got status %d, want no answer", res.StatusCode)
	}
	if n := len(w.b.Sandboxes()); n != 1 {
		t.Errorf("got %d sandboxes, want 1", n)
	}
	res, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if n := len(w.b.Sandboxes()); n != 1 || res.StatusCode != 201 {
		t.Errorf("got %d sandboxes and status %d for a repeated request", n, res.StatusCode)
	}
}

func TestFaultClampedTimeouts(t *testing.T) {
	bubble(t, fake.Options{}, Config{MaxTimeout: time.Hour, Faults: Faults{ClampedTimeouts: true}}, func(w world) {
		id := w.create(`"timeout": 600`).SandboxID
		time.Sleep(5 * time.Minute)
		w.want(204, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 3600}`)
		if got, want := time.Until(w.detail(id).EndAt), 55*time.Minute; got != want {
			t.Errorf("got %v left, want %v", got, want)
		}
		w.s.SetFaults(Faults{})
		w.want(400, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 3601}`)
		w.want(204, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 3600}`)
		if got, want := time.Until(w.detail(id).EndAt), time.Hour; got != want {
			t.Errorf("got %v left without the fault, want %v", got, want)
		}
	})
}

// The status 502 means four things and looks in four ways, while the sandbox lives.
func TestFaultBadGateway(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.create("").SandboxID
	health := func() *httptest.ResponseRecorder { return w.do("GET", "/health", "", at(id, envdPort)...) }
	for kind, want := range map[BadGateway]string{
		SandboxNotFound:  fmt.Sprintf(`{"sandboxId":%q,"message":"The sandbox was not found","code":502}`, id),
		PortNotOpen:      fmt.Sprintf(`{"sandboxId":%q,"message":"The sandbox is running but port is not open","code":502,"port":49983}`, id),
		RouteFailed:      "Failed to route request to sandbox",
		BrokenInBrowsers: "<!DOCTYPE html>",
	} {
		w.s.SetFaults(Faults{BadGateway: kind, BadGateways: 2})
		for range 2 {
			if rec := health(); rec.Code != 502 || !strings.HasPrefix(rec.Body.String(), want) {
				t.Errorf("%s: got %d %s, want %s", kind, rec.Code, rec.Body, want)
			}
		}
		if rec := health(); rec.Code != 204 {
			t.Errorf("%s: got %d after as many as were asked for", kind, rec.Code)
		}
		w.s.SetFaults(Faults{BadGateway: kind})
		for range 3 {
			if rec := health(); rec.Code != 502 {
				t.Errorf("%s: got %d", kind, rec.Code)
			}
		}
	}
	w.s.SetFaults(Faults{LateEnvd: 1, TooManyOpen: 1})
	for i, want := range []int{502, 429, 204} {
		if rec := health(); rec.Code != want {
			t.Errorf("request %d: got %d %s, want %d", i, rec.Code, rec.Body, want)
		}
	}
	w.detail(id)
}

// post runs code over a connection and returns the answer as it comes.
func (d daemon) post(ctx context.Context, code string) *http.Response {
	d.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", d.url+"/execute", strings.NewReader(body(code)))
	if err != nil {
		d.Fatal(err)
	}
	r.Header.Set("E2b-Sandbox-Id", d.box.SandboxID)
	r.Header.Set("E2b-Sandbox-Port", "49999")
	tr := http.DefaultTransport.(*http.Transport).Clone()
	d.Cleanup(tr.CloseIdleConnections)
	res, err := tr.RoundTrip(r)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { res.Body.Close() })
	return res
}

func TestFaultCut(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	for _, inOrder := range []bool{false, true} {
		d.s.SetFaults(Faults{CutAfter: 100, CutInGoodOrder: inOrder, CutPort: interpreterPort, Cuts: 1})
		got, err := io.ReadAll(d.post(t.Context(), "print(1)\nprint(2)\nprint(3)").Body)
		if len(got) != 100 || (err == nil) != inOrder || bytes.Contains(got, []byte("end_of_execution")) {
			t.Errorf("in order %v: got %d bytes, %v", inOrder, len(got), err)
		}
		if got, err = io.ReadAll(d.post(t.Context(), "print(1)").Body); err != nil || !bytes.Contains(got, []byte("end_of_execution")) {
			t.Errorf("got %q, %v after as many as were asked for", got, err)
		}
	}
	d.s.SetFaults(Faults{CutAfter: 45, CutInGoodOrder: true, CutPort: envdPort})
	_, s := d.start(t.Context(), "print(1)\nprint(2)\nprint(3)", nil)
	defer s.Close()
	if _, end := follow(s, ""); end != nil || s.Err() == nil {
		t.Errorf("got %v, %v, want an error", end, s.Err())
	}
}

// An upload that is broken off leaves the old file; with the fault it leaves what had arrived.
func TestFaultTornUploads(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	upload := func() {
		t.Helper()
		c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /files?path=a HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\nnew",
			d.box.SandboxID, d.box.EnvdAccessToken, octets)
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		io.Copy(io.Discard, c) // until the server has given up
		c.Close()
	}
	for fault, want := range map[bool]string{false: "the whole old file", true: "new"} {
		d.s.SetFaults(Faults{})
		d.ask(200, d.http, "POST", "path=a", octets, []byte("the whole old file"))
		d.s.SetFaults(Faults{TornUploads: fault})
		upload()
		if got := d.ask(200, d.http, "GET", "path=a", "", nil); string(got) != want {
			t.Errorf("with the fault %v: got %q, want %q", fault, got, want)
		}
	}
}

func TestFaultPackedDownloads(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	d.ask(200, d.http, "POST", "path=a", octets, []byte("content"))
	d.s.SetFaults(Faults{PackedDownloads: true})
	got := d.ask(200, d.http, "GET", "path=a", "", nil, "Accept-Encoding", "gzip")
	z, err := gzip.NewReader(bytes.NewReader(got))
	if err != nil {
		t.Fatalf("%v: %q", err, got)
	}
	if got, err := io.ReadAll(z); err != nil || string(got) != "content" {
		t.Errorf("got %q, %v", got, err)
	}
	if got := d.ask(200, d.http, "GET", "path=a", "", nil, "Accept-Encoding", "identity"); string(got) != "content" {
		t.Errorf("got %q", got)
	}
}

// What a command writes while nobody is connected is lost, and so is what it was after its end.
func TestFaultDetachedOutput(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	d.s.SetFaults(Faults{DetachedOutput: true})
	yes := true
	ctx, cancel := context.WithCancel(t.Context())
	pid, s := d.start(ctx, "print(\"first\")\nreadline()\nprint(\"lost\")\nwrite(\"mark\", \"1\")\nreadline()\nprint(\"last\")\nreadline()", func(m *pb.StartRequest) { m.Stdin = &yes })
	follow(s, "first")
	cancel()
	s.Close()
	send := func() {
		_, err := d.procs.SendInput(t.Context(), connect.NewRequest(&pb.SendInputRequest{
			Process: byPID(pid), Input: &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: []byte("go\n")}},
		}))
		if err != nil {
			t.Error(err)
		}
	}
	until(t, "nobody is connected", func() bool {
		p, err := d.s.lookup(d.box.SandboxID).processes.find(byPID(pid))
		if err != nil {
			t.Fatal(err)
		}
		p.out.mu.Lock()
		defer p.out.mu.Unlock()
		return len(p.out.readers) == 0
	})
	send()
	until(t, "the lost line is written", func() bool {
		_, err := d.files.Stat(t.Context(), connect.NewRequest(&fspb.StatRequest{Path: "mark"}))
		return err == nil
	})
	c, err := d.procs.Connect(t.Context(), connect.NewRequest(&pb.ConnectRequest{Process: byPID(pid)}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !c.Receive() || c.Msg().Event.GetStart() == nil {
		t.Fatalf("got %v", c.Err())
	}
	send()
	if out, _ := follow(c, "last"); out != "last\n" {
		t.Errorf("got %q, want only what came after connecting", out)
	}
	send()
	if _, end := follow(c, ""); end == nil {
		t.Errorf("got no end: %v", c.Err())
	}
	again, err := d.procs.Connect(t.Context(), connect.NewRequest(&pb.ConnectRequest{Process: byPID(pid)}))
	if err == nil {
		again.Receive()
		err = again.Err()
		again.Close()
	}
	wantCode(t, "connecting to what has ended", err, connect.CodeNotFound)
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func TestFaultOneTag(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	d.s.SetFaults(Faults{OneTag: true})
	one, two := "one", "two"
	_, s := d.start(t.Context(), "forever()", func(m *pb.StartRequest) { m.Tag = &one })
	defer s.Close()
	kill := func() error {
		_, err := d.procs.SendSignal(t.Context(), connect.NewRequest(&pb.SendSignalRequest{
			Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Tag{Tag: one}}, Signal: pb.Signal_SIGNAL_SIGKILL,
		}))
		return err
	}
	_, other := d.start(t.Context(), "forever()", func(m *pb.StartRequest) { m.Tag = &two })
	defer other.Close()
	wantCode(t, "one tag of two", kill(), connect.CodeNotFound)
	d.s.SetFaults(Faults{})
	if err := kill(); err != nil {
		t.Error(err)
	}
}

func TestFaultFatalPings(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	d.s.SetFaults(Faults{FatalPings: true})
	_, s := d.start(t.Context(), "forever()", nil)
	defer s.Close()
	r := connect.NewRequest(&pb.ListRequest{})
	r.Header().Set("Keepalive-Ping-Interval", "0")
	if _, err := d.procs.List(t.Context(), r); err == nil {
		t.Error("got an answer of an envd that has ended")
	}
	if _, end := follow(s, ""); end.GetStatus() != "signal: killed" {
		t.Errorf("got %v, want the commands to end with it", end)
	}
}

// The trap after a timeout: what is sent at once is never executed, and only says that it is alive.
func TestFaultStuckAfterAbandon(t *testing.T) {
	bubble(t, fake.Options{}, Config{Faults: Faults{StuckAfterAbandon: 50 * time.Millisecond}}, func(w world) {
		id := w.create("").SandboxID
		w.leave(id, body("forever()"), time.Second)
		got := w.leave(id, body("print(1)"), 12*time.Second)
		if len(got) != 2 || got[0]["type"] != "keepalive" || got[1]["type"] != "keepalive" {
			t.Errorf("got %v, want keepalives", got)
		}
		time.Sleep(50 * time.Millisecond)
		if got := w.run(id, body("print(2)")); the(got, "stdout") == nil {
			t.Errorf("got %v after a while", got)
		}
	})
}

func TestFaultUnseenDisconnects(t *testing.T) {
	bubble(t, fake.Options{}, Config{Faults: Faults{UnseenDisconnects: true}}, func(w world) {
		id := w.create("").SandboxID
		ctx, cancel := context.WithCancel(w.Context())
		r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost/execute", strings.NewReader(body("sleep(60_000)\nkept = 1")))
		r.Header.Set("E2b-Sandbox-Id", id)
		r.Header.Set("E2b-Sandbox-Port", "49999")
		done := make(chan struct{})
		go func() { defer close(done); w.s.ServeHTTP(httptest.NewRecorder(), r) }()
		synctest.Wait()
		begin := time.Now()
		cancel()
		got := w.run(id, body("print(kept)"))
		if waited := time.Since(begin); waited != time.Minute || the(got, "stdout")["text"] != "1\n" {
			t.Errorf("got %v after %v, want the code to go on for a minute", got, waited)
		}
		<-done
	})
}

func TestFaultPastedEnvironment(t *testing.T) {
	for value, want := range map[string]string{
		"plain": "import os; os.environ['K'] = 'plain'\n", "it's": "import os; os.environ['K'] = 'it's'\n",
	} {
		if got := pasted(map[string]string{"K": value}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	w := newWorld(t, fake.Options{}, Config{Faults: Faults{PastedEnvironment: true}})
	id := w.create("").SandboxID
	if got := w.run(id, body("print(1)", `"env_vars": {"K": "it's"}`)); the(got, "error") == nil { // of any language but Python it is wrong
		t.Errorf("got %v, want a broken cell", got)
	}
}

func TestFaultLostDirectory(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{Faults: Faults{LostDirectory: true}})
	id := w.create("").SandboxID
	x := decode[contextAnswer](t, w.do("POST", "/contexts", `{"cwd": "/tmp"}`, at(id, interpreterPort)...))
	in := fmt.Sprintf(`"context_id": %q`, x.ID)
	for _, want := range []string{"/tmp\n", "/workspace\n"} {
		if got := the(w.run(id, body("print(cwd())", in)), "stdout"); got["text"] != want {
			t.Errorf("got %v, want %q", got, want)
		}
		w.do("POST", "/contexts/"+x.ID+"/restart", "", at(id, interpreterPort)...)
	}
}

func TestFaultBlankLines(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	d.s.SetFaults(Faults{BlankLines: true})
	blank := 0
	for in := bufio.NewScanner(d.post(t.Context(), "print(1)").Body); in.Scan(); {
		if in.Text() == "" {
			blank++
		}
	}
	if blank < 3 {
		t.Errorf("got %d blank lines", blank)
	}
}

// Nothing is wrong unless somebody asks for it.
func TestNoFaults(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	if f := w.s.faults(); f != (Faults{}) {
		t.Errorf("got %+v", f)
	}
}
