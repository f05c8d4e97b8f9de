package main

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	modal "github.com/modal-labs/modal-client/go"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// emulator starts the program as an emulator of Fly.
func emulator(t *testing.T, host string) (p *process, e emulating) {
	t.Helper()
	p = command(t, "emulate", "fly", "--engine", host, "--listen", "127.0.0.1:0", "--proxy", "127.0.0.1:0", "--json")
	return p, announced[emulating](t, p)
}

// modalEmulator starts the program as an emulator of Modal.
func modalEmulator(t *testing.T, host string) (p *process, e emulatingModal) {
	t.Helper()
	p = command(t, "emulate", "modal", "--engine", host, "--listen", "127.0.0.1:0", "--image", "docker.io/library/python:3.13-slim="+dockertest.Python, "--json")
	return p, announced[emulatingModal](t, p)
}

// emulated counts the containers with a label.
func emulated(t *testing.T, host, label string) int {
	t.Helper()
	names, err := dockertest.Containers(t.Context(), host, label)
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// endsBy ends an emulator that has one container with a label. The container ends with it or, if it
// is killed, when the next emulator starts.
func endsBy(t *testing.T, s syscall.Signal, host, label string, p *process, again func() *process) {
	t.Helper()
	if n := emulated(t, host, label); n != 1 {
		t.Fatalf("got %d containers, want 1", n)
	}
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	got := p.code(t, p.Wait())
	if s == syscall.SIGKILL {
		if n := emulated(t, host, label); n != 1 {
			t.Errorf("killed: got %d containers, want the one that is left", n)
		}
		next := again()
		if n := emulated(t, host, label); n != 0 {
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
	if n := emulated(t, host, label); n != 0 {
		t.Errorf("ended: got %d containers", n)
	}
}

// A Machine answers through the proxy, and goes with its emulator.
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
			for !strings.Contains(fetch(t, e.Proxy, "Fly-Force-Instance-Id", m.ID), "Directory listing") {
				if t.Context().Err() != nil {
					t.Fatal("the Machine does not answer")
				}
			}
			endsBy(t, s, host, "execbroker.flytest.thing=sandboxes/"+m.ID, p, func() *process {
				next, _ := emulator(t, host)
				return next
			})
		})
	}
}

// A Sandbox runs a process for Modal's own SDK, which has nothing but what the emulator prints. It
// goes with its emulator.
func TestEmulateModal(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(s.String(), func(t *testing.T) {
			p, e := modalEmulator(t, host)
			t.Setenv("MODAL_CONFIG_PATH", t.TempDir()+"/none")
			t.Setenv("MODAL_SERVER_URL", e.URL)
			t.Setenv("MODAL_TOKEN_ID", e.TokenID)
			t.Setenv("MODAL_TOKEN_SECRET", e.TokenSecret)
			id := hello(t)
			endsBy(t, s, host, "execbroker.modaltest.thing="+id, p, func() *process {
				next, _ := modalEmulator(t, host)
				return next
			})
		})
	}
}

// hello makes a Sandbox with Modal's SDK and runs a process in it.
func hello(t *testing.T) (id string) {
	t.Helper()
	c, err := modal.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	app, err := c.Apps.FromName(t.Context(), "sandboxes", &modal.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	sb, err := c.Sandboxes.Create(t.Context(), app, c.Images.FromRegistry("docker.io/library/python:3.13-slim", nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Detach()
	process, err := sb.Exec(t.Context(), []string{"python3", "-c", "print(6 * 7)"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(process.Stdout); err != nil || string(out) != "42\n" {
		t.Errorf("got %q, %v", out, err)
	}
	return sb.SandboxID
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

		"modal-listen":    {"modal", "--listen", "0.0.0.0:0"},
		"modal-port":      {"modal", "--listen", "unix:/nowhere"},
		"modal-sandboxes": {"modal", "--max-sandboxes", "0"},
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
