//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execbroker/execbroker/internal/waittest"
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
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
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
	t.Parallel()
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
			p.clean(t) // the sandbox ended with the server
		})
	}
}

// announced starts a server and returns what it prints about itself.
func announced[T any](t testing.TB, p *process) (said T) {
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
	t.Parallel()
	p := command(t, "serve", "--listen", "127.0.0.1:0", "--json")
	s := announced[serving](t, p)
	if s.API != "native" || s.Key == "" {
		t.Errorf("got %+v", s)
	}
	ask(t, 401, "GET", s.URL+"/v1/stats", "", "Authorization", "Bearer wrong")
	key := []string{"Authorization", "Bearer " + s.Key}
	contains(t, ask(t, 200, "POST", s.URL+"/v1/run", `{"code": "print(6 * 7)"}`, key...), `"stdout":"42\n"`)
	contains(t, ask(t, 200, "GET", s.URL+"/v1/experiments", "", key...), `{"experiments":[]}`) // who has started the server is its operator
	contains(t, ask(t, 200, "GET", s.URL+"/v1/overview", "", key...), `"runs":{"ok":1}`, `"backends":[{"name":"`, `"turns":1,"answered":1`)
	contains(t, ask(t, 200, "GET", s.Page, ""), "<title>execbroker</title>")
	answer := make(chan string, 1)
	go func() {
		defer close(answer)
		answer <- ask(t, 200, "POST", s.URL+"/v1/run", `{"code": "sleep(3000)\nprint(\"whole\")"}`, key...)
	}()
	waittest.Until(t, "the run starts", func() error {
		if got := ask(t, 200, "GET", s.URL+"/v1/stats", "", key...); !strings.Contains(got, `"running":1`) {
			return errors.New(got)
		}
		return nil
	})
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	contains(t, <-answer, `"stdout":"whole\n"`)
	if got := p.code(t, p.Wait()); got != 128+int(syscall.SIGTERM) {
		t.Errorf("got exit code %d: %s", got, p.err.String())
	}
	p.clean(t)
}

// Connections without a key are few for each address. One that has shown its key is not counted,
// and neither are those of a proxy.
func TestServeConnections(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args  []string
		known bool
		open  bool // a third connection
	}{
		"address": {}, "known": {known: true, open: true}, "proxy": {args: []string{"--proxy", "127.0.0.0/8"}, open: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := command(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--json", "--max-connections-per-address", "2"}, test.args...)...)
			s := announced[serving](t, p)
			key := "none"
			if test.known {
				key = s.Key
			}
			get := func() bool {
				c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				// Writing fails if the server has closed the connection already.
				_, _ = io.WriteString(c, "GET /v1/stats HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+key+"\r\n\r\n")
				res, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err == nil {
					res.Body.Close()
				}
				return err == nil
			}
			for range 2 {
				if !get() {
					t.Fatal("a connection within the limit was closed")
				}
			}
			if open := get(); open != test.open {
				t.Errorf("the third connection is open: %v", open)
			}
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = p.Wait()
			p.clean(t)
		})
	}
}

// A client that a guard refuses is told the rule and its numbers.
func TestServeTellsRules(t *testing.T) {
	t.Parallel()
	config := write(t, t.TempDir(), "app.yaml", "backends: {box: {type: fake}}\nguard: {runs_per_minute: 1, code_bytes: 100}\n")
	p := command(t, "serve", "--config", config, "--listen", "127.0.0.1:0", "--json")
	s := announced[serving](t, p)
	key := []string{"Authorization", "Bearer " + s.Key}
	contains(t, ask(t, 403, "POST", s.URL+"/v1/run", `{"code": "`+strings.Repeat("1", 101)+`"}`, key...), `"denied":{"rule":"code-size","limit":100,"have":101}`)
	ask(t, 200, "POST", s.URL+"/v1/run", `{"code": "1"}`, key...)
	contains(t, ask(t, 403, "POST", s.URL+"/v1/run", `{"code": "1"}`, key...), `"kind":"denied"`, `"ran":"no"`, `"denied":{"rule":"rate","limit":1,"have":1}`)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	p.clean(t)
}

