//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ask sends a request to a server of this interface and returns the answer.
func ask(t *testing.T, status int, method, url, body string, headers ...string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		t.Fatalf("%s %s: got %d %s, %v, want %d", method, url, res.StatusCode, b, err, status)
	}
	return string(b)
}

func TestServe(t *testing.T) {
	for name, c := range map[string]struct {
		keys string
		env  []string
	}{
		"made-key": {}, "keys": {keys: "second", env: []string{keysVariable + "=first, second"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := command(t, "serve", "--api", "e2b", "--listen", "127.0.0.1:0", "--json")
			p.Env = append(p.Env, c.env...)
			s := announced[serving](t, p)
			if s.API != "e2b" || (s.Key == "") != (c.keys != "") {
				t.Errorf("got %+v", s)
			}
			key := s.Key + c.keys
			ask(t, 401, "GET", s.URL+"/v2/sandboxes", "", "X-API-KEY", "wrong")
			var made struct{ SandboxID string }
			if err := json.Unmarshal([]byte(ask(t, 201, "POST", s.URL+"/v2/sandboxes", `{"templateID": "base"}`, "X-API-KEY", key)), &made); err != nil {
				t.Fatal(err)
			}
			got := ask(t, 200, "POST", s.URL+"/execute", `{"code": "print(6 * 7)"}`, "E2b-Sandbox-Id", made.SandboxID, "E2b-Sandbox-Port", "49999")
			contains(t, got, `"text":"42\n"`, "end_of_execution")
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if got := p.code(t, p.Wait()); got != 128+int(syscall.SIGTERM) {
				t.Errorf("got exit code %d: %s", got, p.err.String())
			}
			p.clean(t) // the sandbox went with the server
		})
	}
}

// announced starts a server and returns what it says of itself.
func announced[T any](t *testing.T, p *process) (said T) {
	t.Helper()
	p.Stdout = nil
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(out).Decode(&said); err != nil {
		t.Fatalf("%v: %s", err, p.err.String())
	}
	return said
}

// At a signal the server lets a run end, and answers it.
func TestServeNative(t *testing.T) {
	p := command(t, "serve", "--listen", "127.0.0.1:0", "--json")
	s := announced[serving](t, p)
	if s.API != "native" || s.Key == "" {
		t.Errorf("got %+v", s)
	}
	ask(t, 401, "GET", s.URL+"/v1/stats", "", "Authorization", "Bearer wrong")
	key := []string{"Authorization", "Bearer " + s.Key}
	contains(t, ask(t, 200, "POST", s.URL+"/v1/run", `{"code": "print(6 * 7)"}`, key...), `"stdout":"42\n"`)
	answer := make(chan string, 1)
	go func() {
		defer close(answer)
		answer <- ask(t, 200, "POST", s.URL+"/v1/run", `{"code": "sleep(1000)\nprint(\"whole\")"}`, key...)
	}()
	for end := time.Now().Add(30 * time.Second); !strings.Contains(ask(t, 200, "GET", s.URL+"/v1/stats", "", key...), `"running":1`); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the run does not start")
		}
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	contains(t, <-answer, `"stdout":"whole\n"`)
	if got := p.code(t, p.Wait()); got != 128+int(syscall.SIGTERM) {
		t.Errorf("got exit code %d: %s", got, p.err.String())
	}
	p.clean(t)
}

func TestServeNeMo(t *testing.T) {
	p := command(t, "serve", "--api", "nemo", "--listen", "127.0.0.1:0", "--json")
	s := announced[serving](t, p)
	contains(t, ask(t, 200, "POST", s.URL+"/execute", `{"generated_code": "print(6 * 7)", "timeout": 10.0, "language": "python"}`, "Content-Type", "application/json"), `"process_status":"completed","stdout":"42\n"`)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := p.code(t, p.Wait()); got != 128+int(syscall.SIGTERM) {
		t.Errorf("got exit code %d: %s", got, p.err.String())
	}
	p.clean(t)
}

func TestServeMistakes(t *testing.T) {
	for name, args := range map[string][]string{
		"api":       {"--api", "e2c"},
		"listen":    {"--listen", "nowhere"},
		"address":   {"--listen", "0.0.0.0:0"}, // without keys
		"network":   {"--network", "some"},
		"timeout":   {"--max-timeout", "0s"},
		"sandboxes": {"--max-sandboxes", "0"},
		"drain":     {"--drain", "-1s"},
		"domain":    {"--domain", "x.example"}, // of e2b only
		"keys":      {"--keys", "absent.json"},
		"e2b-keys":  {"--api", "e2b", "--keys", "x.json"},
		"nemo":      {"--api", "nemo", "--listen", "0.0.0.0:0"},
		"arguments": {"more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if p := run(t, exitUsage, append([]string{"serve"}, args...)...); p.out.Len() > 0 {
				t.Errorf("got %s", p.out.String())
			}
		})
	}
}
