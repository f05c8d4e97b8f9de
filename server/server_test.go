package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

func copyTo(w io.Writer, r io.Reader) (int64, error) { return io.Copy(w, r) }

func TestRun(t *testing.T) {
	w := newWorld(t, fake.Options{Packages: []string{"six"}}, Config{})
	for name, test := range map[string]struct {
		body string
		want []string
	}{
		"code":      {`{"code": "print(6 * 7)"}`, []string{`"status":"ok"`, `"stdout":"42\n"`, `"cell":1`, `"duration_seconds":0.`, `"origin":{"backend":"box"}`}},
		"value":     {`{"code": "6 * 7", "language": "javascript"}`, []string{`"main":true`, `42`}},
		"exception": {`{"code": "throw(\"ValueError\", \"bad\")"}`, []string{`"status":"failed"`, `"type":"ValueError"`}},
		"timeout":   {`{"code": "print(1)\nforever()", "timeout_seconds": 1}`, []string{`"status":"timed_out"`, `"stdout":"1\n"`}},
		"linger":    {`{"code": "later(50, \"late\")"}`, []string{`"stdout":"late\n"`}},
		"at-once":   {`{"code": "later(60000, \"late\")", "linger_seconds": 0}`, []string{`"left_running":["timer"]`}},
		"stdin":     {`{"code": "print(readline())", "stdin": "hello\n"}`, []string{`hello`}},
		"terminal":  {`{"command": ["script", "print(terminal())\nprint(readline())"], "stdin": "typed\r", "terminal": {"rows": 40, "columns": 120}}`, []string{`"stdout":"40 120\r\ntyped\r\ntyped\r\n"`}},
		"files":     {`{"code": "print(read(\"a/b.txt\"))", "files": [{"name": "a/b.txt", "content": "hi"}]}`, []string{`"stdout":"hi\n"`}},
		"binary":    {`{"code": "print(read(\"b\") == \"hi\")", "files": [{"name": "b", "content": {"base64": "aGk="}}]}`, []string{`"stdout":"true\n"`}},
		"artifacts": {`{"code": "write(\"out.txt\", \"made\")", "artifacts": {"contents": true}}`, []string{`"name":"out.txt"`, `"data":"made"`}},
		"packages":  {`{"code": "print(imported(\"six\"))", "packages": ["six"]}`, []string{`true`}},
		"large":     {`{"code": "out(\"x\" * 200000)"}`, []string{strings.Repeat("x", 200000)}},
	} {
		t.Run(name, func(t *testing.T) {
			has(t, w.want(200, "POST", "/v1/run", test.body), test.want...)
		})
	}
	got := decode[Stats](t, w.want(200, "GET", "/v1/stats", ""))
	if got.Subject != "alice" || got.Runs[executor.StatusOK] != 11 || got.Runs[executor.StatusFailed] != 1 || got.Runs[executor.StatusTimedOut] != 1 || got.Running != 0 {
		t.Errorf("got %+v", got)
	}
	if got := decode[Stats](t, w.want(200, "GET", "/v1/stats", "", "Authorization", "", "X-API-Key", bob)); len(got.Runs) > 0 || !strings.HasPrefix(got.Subject, "key-") {
		t.Errorf("bob sees %+v", got)
	}
	has(t, w.want(200, "GET", "/v1/capabilities", ""), `"network":{"mode":"none"}`, `"max_timeout_seconds":300`, `"language":"python"`)
	has(t, w.want(200, "GET", "/v1/health", "", "Authorization", ""), "ok")
	has(t, w.want(200, "GET", "/v1/openapi.json", "", "Authorization", ""), `"openapi": "3.1.0"`)
}

