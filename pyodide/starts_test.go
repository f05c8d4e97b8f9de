package pyodide

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// While the allowed number of processes is starting, another start waits, but runs in existing
// sessions do not.
func TestStartsWait(t *testing.T) {
	t.Parallel()
	x := open(t, Config{})
	warm, cold := create(t, x, executor.Spec{}), create(t, x, executor.Spec{})
	if err := cold.Reset(t.Context(), executor.Interpreter{}); err != nil { // the next run starts a process
		t.Fatal(err)
	}
	d := driverSession(cold).d
	for range cap(d.starts) {
		d.starts <- struct{}{}
	}
	if r := runCode(t, warm, "print(1)"); string(r.Stdout) != "1\n" {
		t.Errorf("got %s", describeResult(r))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := cold.Run(ctx, executor.Request{Code: "print(2)"}, nil)
	if e := (*executor.Error)(nil); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || e.Ran != executor.RanNo {
		t.Errorf("got %v", err)
	}
	for range cap(d.starts) {
		<-d.starts
	}
	if r := runCode(t, cold, "print(2)"); string(r.Stdout) != "2\n" {
		t.Errorf("got %s", describeResult(r))
	}
}