// A server that watches its file follows it, keeps what it has if the file is wrong, and does not
// end at a hangup.
func TestServeWatches(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := write(t, dir, "app.yaml", "backends: {box: {type: fake}}\nguard: {code_bytes: 10}\n")
	p := command(t, "serve", "--config", config, "--watch", "--listen", "127.0.0.1:0", "--json")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.Stderr = log // which can be read while the program writes
	s := announced[serving](t, p)
	key := []string{"Authorization", "Bearer " + s.Key}
	code := `{"code": "print(1000000)"}`
	contains(t, ask(t, 403, "POST", s.URL+"/v1/run", code, key...), `"rule":"code-size","limit":10`)
	until := func(what string, is func() bool) {
		t.Helper()
		waittest.Until(t, what, func() error {
			if !is() {
				return errors.New(read(t, log.Name()))
			}
			return nil
		})
	}
	said := func(n int, text string) func() bool {
		return func() bool { return strings.Count(read(t, log.Name()), text) == n }
	}
	write(t, dir, "app.yaml", "backends: {box: {type: fake}}\nguard: {code_byte: 20}\n")
	until("the error is told", said(1, "is not used"))
	contains(t, ask(t, 403, "POST", s.URL+"/v1/run", code, key...), `"rule":"code-size","limit":10`)
	write(t, dir, "app.yaml", "backends: {box: {type: fake}}\nguard: {code_bytes: 20}\n")
	until("the change is told", said(1, "the configuration has changed\""))
	ask(t, 200, "POST", s.URL+"/v1/run", code, key...)
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until("it looks again", said(2, "the configuration has changed\""))
	ask(t, 200, "POST", s.URL+"/v1/run", code, key...)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	p.clean(t)
	contains(t, run(t, exitUsage, "serve", "--watch").err.String(), "--watch: needs --config")
}