func TestSessions(t *testing.T) {
	w := newWorld(t, fake.Options{Packages: []string{"six"}}, Config{})
	s := w.session(`{"languages": ["python"], "env": {"A": "b"}}`)
	w.want(200, "POST", s+"/run", `{"code": "x = 41"}`)
	has(t, w.want(200, "POST", s+"/run", `{"code": "print(x + 1, env(\"A\"))"}`), `42 b`)
	has(t, w.want(200, "POST", s+"/packages", `{"names": ["six"]}`), `"status":"ok"`)
	has(t, w.want(200, "POST", s+"/packages", `{"names": ["nonesuch"]}`), `"status":"failed"`)
	w.want(201, "PUT", s+"/files/dir/a%20b.bin", "\x00\xff\r\n")
	if res, got := w.do("GET", s+"/files/dir/a%20b.bin", ""); got != "\x00\xff\r\n" || res.Header.Get("Content-Type") != "application/octet-stream" || res.Header.Get("X-Content-Type-Options") != "nosniff" || res.Header.Get("Content-Disposition") != "attachment" {
		t.Errorf("got %q, %v", got, res.Header)
	}
	w.want(201, "PUT", s+"/files/empty", "")
	if got := w.want(200, "GET", s+"/files/empty", ""); got != "" {
		t.Errorf("got %q", got)
	}
	has(t, w.want(200, "GET", s+"/files", ""), `"name":"dir","kind":"directory"`)
	has(t, w.want(200, "GET", s+"/files?dir=dir", ""), `"name":"a b.bin","kind":"file","size":4`)
	w.want(204, "DELETE", s+"/files/dir", "")
	has(t, w.want(404, "GET", s+"/files/dir/a%20b.bin", ""), `file-not-found`)
	w.want(204, "POST", s+"/reset", "")
	has(t, w.want(200, "POST", s+"/run", `{"code": "print(x)"}`), `NameError`)
	has(t, w.want(200, "GET", "/v1/sessions", ""), s[len("/v1/sessions/"):])
	if got := decode[Session](t, w.want(200, "GET", s, "")); got.Busy || got.Languages[0] != executor.Python || got.Backend != "box" {
		t.Errorf("got %+v", got)
	}
	// The ID of a run can be used only once, so a repeated request does not run twice. That of a
	// run that did not begin is free.
	w.b.Fail(fake.OpRun, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, nil))
	w.want(503, "POST", s+"/run", `{"id": "r1", "code": "n = recall(\"n\", 0) + 1"}`)
	w.want(200, "POST", s+"/run", `{"id": "r1", "code": "n = recall(\"n\", 0) + 1"}`)
	has(t, w.want(409, "POST", s+"/run", `{"id": "r1", "code": "n = recall(\"n\", 0) + 1"}`), `"ran":"yes"`)
	has(t, w.want(200, "POST", s+"/run", `{"code": "print(n)"}`), `"1\n"`)

	w.want(204, "DELETE", s, "")
	w.want(404, "GET", s, "")
	if n := len(w.b.Sandboxes()); n != 0 {
		t.Errorf("got %d sandboxes", n)
	}
}

// An unused session ends. A session whose sandbox has died no longer counts.
func TestSessionsEnd(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxSessions: 1})
	s := w.session(`{"idle_seconds": 0.05}`)
	w.until("the idle session ends", func() bool { return len(w.b.Sandboxes()) == 0 })
	w.want(404, "POST", s+"/run", `{"code": "1"}`)
	w.until("it no longer counts", func() bool { // which it does until its sandbox is closed
		res, _ := w.do("POST", "/v1/sessions", `{}`)
		s = res.Header.Get("Location")
		return res.StatusCode == 201
	})
	w.want(429, "POST", "/v1/sessions", `{}`)
	w.session(`{}`, "Authorization", "Bearer "+bob) // bob has separate limits
	for _, b := range w.b.Sandboxes() {
		w.b.Break(b)
	}
	w.want(404, "GET", s, "")
	w.session(`{}`)
}

// event is a server-sent event.
type event struct{ name, data string }

