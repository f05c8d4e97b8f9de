package cases

import (
	"fmt"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// ptyCase makes a case about Request.Terminal, whose negative form is that it is refused.
func ptyCase(id, doc string, programs []string, positive func(*T)) Case {
	return Case{
		ID: "pty/" + id, Feature: executor.FeaturePTY, Doc: doc, Programs: programs,
		Positive: positive,
		Negative: func(t *T) {
			t.refuses(t.Shared(), executor.Request{Command: []string{"true"}, Terminal: new(executor.Terminal)}, executor.FeaturePTY)
		},
	}
}

// ptyCases are about commands at a terminal.
func ptyCases() []Case {
	return []Case{
		ptyCase("terminal", "A command with a Terminal leads a session whose controlling terminal has the size that was asked for, and is its input and output.",
			[]string{"terminal-report"}, shared(func(t *T, s executor.Session) {
				t.shows(s, atTerminal(t.command("terminal-report"), executor.TerminalSize{}), "terminal 24 80\r\n")
				t.shows(s, atTerminal(t.command("terminal-report"), executor.TerminalSize{Rows: 50, Columns: 132}), "terminal 50 132\r\n")
			})),
		ptyCase("resize", "A command hears by SIGWINCH of every size that its Terminal gets and keeps, up to the largest; absurd sizes are ErrInvalid and change nothing.",
			[]string{"terminal-sizes"}, func(t *T) {
				req := atTerminal(t.command("terminal-sizes"), executor.TerminalSize{})
				run := t.beginAt(t.Shared(), req, "24 80\r\n")
				for _, s := range []executor.TerminalSize{
					{}, {Rows: 24}, {Rows: -1, Columns: 80}, {Rows: 24, Columns: 65536}, {Rows: math.MaxInt, Columns: math.MinInt},
				} {
					t.isNo(fmt.Sprintf("the size %+v", s), req.Terminal.Resize(s), executor.ErrInvalid)
				}
				for _, s := range []executor.TerminalSize{{Rows: 40, Columns: 100}, {Rows: 1, Columns: 1}, {Rows: 65535, Columns: 65535}} {
					t.noError(req.Terminal.Resize(s), "resize to %+v", s)
					run.awaitShown(fmt.Sprintf("\n%d %d\r\n", s.Rows, s.Columns))
				}
				if got := run.text(); strings.Count(got, "\n") != 4 {
					t.Errorf("got %q, want four sizes", got)
				}
			}),
		ptyCase("interrupt", "An interrupt that is typed reaches what runs in the foreground of the terminal, and the run goes on.",
			[]string{"terminal-interrupt"}, func(t *T) {
				req, keys := t.typing(t.command("terminal-interrupt"))
				run := t.beginAt(t.Shared(), req, "ready\r\n")
				keys <- "\x03"
				res, err := run.wait(10 * time.Second)
				if err != nil || res.Status != executor.StatusFailed || res.ExitCode != 7 || !strings.HasSuffix(run.text(), "interrupted\r\n") {
					t.Errorf("got %s and %q, want the exit code 7 of its own choice", run.outcome(), run.text())
				}
			}),
		ptyCase("editing", "A terminal echoes what is typed, gives lines to the command as they are after editing, and ends its input when that is typed.",
			[]string{"command-cat"}, func(t *T) {
				req, keys := t.typing(t.command("command-cat"))
				keys <- "abx\x7fc\r"
				run := t.beginAt(t.Shared(), req, "abc\r\n")
				keys <- "\x04"
				res, err := run.wait(10 * time.Second)
				if want := "abx\b \bc\r\nabc\r\n"; err != nil || res.Status != executor.StatusOK || run.text() != want {
					t.Errorf("got %s and %q, want %q", run.outcome(), run.text(), want)
				}
			}),
		ptyCase("open", "The end of Request.Stdin, and that there is none, leave a terminal open.",
			[]string{"command-cat"}, func(t *T) {
				req := atTerminal(t.command("command-cat"), executor.TerminalSize{})
				t.timesOut(t.Shared(), limited(req, time.Second))
				t.inTime(time.Second, func(wall time.Duration) error {
					res := t.timesOut(t.Shared(), withStdin(limited(req, wall), strings.NewReader("typed\r")))
					if got := string(res.Stdout); got != "typed\r\ntyped\r\n" {
						return fmt.Errorf("got %q, want what was typed and its copy", got)
					}
					return nil
				})
			}),
		ptyCase("timeout", "A command that ignores hang-ups and requests to end is stopped at its wall time.",
			[]string{"terminal-deaf"}, fresh(func(t *T, s executor.Session) {
				t.stoppedAfter("ready\r\n", s, atTerminal(t.command("terminal-deaf"), executor.TerminalSize{}), 500*time.Millisecond, 3500*time.Millisecond)
			})),
		ptyCase("group", "When a command at a terminal ends, what it has left in the background is gone.",
			[]string{"command-background"}, fresh(func(t *T, s executor.Session) {
				start := time.Now()
				t.shows(s, limited(atTerminal(t.command("command-background", "name", "ticks", "then", "true"), executor.TerminalSize{}), 25*time.Second), "left\r\n")
				t.prompt("a command that leaves a child behind", start, 5*time.Second)
				stillTicks(t, s)
			})),
		ptyCase("cancel", "A command at a terminal stops when its context ends, with what it has started.",
			[]string{"command-background"}, fresh(func(t *T, s executor.Session) {
				run := t.beginAt(s, atTerminal(t.command("command-background", "name", "ticks", "then", "sleep 3600"), executor.TerminalSize{}), "left\r\n")
				run.canceled(5 * time.Second)
				stillTicks(t, s)
			})),
		ptyCase("limit", "The output of a terminal is bounded, its echo included.",
			[]string{"command-cat"}, func(t *T) {
				req := bounded(withStdin(limited(atTerminal(t.command("command-cat"), executor.TerminalSize{}), 20*time.Second), strings.NewReader(strings.Repeat("a line\r", 10_000))), 4096)
				res := t.ends(t.Shared(), req, executor.StatusKilled, executor.ReasonOutput)
				if n := len(res.Stdout); n > 4096 {
					t.Errorf("got %d bytes, want at most 4096", n)
				}
			}),
		ptyCase("slow-reader", "A flood of output waits for a slow reader, and nothing of it is lost.",
			[]string{"terminal-lines"}, func(t *T) {
				const lines = 50_000
				req := limited(atTerminal(t.command("terminal-lines", "count", fmt.Sprint(lines)), executor.TerminalSize{}), 25*time.Second)
				paused := false
				run := t.start(t.Shared(), req, func(ev executor.Event) error {
					if ev.Kind == executor.EventStdout && !paused {
						paused = true
						t.pause(300 * time.Millisecond)
					}
					return nil
				})
				res, err := run.wait(20 * time.Second)
				var want strings.Builder
				for n := range lines {
					fmt.Fprintf(&want, "%d\r\n", n+1)
				}
				if got := run.text(); err != nil || res.Status != executor.StatusOK || got != want.String() {
					t.Errorf("got %s and %s, want %d bytes", run.outcome(), excerpt(got), want.Len())
				}
			}),
		ptyCase("input-flood", "What is typed into a terminal that nobody reads waits outside of the sandbox.",
			[]string{"command-sleep"}, func(t *T) {
				var in flood
				t.timesOut(t.Shared(), withStdin(limited(atTerminal(t.command("command-sleep"), executor.TerminalSize{}), time.Second), &in))
				if n := in.read.Load(); n > 8<<20 {
					t.Errorf("the backend has read %d bytes that nobody wanted", n)
				}
			}),
	}
}

// atTerminal returns req with a Terminal. A size of zero is its own.
func atTerminal(req executor.Request, size executor.TerminalSize) executor.Request {
	req.Terminal = new(executor.Terminal)
	if size != (executor.TerminalSize{}) {
		_ = req.Terminal.Resize(size) // a valid size
	}
	return req
}

// keyboard is what is typed, key by key. It ends with its channel.
type keyboard struct {
	keys chan string
	rest string
}

// Read implements io.Reader.
func (k *keyboard) Read(p []byte) (int, error) {
	for k.rest == "" {
		s, ok := <-k.keys
		if !ok {
			return 0, io.EOF
		}
		k.rest = s
	}
	n := copy(p, k.rest)
	k.rest = k.rest[n:]
	return n, nil
}

// typing returns req with a Terminal, and where to put what is typed. Up to eight pieces wait
// there.
func (t *T) typing(req executor.Request) (executor.Request, chan<- string) {
	k := &keyboard{keys: make(chan string, 8)}
	t.Cleanup(func() { close(k.keys) })
	req.Stdin = k
	return atTerminal(req, executor.TerminalSize{}), k.keys
}

// flood is endless lines.
type flood struct{ read atomic.Int64 }

// Read implements io.Reader.
func (f *flood) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "x\r"[i%2]
	}
	f.read.Add(int64(len(p)))
	return len(p), nil
}

// shows runs req in s and checks that it ends without an error and that its stdout is want.
func (t *T) shows(s executor.Session, req executor.Request, want string) {
	if res := t.ok(s, req); string(res.Stdout) != want || len(res.Stderr) > 0 {
		t.Errorf("got stdout %s and stderr %s, want %s", excerpt(string(res.Stdout)), excerpt(string(res.Stderr)), excerpt(want))
	}
}

// text returns what has come of stdout.
func (r *background) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return text(r.events, executor.EventStdout)
}

// beginAt is start of a command at a terminal, and waits until stdout has want.
func (t *T) beginAt(s executor.Session, req executor.Request, want string) *background {
	r := t.start(s, limited(req, 25*time.Second), nil)
	r.awaitShown(want)
	return r
}

// awaitShown waits until stdout has want.
func (r *background) awaitShown(want string) {
	r.t.Eventually(10*time.Second, fmt.Sprintf("%q in the output", want), func() bool {
		select {
		case <-r.done:
			if !strings.Contains(r.text(), want) {
				r.t.Fatalf("the run ended before it said %q: %s, %s", want, r.outcome(), excerpt(r.text()))
			}
		default:
		}
		return strings.Contains(r.text(), want)
	})
}
