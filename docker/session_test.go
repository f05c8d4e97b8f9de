package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// open opens a backend on the engine of the machine, with an owner of the test's own, and checks at the end that nothing is left.
func open(t testing.TB, edit ...func(*Config)) executor.Executor {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	return openAt(t, host, edit...)
}

func openAt(t testing.TB, host string, edit ...func(*Config)) executor.Executor {
	t.Helper()
	cfg := Config{Host: host, Image: dockertest.Python, Pull: PullNever, Languages: []executor.Language{executor.Python, executor.JavaScript}}
	for _, f := range edit {
		f(&cfg)
	}
	x, err := Open(t.Context(), driver.Env{Owner: owner(t)}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if left := containers(t, host, owner(t)); len(left) > 0 {
			t.Errorf("containers are left: %q", left)
		}
	})
	return x
}

// thisRun tells the owners of this process from those of one that was killed and left containers.
var thisRun = strings.ToLower(rand.Text()[:8])

// owner is the owner of what a test creates.
func owner(t testing.TB) string { return t.Name() + "-" + thisRun }

// containers counts the containers of an owner where they live.
func containers(t testing.TB, host, owner string) []string {
	t.Helper()
	names, err := dockertest.Containers(context.Background(), host, driver.LabelOwner+"="+owner)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func create(t testing.TB, x executor.Executor, spec executor.Spec) executor.Session {
	t.Helper()
	s, err := x.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// says fails the test unless code prints exactly want.
func says(t testing.TB, s executor.Session, code, want string) {
	t.Helper()
	res, err := s.Run(t.Context(), executor.Request{Code: code}, nil)
	switch {
	case err != nil:
		t.Error(err)
	case res.Status != executor.StatusOK || strings.TrimSpace(res.Stdout.String()) != want:
		t.Errorf("got %s, %q, %q, want %q", res.Status, res.Stdout, res.Stderr, want)
	}
}

func TestAs(t *testing.T) {
	t.Parallel()
	s := create(t, open(t), executor.Spec{})
	var c Container
	if !executor.As(s, &c) {
		t.Fatal("no Container")
	}
	i, err := c.Client.ContainerInspect(t.Context(), c.ID, client.ContainerInspectOptions{})
	if err != nil || strings.TrimPrefix(i.Container.Name, "/") != containerName(s.Info().Handle.Session) {
		t.Errorf("got %s, %v", i.Container.Name, err)
	}
	var other *executor.Error
	if executor.As(s, &other) {
		t.Error("found something of another type")
	}
}

// The memory of the main process itself runs out, and the container is removed before anybody can ask it.
func TestTermination(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	for name, c := range map[string]struct {
		program string
		act     func(t *testing.T, r *raw)
		want    exit
	}{
		"exit":   {"import sys; sys.exit(3)", nil, exit{ended: true, code: 3}},
		"137":    {"import os; os._exit(137)", nil, exit{ended: true, code: 137}},
		"memory": {"b = []\nwhile True: b.append(bytearray(1 << 24))", nil, exit{ended: true, code: 137, oom: true}},
		"killed": {"input()", func(t *testing.T, r *raw) {
			if _, err := e.ContainerKill(t.Context(), containerName(r.id), client.ContainerKillOptions{Signal: "KILL"}); err != nil {
				t.Fatal(err)
			}
		}, exit{ended: true, code: 137, killed: true}},
		"removed": {"input()", func(t *testing.T, r *raw) {
			if err := e.destroy(t.Context(), r.id); err != nil {
				t.Fatal(err)
			}
		}, exit{ended: true, code: 137, killed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRaw(t.Context(), t, e, c.program)
			defer r.close(t)
			if c.act != nil {
				c.act(t, r)
			}
			if line, err := r.r.ReadString('\n'); err == nil {
				t.Fatalf("got %q, want the end", line)
			}
			got, err := e.exit(t.Context(), containerName(r.id))
			if err != nil || got != c.want {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
	t.Run("alive", func(t *testing.T) {
		r := newRaw(t.Context(), t, e, rawLoop)
		defer r.close(t)
		start := time.Now()
		if got, err := e.exit(t.Context(), containerName(r.id)); err != nil || got.ended {
			t.Errorf("got %+v, %v", got, err)
		}
		t.Logf("asked for %v", time.Since(start))
	})
}

// Create is withdrawn at every step of it, and leaves nothing. open counts.
func TestWithdrawnCreate(t *testing.T) {
	t.Parallel()
	x := open(t)
	start := time.Now()
	s := create(t, x, executor.Spec{})
	whole := time.Since(start)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const steps = 15
	for i := range steps {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i)/steps)
		s, err := x.Create(ctx, executor.Spec{})
		cancel()
		var e *executor.Error
		switch {
		case err == nil:
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		case !errors.As(err, &e) || e.Kind != context.DeadlineExceeded || e.Ran != executor.RanNo:
			t.Errorf("step %d: got %v", i, err)
		}
	}
}
