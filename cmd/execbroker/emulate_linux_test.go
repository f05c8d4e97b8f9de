package main

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// emulator starts the program as an emulator of Fly.
func emulator(t *testing.T, host string) (p *process, e emulating) {
	t.Helper()
	p = command(t, "emulate", "fly", "--engine", host, "--listen", "127.0.0.1:0", "--proxy", "127.0.0.1:0", "--json")
	return p, announced[emulating](t, p)
}

// emulated counts the containers of one Machine.
func emulated(t *testing.T, host, machine string) int {
	t.Helper()
	names, err := dockertest.Containers(t.Context(), host, "execbroker.flytest.thing=sandboxes/"+machine)
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// A Machine answers through the proxy. It ends with the emulator or, if that is killed, when the
// next one starts.
func TestEmulateFly(t *testing.T) {
	t.Parallel()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	body := `{"config": {"image": "` + dockertest.Trixie + `", "restart": {"policy": "no"}, "services": [{"internal_port": 8080}],
		"init": {"exec": ["python3", "-m", "http.server", "8080"]}}}`
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(s.String(), func(t *testing.T) {
			p, e := emulator(t, host)
			auth := []string{"Authorization", "Bearer " + e.Token}
			url := e.URL + "/v1/apps/sandboxes/machines"
			contains(t, ask(t, 401, "GET", url, "", "Authorization", "Bearer wrong"), "token validation error")
			var m struct{ ID string }
			decode(t, []byte(ask(t, 200, "POST", url, body, auth...)), &m)
			ask(t, 200, "GET", url+"/"+m.ID+"/wait?timeout=60", "", auth...)
			if n := emulated(t, host, m.ID); n != 1 {
				t.Fatalf("got %d containers, want 1", n)
			}
			for !strings.Contains(fetch(t, e.Proxy, "Fly-Force-Instance-Id", m.ID), "Directory listing") {
				if t.Context().Err() != nil {
					t.Fatal("the Machine does not answer")
				}
			}
			if err := p.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			got := p.code(t, p.Wait())
			if s == syscall.SIGKILL {
				if n := emulated(t, host, m.ID); n != 1 {
					t.Errorf("killed: got %d containers, want the one that is left", n)
				}
				next, _ := emulator(t, host)
				if n := emulated(t, host, m.ID); n != 0 {
					t.Errorf("started again: got %d containers", n)
				}
				if err := next.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				got = next.code(t, next.Wait())
			}
			if got != 128+int(syscall.SIGTERM) {
				t.Errorf("got exit code %d: %s", got, p.err.String())
			}
			if n := emulated(t, host, m.ID); n != 0 {
				t.Errorf("ended: got %d containers", n)
			}
		})
	}
}

func TestEmulateUsageErrors(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"provider": {},
		"listen":   {"fly", "--listen", "0.0.0.0:0"},
		"proxy":    {"fly", "--proxy", "192.0.2.1:0"},
		"app":      {"fly", "--app", "No App"},
		"machines": {"fly", "--max-machines", "0"},
		"rate":     {"fly", "--rate", "-1"},
		"publish":  {"fly", "--publish", "70000"},
	} {
		t.Run(name, func(t *testing.T) {
			if p := run(t, exitUsage, append([]string{"emulate"}, args...)...); p.out.Len() > 0 {
				t.Errorf("got %s", p.out.String())
			}
		})
	}
	contains(t, run(t, exitInfrastructure, "emulate", "fly", "--engine", "unix:///nowhere/docker.sock").err.String(), "engine")
}

// fetch gets a page, whatever the status.
func fetch(t *testing.T, url string, header, value string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(header, value)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
