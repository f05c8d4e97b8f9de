package e2btest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/execbroker/execbroker/internal/envd/processpb"
	"github.com/execbroker/execbroker/server/e2b"
)

func TestFaultsOfThePlane(t *testing.T) {
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
			w := newWorld(t, c.faults, e2b.Config{})
			rec := w.want(c.status, "POST", "/v2/sandboxes", base)
			if !strings.Contains(rec.Body.String(), c.body) || rec.Header().Get("Retry-After") != c.retry {
				t.Errorf("got %s, Retry-After %q", rec.Body, rec.Header().Get("Retry-After"))
			}
			if n := len(w.b.Sandboxes()); n != 0 {
				t.Errorf("got %d sandboxes after a refusal", n)
			}
			w.create()
		})
	}
}

func TestFaultOldPaths(t *testing.T) {
	w := newWorld(t, Faults{OldPaths: true}, e2b.Config{})
	w.want(404, "POST", "/v2/sandboxes", base)
	w.want(404, "GET", "/v2/sandboxes", "")
	w.want(201, "POST", "/sandboxes", `{"templateID": "base", "timeout": 60}`)
}

func TestFaultNoIdempotency(t *testing.T) {
	w := newWorld(t, Faults{NoIdempotency: true}, e2b.Config{})
	for range 2 {
		w.want(201, "POST", "/v2/sandboxes", base, "Idempotency-Key", "k")
	}
	if n := len(w.b.Sandboxes()); n != 2 {
		t.Errorf("got %d sandboxes, want 2", n)
	}
}

func TestFaultChanging(t *testing.T) {
	w := newWorld(t, Faults{Changing: 1}, e2b.Config{})
	id := w.create().SandboxID
	w.want(409, "POST", "/v2/sandboxes/"+id+"/connect", "")
	w.want(200, "POST", "/v2/sandboxes/"+id+"/connect", "")
}

// The client does not know of a sandbox that there is, until it asks again with its key.
func TestFaultLostAnswer(t *testing.T) {
	w := newWorld(t, Faults{LostAnswers: 1}, e2b.Config{})
	srv := httptest.NewServer(w.f)
	defer srv.Close()
	for i := range 2 {
		r, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/v2/sandboxes", io.NopCloser(strings.NewReader(base)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-KEY", Key)
		r.Header.Set("Idempotency-Key", "k")
		res, err := srv.Client().Do(r)
		if err == nil {
			res.Body.Close()
		}
		if answered := err == nil && res.StatusCode == 201; answered != (i == 1) {
			t.Errorf("request %d: %v, %v", i, res, err)
		}
		if n := len(w.b.Sandboxes()); n != 1 {
			t.Errorf("got %d sandboxes, want 1", n)
		}
	}
}

