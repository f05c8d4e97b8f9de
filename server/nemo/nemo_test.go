package nemo_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/pyodide"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/server/nemo"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

func serve(t *testing.T, x executor.Executor, cfg nemo.Config) *nemo.Server {
	t.Helper()
	s, err := nemo.New(x, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// do sends a body to /execute. Headers are alternating names and values.
func do(t *testing.T, s http.Handler, body string, headers ...string) (int, nemo.Answer) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost:6000/execute", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, r)
	var a nemo.Answer
	if err := json.Unmarshal(rec.Body.Bytes(), &a); err != nil {
		t.Fatalf("%v: %s", err, rec.Body)
	}
	return rec.Code, a
}

func call(t *testing.T, code string, timeout float64) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"generated_code": code, "timeout": timeout, "language": "python"})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Each case except the first three is a fault of the original that this server corrects.
func TestPython(t *testing.T) {
	x, err := pyodide.Open(t.Context(), driver.Env{Owner: "nemo"}, pyodide.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	s := serve(t, x, nemo.Config{})
	for _, test := range []struct {
		name, code     string
		timeout        float64
		status         string
		stdout, stderr string // stderr: only its end
	}{
		{"prints", "print(6 * 7)\n6 * 7", 10, "completed", "42\n", ""},
		{"stderr", "import sys\nprint('x', file=sys.stderr)", 10, "completed", "", "x\n"},
		{"raises", "print('before')\n1 / 0", 10, "error", "before\n", "ZeroDivisionError: division by zero\n"},
		{"over-64-KB", "print('x' * 200_000)", 10, "completed", strings.Repeat("x", 200_000) + "\n", ""},
		{"sys-exit-0", "import sys\nprint('a')\nsys.exit(0)", 10, "completed", "a\n", ""},
		{"sys-exit-3", "import sys\nprint('a')\nsys.exit(3)", 10, "error", "a\n", "Exited with code 3\n"},
		{"sys-exit-text", "import sys\nsys.exit('so long')", 10, "error", "", "so long\nExited with code 1\n"},
		{"main", "def f():\n    print('main')\nif __name__ == '__main__':\n    f()", 10, "completed", "main\n", ""},
		{"fence", "Here it is:\n```python\nprint('fenced')\n```\nDone.", 10, "completed", "fenced\n", ""},
		{"before-a-timeout", "print('before', flush=True)\nwhile True: pass", 1, "timeout", "before\n", "Timed out\n"},
		{"after-a-timeout", "print('again')", 10, "completed", "again\n", ""},
		{"files-stay-1", "left = 'x'\nopen('left.txt', 'w').write(left)", 10, "completed", "", ""},
		{"files-stay-2", "import os\nprint(open('left.txt').read(), os.getcwd())", 10, "completed", "x /workspace\n", ""},
		{"variables-do-not", "left", 10, "error", "", "NameError: name 'left' is not defined\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, a := do(t, s, call(t, test.code, test.timeout))
			if status != 200 || a.Status != test.status || a.Stdout != test.stdout || !strings.HasSuffix(a.Stderr, test.stderr) || test.stderr == "" && a.Stderr != "" {
				t.Errorf("got %d %.500q", status, a)
			}
		})
	}
}

func open(t *testing.T, b *fake.Backend) executor.Executor {
	t.Helper()
	x, err := b.Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		x.Close()
		if left := b.Sandboxes(); len(left) > 0 {
			t.Errorf("%d sandboxes left", len(left))
		}
	})
	return x
}

// Errors in a call have the messages of the original, if it has one.
func TestInvalidRequests(t *testing.T) {
	s := serve(t, open(t, fake.New(fake.Options{})), nemo.Config{MaxBody: 10_000})
	for name, test := range map[string]struct {
		body, contentType string
		status            int
		stderr            string
	}{
		"no-json":       {"x", "text/plain", 400, "Request must be JSON"},
		"bad-json":      {"{", "application/json", 400, "Invalid JSON data"},
		"array":         {"[]", "application/json", 400, "Invalid JSON data"},
		"null":          {"null", "application/json", 400, "Invalid JSON data"},
		"no-code":       {`{"timeout": 1, "language": "python"}`, "application/json", 400, "Missing required field: generated_code"},
		"no-timeout":    {`{"generated_code": "", "language": "python"}`, "application/json", 400, "Missing required field: timeout"},
		"no-language":   {`{"generated_code": "", "timeout": 1}`, "application/json; charset=utf-8", 400, "Missing required field: language"},
		"language":      {`{"generated_code": "", "timeout": 1, "language": "ruby"}`, "application/json", 400, "Only python execution is supported"},
		"null-code":     {`{"generated_code": null, "timeout": 1, "language": "python"}`, "application/json", 400, "Wrong type of field: generated_code"},
		"null-timeout":  {`{"generated_code": "", "timeout": null, "language": "python"}`, "application/json", 400, "Wrong value of field: timeout"},
		"no-time":       {`{"generated_code": "", "timeout": 0, "language": "python"}`, "application/json", 400, "Wrong value of field: timeout"},
		"long-timeout":  {`{"generated_code": "", "timeout": 1e300, "language": "python"}`, "application/json", 400, "up to 300"},
		"null-language": {`{"generated_code": "", "timeout": 1, "language": null}`, "application/json", 400, "Only python execution is supported"},
		"too-large":     {strings.Repeat(" ", 10_001), "application/json", 413, "more than 10000 bytes"},
		"deep":          {strings.Repeat("[", 9_999), "application/json", 400, "Invalid JSON data"},
	} {
		t.Run(name, func(t *testing.T) {
			status, a := do(t, s, test.body, "Content-Type", test.contentType)
			if status != test.status || a.Status != "error" || !strings.Contains(a.Stderr, test.stderr) {
				t.Errorf("got %d %+v", status, a)
			}
		})
	}
	for target, want := range map[string]int{"GET /": 200, "GET /execute": 405, "POST /other": 404, "GET /../../etc/passwd": 404} {
		method, path, _ := strings.Cut(target, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost/", nil)
		r.URL.Path = path
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, r)
		if rec.Code != want && rec.Code != http.StatusMovedPermanently && rec.Code != http.StatusTemporaryRedirect {
			t.Errorf("%s: got %d, want %d", target, rec.Code, want)
		}
		if rec.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %v", target, rec.Header())
		}
	}
}