func events(t *testing.T, r io.Reader, each func(event) bool) {
	t.Helper()
	var e event
	for s := bufio.NewReader(r); ; {
		line, err := s.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		switch name, value, _ := strings.Cut(line, ": "); {
		case line == "":
			if e.name != "" && !each(e) {
				return
			}
			e = event{}
		case name == "event":
			e.name = value
		case name == "data":
			e.data = value
		}
	}
}

func TestStream(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	s := w.session(`{}`)
	for _, target := range []string{"/v1/run/stream", s + "/run/stream"} {
		var names []string
		_, got := w.do("POST", target, `{"code": "print(\"a\\nevent: done\")\neprint(\"b\")\n6 * 7"}`)
		var last event
		events(t, strings.NewReader(got), func(e event) bool {
			names = append(names, e.name)
			last = e
			return true
		})
		if got := strings.Join(names, " "); got != "started stdout stderr output done" {
			t.Errorf("%s: got events %s", target, got)
		}
		has(t, last.data, `"status":"ok"`, `a\nevent: done\n`)
	}
	// If a run cannot begin, the answer is an ordinary error.
	w.want(501, "POST", s+"/run/stream", `{"code": "1", "language": "cobol"}`)
}

// Output arrives while the code runs, and a client that goes stops it.
func TestClientGoes(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	s := w.session(`{}`)
	for _, target := range []string{s + "/run/stream", s + "/run"} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "POST", w.h.URL+target, strings.NewReader(`{"code": "print(\"here\")\nsleep(3600000)", "timeout_seconds": 200}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+alice)
		done := make(chan error, 1)
		go func() {
			res, err := w.h.Client().Do(r)
			if err == nil {
				events(t, res.Body, func(e event) bool { return e.name != "stdout" })
				cancel()
				res.Body.Close()
			}
			done <- err
		}()
		w.until("the code runs", func() bool {
			return decode[Stats](t, w.want(200, "GET", "/v1/stats", "")).Running == 1 || ctx.Err() != nil
		})
		if target == s+"/run" {
			cancel()
		}
		<-done
		w.until("the code is stopped", func() bool { return decode[Stats](t, w.want(200, "GET", "/v1/stats", "")).Running == 0 })
		has(t, w.want(200, "POST", s+"/run", `{"code": "print(6 * 7)"}`), `42`)
	}
}

// A client that does not read does not block the code. What it misses is counted, and the result
// has it.
func TestSlowReader(t *testing.T) {
	block := make(chan struct{})
	q := &queue{w: blocked{block: block}, rc: http.NewResponseController(blocked{block: block}), wake: make(chan struct{}, 1), cancel: func(error) {}}
	for range 100 {
		q.put("stdout", executor.Event{Data: bytes.Repeat([]byte("x"), 64<<10)}, 64<<10)
	}
	if q.bytes > maxQueued || q.dropped == 0 || q.dropped+int64(len(q.events)*64<<10) != 100*64<<10 {
		t.Errorf("got %d bytes in %d events, and %d dropped", q.bytes, len(q.events), q.dropped)
	}
	q.put("done", "x", 0)
	if q.events[len(q.events)-1].name != "done" {
		t.Error("the result has found no room")
	}
	close(block)
}

type blocked struct {
	http.ResponseWriter
	block chan struct{}
}

func (b blocked) Write(p []byte) (int, error) { <-b.block; return len(p), nil }

func TestDrain(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	s := w.session(`{}`)
	type answer struct {
		status int
		body   string
	}
	answers := make(chan answer, 2)
	release := w.b.Hold(fake.OpRun)
	for _, target := range []string{s + "/run", "/v1/run"} {
		go func() {
			res, body := w.do("POST", target, `{"code": "print(\"whole\")"}`)
			answers <- answer{res.StatusCode, body}
		}()
	}
	w.until("both run", func() bool { return decode[Stats](t, w.want(200, "GET", "/v1/stats", "")).Running == 2 })
	drained := make(chan error, 1)
	go func() { drained <- w.s.Drain(t.Context()) }()
	w.until("it says so", func() bool { res, _ := w.do("GET", "/v1/health", ""); return res.StatusCode == 503 })
	for _, target := range []string{s + "/run", "/v1/run", "/v1/sessions"} {
		if got := decode[Problem](t, w.want(503, "POST", target, `{"code": "1"}`[:len(`{`)]+map[bool]string{true: "}", false: `"code": "1"}`}[target == "/v1/sessions"])); got.Kind != "draining" || got.Ran != "no" {
			t.Errorf("%s: got %+v", target, got)
		}
	}
	release()
	for range 2 { // both runs are still possible
		if a := <-answers; a.status != 200 || !strings.Contains(a.body, "whole") {
			t.Errorf("got %d %s", a.status, a.body)
		}
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.s.Drain(ctx); err != nil && err != context.Canceled {
		t.Error(err)
	}
}

func TestHostile(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxBody: 10_000, MaxFile: 20_000, MaxRuns: 2})
	s := w.session(`{}`)
	w.want(201, "PUT", s+"/files/a.txt", "mine")
	for name, test := range map[string]struct {
		status               int
		method, target, body string
		headers              []string
	}{
		"no-key":            {401, "GET", "/v1/sessions", "", []string{"Authorization", ""}},
		"wrong-key":         {401, "POST", "/v1/run", `{"code": "1"}`, []string{"Authorization", "Bearer wrong"}},
		"half-a-key":        {401, "POST", "/v1/run", `{"code": "1"}`, []string{"Authorization", "Bearer " + alice[:len(alice)-1]}},
		"two-keys":          {401, "GET", "/v1/stats", "", []string{"Authorization", "Bearer " + alice + "," + bob}},
		"basic":             {401, "GET", "/v1/stats", "", []string{"Authorization", "Basic " + alice}},
		"key-in-the-url":    {401, "GET", "/v1/stats?key=" + alice, "", []string{"Authorization", ""}},
		"another-session":   {404, "POST", s + "/run", `{"code": "1"}`, []string{"Authorization", "Bearer " + bob}},
		"another-stream":    {404, "POST", s + "/run/stream", `{"code": "1"}`, []string{"Authorization", "Bearer " + bob}},
		"another-file":      {404, "GET", s + "/files/a.txt", "", []string{"Authorization", "Bearer " + bob}},
		"another-write":     {404, "PUT", s + "/files/a.txt", "yours", []string{"Authorization", "Bearer " + bob}},
		"another-end":       {404, "DELETE", s, "", []string{"Authorization", "Bearer " + bob}},
		"another-reset":     {404, "POST", s + "/reset", "", []string{"Authorization", "Bearer " + bob}},
		"another-packages":  {404, "POST", s + "/packages", `{"names": ["six"]}`, []string{"Authorization", "Bearer " + bob}},
		"unknown-session":   {404, "POST", "/v1/sessions/x/run", `{"code": "1"}`, nil},
		"no-json":           {400, "POST", "/v1/run", `{`, nil},
		"no-object":         {400, "POST", "/v1/run", `[1]`, nil},
		"two-objects":       {400, "POST", "/v1/run", `{"code": "1"} {"code": "2"}`, nil},
		"unknown-field":     {400, "POST", "/v1/run", `{"cod": "1"}`, nil},
		"wrong-type":        {400, "POST", "/v1/run", `{"code": 1}`, nil},
		"deep":              {400, "POST", "/v1/run", strings.Repeat("[", 9_999), nil},
		"empty":             {400, "POST", "/v1/run", ``, nil},
		"too-large":         {413, "POST", "/v1/run", `{"code": "` + strings.Repeat("x", 10_000) + `"}`, nil},
		"too-large-file":    {413, "PUT", s + "/files/a.txt", strings.Repeat("x", 20_001), nil},
		"timeout":           {400, "POST", "/v1/run", `{"code": "1", "timeout_seconds": 1e9}`, nil},
		"linger":            {400, "POST", "/v1/run", `{"code": "1", "linger_seconds": -1}`, nil},
		"terminal":          {400, "POST", "/v1/run", `{"command": ["x"], "terminal": {"rows": 0, "columns": 80}}`, nil},
		"terminal-of-code":  {400, "POST", "/v1/run", `{"code": "1", "terminal": {"rows": 24, "columns": 80}}`, nil},
		"negative-timeout":  {400, "POST", "/v1/run", `{"code": "1", "timeout_seconds": -1}`, nil},
		"idle":              {400, "POST", "/v1/sessions", `{"idle_seconds": 1e9}`, nil},
		"code-and-command":  {400, "POST", "/v1/run", `{"code": "1", "command": ["x"]}`, nil},
		"package-option":    {400, "POST", s + "/packages", `{"names": ["--index-url=x"]}`, nil},
		"language":          {501, "POST", "/v1/sessions", `{"languages": ["cobol"]}`, nil},
		"file-above":        {400, "GET", s + "/files/..%2f..%2fetc%2fpasswd", "", nil},
		"write-above":       {400, "PUT", s + "/files/..%2f..%2fetc%2fpasswd", "x", nil},
		"remove-above":      {400, "DELETE", s + "/files/..%2f..%2fetc", "", nil},
		"list-above":        {400, "GET", s + "/files?dir=../..", "", nil},
		"file-nul":          {400, "GET", s + "/files/a%00b", "", nil},
		"file-of-a-run":     {400, "POST", "/v1/run", `{"code": "1", "files": [{"name": "../x", "content": "y"}]}`, nil},
		"directory-as-file": {400, "GET", s + "/files/.", "", nil},
		"method":            {405, "PATCH", s, "", nil},
		"path":              {404, "GET", "/v1/nothing", "", nil},
		"admin":             {404, "GET", "/debug/pprof/", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "directory-as-file" { // the path is cleaned to that of the listing
				test.status = 200
			}
			got := w.want(test.status, test.method, test.target, test.body, test.headers...)
			if strings.Contains(got, alice) || strings.Contains(got, "goroutine") {
				t.Errorf("got %s", got)
			}
		})
	}
	if got := w.want(200, "GET", s+"/files/a.txt", ""); got != "mine" { // nothing was lost
		t.Errorf("got %q", got)
	}
	if n := len(w.b.Sandboxes()); n != 1 {
		t.Errorf("got %d sandboxes, want 1", n)
	}
}

// Header values of a client are returned in headers only if they can do no harm there.
func TestHeaders(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	for id, kept := range map[string]bool{"abc-1": true, "a b": false, strings.Repeat("a", 65): false, "é": false, `"><script>`: false} {
		res, _ := w.do("GET", "/v1/health", "", "X-Request-Id", id)
		if got := res.Header.Get("X-Request-Id"); (got == id) != kept {
			t.Errorf("%q: got %q", id, got)
		}
	}
	// A line break in a name does not become a line break in an answer.
	s := w.session(`{}`)
	w.want(201, "PUT", s+"/files/a%0d%0aSet-Cookie:%20b=c", "x")
	res, _ := w.do("GET", s+"/files/a%0d%0aSet-Cookie:%20b=c", "")
	if res.StatusCode != 200 || res.Header.Get("Set-Cookie") != "" {
		t.Errorf("got %d %v", res.StatusCode, res.Header)
	}
	c := w.raw("GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\r\n\tb: c\r\n\r\n")
	if !strings.HasPrefix(c, "HTTP/1.1 ") || strings.Contains(c, "\r\nb: c") {
		t.Errorf("got %q", c)
	}
}

// raw sends bytes and returns the answer until the connection ends or is silent.
func (w world) raw(text string) string {
	w.Helper()
	c, err := net.Dial("tcp", w.h.Listener.Addr().String())
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, text)
	if err := c.SetReadDeadline(time.Now().Add(forever)); err != nil {
		w.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.Fatal(err)
	}
	defer res.Body.Close()
	var b bytes.Buffer
	if err := res.Write(&b); err != nil {
		w.Fatal(err)
	}
	return b.String()
}