func TestServeNeMo(t *testing.T) {
	t.Parallel()
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

// No server does anything for a web page of another origin, and each accepts the names that are
// configured.
func TestServersAndWebPages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args       []string
		path, body string
	}{
		"native": {[]string{"serve"}, "/v1/run", `{"code": "1"}`},
		"nemo":   {[]string{"serve", "--api", "nemo"}, "/execute", `{"generated_code": "print(1)", "timeout": 1, "language": "python"}`},
		"piston": {[]string{"serve", "--api", "piston"}, "/execute", `{"language": "py", "version": "*", "files": [{"content": "1"}]}`},
		"e2b":    {[]string{"serve", "--api", "e2b"}, "/v2/sandboxes", `{"templateID": "base"}`},
		"mcp":    {[]string{"mcp"}, "", `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := command(t, append(test.args, "--listen", "127.0.0.1:0", "--domain", "tools.example", "--json")...)
			s := announced[serving](t, p)
			for _, refused := range []struct {
				status  int
				headers []string
			}{
				{421, []string{"Host", "evil.example"}},
				{421, []string{"Host", "evil.example", "Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"}},
				{403, []string{"Origin", "https://evil.example"}},
				{403, []string{"Sec-Fetch-Site", "cross-site"}},
			} {
				ask(t, refused.status, "POST", s.URL+test.path, test.body, append(refused.headers, "Content-Type", "application/json", "X-API-Key", s.Key, "Authorization", "Bearer "+s.Key)...)
			}
			ask(t, map[string]int{"native": 200, "nemo": 200, "piston": 404, "e2b": 404, "mcp": 404}[name], "GET", strings.TrimSuffix(s.URL, "/mcp")+map[string]string{"native": "/v1/health", "nemo": "/"}[name], "", "Host", "tools.example:80")
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = p.Wait()
			p.clean(t)
		})
	}
}

func TestServeUsageErrors(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"api":       {"--api", "e2c"},
		"listen":    {"--listen", "nowhere"},
		"address":   {"--listen", "0.0.0.0:0"}, // without keys
		"network":   {"--network", "some"},
		"timeout":   {"--max-timeout", "0s"},
		"sandboxes": {"--max-sandboxes", "0"},
		"pause":     {"--api", "e2b", "--on-pause", "freeze"},
		"paused":    {"--on-pause", "kill"}, // a flag of another interface
		"most":      {"--max-network", "none"},
		"ports":     {"--api", "e2b", "--ports", "open"},
		"ports-of":  {"--ports", "private"}, // a flag of another interface
		"drain":     {"--drain", "-1s"},
		"domain":    {"--domain", "https://x.example"},
		"conns":     {"--max-connections", "0"},
		"address-n": {"--max-connections-per-address", "0"},
		"proxy":     {"--proxy", "proxy.example"},
		"domains":   {"--api", "nemo", "--domain", "*"},
		"keys":      {"--keys", "absent.json"},
		"page":      {"--api", "nemo", "--page=false"},
		"e2b-keys":  {"--api", "e2b", "--keys", "x.json"},
		"nemo":      {"--api", "nemo", "--listen", "0.0.0.0:0"},
		"piston":    {"--api", "piston", "--listen", "0.0.0.0:0"},
		"dify":      {"--api", "dify", "--listen", "0.0.0.0:0"},
		"fronts":    {"--api", "fronts"}, // without a configuration
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

// Before its first client a server logs what is missing. For each failure it logs what the client
// is not told, with the ID that the client was told. No flag is needed for that.
func TestServersLog(t *testing.T) {
	config := write(t, t.TempDir(), "c.yaml", "backends:\n  box: {type: fake, broken: true, fail: create}\n")
	for name, args := range map[string][]string{
		"native": {"serve"}, "nemo": {"serve", "--api", "nemo"}, "e2b": {"serve", "--api", "e2b"}, "mcp": {"mcp"}, "warm": {"serve", "--warm"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := command(t, append(args, "--listen", "127.0.0.1:0", "--config", config, "--json")...)
			s := announced[serving](t, p)
			headers := []string{"Content-Type", "application/json", "X-Request-Id", "mine-7", "X-API-Key", s.Key, "Authorization", "Bearer " + s.Key}
			switch name {
			case "nemo":
				ask(t, 502, "POST", s.URL+"/execute", `{"generated_code": "print(1)", "timeout": 1, "language": "python"}`, headers...)
			case "e2b":
				ask(t, 503, "POST", s.URL+"/v2/sandboxes", `{"templateID": "base"}`, headers...)
			case "mcp":
				c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: s.URL, HTTPClient: &http.Client{Transport: bearer(s.Key)}, MaxRetries: -1}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "1"}}); err != nil {
					t.Error(err)
				}
				c.Close()
			default:
				ask(t, 503, "POST", s.URL+"/v1/run", `{"code": "1"}`, headers...)
			}
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = p.Wait()
			var missing, failed, ahead bool
			last := ""
			for line := range strings.Lines(p.err.String()) {
				var l struct{ Level, Msg, Missing, Fix, ID, Err, Why string }
				if json.Unmarshal([]byte(line), &l) != nil {
					continue // progress
				}
				last = l.Msg + ": " + l.Why
				missing = missing || l.Level == "WARN" && l.Missing == "engine" && l.Fix == "start it"
				failed = failed || strings.Contains(l.Err, "the engine is") && (l.ID == "mine-7" || name == "mcp" && l.ID != "")
				ahead = ahead || l.Msg == "starting a sandbox ahead"
			}
			if !missing || !failed || ahead != (name == "warm") || last != "the server has ended: stopped by terminated" {
				t.Errorf("got %s", p.err.String())
			}
		})
	}
	p := command(t, "serve", "--listen", "127.0.0.1:0", "--json", "--warm")
	announced[serving](t, p)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	p.clean(t)
	if got := p.err.String(); strings.Contains(got, "WARN") {
		t.Errorf("nothing is missing, and it says %s", got)
	}
}
