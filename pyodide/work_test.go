package pyodide

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/wire"
)

// sink is the part of this program that receives the frames of runs, without a process. The runs
// follow each other.
type sink struct {
	r      *run
	frames int
	events int
}

func newSink(tb testing.TB, dir string) *sink {
	s := &session{d: &Driver{}, opts: sandboxOptions{disk: 8 << 20}, spool: newSpool(dir, 8<<20, 2000)}
	tb.Cleanup(s.spool.close)
	k := &sink{}
	k.r = &run{
		s: s, h: &host{}, box: &mailbox{}, req: &executor.Request{}, notDue: func() {},
		emit:  func(executor.Event) error { k.events++; return nil },
		value: wire.Parts{Max: 1 << 20}, ending: wire.Parts{Max: maxEnd},
	}
	return k
}

// take reads frames until one is refused, and returns the number of steps.
func (k *sink) take(tb testing.TB, in []byte) (steps int, err error) {
	frames := framesOf(in)
	for {
		f, err := frames.Next()
		if err != nil {
			k.r.notDue()
			return k.r.s.spool.steps, err
		}
		if f.Type == wire.Fail { // sent by the trusted half; this program then only kills the process
			continue
		}
		k.frames++
		if err := k.r.frame(tb.Context(), f); err != nil {
			k.r.notDue()
			return k.r.s.spool.steps, err
		}
		if k.r.state == runSynced {
			k.r.state, k.r.changed, k.r.end = runSent, nil, driver.Exit{}
		}
	}
}

// perFrame is the allowed average number of steps for a frame, whatever came before it. Steps are
// counted only in the spool, where the work depends on earlier frames. All other work reads the
// bytes of the frame once or twice.
const perFrame = 16

// stream writes frames of consecutive runs.
type stream struct{ bytes.Buffer }

func (s *stream) frame(f wire.Frame) {
	f.Stream = 1
	s.Write(hostFrame(testNonce, f))
}
func (s *stream) begin() {
	s.frame(wire.Frame{Type: wire.Open})
	s.frame(wire.Frame{Type: wire.Started, Payload: value(wire.Map{"cell": 1})})
}
func (s *stream) end()  { s.frame(wire.Frame{Type: wire.Data, Channel: wire.Entries, Flags: wire.End}) }
func (s *stream) done() { s.frame(wire.Frame{Type: wire.Done, Payload: value(wire.Map{})}) }
func (s *stream) file(id int64, path string, whole bool, size, from int64) {
	s.frame(spoolFrame(spoolEntry{kind: kindFile, id: id, size: size}, whole, from, path))
}