func TestFaultClampedTimeouts(t *testing.T) {
	bubble(t, Faults{ClampedTimeouts: true}, e2b.Config{MaxTimeout: time.Hour}, func(w world) {
		left := func(id string) time.Duration {
			var d struct{ EndAt time.Time }
			if err := json.Unmarshal(w.want(200, "GET", "/sandboxes/"+id, "").Body.Bytes(), &d); err != nil {
				t.Fatal(err)
			}
			return time.Until(d.EndAt)
		}
		id := w.create().SandboxID
		time.Sleep(4 * time.Minute)
		w.want(204, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 3600}`)
		if got, want := left(id), 56*time.Minute; got != want {
			t.Errorf("got %v left, want %v", got, want)
		}
		w.f.set(Faults{})
		w.want(400, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 3601}`)
		w.want(204, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 3600}`)
		if got, want := left(id), time.Hour; got != want {
			t.Errorf("got %v left without the fault, want %v", got, want)
		}
	})
}

// The status 502 means four things and looks in four ways, while the sandbox lives.
func TestFaultBadGateway(t *testing.T) {
	w := newWorld(t, Faults{}, e2b.Config{})
	m := w.create()
	health := func() *httptest.ResponseRecorder {
		return w.do(t.Context(), "GET", "/health", "", at(m, envdPort)...)
	}
	for kind, want := range map[BadGateway]string{
		SandboxNotFound:  fmt.Sprintf(`{"sandboxId":%q,"message":"The sandbox was not found","code":502}`, m.SandboxID),
		PortNotOpen:      fmt.Sprintf(`{"sandboxId":%q,"message":"The sandbox is running but port is not open","code":502,"port":49983}`, m.SandboxID),
		RouteFailed:      "Failed to route request to sandbox",
		BrokenInBrowsers: "<!DOCTYPE html>",
	} {
		w.f.set(Faults{BadGateway: kind, BadGateways: 2})
		for range 2 {
			if rec := health(); rec.Code != 502 || !strings.HasPrefix(rec.Body.String(), want) {
				t.Errorf("%s: got %d %s, want %s", kind, rec.Code, rec.Body, want)
			}
		}
		if rec := health(); rec.Code != 204 {
			t.Errorf("%s: got %d after as many as were asked for", kind, rec.Code)
		}
		w.f.set(Faults{BadGateway: kind})
		for range 3 {
			if rec := health(); rec.Code != 502 {
				t.Errorf("%s: got %d", kind, rec.Code)
			}
		}
	}
	w.f.set(Faults{LateEnvd: 1, TooManyOpen: 1})
	for i, want := range []int{502, 429, 204} {
		if rec := health(); rec.Code != want {
			t.Errorf("request %d: got %d %s, want %d", i, rec.Code, rec.Body, want)
		}
	}
}

// execute runs code over a connection and returns the answer as it comes.
func (d daemon) execute(code string) io.Reader {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Context(), "POST", d.url+"/execute", strings.NewReader(body(code)))
	if err != nil {
		d.Fatal(err)
	}
	res, err := d.client(interpreterPort).Do(r)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { res.Body.Close() })
	return res.Body
}

func TestFaultCut(t *testing.T) {
	d := newDaemon(t)
	for _, inOrder := range []bool{false, true} {
		d.f.set(Faults{CutAfter: 100, CutInGoodOrder: inOrder, CutPort: interpreterPort, Cuts: 1})
		got, err := io.ReadAll(d.execute("print(1)\nprint(2)\nprint(3)"))
		if len(got) != 100 || (err == nil) != inOrder || bytes.Contains(got, []byte("end_of_execution")) {
			t.Errorf("in order %v: got %d bytes, %v", inOrder, len(got), err)
		}
		if got, err = io.ReadAll(d.execute("print(1)")); err != nil || !bytes.Contains(got, []byte("end_of_execution")) {
			t.Errorf("got %q, %v after as many as were asked for", got, err)
		}
	}
	d.f.set(Faults{CutAfter: 45, CutInGoodOrder: true, CutPort: envdPort})
	_, s := d.start(t.Context(), "print(1)\nprint(2)\nprint(3)", nil)
	defer s.Close()
	if _, end := follow(s, (*pb.StartResponse).GetEvent, ""); end != nil || s.Err() == nil {
		t.Errorf("got %v, %v, want an error", end, s.Err())
	}
}

const octets = "application/octet-stream"

// file sends a request for the file "a".
func (d daemon) file(method, content string, headers ...string) string {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Context(), method, d.url+"/files?path=a", strings.NewReader(content))
	if err != nil {
		d.Fatal(err)
	}
	r.Header.Set("Content-Type", octets)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := d.http.Do(r)
	if err != nil {
		d.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		d.Errorf("got %s %s, %v", res.Status, got, err)
	}
	return string(got)
}

// An upload that is broken off leaves the old file; with the fault it leaves what had arrived.
func TestFaultTornUploads(t *testing.T) {
	d := newDaemon(t)
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
		d.f.set(Faults{})
		d.file("POST", "the whole old file")
		d.f.set(Faults{TornUploads: fault})
		upload()
		if got := d.file("GET", ""); got != want {
			t.Errorf("with the fault %v: got %q, want %q", fault, got, want)
		}
	}
}

func TestFaultPackedDownloads(t *testing.T) {
	d := newDaemon(t)
	d.file("POST", "content")
	d.f.set(Faults{PackedDownloads: true})
	got := d.file("GET", "", "Accept-Encoding", "gzip")
	z, err := gzip.NewReader(strings.NewReader(got))
	if err != nil {
		t.Fatalf("%v: %q", err, got)
	}
	if got, err := io.ReadAll(z); err != nil || string(got) != "content" {
		t.Errorf("got %q, %v", got, err)
	}
	if got := d.file("GET", "", "Accept-Encoding", "identity"); got != "content" {
		t.Errorf("got %q", got)
	}
}

// What a command writes while nobody is connected is lost, and so is what it was after its end.
func TestFaultDetachedOutput(t *testing.T) {
	d := newDaemon(t)
	d.f.set(Faults{DetachedOutput: true})
	yes := true
	ctx, cancel := context.WithCancel(t.Context())
	pid, s := d.start(ctx, "print(\"first\")\nreadline()\nprint(\"lost\")\nreadline()\nprint(\"last\")\nreadline()", func(m *pb.StartRequest) { m.Stdin = &yes })
	follow(s, (*pb.StartResponse).GetEvent, "first")
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
	send()
	until(t, "the lost line is written", func() bool { return d.f.unheard.Load() > 0 })
	c, err := d.procs.Connect(t.Context(), connect.NewRequest(&pb.ConnectRequest{Process: byPID(pid)}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !c.Receive() || c.Msg().Event.GetStart() == nil {
		t.Fatalf("got %v", c.Err())
	}
	send()
	if out, _ := follow(c, (*pb.ConnectResponse).GetEvent, "last"); out != "last\n" {
		t.Errorf("got %q, want only what came after connecting", out)
	}
	send()
	if _, end := follow(c, (*pb.ConnectResponse).GetEvent, ""); end == nil {
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

func TestFaultOneTag(t *testing.T) {
	d := newDaemon(t)
	d.f.set(Faults{OneTag: true})
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
	d.f.set(Faults{})
	if err := kill(); err != nil {
		t.Error(err)
	}
}

func TestFaultFatalPings(t *testing.T) {
	d := newDaemon(t)
	d.f.set(Faults{FatalPings: true})
	_, s := d.start(t.Context(), "forever()", nil)
	defer s.Close()
	r := connect.NewRequest(&pb.ListRequest{})
	r.Header().Set("Keepalive-Ping-Interval", "0")
	if _, err := d.procs.List(t.Context(), r); err == nil {
		t.Error("got an answer of an envd that has ended")
	}
	if _, end := follow(s, (*pb.StartResponse).GetEvent, ""); end.GetStatus() != "signal: killed" {
		t.Errorf("got %v, want the commands to end with it", end)
	}
}

func TestFaultBlankLines(t *testing.T) {
	d := newDaemon(t)
	d.f.set(Faults{BlankLines: true})
	blank := 0
	for in := bufio.NewScanner(d.execute("print(1)")); in.Scan(); {
		if in.Text() == "" {
			blank++
		}
	}
	if blank < 3 {
		t.Errorf("got %d blank lines", blank)
	}
}
