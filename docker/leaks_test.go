package docker

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/waittest"
)

// hostProgram makes the test binary a program that holds sessions, until it is killed. Its value is
// the owner of the first two.
const hostProgram = "DOCKER_TEST_HOST"

// holdSessions has code running in three sessions, the last of which ends soon, and says which they
// are.
func holdSessions(ctx context.Context, owner string) error {
	host, err := dockertest.Host()
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // if one cannot begin, the others must not go on for their hour
	for _, c := range []struct {
		owner      string
		idle, wall time.Duration
	}{{owner, time.Hour, time.Hour}, {owner + "-other", time.Hour, time.Hour}, {owner, 3 * time.Second, 10 * time.Second}} {
		x, err := Open(ctx, driver.Env{Owner: c.owner}, Config{Host: host, Image: dockertest.Trixie, Pull: PullNever})
		if err != nil {
			return err
		}
		s, err := x.Create(ctx, executor.Spec{Run: executor.RunLimits{WallTime: c.wall}})
		if err != nil {
			return err
		}
		ready, ended := make(chan struct{}), make(chan error, 1)
		wg.Go(func() {
			res, err := s.Run(ctx, executor.Request{Code: "print('on', flush=True)\nwhile True: pass"}, func(ev executor.Event) error {
				if ev.Kind == executor.EventStdout {
					close(ready)
				}
				return nil
			})
			ended <- fmt.Errorf("the run ended: %+v, %w", res, err)
		})
		select {
		case <-ready:
		case err := <-ended: // before it was ready
			return err
		}
		if _, err := s.KeepAlive(ctx, c.idle); err != nil { // not sooner: the run has to begin
			return err
		}
		if err := out.Encode(s.Info().Handle); err != nil {
			return err
		}
	}
	return nil
}

