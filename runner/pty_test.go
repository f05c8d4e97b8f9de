package runner

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/waittest"
)

// atTerminal returns a request for a shell command at a terminal.
func atTerminal(script, typed string) executor.Request {
	req := executor.Request{Command: []string{"/bin/sh", "-c", script}, Terminal: new(executor.Terminal)}
	if typed != "" {
		req.Stdin = strings.NewReader(typed)
	}
	return req
}

// What the suite checks of terminals over every backend is not repeated here.
func TestTerminal(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root, impatient)
		limit := func(req executor.Request, wall time.Duration, output int64) executor.Request {
			req.Limits = executor.RunLimits{WallTime: wall, OutputBytes: output}
			return req
		}
		for _, c := range []struct {
			name string
			req  executor.Request
			keys string // typed when "ready" is shown
			want outcome
		}{
			{"owner", atTerminal(`test -O "$(tty)" && echo x >"$(tty)" && echo $TERM`, ""), "", outcome{stdout: "x\r\nxterm-256color\r\n"}},
			{"term", executor.Request{Command: []string{"/bin/sh", "-c", "echo $TERM"}, Terminal: new(executor.Terminal), Env: map[string]string{"TERM": "dumb"}}, "", outcome{stdout: "dumb\r\n"}},
			{"utf-8", atTerminal("read x; echo $x", "ä\x7fb\r"), "", outcome{stdout: "ä\b \bb\r\nb\r\n"}},
			{"quit", atTerminal("trap 'echo quit; exit 4' QUIT; echo ready; while :; do :; done", ""), "\x1c", outcome{stdout: "ready\r\n^\\quit\r\n", code: 4}},
			{"interrupt-default", atTerminal("echo ready; exec sleep 1000", ""), "\x03", outcome{stdout: "ready\r\n^C", code: -1, reason: "signal", signal: "SIGINT"}},
			{"raw", atTerminal("stty raw -echo; echo ready; head -c 3 | od -An -tx1", ""), "\x03\x04\r", outcome{stdout: "ready\n 03 04 0d\n"}},
			{"missing", executor.Request{Command: []string{"/no/such"}, Terminal: new(executor.Terminal)}, "", outcome{stdout: "/no/such: No such file or directory\r\n", code: 127}},
			{"flood", limit(atTerminal("yes", ""), 2*time.Minute, 6), "", outcome{stdout: "y\r\ny\r\n", code: -1, reason: "output", signal: "SIGHUP"}},
			{"closes-it", atTerminal("exec </dev/null >/dev/null 2>&1; echo there >/dev/tty", ""), "", outcome{stdout: "there\r\n"}},
			{"hung-up", limit(atTerminal("trap 'echo bye; exit 3' HUP; echo ready; while :; do :; done", ""), 500*time.Millisecond, 1000), "", outcome{stdout: "ready\r\nbye\r\n", code: 3, reason: "wall-time"}},
			{"stopped-is-hung-up", limit(atTerminal("trap 'echo bye; exit 3' HUP; kill -STOP $$", ""), 500*time.Millisecond, 1000), "", outcome{stdout: "bye\r\n", code: 3, reason: "wall-time"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				if c.keys == "" {
					if c.want.reason == "wall-time" {
						s.timesOut(t, c.req).want(t, c.want)
					} else {
						s.do(t.Context(), c.req).want(t, c.want)
					}
					return
				}
				keys := make(chan string, 1)
				c.req.Stdin = typist(keys)
				var shown string
				doWith(t.Context(), s.client, c.req, func(ev executor.Event) {
					before := strings.Contains(shown, "ready")
					if shown += string(ev.Data); !before && strings.Contains(shown, "ready") {
						keys <- c.keys
						close(keys)
					}
				}).want(t, c.want)
			})
		}
	})
}

// typist reads the texts that come, each in one piece.
type typist <-chan string

// Read implements io.Reader.
func (c typist) Read(p []byte) (int, error) {
	s, ok := <-c
	if !ok {
		return 0, io.EOF
	}
	return copy(p, s), nil
}

// TestTerminalLeavesNothing counts processes, terminals and descriptors before and after terminals
// with something in the background.
func TestTerminalLeavesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root, impatient)
		count := func() (processes string, descriptors int) {
			fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(s.processes(t)), len(fds)
		}
		s.sh(t, "true")
		processes, descriptors := count() // there may be one that is about to be closed
		for _, script := range []string{
			"sleep 1000 & setsid sleep 1000 & nohup sleep 1000 & exit 0",
			"(trap '' HUP TERM; while :; do echo x; sleep 0.01; done) & exit 0",
		} {
			if r := s.do(t.Context(), atTerminal(script, "typed\r")); r.err != nil || r.Code != 0 {
				t.Errorf("got %+v", r)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		req := atTerminal("trap '' HUP; sleep 1000 & echo ready; wait", "")
		req.Limits = executor.RunLimits{WallTime: 2 * time.Minute, OutputBytes: 1 << 20}
		_, err := s.Run(ctx, &req, func(ev executor.Event) error {
			if ev.Kind == executor.EventStdout {
				cancel()
			}
			return nil
		})
		if err != context.Canceled {
			t.Errorf("got %v, want that it was cancelled", err)
		}
		waittest.Until(t, "nothing is left", func() error { // what the supervisor kills with ends by itself
			if left, n := count(); left != processes || n > descriptors {
				return fmt.Errorf("got %s and %d descriptors of the supervisor after, %s and %d before", left, n, processes, descriptors)
			}
			return nil
		})
	})
}

// TestTerminalOfLostHolder checks that nobody goes on at a terminal whose holder is gone, whatever
// its wall time.
func TestTerminalOfLostHolder(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root, impatient)
		second := attach(t, s, 0)
		req := atTerminal("trap '' HUP; echo ready; while :; do sleep 1; done", "")
		req.Limits = executor.RunLimits{WallTime: executor.NoLimit, OutputBytes: 1 << 20}
		_, err := second.Run(t.Context(), &req, func(ev executor.Event) error {
			if ev.Kind == executor.EventStdout {
				second.conn.Close()
			}
			return nil
		})
		if err == nil {
			t.Error("a run whose connection was cut ended as if it had not been")
		}
		eventually(t, "no run is left", func() bool {
			st, err := s.Status(t.Context())
			return err == nil && st.Runs == 0
		})
	})
}
