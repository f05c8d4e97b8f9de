package runner

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/wire"
)

// cutter is a connection that breaks after so many bytes in one of the directions.
type cutter struct {
	io.ReadWriteCloser
	mu          sync.Mutex
	read, write int // left; negative: never
}

var errCut = errors.New("cut")

// spend takes n of *left and returns how much there was.
func (c *cutter) spend(left *int, n int) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *left < 0 {
		return n, true
	}
	if n >= *left {
		n, *left = *left, 0
		return n, false
	}
	*left -= n
	return n, true
}

func (c *cutter) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	n, ok := c.spend(&c.read, n)
	if !ok {
		c.Close()
		return n, errCut
	}
	return n, err
}

func (c *cutter) Write(p []byte) (int, error) {
	n, ok := c.spend(&c.write, len(p))
	n, err := c.ReadWriteCloser.Write(p[:n])
	if !ok {
		c.Close()
		return n, errCut
	}
	return n, err
}

// TestCutConnections breaks the connection of a holder at many places. Every call that is under way
// then fails with a typed error that says whether the code may have run, and the sandbox serves
// others as before.
func TestCutConnections(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	s.code(t, "n = 0")
	session := func(c *cutter) (runs int, err error) {
		x, err := join(t.Context(), c, 0)
		if err != nil {
			return 0, err
		}
		defer x.Detach()
		if err := x.Files().Write(t.Context(), s.workdir+"/file", strings.NewReader(strings.Repeat("x", 3000)), 0o644); err != nil {
			return 0, err
		}
		r := doWith(t.Context(), x, executor.Request{Language: executor.Python, Context: "cut", Code: "print(input()); n = globals().get('n', 0) + 1; n", Stdin: strings.NewReader("hello\n"), Artifacts: &executor.ArtifactRequest{}})
		var e *executor.Error
		switch {
		case r.err == nil && (r.stdout != "hello\n" || r.value() == ""):
			t.Errorf("no error, but %+v", r)
		case r.err != nil && !errors.As(r.err, &e):
			t.Errorf("an error without a type: %v", r.err)
		case r.err != nil && (e.Ran == executor.RanYes) != r.started:
			t.Errorf("started %v, but ran %v", r.started, e.Ran)
		}
		if r.err != nil {
			return 0, r.err
		}
		f, err := x.Files().Read(t.Context(), s.workdir+"/file")
		if err != nil {
			return 1, err
		}
		defer f.Close()
		if b, err := io.ReadAll(f); err != nil || len(b) != 3000 {
			return 1, err
		}
		return 1, nil
	}
	free := func() {
		eventually(t, "what was under way ends", func() bool {
			st, err := s.Status(t.Context())
			return err == nil && st.Runs == 0
		})
	}
	whole := &cutter{read: -1, write: -1}
	measure := func(left int) *cutter {
		_, conn := bridgeTo(t, s)
		whole = &cutter{ReadWriteCloser: conn, read: left, write: -1}
		return whole
	}
	big := 1 << 30
	c := measure(big)
	if n, err := session(c); n != 1 || err != nil {
		t.Fatalf("without a cut: %d, %v", n, err)
	}
	size := big - c.read
	for at := 0; at < size; at += max(1, size/60) {
		c := measure(at)
		if _, err := session(c); err == nil {
			t.Errorf("read cut at %d of %d: no error", at, size)
		} else if k := kindOf(err); k != executor.ErrUnavailable {
			t.Errorf("read cut at %d: got %v", at, err)
		}
		free()
	}
	for at := 0; at < 4000; at += 73 {
		_, conn := bridgeTo(t, s)
		if _, err := session(&cutter{ReadWriteCloser: conn, read: -1, write: at}); err != nil && kindOf(err) != executor.ErrUnavailable {
			t.Errorf("write cut at %d: got %v", at, err)
		}
		free()
	}
	s.usable(t)
}

// TestRandomFrames sends what is nearly the protocol. No holder can make the supervisor stumble.
func TestRandomFrames(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	rnd := rand.New(rand.NewPCG(1, 2))
	ops := []string{"run", "reset", "status", "keepalive", "paths", "read", "write", "stat", "list", "mkdir", "rename", "remove", "scan", "changes", "kill", ""}
	keys := []string{"op", "code", "argv", "language", "context", "wall", "output", "dir", "env", "stdin", "artifacts", "name", "from", "to", "mode", "idle", "paths", "scan"}
	value := func() any {
		switch rnd.IntN(8) {
		case 0:
			return rnd.Int64() - 1<<62
		case 1:
			return []any{"true", rnd.IntN(3)}
		case 2:
			return wire.Map{"A": "b", "": 1}
		case 3:
			return rnd.IntN(2) == 0
		case 4:
			return s.workdir + "/x\x00y"
		case 5:
			return []byte{0xff, 0xfe, byte(rnd.Int())}
		case 6:
			return nil
		}
		return "python"
	}
	for range 40 {
		b := wire.Frame{Type: wire.Hello, Payload: wire.AppendValue(nil, wire.Map{"version": wire.Version})}.Append(nil)
		for range 200 {
			m := wire.Map{"op": ops[rnd.IntN(len(ops))]}
			if m["op"] == "keepalive" {
				m["idle"] = int64(time.Hour)
			}
			for range rnd.IntN(6) {
				if k := keys[rnd.IntN(len(keys))]; k != "idle" {
					m[k] = value()
				}
			}
			f := wire.Frame{Type: wire.Open, Stream: uint32(rnd.IntN(20) + 1), Payload: wire.AppendValue(nil, m)}
			switch rnd.IntN(6) {
			case 0:
				f = wire.Frame{Type: wire.Data, Stream: f.Stream, Flags: wire.Flags(rnd.IntN(4)), Payload: make([]byte, rnd.IntN(5000))}
			case 1:
				f = wire.CreditFrame(f.Stream, rnd.Uint32())
			case 2:
				f = wire.Frame{Type: wire.Stop, Stream: f.Stream}
			}
			b = f.Append(b)
			if rnd.IntN(300) == 0 {
				b[rnd.IntN(len(b)-100)+100-1] ^= byte(1 << rnd.IntN(8))
			}
		}
		_, conn := bridgeTo(t, s)
		done := make(chan struct{})
		go func() {
			defer close(done)
			io.Copy(io.Discard, conn)
		}()
		conn.Write(b)
		conn.Close()
		<-done
	}
	if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
		t.Fatal(err)
	}
	s.usable(t)
	if s.stderr.String() != "" {
		t.Errorf("the runner said:\n%s", s.stderr)
	}
}
