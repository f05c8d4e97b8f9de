//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// terminal is a process on a terminal, with a simulated user who types and reads.
type terminal struct {
	t *testing.T
	p *process
	f *os.File

	answers map[string]string // by question

	mu     sync.Mutex
	screen string        // output that was not checked yet
	more   chan struct{} // signals new output
	done   chan struct{} // closed at the end of the output
}

// onTerminal starts a process on a terminal, by default without colours.
func onTerminal(t *testing.T, p *process, env ...string) *terminal {
	t.Helper()
	return onAnswering(t, p, map[string]string{askAttributes: "\x1b[?62;22c"}, env...)
}

// onAnswering is onTerminal for a terminal that answers questions.
func onAnswering(t *testing.T, p *process, answers map[string]string, env ...string) *terminal {
	t.Helper()
	p.Stdin, p.Stdout, p.Stderr = nil, nil, nil
	p.Env = append(p.Env, "TERM=xterm", "NO_COLOR=1", "XDG_STATE_HOME="+filepath.Join(p.Dir, "state"))
	p.Env = append(p.Env, env...)
	f, err := pty.StartWithSize(p.Cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	// A read that blocks in the kernel would keep the terminal open while it is being closed.
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	f = os.NewFile(uintptr(fd), "terminal")
	s := &terminal{t: t, p: p, f: f, answers: answers, more: make(chan struct{}, 1), done: make(chan struct{})}
	go s.look()
	t.Cleanup(func() {
		f.Close()
		<-s.done
	})
	return s
}

// look collects what the process writes. A terminal whose process has ended gives an error.
func (s *terminal) look() {
	defer close(s.done)
	buf := make([]byte, 4096)
	asked := ""
	for {
		n, err := s.f.Read(buf)
		asked = s.answer(asked + string(buf[:n]))
		s.mu.Lock()
		s.screen += string(buf[:n])
		s.mu.Unlock()
		select {
		case s.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// answer answers the questions in the output, in order, and returns a rest that may be the
// beginning of a question.
func (s *terminal) answer(asked string) string {
	for {
		at, question := len(asked), ""
		for q := range s.answers {
			if i := strings.Index(asked, q); i >= 0 && i < at {
				at, question = i, q
			}
		}
		if question == "" {
			return asked[max(0, len(asked)-64):]
		}
		if _, err := s.f.WriteString(s.answers[question]); err != nil {
			return ""
		}
		asked = asked[at+len(question):]
	}
}

// see waits for texts, in order.
func (s *terminal) see(want ...string) {
	s.t.Helper()
	late := time.NewTimer(2 * time.Minute)
	defer late.Stop()
	for _, w := range want {
		for {
			s.mu.Lock()
			_, rest, ok := strings.Cut(s.screen, w)
			if ok {
				s.screen = rest
			}
			screen := s.screen
			s.mu.Unlock()
			if ok {
				break
			}
			select {
			case <-s.more:
			case <-s.done:
				s.t.Fatalf("waited for %q to the end, got %q", w, screen)
			case <-late.C:
				s.t.Fatalf("waited for %q, got %q", w, screen)
			}
		}
	}
}

func (s *terminal) keys(text string) {
	s.t.Helper()
	if _, err := s.f.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// ends waits for the end of the process. It checks the exit code, and that the terminal has its
// original state.
func (s *terminal) ends(want int) {
	s.t.Helper()
	if got := s.p.code(s.t, s.p.Wait()); got != want {
		s.t.Errorf("got exit code %d, want %d: %q", got, want, s.screen)
	}
}

func TestReplOnTerminal(t *testing.T) {
	p := command(t, "repl")
	s := onTerminal(t, p)
	s.see("execbroker: python 0 in a sandbox of fake; %help lists commands, Ctrl-D leaves", ">>> ")
	s.keys("kept = 41\r")
	s.see(">>> ")
	s.keys("kept + 1\r")
	s.see("42\r\n", ">>> ")

	// A body ends at an empty line, and Tab indents.
	s.keys("for i in range(2):\r")
	s.see("... ")
	s.keys("\tprint(\"i\", i)\r")
	s.see("    print", "... ")
	s.keys("\r")
	s.see("i 0\r\ni 1\r\n", ">>> ")

	// Output that does not end its line does not end in the prompt.
	s.keys("out(\"half\")\r")
	s.see("half\r\n", ">>> ")

	// Ctrl-C discards what was typed, also in the middle of a body.
	s.keys("nonsense\x03")
	s.see("\r\n", ">>> ")
	s.keys("(\r")
	s.see("... ")
	s.keys("\x03")
	s.see(">>> ")

	// Ctrl-C during a run stops the code and keeps the variables.
	s.keys("print(\"running\")\x1b[D\x1b[F;\x7f\r")
	s.see("running\r\n", ">>> ")
	s.keys("print(\"be\" + \"gun\"); sleep(3600000)\r")
	s.interrupts()
	s.see(">>> ")
	s.keys("kept\r")
	s.see("41\r\n", ">>> ")

	// Code may read input. If it is interrupted while reading, it takes nothing that is typed
	// afterwards.
	s.keys("print(\"hello \" + readline())\r")
	s.see("readline())\r\n", pasteOff)
	s.keys("world\r")
	s.see("hello world\r\n", ">>> ")
	s.keys("print(\"be\" + \"gun\"); readline()\r")
	s.interrupts()
	s.see(">>> ")

	// The arrow goes back in the history.
	s.keys("kept - 1\r")
	s.see("40\r\n", ">>> ")
	s.keys("\x1b[A\x1b[A\x1b[B\r")
	s.see("40\r\n", ">>> ")

	// Pasted text runs when Enter is pressed, and an empty line in it has no special meaning.
	s.keys("\x1b[200~for i in range(2):\r\n\r\n\tprint(\"p\", i)\r\n\x1b[201~")
	s.see("i)")
	s.keys("\r")
	s.see("p 0\r\np 1\r\n", ">>> ")

	// Commands are completed, too.
	s.keys("%rese\t\r")
	s.see("%reset", ">>> ")
	s.keys("recall(\"kept\", \"absent\")\r")
	s.see("absent\r\n", ">>> ")

	s.keys("\x04")
	s.ends(0)
	p.clean(t)
	if got := read(t, filepath.Join(p.Dir, "state/execbroker/history")); !strings.HasPrefix(got, "kept = 41\nkept + 1\n") {
		t.Errorf("got the history %q", got)
	}
}

// interrupts presses Ctrl-C, once the code that was typed has said that it has begun, and waits
// until it has stopped. A second Ctrl-C before that would end the program.
func (s *terminal) interrupts() {
	s.t.Helper()
	s.see("begun\r\n")
	s.keys("\x03")
	s.see("execbroker: stopped\r\n")
}

// TestReplIsTerminated sends a signal while the program waits for a key.
func TestReplIsTerminated(t *testing.T) {
	p := command(t, "repl")
	s := onTerminal(t, p)
	s.see(">>> ")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.see(pasteOff)
	s.ends(143)
	p.clean(t)
}

// TestReplHangup closes the terminal.
func TestReplHangup(t *testing.T) {
	p := command(t, "repl")
	s := onTerminal(t, p)
	s.see(">>> ")
	if err := s.f.Close(); err != nil {
		t.Fatal(err)
	}
	<-s.done
	s.ends(129)
	p.clean(t)
}

func TestProgressOnTerminal(t *testing.T) {
	p := command(t, "run", "-c", `print("out")`)
	p.Args = append(p.Args, "--config", write(t, p.Dir, "c.yaml", "backends:\n  slow: {type: fake, create_time: 1500ms}\n"))
	s := onTerminal(t, p)
	s.see("\r\x1b[Kstarting a sandbox of slow", "\r\x1b[K", "out\r\n")
	s.ends(0)
}

// Output of the code reaches a terminal as text and colours only, unless the user wants all of it.
func TestRunOnTerminal(t *testing.T) {
	code := `out("a\x1b]0;title\x07b\x1b[2Jc\x1b[31mred")` + "\n" + `eprint("\x1b]52;c;eA==\x07error")`
	s := onTerminal(t, command(t, "run", "-c", code))
	s.see("abc\x1b[31mred", "error\r\n", "\x1b[m")
	s.ends(0)
	s = onTerminal(t, command(t, "run", "--raw", "-c", code))
	s.see("a\x1b]0;title\x07b\x1b[2Jc\x1b[31mred", "\x1b]52;c;eA==\x07error\r\n")
	s.ends(0)
}

// A user who starts the MCP server at a terminal is told what it is and what a client needs.
func TestMCPOnTerminal(t *testing.T) {
	s := onTerminal(t, command(t, "mcp", "--backend", "fake"))
	s.see("a server of the Model Context Protocol", `"mcpServers"`, `"--backend",`, `"fake"`, "mcp install CLIENT")
	s.keys("\x03")
	s.ends(130)
}

// TestInterruptOnTerminal presses Ctrl-C, which reaches every process of the terminal.
func TestInterruptOnTerminal(t *testing.T) {
	p := command(t, "run", "--timeout", "0", "-c", "print(\"ready\")\nforever()")
	s := onTerminal(t, p)
	s.see("ready\r\n")
	s.keys("\x03")
	s.ends(130)
	p.clean(t)
}
