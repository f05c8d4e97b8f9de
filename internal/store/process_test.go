package store_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/store"
)

// builderProgram makes the test binary a program that gets an entry of the store in the directory
// that the variable names.
const builderProgram = "STORE_TEST_BUILDER"

// wantEntry gets the entry "thing-1", and prints what it does. It builds when a line on standard
// input tells it to.
func wantEntry(dir string) error {
	s := store.Store{Dir: dir}
	ctx := executor.WithProgress(context.Background(), func(p executor.Progress) { fmt.Println("waits:", p.What) })
	got, err := s.Get(ctx, "thing-1", store.CheckHashes, func(_ context.Context, tmp string) error {
		// At first the entry is incomplete.
		if err := os.WriteFile(filepath.Join(tmp, "half"), []byte("x"), 0o600); err != nil {
			return err
		}
		fmt.Println("builds")
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(tmp, "whole"), []byte(fmt.Sprint(os.Getpid())), 0o600)
	})
	if err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(got, "whole"))
	fmt.Println("has:", string(b))
	return err
}

// process is a process that runs wantEntry.
type process struct {
	*exec.Cmd
	stdin io.Writer
	out   *bufio.Reader
}

func startProcess(t *testing.T, dir string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	p := &process{Cmd: exec.CommandContext(ctx, os.Args[0])}
	p.Env = append(os.Environ(), builderProgram+"="+dir)
	p.Stderr = os.Stderr
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin, p.out = stdin, bufio.NewReader(stdout)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill(); p.Wait() }) // most processes have ended by then
	return p
}

// says fails the test unless the next line of a process is want.
func (p *process) says(t *testing.T, want string) {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if got := strings.TrimSpace(line); err != nil || got != want {
		t.Fatalf("process %d: got %q, %v, want %q", p.Process.Pid, got, err, want)
	}
}

const waits = "waits: waiting for another program that prepares the same"

// If two processes want the same entry, one builds it, and the other waits and gets it too.
func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	first := startProcess(t, dir)
	first.says(t, "builds")
	second := startProcess(t, dir)
	second.says(t, waits)
	if _, err := first.stdin.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	has := fmt.Sprintf("has: %d", first.Process.Pid)
	first.says(t, has)
	second.says(t, has)
	startProcess(t, dir).says(t, has) // a later process need not wait
}

// What a killed process has begun is not used by the process that waits for it, which builds the
// entry itself.
func TestKilledBuilder(t *testing.T) {
	dir := t.TempDir()
	first := startProcess(t, dir)
	first.says(t, "builds")
	second := startProcess(t, dir)
	second.says(t, waits)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	second.says(t, "builds")
	left, err := filepath.Glob(filepath.Join(dir, "thing-1.tmp-*"))
	if err != nil || len(left) != 1 {
		t.Errorf("got %q, %v, want what the second one is building alone", left, err)
	}
	if _, err := second.stdin.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	second.says(t, fmt.Sprintf("has: %d", second.Process.Pid))
}