// hostileStreams are expensive sequences of frames, of about n bytes each. If they are accepted,
// the work must be linear in n. Otherwise they must be refused.
var hostileStreams = []struct {
	name  string
	taken bool
	write func(s *stream, n int)
}{
	{"texts-of-one-byte", true, func(s *stream, n int) {
		s.begin()
		for s.Len() < n {
			s.frame(wire.Frame{Type: wire.Data, Channel: wire.Stdout, Payload: []byte("x")})
		}
	}},
	{"values-of-nothing", true, func(s *stream, n int) {
		s.begin()
		for s.Len() < n {
			s.frame(wire.Frame{Type: wire.Output, Payload: value(wire.Map{"data": wire.Map{}})})
		}
	}},
	{"value-byte-by-byte", true, func(s *stream, n int) {
		s.begin()
		for s.Len() < n {
			s.frame(wire.Frame{Type: wire.Output, Flags: wire.More, Payload: []byte("x")})
		}
	}},
	{"values-broken", true, func(s *stream, n int) {
		s.begin()
		for s.Len() < n {
			s.frame(wire.Frame{Type: wire.Output, Flags: wire.More, Payload: []byte("x")})
			s.frame(wire.Frame{Type: wire.Output, Flags: wire.End})
		}
	}},
	{"end-byte-by-byte", true, func(s *stream, n int) {
		s.begin()
		s.end()
		for s.Len() < n {
			s.frame(wire.Frame{Type: wire.Done, Flags: wire.More, Payload: []byte(" ")})
		}
	}},
	{"names-byte-by-byte", true, func(s *stream, n int) {
		s.begin()
		for s.Len() < n {
			s.frame(wire.Frame{Type: wire.Data, Channel: wire.Entries, Payload: []byte("n")})
		}
	}},
	{"runs-that-change-one-byte", true, func(s *stream, n int) {
		size := int64(n)
		s.begin()
		s.end()
		s.file(1, "/f", true, size, 0)
		for at := int64(0); at < size; at += spanChunk {
			s.frame(dataFrame(strings.Repeat("x", int(min(spanChunk, size-at)))))
		}
		s.done()
		for i := int64(0); s.Len() < 3*n; i++ {
			s.begin()
			s.end()
			s.file(1, "/f", false, size, (i*7919*2)%size)
			s.frame(dataFrame("y"))
			s.done()
		}
	}},
	{"runs-that-rename", true, func(s *stream, n int) {
		s.begin()
		s.end()
		for i := range int64(1000) {
			s.file(i, fmt.Sprint("/0-", i), true, 0, 0)
		}
		s.done()
		for round := 1; s.Len() < n; round++ {
			s.begin()
			s.end()
			for i := range int64(1000) {
				s.frame(spoolFrame(spoolEntry{kind: kindGone}, false, 0, fmt.Sprint("/", round-1, "-", i)))
			}
			for i := range int64(1000) {
				s.file(i, fmt.Sprint("/", round, "-", i), false, 0, 0)
			}
			s.done()
		}
	}},
	{"runs-that-truncate", true, func(s *stream, n int) {
		for i := int64(0); s.Len() < n; i++ {
			s.begin()
			s.end()
			s.file(i, "/f", true, 1000, 0)
			s.frame(dataFrame(strings.Repeat("x", 1000)))
			s.done()
			s.begin()
			s.end()
			s.file(i, "/f", false, 1, 0)
			s.done()
		}
	}},
	{"spans-backwards", false, func(s *stream, n int) {
		s.begin()
		s.end()
		for at := int64(n); s.Len() < n; at-- {
			s.file(1, "/f", at == int64(n), int64(n), at)
			s.frame(dataFrame("x"))
		}
	}},
	{"spans-byte-by-byte", false, func(s *stream, n int) {
		s.begin()
		s.end()
		s.file(1, "/f", true, int64(n), 0)
		for s.Len() < n {
			s.frame(dataFrame("x"))
		}
	}},
	{"file-over-and-over", false, func(s *stream, n int) {
		s.begin()
		s.end()
		for s.Len() < n {
			s.file(1, "/f", false, 0, 0)
		}
	}},
	{"million-changes", false, func(s *stream, n int) {
		s.begin()
		s.frame(wire.Frame{Type: wire.Data, Channel: wire.Entries, Flags: wire.End, Payload: bytes.Repeat(value(nil), n)})
	}},
}

// TestWorkIsLinear: four times as many frames need four times as much work, and frames that a
// worker never sends need none.
func TestWorkIsLinear(t *testing.T) {
	for _, c := range hostileStreams {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			work := func(n int) int {
				k, s := newSink(t, t.TempDir()), &stream{}
				c.write(s, n)
				steps, err := k.take(t, s.Bytes())
				if c.taken && err != io.EOF || !c.taken && !errors.Is(err, errFrame) {
					t.Fatalf("got %v", err)
				}
				if steps > perFrame*k.frames {
					t.Errorf("%d steps for %d frames", steps, k.frames)
				}
				return steps
			}
			few, many := work(200<<10), work(800<<10)
			if many > 6*few+perFrame {
				t.Errorf("%d steps for the fourth part, %d for all", few, many)
			}
		})
	}
}

// BenchmarkHostileFrames measures the cost of expensive frames.
func BenchmarkHostileFrames(b *testing.B) {
	for _, c := range hostileStreams {
		for _, n := range []int{250 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", c.name, n>>10), func(b *testing.B) {
				s := &stream{}
				c.write(s, n)
				b.SetBytes(int64(s.Len()))
				steps := 0
				for b.Loop() {
					k := newSink(b, b.TempDir())
					steps, _ = k.take(b, s.Bytes())
				}
				b.ReportMetric(float64(steps)/float64(s.Len()), "steps/B")
			})
		}
	}
}

// FuzzWork tests that no frames cost more than allowed.
func FuzzWork(f *testing.F) {
	for _, c := range hostileStreams {
		s := &stream{}
		c.write(s, 4<<10)
		f.Add(s.Bytes())
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, in []byte) {
		k := newSink(t, dir)
		steps, _ := k.take(t, in)
		if steps > perFrame*k.frames {
			t.Errorf("%d steps for %d frames of %d bytes", steps, k.frames, len(in))
		}
		if k.events > k.frames {
			t.Errorf("%d events of %d frames", k.events, k.frames)
		}
		k.r.s.spool.abort()
		if k.r.s.spool.err == nil {
			checkSpool(t, k.r.s.spool)
		}
	})
}