// The program is killed in the middle of its runs. Its sandboxes are counted where they live: the
// one whose time is over ends by itself, the reaper removes the other one at once, and leaves that
// of another owner alone.
func TestKilledHost(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	owner := owner(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hostProgram+"="+owner)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	handles := make([]executor.Handle, 3)
	d := json.NewDecoder(bufio.NewReader(out))
	for i := range handles {
		if err := d.Decode(&handles[i]); err != nil {
			t.Error(err)
			break
		}
	}
	_ = cmd.Process.Kill() // it may have failed and ended
	_ = cmd.Wait()
	if t.Failed() {
		t.FailNow()
	}
	late, other, soon := containerName(handles[0].Session), containerName(handles[1].Session), containerName(handles[2].Session)
	waittest.Until(t, "one ends, and only this one", func() error {
		if left := containers(t, e.at.host, owner); !slices.Equal(left, []string{late}) {
			return fmt.Errorf("got %q, want %q without %q", left, late, soon)
		}
		return nil
	})
	for _, o := range []string{owner, owner + "-other"} {
		if got := containers(t, e.at.host, owner+"-other"); !slices.Equal(got, []string{other}) {
			t.Errorf("of the other owner: got %q, want %q", got, other)
		}
		x, err := Open(t.Context(), driver.Env{Owner: o}, Config{Host: e.at.host})
		if err != nil {
			t.Fatal(err)
		}
		for info, err := range x.Sessions(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if err := x.Destroy(t.Context(), info.Handle); err != nil {
				t.Error(err)
			}
		}
		if got := containers(t, e.at.host, o); len(got) > 0 {
			t.Errorf("reaped, and left: %q", got)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Two owners on one engine: what one reaps is its own, the dead included, counted at the engine.
func TestReap(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	owner, otherOwner := owner(t), owner(t)+"-other"
	x := open(t)
	s := create(t, x, executor.Spec{Labels: map[string]string{"a": "b"}})
	// A program that dies between making a container and starting it leaves this.
	f, err := e.facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	img, err := e.inspect(t.Context(), dockertest.Python, f)
	if err != nil {
		t.Fatal(err)
	}
	dead := strings.ToLower(rand.Text())
	labels := map[string]string{driver.LabelOwner: owner, driver.LabelID: dead, labelSpec: `{"labels":["execbroker.owner","execbroker.id"]}`}
	if _, err := e.ContainerCreate(t.Context(), (&box{id: dead, image: img, labels: labels, command: []string{python}, seccomp: strictProfile(), network: "none"}).options(f)); err != nil {
		t.Fatal(err)
	}
	other, err := Open(t.Context(), driver.Env{Owner: otherOwner}, Config{Host: e.at.host, Image: dockertest.Python, Pull: PullNever})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	o := create(t, other, executor.Spec{Labels: map[string]string{"a": "b"}})

	if err := x.Destroy(t.Context(), o.Info().Handle); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("another owner's: got %v, want ErrNotFound", err)
	}
	states := map[string]executor.SessionState{}
	for info, err := range x.Sessions(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		states[info.Handle.Session] = info.State
		if err := x.Destroy(t.Context(), info.Handle); err != nil {
			t.Error(err)
		}
	}
	if want := map[string]executor.SessionState{s.Info().Handle.Session: executor.SessionRunning, dead: executor.SessionDead}; !maps.Equal(states, want) {
		t.Errorf("got %v, want %v", states, want)
	}
	if left := containers(t, e.at.host, owner); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if got := containers(t, e.at.host, otherOwner); len(got) != 1 {
		t.Errorf("of the other owner: got %q, want one", got)
	}
	says(t, o, "print('alive')", "alive")
}

// What earlier programs have left that cannot run any more goes with the first session of the next
// one.
func TestSweep(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	f, err := e.facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	img, err := e.inspect(t.Context(), dockertest.Trixie, f)
	if err != nil {
		t.Fatal(err)
	}
	make := func(owner string, start bool) string {
		id := strings.ToLower(rand.Text())
		labels := map[string]string{driver.LabelOwner: owner, driver.LabelID: id, labelSpec: `{}`}
		opts := (&box{id: id, image: img, labels: labels, command: []string{"/bin/true"}, seccomp: strictProfile(), network: "none"}).options(f)
		opts.HostConfig.AutoRemove = false // the engine has died before it came to that
		made, err := e.ContainerCreate(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.destroy(context.Background(), id); err != nil {
				t.Error(err)
			}
		})
		if start {
			w := e.ContainerWait(t.Context(), made.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
			if _, err := e.ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{}); err != nil {
				t.Fatal(err)
			}
			select {
			case <-w.Result:
			case err := <-w.Error:
				t.Fatal(err)
			}
		}
		return containerName(id)
	}
	exited, young := make(owner(t), true), make(owner(t), false)
	other := make(owner(t)+"-other", true)
	x := open(t, func(c *Config) { c.Image = dockertest.Trixie })
	s := create(t, x, executor.Spec{})
	waittest.Until(t, "what has exited is removed", func() error {
		if left := containers(t, e.at.host, owner(t)); slices.Contains(left, exited) {
			return fmt.Errorf("got %q, with %q", left, exited)
		}
		return nil
	})
	check(t, s.Close())
	if got := containers(t, e.at.host, owner(t)); !slices.Equal(got, []string{young}) {
		t.Errorf("got %q, want %q, which may be about to start", got, young)
	}
	if got := containers(t, e.at.host, owner(t)+"-other"); !slices.Equal(got, []string{other}) {
		t.Errorf("of the other owner: got %q, want %q", got, other)
	}
	check(t, e.destroy(t.Context(), strings.TrimPrefix(young, containerName(""))))
}

func TestAbandoned(t *testing.T) {
	const id = "abcdefghijklmnopqrstuvwxyz"
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		edit func(*container.Summary)
		want bool
	}{
		"exited":       {func(*container.Summary) {}, true},
		"dead":         {func(c *container.Summary) { c.State = container.StateDead }, true},
		"running":      {func(c *container.Summary) { c.State = container.StateRunning }, false},
		"created-old":  {func(c *container.Summary) { c.State, c.Created = container.StateCreated, 1e9-3600 }, true},
		"created-now":  {func(c *container.Summary) { c.State, c.Created = container.StateCreated, 1e9-60 }, false},
		"no-session":   {func(c *container.Summary) { delete(c.Labels, labelSpec) }, false},
		"other-name":   {func(c *container.Summary) { c.Names = []string{"/database"} }, false},
		"no-name":      {func(c *container.Summary) { c.Names = nil }, false},
		"strange-name": {func(c *container.Summary) { c.Labels[driver.LabelID] = "../x" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &container.Summary{State: container.StateExited, Names: []string{"/" + containerName(id)}, Labels: map[string]string{driver.LabelID: id, labelSpec: "{}"}}
			c.edit(s)
			if got, ok := abandoned(s, now); ok != c.want || ok && got != id {
				t.Errorf("got %q, %v, want %v", got, ok, c.want)
			}
		})
	}
}
