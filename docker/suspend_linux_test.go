package docker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/waittest"
)

// userStates returns the states of all threads of user code in a container, seen by root within it.
func userStates(t *testing.T, s executor.Session) string {
	t.Helper()
	const look = `for p in /proc/[0-9]*; do
grep -q "^Uid:[[:space:]]0" $p/status 2>/dev/null || cat $p/task/*/stat 2>/dev/null | sed 's/.*) \(.\).*/\1/'
done`
	return strings.ReplaceAll(asRoot(t, s, "sh", "-c", look), "\n", "")
}

// asRoot runs a program in the container of a session, without the adapter.
func asRoot(t *testing.T, s executor.Session, argv ...string) string {
	t.Helper()
	var c Container
	if !executor.As(s, &c) {
		t.Fatal("not a container")
	}
	made, err := c.Client.ExecCreate(t.Context(), c.ID, client.ExecCreateOptions{User: "0:0", AttachStdout: true, Cmd: argv})
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Client.ExecAttach(t.Context(), made.ID, client.ExecAttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	conn := newStdio(a.Conn)
	defer conn.Close()
	out, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("%v: %v", argv, err)
	}
	return string(out)
}

// A suspended session executes nothing, keeps what it has, and goes on with its next use. A run in
// progress goes on, too.
func TestSuspend(t *testing.T) {
	t.Parallel()
	x := open(t)
	s := create(t, x, executor.Spec{})
	var sus executor.Suspender
	if !x.Info().Suspends || !executor.As(s, &sus) {
		t.Fatal("the backend suspends nothing")
	}
	if _, err := s.Run(t.Context(), executor.Request{Code: "x = 42"}, nil); err != nil {
		t.Fatal(err)
	}
	in, feed := io.Pipe()
	lines, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		r, err := s.Run(t.Context(), executor.Request{Command: []string{"sh", "-c", "echo began; sleep 1000 & cat; kill $!"}, Stdin: in}, func(ev executor.Event) error {
			if ev.Kind == executor.EventStdout {
				_, _ = out.Write(ev.Data)
			}
			return nil
		})
		if err == nil {
			err = r.Err()
		}
		ended <- err
	}()
	said := bufio.NewScanner(lines)
	if !said.Scan() || said.Text() != "began" {
		t.Fatalf("got %q", said.Text())
	}
	if err := sus.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	// D is a shell that waits for its child to execute something, which is stopped.
	if got := userStates(t, s); strings.Trim(got, "TD") != "" || len(got) < 2 {
		t.Errorf("got threads in the states %q, want that all are stopped", got)
	}
	// Whoever asks whether somebody holds it changes nothing.
	if _, err := x.LastContact(t.Context(), s.Info().Handle); err != nil {
		t.Error(err)
	}
	if got := userStates(t, s); strings.Trim(got, "TD") != "" || len(got) < 2 {
		t.Errorf("got threads in the states %q after a look-up, want that all are stopped", got)
	}
	if r, err := s.Run(t.Context(), executor.Request{Code: "print(x)"}, nil); err != nil || r.Stdout.String() != "42\n" {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := io.WriteString(feed, "again\n"); err != nil {
		t.Fatal(err)
	}
	if !said.Scan() || said.Text() != "again" {
		t.Errorf("got %q", said.Text())
	}
	feed.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A suspended session ends by its idle TTL, at the engine, though something runs in it and its
// holder says nothing.
func TestSuspendedEnds(t *testing.T) {
	t.Parallel()
	x := open(t)
	s := create(t, x, executor.Spec{})
	began := make(chan struct{})
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer close(ended)
		_, _ = s.Run(ctx, executor.Request{Command: []string{"sleep", "1000"}}, func(ev executor.Event) error {
			if ev.Kind == executor.EventStarted {
				close(began)
			}
			return nil
		})
	}()
	<-began
	var sus executor.Suspender
	if !executor.As(s, &sus) {
		t.Fatal("the backend suspends nothing")
	}
	if _, err := s.KeepAlive(t.Context(), 10*time.Second); err != nil { // not sooner: it has to be suspended
		t.Fatal(err)
	}
	if err := sus.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended // with the sandbox
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a suspended session ends", func() error {
		if left := containers(t, host, owner(t)); len(left) > 0 {
			return fmt.Errorf("got containers %q", left)
		}
		return nil
	})
}
