package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/execbroker/execbroker/backends"
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
