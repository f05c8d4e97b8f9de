//go:build unix

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Several fronts on one port, one of which needs no key because its configuration says so. The
// doctor and the log warn of it.
func TestServeFronts(t *testing.T) {
	t.Parallel()
	config := write(t, t.TempDir(), "app.yaml", `backends: {box: {type: fake}}
fronts:
  - {api: terrarium, path: /terrarium, subject: cohere, allow_unauthenticated: true}
  - {api: dify, path: /dify}
`)
	p := command(t, "serve", "--api", "fronts", "--config", config, "--listen", "127.0.0.1:0", "--json")
	s := announced[serving](t, p)
	if len(s.Fronts) != 2 || s.Fronts[1].Path != "/dify" {
		t.Errorf("got %+v", s)
	}
	contains(t, ask(t, 200, "POST", s.URL+"/terrarium", `{"code": "print(1)"}`), `"std_out":"1\n"`)
	ask(t, 401, "POST", s.URL+"/dify/v1/sandbox/run", `{"language": "python3", "code": "print(1)"}`)
	contains(t, ask(t, 200, "POST", s.URL+"/dify/v1/sandbox/run", `{"language": "python3", "code": "print(1)"}`, "X-Api-Key", s.Key), `"stdout":"1\n"`)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	p.clean(t)
	warning := "fronts[0]: whoever can reach /terrarium/ of terrarium runs code without a key, as the subject cohere"
	contains(t, p.err.String(), warning)
	contains(t, run(t, 0, "doctor", "--config", config).out.String(), "box (fake) works", "fronts works", "warning  "+warning)

	config = write(t, t.TempDir(), "app.yaml", "backends: {box: {type: fake}}\nfronts:\n  - {api: pistol, path: /a}\n  - {api: dify, path: /a}\n")
	contains(t, run(t, exitUsage, "config", "check", "--config", config).err.String(),
		"fronts[0].api: ", "is unknown", "(line 3, column 6)", "fronts[1].path: ", "collides with", "(line 4, column 17)")
}

// A front whose clients can send no key serves a Unix socket.
func TestServeSocket(t *testing.T) {
	t.Parallel()
	p := command(t, "serve", "--api", "piston", "--json")
	p.Args = append(p.Args, "--listen", "unix:"+filepath.Join(p.Dir, "s"))
	s := announced[serving](t, p)
	file := strings.TrimPrefix(s.URL, "unix:")
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", file)
	}}}
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/v2/execute", strings.NewReader(`{"language": "py", "version": "*", "files": [{"content": "print(6 * 7)"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(b), `"stdout":"42\n"`) {
		t.Errorf("got %s, %v", b, err)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	p.clean(t)
}

// A web page of an origin in the configuration can use the native API, and no other.
func TestServeCORS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := write(t, dir, "app.yaml", "backends: {box: {type: fake}}\ncors: {origins: [https://app.example]}\n")
	p := command(t, "serve", "--config", config, "--listen", "127.0.0.1:0", "--json")
	s := announced[serving](t, p)
	for origin, want := range map[string]string{"https://app.example": "https://app.example", "https://evil.example": ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, s.URL+"/v1/run", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", origin)
		r.Header.Set("Access-Control-Request-Method", "POST")
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := res.Header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("%s: got %q", origin, got)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.code(t, p.Wait())
	p.clean(t)
	contains(t, run(t, exitUsage, "serve", "--api", "nemo", "--config", config).err.String(), "cors: only with --api native")
	config = write(t, dir, "star.yaml", "backends: {box: {type: fake}}\ncors: {origins: ['*']}\n")
	contains(t, run(t, exitUsage, "serve", "--config", config, "--listen", "127.0.0.1:0").err.String(), `"*" is no origin`)
}
