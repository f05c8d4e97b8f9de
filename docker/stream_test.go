package docker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

// frame is a frame of the engine.
func frame(kind byte, data string) string {
	head := [8]byte{0: kind}
	binary.BigEndian.PutUint32(head[4:], uint32(len(data)))
	return string(head[:]) + data
}

// reader is a connection that can only be read.
type reader struct {
	net.Conn
	io.Reader
}

func (r reader) Read(p []byte) (int, error) { return r.Reader.Read(p) }

func TestStdio(t *testing.T) {
	long := strings.Repeat("e", keepStderr)
	for name, c := range map[string]struct {
		in, out, stderr string
		err             error
	}{
		"empty":      {"", "", "", nil},
		"stdout":     {frame(1, "hello ") + frame(1, "") + frame(1, "world"), "hello world", "", nil},
		"mixed":      {frame(2, "a") + frame(1, "x") + frame(2, "b") + frame(0, "y"), "xy", "ab", nil},
		"stderr-end": {frame(2, "first") + frame(2, long), "", long, nil},
		"stderr-big": {frame(2, "first"+long+long), "", long, nil},
		"cut-head":   {frame(1, "x")[:3], "", "", io.ErrUnexpectedEOF},
		"cut-stdout": {frame(1, "xyz")[:9], "x", "", io.ErrUnexpectedEOF},
		"cut-stderr": {frame(2, "xyz")[:9], "", "", io.ErrUnexpectedEOF},
		"bad-kind":   {frame(3, "x"), "", "", errKind},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in)), iotest.DataErrReader(strings.NewReader(c.in))} {
				s := newStdio(reader{Reader: r})
				got, err := io.ReadAll(s)
				if string(got) != c.out || !errors.Is(err, c.err) {
					t.Errorf("got %q, %v, want %q, %v", got, err, c.out, c.err)
				}
				if c.err == nil && s.stderr() != c.stderr {
					t.Errorf("got stderr of %d bytes, want %d", len(s.stderr()), len(c.stderr))
				}
			}
		})
	}
}

// A process that floods stderr costs no memory but what is kept.
func TestFloodOfStderr(t *testing.T) {
	const frames = 10_000
	in := strings.Repeat(frame(2, strings.Repeat("e", 100)), frames) + frame(2, "the end")
	n := testing.AllocsPerRun(1, func() {
		s := newStdio(reader{Reader: strings.NewReader(in)})
		if got, err := io.ReadAll(s); len(got) > 0 || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		if got := s.stderr(); len(got) != keepStderr || !strings.HasSuffix(got, "eee"+"the end") {
			t.Errorf("kept %d bytes, the last ones %.20q", len(got), got[max(0, len(got)-20):])
		}
	})
	if n > frames/100 {
		t.Errorf("got %v allocations for %d frames", n, frames)
	}
}

// Whatever the engine sends, what is read is no more than it sent, and no frame makes this process
// reserve what it announces.
func FuzzStdio(f *testing.F) {
	f.Add([]byte(frame(1, "x")+frame(2, "y")), uint8(3))
	f.Add([]byte("\x02\x00\x00\x00\xff\xff\xff\xffxyz"), uint8(1))
	f.Add([]byte("\x01\x00\x00\x00\xff\xff\xff\xff"), uint8(0))
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		s := newStdio(reader{Reader: bytes.NewReader(in)})
		total, buf := 0, make([]byte, int(size)+1)
		for {
			n, err := s.Read(buf)
			total += n
			if err != nil {
				break
			}
		}
		if total > len(in) || len(s.stderr()) > keepStderr {
			t.Errorf("read %d and kept %d bytes of %d", total, len(s.stderr()), len(in))
		}
	})
}