// A body that arrives too slowly gets an answer, and a file that did not arrive leaves the old one
// unchanged. A server does nothing for a web page, neither of another origin nor of a name that
// points at this machine, even with a key.
func TestWebPages(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{Hosts: []string{"api.example"}})
	w.want(200, "POST", "/v1/run", `{"code": "1"}`, "Host", "api.example:3000")
	has(t, w.want(421, "POST", "/v1/run", `{"code": "1"}`, "Host", "evil.example"), `"kind":"origin"`, "evil.example", `"ran":"no"`)
	w.want(421, "GET", "/v1/openapi.json", "", "Host", "evil.example")
	has(t, w.want(403, "POST", "/v1/run", `{"code": "1"}`, "Origin", "https://evil.example"), `"kind":"origin"`)
	w.want(403, "DELETE", "/v1/sessions/x", "", "Sec-Fetch-Site", "same-site")
	if _, err := New(w.s.x, Config{Hosts: []string{"https://api.example"}}); err == nil {
		t.Error("a URL is taken for a host")
	}
}

func TestSlowBodies(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{BodyTime: time.Second}) // for those that do arrive
	s := w.session(`{}`)
	w.want(201, "PUT", s+"/files/a.txt", "mine")
	var slow sync.WaitGroup
	for _, line := range []string{"POST /v1/run", "PUT " + s + "/files/a.txt"} {
		slow.Go(func() {
			has(t, w.raw(line+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+alice+"\r\nContent-Length: 1000\r\n\r\n{"), "HTTP/1.1 408", "did not arrive")
		})
	}
	slow.Wait()
	if got := w.want(200, "GET", s+"/files/a.txt", ""); got != "mine" {
		t.Errorf("got %q", got)
	}
}

