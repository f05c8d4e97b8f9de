package e2btest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// session returns a session of the Docker backend.
func session(t *testing.T) executor.Session {
	t.Helper()
	x, err := Docker(t.Context(), "e2btest-"+strings.ToLower(t.Name()), docker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := x.Create(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRoot(t *testing.T) {
	s := session(t)
	for name, c := range map[string]struct {
		req    executor.Request
		want   string
		code   int
		status executor.Status
	}{
		"id":      {executor.Request{Command: []string{"id", "-u"}}, "0\n", 0, executor.StatusOK},
		"exit":    {executor.Request{Command: []string{"sh", "-c", "exit 3"}}, "", 3, executor.StatusFailed},
		"stdin":   {executor.Request{Command: []string{"cat"}, Stdin: strings.NewReader("a\x00\xc3")}, "a\x00\xc3", 0, executor.StatusOK},
		"env":     {executor.Request{Command: []string{"sh", "-c", "echo $A; pwd"}, Env: map[string]string{"A": "it's"}, Dir: "/tmp"}, "it's\n/tmp\n", 0, executor.StatusOK},
		"missing": {executor.Request{Command: []string{"no-such-program"}}, "sh: 1: exec: no-such-program: not found\n", 127, executor.StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r, err := Root(t.Context(), s, c.req, func(e executor.Event) error {
				out.Write(e.Data)
				return nil
			})
			if err != nil || r.Status != c.status || r.ExitCode != c.code || out.String() != c.want {
				t.Errorf("got %+v, %v, %q, want %v, %d, %q", r, err, &out, c.status, c.code, c.want)
			}
		})
	}
}

// A run that is canceled has ended with all that it started.
func TestRootIsStopped(t *testing.T) {
	s := session(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	_, err := Root(ctx, s, executor.Request{Command: []string{"sh", "-c", "echo up; sleep 1000 & sleep 1000"}}, func(e executor.Event) error {
		if strings.Contains(string(e.Data), "up") {
			cancel(over)
		}
		return nil
	})
	if !errors.Is(err, over) {
		t.Errorf("got %v", err)
	}
	var out bytes.Buffer
	r, err := Root(t.Context(), s, executor.Request{Command: []string{"sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"}}, func(e executor.Event) error {
		out.Write(e.Data)
		return nil
	})
	if err != nil || strings.Contains(out.String(), "sleep 1000") {
		t.Errorf("got %+v, %v, %s", r, err, &out)
	}
}