// A server without keys does nothing for a web page, neither of another origin nor of a name that
// points at this machine.
func TestWebPages(t *testing.T) {
	b := fake.New(fake.Options{})
	x, err := b.Open(driver.Env{Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	s := serve(t, x, nemo.Config{Hosts: []string{"tools.example"}})
	for name, test := range map[string]struct {
		headers []string
		status  int
	}{
		"program":    {nil, 200},
		"configured": {[]string{"Host", "tools.example"}, 200},
		"host":       {[]string{"Host", "evil.example"}, 421},
		"rebound":    {[]string{"Host", "evil.example:6000", "Origin", "http://evil.example:6000", "Sec-Fetch-Site", "same-origin"}, 421},
		"origin":     {[]string{"Origin", "https://evil.example"}, 403},
		"site":       {[]string{"Sec-Fetch-Site", "cross-site"}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			status, a := do(t, s, call(t, `print("did run")`, 10), test.headers...)
			if status != test.status || (a.Stdout == "did run\n") != (status == 200) || (a.Stderr == "") != (status == 200) {
				t.Errorf("got %d %+v, want %d", status, a, test.status)
			}
		})
	}
	if _, err := nemo.New(x, nemo.Config{Hosts: []string{"http://tools.example"}}); err == nil {
		t.Error("a URL is taken for a host")
	}
}

// The client repeats calls that were answered with 502, so only calls that cannot have run get that
// status.
func TestFailures(t *testing.T) {
	for name, test := range map[string]struct {
		op   fake.Op
		err  *executor.Error
		want int
	}{
		"nothing-ran":  {"create", &executor.Error{Kind: executor.ErrUnavailable, Ran: executor.RanNo, Err: errors.New("dial /run/secret.sock")}, 502},
		"may-have-run": {"create", &executor.Error{Kind: executor.ErrUnavailable, Ran: executor.RanMaybe, Err: errors.New("dial /run/secret.sock")}, 500},
		"denied":       {"create", &executor.Error{Kind: executor.ErrDenied, Ran: executor.RanNo}, 429},
		"broken":       {"create", &executor.Error{Kind: executor.ErrInternal, Ran: executor.RanNo, Err: errors.New("/run/secret.sock")}, 500},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, failing{Executor: open(t, fake.New(fake.Options{})), err: test.err}, nemo.Config{})
			status, a := do(t, s, call(t, "print(1)", 5))
			if status != test.want || a.Status != "error" || !strings.HasPrefix(a.Stderr, "Server error: ") || strings.Contains(a.Stderr, "secret") {
				t.Errorf("got %d %+v", status, a)
			}
		})
	}
}

// failing is an Executor whose Create fails.
type failing struct {
	executor.Executor
	err error
}

func (f failing) Create(context.Context, executor.Spec) (executor.Session, error) { return nil, f.err }

func TestKeys(t *testing.T) {
	var keys server.Keys
	if err := keys.Add("key-of-alice-0123456789", server.Client{}); err != nil {
		t.Fatal(err)
	}
	s := serve(t, open(t, fake.New(fake.Options{})), nemo.Config{Keys: keys})
	for header, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer key-of-alice-0123456789": 200} {
		if status, a := do(t, s, call(t, "print(1)", 5), "Authorization", header); status != want {
			t.Errorf("%q: got %d %+v", header, status, a)
		}
	}
}

func TestDrain(t *testing.T) {
	b := fake.New(fake.Options{})
	s := serve(t, open(t, b), nemo.Config{MaxRuns: 1})
	release := b.Hold("create")
	answers := make(chan nemo.Answer, 1)
	go func() {
		_, a := do(t, s, call(t, "print(\"whole\")", 60))
		answers <- a
	}()
	waittest.Until(t, "the run starts", func() error {
		if b.Calls("create") == 0 {
			return errors.New("nothing is created")
		}
		return nil
	})
	if status, _ := do(t, s, call(t, "print(1)", 5)); status != http.StatusBadGateway {
		t.Errorf("got %d for one run too many", status)
	}
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	release()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if a := <-answers; a.Status != "completed" || a.Stdout != "whole\n" {
		t.Errorf("got %+v", a)
	}
	if status, _ := do(t, s, call(t, "print(1)", 5)); status != http.StatusBadGateway {
		t.Errorf("got %d after draining", status)
	}
}

func TestSlowBody(t *testing.T) {
	srv := httptest.NewServer(serve(t, open(t, fake.New(fake.Options{})), nemo.Config{BodyTime: 50 * time.Millisecond}))
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	if err := c.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusRequestTimeout {
		t.Fatalf("got %v, %v", res, err)
	}
	res.Body.Close()
}
