package docker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// While as many containers start as may, another one waits as long as its caller does.
func TestStartsWait(t *testing.T) {
	t.Parallel()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	env := driver.Env{Owner: owner(t)}
	b, err := newBackend(env, Config{Host: host, Image: dockertest.Python, Pull: PullNever})
	if err != nil {
		t.Fatal(err)
	}
	x, err := runner.Open(env, b, b.options())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}()
	create(t, x, executor.Spec{})
	for range cap(b.starts) {
		b.starts <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := x.Create(ctx, executor.Spec{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	for range cap(b.starts) {
		<-b.starts
	}
	create(t, x, executor.Spec{})
}

// Two containers for each processor start at a time, and not fewer than four.
func TestStartsAtOnce(t *testing.T) {
	for processors, want := range map[int]int{0: 4, 1: 4, 2: 4, 8: 16} {
		if got := startsAtOnce(processors); got != want {
			t.Errorf("%d processors: got %d, want %d", processors, got, want)
		}
	}
}