// One key cannot use the runs of another.
func TestLimits(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxRuns: 1, MaxRunsTotal: 2})
	run := func(key string) {
		r, err := http.NewRequestWithContext(t.Context(), "POST", w.h.URL+"/v1/run", strings.NewReader(`{"code": "sleep(3600000)", "timeout_seconds": 300}`))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("X-API-Key", key)
		if res, err := w.h.Client().Do(r); err == nil { // the request ends with the test
			res.Body.Close()
		}
	}
	running := func(key string) bool {
		return decode[Stats](t, w.want(200, "GET", "/v1/stats", "", "Authorization", "Bearer "+key)).Running == 1
	}
	go run(alice)
	w.until("alice runs", func() bool { return running(alice) })
	if got := decode[Problem](t, w.want(429, "POST", "/v1/run", `{"code": "1"}`)); got.Kind != "denied" || got.Denied != (executor.Denial{Rule: executor.RuleRunsAtOnce, Limit: 1, Have: 1}) {
		t.Errorf("got %+v", got)
	}
	has(t, w.want(200, "POST", "/v1/run", `{"code": "print(6 * 7)"}`, "Authorization", "Bearer "+bob), "42")
	go run(bob)
	w.until("bob runs", func() bool { return running(bob) })
	if got := decode[Problem](t, w.want(429, "POST", "/v1/run", `{"code": "1"}`)); got.Kind != "exhausted" {
		t.Errorf("got %+v", got)
	}
}

