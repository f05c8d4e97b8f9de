package runner

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// counted is standard input that is told what code has taken of it.
type counted struct {
	io.Reader
	taken int64
}

func (c *counted) Taken(n int64) { c.taken = n }

// Whoever reads ahead of code says what the code has taken.
func TestTaken(t *testing.T) {
	t.Parallel()
	// Code waits until so many bytes are there, and does not take them.
	const waiting = "import fcntl, struct, sys, termios\nwhile struct.unpack('i', fcntl.ioctl(0, termios.FIONREAD, b'    '))[0] < 6: pass\n"
	python := func(code string) executor.Request {
		return executor.Request{Language: executor.Python, Code: code}
	}
	js := func(code string) executor.Request {
		return executor.Request{Language: executor.JavaScript, Code: code}
	}
	each(t, func(t *testing.T, root string) {
		edit := []func(*Config){}
		if hasNode(root) {
			edit = append(edit, withNode)
		}
		s := start(t, root, edit...)
		for _, c := range []struct {
			name string
			req  executor.Request
			text string
			ends bool // the input does, after the text
			want int64
		}{
			{"nothing", python(waiting), "ahead\n", false, 0},
			{"a-part", python(waiting + "import os\nos.read(0, 2)"), "ahead\n", false, 2},
			{"buffered", python(waiting + "input()"), "a\nb\nc\n", false, 6}, // into its own buffer
			{"all", python("import sys\nsys.stdin.read()"), "ahead\n", true, 6},
			{"large", python("import sys\nlen(sys.stdin.read())"), strings.Repeat("x", 1<<20), true, 1 << 20},
			{"closed", python(waiting + "import os\nos.read(0, 2)\nos.close(0)"), "ahead\n", false, 2},
			{"failed", python(waiting + "1/0"), "ahead\n", false, 0},
			{"command", executor.Request{Command: []string{"/bin/sh", "-c", "head -c 3 >/dev/null"}}, "ahead\n", false, 3},
			{"js-nothing", js("1"), "ahead\n", false, 0},
			{"js-a-part", js("require('fs').readSync(0, Buffer.alloc(2))"), "ahead\n", false, 2},
			{"js-a-part-again", js("require('fs').readSync(0, Buffer.alloc(3))"), "ahead\n", false, 3},
			{"js-all", js("require('fs').readFileSync(0).length"), "ahead\n", true, 6},
		} {
			t.Run(c.name, func(t *testing.T) {
				if c.req.Language == executor.JavaScript && !hasNode(root) {
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				in, w := io.Pipe()
				defer in.Close()
				go func() {
					io.WriteString(w, c.text) //nolint:errcheck // the run may have ended
					if c.ends {
						w.Close()
					}
				}()
				stdin := &counted{in, -1}
				c.req.Stdin = stdin
				r := s.do(ctx, c.req)
				if r.err != nil || stdin.taken != c.want {
					t.Errorf("got %d bytes, %+v, want %d", stdin.taken, r, c.want)
				}
			})
		}
	})
}
