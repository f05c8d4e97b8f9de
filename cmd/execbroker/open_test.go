package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// Only servers start sandboxes in advance.
func TestOneShot(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{
		{[]string{"run", "-c", "print(1)"}, true},
		{[]string{"repl"}, true},
		{[]string{"serve", "--listen", "127.0.0.1:0"}, false},
		{[]string{"mcp"}, false},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			var got []bool
			a := newApp(backends.NewRegistry(driver.NewFactory("box", func(_ context.Context, env driver.Env, _ struct{}) (executor.Executor, error) {
				got = append(got, env.OneShot)
				return nil, errors.New("that is all")
			}, nil)))
			a.standard, a.in, a.out, a.err = "box", &bytes.Buffer{}, io.Discard, io.Discard
			if code := a.main(t.Context(), c.args); code == 0 || len(got) != 1 || got[0] != c.want {
				t.Errorf("got exit code %d, one-shot %v, want %v", code, got, c.want)
			}
		})
	}
}

// TestWithoutRoutes: what needs routes or another backend goes with them.
func TestWithoutRoutes(t *testing.T) {
	cfg, err := backends.Parse([]byte(`
backends: {local: {type: pyodide}, box: {type: pyodide}}
routes: [{name: all, split: [{backend: box, weight: 1}]}]
escalate: [{from: local, to: box, on: [threads]}]
sessions: {drain: [local], checkpoint: {every: 5 runs, key: {env: CHECKPOINT_KEY}}}`))
	if err == nil {
		err = cfg.Check(all.Registry())
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(cfg.Backends, "box")
	if err := withoutRoutes(cfg).Check(all.Registry()); err != nil {
		t.Error(err)
	}
}