// Failures of the backend do not reveal the host, and say whether the code ran.
func TestFailures(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	w.b.Fail("create", 1, &executor.Error{Kind: executor.ErrUnavailable, Ran: executor.RanNo, Err: fmt.Errorf("dial unix /run/secret.sock: refused")})
	got := w.want(503, "POST", "/v1/run", `{"code": "1"}`)
	if p := decode[Problem](t, got); p.Kind != "unavailable" || p.Ran != "no" || strings.Contains(got, "secret") {
		t.Errorf("got %s", got)
	}
}

// A refusal names the rule and its numbers, so that a client can tell its user in its own words.
func TestDenials(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxSessions: 1})
	rule := executor.Denial{Rule: executor.RuleRate, Limit: 10, Have: 10}
	w.b.Fail("create", 1, &executor.Error{Kind: executor.ErrDenied, Ran: executor.RanNo, Denied: rule, RetryAfter: 90 * time.Second, Err: errors.New("too many")})
	res, got := w.do("POST", "/v1/run", `{"code": "1"}`)
	if p := decode[Problem](t, got); res.StatusCode != 403 || p.Denied != rule || p.Kind != "denied" || p.Ran != "no" || res.Header.Get("Retry-After") != "90" {
		t.Errorf("got %d %v %s", res.StatusCode, res.Header, got)
	}
	w.session(`{}`)
	if p := decode[Problem](t, w.want(429, "POST", "/v1/sessions", `{}`)); p.Denied != (executor.Denial{Rule: executor.RuleSessions, Limit: 1, Have: 1}) {
		t.Errorf("got %+v", p)
	}
	if got := w.want(404, "GET", "/v1/sessions/x", ""); strings.Contains(got, "denied") { // nothing was denied
		t.Errorf("got %s", got)
	}
}

