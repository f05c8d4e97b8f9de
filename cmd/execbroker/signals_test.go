//go:build unix

package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// start starts p and returns its stdout after its first line, which must be "ready".
func start(t *testing.T, p *process) *bufio.Reader {
	t.Helper()
	p.Stdout = nil
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); line != "ready\n" {
		t.Fatalf("got %q, %v: %s", line, err, p.err.String())
	}
	return r
}

// ended reads the rest of the output, waits, and returns the exit code.
func ended(t *testing.T, p *process, r io.Reader) (code int, rest string) {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return p.code(t, p.Wait()), string(data)
}

func TestSignalsStopTheCode(t *testing.T) {
	// A program that nohup has started ignores SIGHUP, and so do its children unless they handle
	// it.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(heard) })
	for name, c := range map[string]struct {
		sig  syscall.Signal
		code string
		want int
	}{
		"interrupt":      {syscall.SIGINT, "print(\"ready\")\nforever()", 130},
		"interrupt-deaf": {syscall.SIGINT, "deafen()\nprint(\"ready\")\nforever()", 130},
		"terminate":      {syscall.SIGTERM, "print(\"ready\")\nsleep(3600000)", 143},
		"hangup":         {syscall.SIGHUP, "print(\"ready\")\nsleep(3600000)", 129},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := command(t, "run", "--timeout", "0", "-c", c.code)
			r := start(t, p)
			if err := p.Process.Signal(c.sig); err != nil {
				t.Fatal(err)
			}
			if code, rest := ended(t, p, r); code != c.want || rest != "" {
				t.Errorf("got exit code %d and %q, want %d\n%s", code, rest, c.want, p.err.String())
			}
			p.clean(t)
			if p.err.Len() > 0 {
				t.Errorf("got stderr %q", p.err.String())
			}
		})
	}
}

func TestSignalDuringCreate(t *testing.T) {
	t.Parallel()
	p := command(t, "run", "--json", "-c", "1")
	p.Args = append(p.Args, "--config", write(t, p.Dir, "c.yaml", "backends:\n  a: {type: fake, create_time: 1h}\n"))
	p.Stderr = nil
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stderr).ReadString('\n'); line != "execbroker: starting a sandbox of a\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.code(t, p.Wait()); code != 130 {
		t.Errorf("got exit code %d", code)
	}
	p.clean(t)
	var d struct{ Error errorReport }
	if decode(t, p.out.Bytes(), &d); d.Error.Kind != "canceled" || d.Error.Op != "create" {
		t.Errorf("got %s", p.out.String())
	}
}

// TestSecondSignalEndsAtOnce: after the first signal the program waits for the removal of a
// sandbox, which never ends.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := command(t, "run", "--timeout", "0", "-c", "print(\"ready\")\nforever()")
	p.Args = append(p.Args, "--config", write(t, p.Dir, "c.yaml", "backends:\n  a: {type: fake, hold: destroy}\n"))
	p.Stderr = nil
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, p)
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stderr).ReadString('\n'); line != "execbroker: removing the sandbox\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code, _ := ended(t, p, r); code != 130 {
		t.Errorf("got exit code %d", code)
	}
	if _, err := os.Stat(p.left); err == nil {
		t.Error("the program went on to its end")
	}
}

// TestIgnoredHangup does what nohup does.
func TestIgnoredHangup(t *testing.T) {
	t.Parallel()
	p := command(t, "run", "-c", "print(\"ready\")\nprint(readline())")
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p.Args = append([]string{sh, "-c", `trap "" HUP; exec "$0" "$@"`, p.Path}, p.Args[1:]...)
	p.Path = sh
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, p)
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "still here\n"); err != nil {
		t.Fatal(err)
	}
	if code, rest := ended(t, p, r); code != 0 || rest != "still here\n" {
		t.Errorf("got exit code %d and %q", code, rest)
	}
}

func TestClosedPipe(t *testing.T) {
	t.Parallel()
	p := command(t, "run", "--timeout", "0", "-c", "print(\"ready\")\nline = \"x\" * 999\nwhile True: print(line)")
	p.Stdout = nil
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReaderSize(out, 16).ReadString('\n'); line != "ready\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	out.Close()
	if code := p.code(t, p.Wait()); code != exitPipe {
		t.Errorf("got exit code %d, want %d", code, exitPipe)
	}
	p.clean(t)
	if got := p.err.String(); strings.TrimSpace(got) != "" {
		t.Errorf("got stderr %q", got)
	}
}
