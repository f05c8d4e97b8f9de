package dockertest_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// child is set in a process that starts an engine and then waits to be killed.
const child = "DOCKERTEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(child); dir != "" {
		if _, err := dockertest.Start(context.Background(), dockertest.Options{Dir: dir}); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString("started\n")
		select {}
	}
	os.Exit(m.Run())
}

func temp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine") // t.TempDir is too long for the sockets below it
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func down(t *testing.T, host string) {
	t.Helper()
	for dockertest.Ping(t.Context(), host) == nil {
		if t.Context().Err() != nil {
			t.Fatal("the engine still answers")
		}
	}
}

func TestEngineLives(t *testing.T) {
	e, err := dockertest.Start(t.Context(), dockertest.Options{Dir: temp(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := e.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := dockertest.Ping(short, e.Host); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("frozen: got %v, want no answer", err)
	}
	if err := e.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := dockertest.Ping(t.Context(), e.Host); err != nil {
		t.Errorf("thawed: %v", err)
	}
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	down(t, e.Host)
	if err := e.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := dockertest.Ping(t.Context(), e.Host); err != nil {
		t.Errorf("restarted: %v", err)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	down(t, e.Host)
	if err := e.Stop(t.Context()); err != nil {
		t.Errorf("stopped twice: %v", err)
	}
}

func TestEngineDiesWithItsOwner(t *testing.T) {
	dir := temp(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if err := dockertest.Stop(t.Context(), dir); err != nil { // it ends by itself; this only waits
		t.Fatal(err)
	}
	down(t, "unix://"+filepath.Join(dir, "docker.sock"))
}

func TestLongDirectoryIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a-directory-whose-name-leaves-no-room-for-the-path-of-a-unix-socket-in-it")
	if _, err := dockertest.Start(t.Context(), dockertest.Options{Dir: dir}); err == nil {
		t.Error("started")
	}
}