// A wrong method, and features that the backend lacks, are named.
func TestWhatIsWrong(t *testing.T) {
	w := newWorld(t, fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureStdin)}, Config{})
	res, got := w.do("GET", "/v1/run", "")
	if has(t, got, `"kind":"method"`, "want POST"); res.StatusCode != 405 || res.Header.Get("Allow") != "POST" {
		t.Errorf("got %d %v %s", res.StatusCode, res.Header, got)
	}
	res, got = w.do("POST", "/v1/sessions/x/files/y", "")
	if res.StatusCode != 405 || res.Header.Get("Allow") != "DELETE, GET, PUT" {
		t.Errorf("got %d %v %s", res.StatusCode, res.Header, got)
	}
	has(t, w.want(404, "GET", "/v1/nothing", ""), "no-such-operation")
	has(t, w.want(501, "POST", "/v1/run", `{"code": "1", "stdin": "x"}`), "the backend lacks stdin:python", `"missing":["stdin:python"]`)
}

// A page of a listed origin needs a key as well, and pages of others get nothing.
func TestOrigins(t *testing.T) {
	const app = "https://app.example"
	w := newWorld(t, fake.Options{}, Config{Origins: []string{app}})
	for name, test := range map[string]struct {
		key, origin string
		status      int
		allowed     string
	}{
		"listed":  {alice, app, 200, app},
		"no-key":  {"", app, 401, app},
		"foreign": {alice, "https://evil.example", 403, ""},
	} {
		res, body := w.do("POST", "/v1/run", `{"code": "print(1)"}`, "Authorization", "Bearer "+test.key, "Origin", test.origin, "Sec-Fetch-Site", "cross-site")
		if got := res.Header.Get("Access-Control-Allow-Origin"); res.StatusCode != test.status || got != test.allowed {
			t.Errorf("%s: got %d, allowed %q: %s", name, res.StatusCode, got, body)
		}
	}
	if res, _ := w.do("OPTIONS", "/v1/run", "", "Authorization", "", "Origin", app, "Access-Control-Request-Method", "POST"); res.StatusCode != 204 || !strings.Contains(res.Header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("got %d %v", res.StatusCode, res.Header)
	}
	if _, err := New(w.s.x, Config{Keys: w.s.cfg.Keys, Origins: []string{"*"}}); err == nil {
		t.Error("every origin is allowed")
	}
}

// A session at a limit is told apart from a server without a free sandbox.
func TestLimitOfASession(t *testing.T) {
	for op, want := range map[string]string{"create": "no sandbox is free", "run": "the session has as many processes", "": "no sandbox is free"} {
		p := ProblemOf(&executor.Error{Op: op, Kind: executor.ErrExhausted, Err: errors.New("no terminal")})
		if p.Status != http.StatusTooManyRequests || !strings.Contains(p.Message, want) {
			t.Errorf("%s: got %d, %q", op, p.Status, p.Message)
		}
	}
}
