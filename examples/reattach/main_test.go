package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor/driver"
)

// parse reads a file of this directory, and sets a separate store for the test.
func parse(t *testing.T, file string) backends.Config {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := backends.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Sessions.Store = "sqlite:" + filepath.Join(t.TempDir(), "sessions.db")
	return cfg
}

// talk sends messages, each from a new program.
func talk(t *testing.T, cfg backends.Config, messages ...string) string {
	t.Helper()
	var out strings.Builder
	for _, code := range messages {
		if err := run(t.Context(), &out, cfg, "chat-1", code); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func TestPyodide(t *testing.T) {
	got := talk(t, parse(t, "pyodide.yaml"), "x = 41\nprint(x)", "print(x + 1)")
	want := `a new session: what was there before is gone
41
a new session: what was there before is gone
NameError: name 'x' is not defined
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A container survives the program, and the next program continues in it.
func TestDocker(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	cfg := parse(t, "docker.yaml")
	cfg.Backends["code"] = backends.Backend{Type: "docker", Settings: map[string]json.RawMessage{
		"host": json.RawMessage(strconv.Quote(host)), "image": json.RawMessage(strconv.Quote(dockertest.Trixie)), "pull": json.RawMessage(`"never"`),
	}}
	t.Cleanup(func() { discard(t, cfg) })
	got := talk(t, cfg, "x = 41\nprint(x)", "print(x + 1)")
	want := `a new session: what was there before is gone
41
the session of before
42
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// discard ends the session of the conversation.
func discard(t *testing.T, cfg backends.Config) {
	box, err := backends.Open(context.Background(), driver.Env{Owner: "reattach"}, all.Registry(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if err := box.Manager().Discard(context.Background(), "chat-1"); err != nil {
		t.Error(err)
	}
}
