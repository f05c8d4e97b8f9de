package pyodide

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/wire"
)

var testNonce = []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// hostFrame encodes a frame as the host does.
func hostFrame(nonce []byte, f wire.Frame) []byte { return f.Append(bytes.Clone(nonce)) }

// framesOf returns a reader of what a host sends.
func framesOf(in []byte) *wire.Reader {
	r := wire.NewReader(bytes.NewReader(in))
	r.Nonce = testNonce
	return r
}

func TestFrames(t *testing.T) {
	good := hostFrame(testNonce, wire.Frame{Type: wire.Data, Channel: wire.Stdout, Stream: 7, Payload: []byte("hello")})
	edit := func(at int, with ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], with)
		return b
	}
	for _, c := range []struct {
		name string
		in   []byte
		want error // nil: one frame, then the end
	}{
		{"one", good, nil},
		{"nothing", nil, io.EOF},
		{"half-a-nonce", good[:10], io.ErrUnexpectedEOF},
		{"half-a-head", good[:nonceLen+10], io.ErrUnexpectedEOF},
		{"half-a-payload", good[:len(good)-1], io.ErrUnexpectedEOF},
		{"printed-by-code", []byte("forged output, long enough for a head\n"), wire.ErrNonce},
		{"without-a-nonce", good[nonceLen:], wire.ErrNonce},
		{"length-beyond-the-bound", edit(nonceLen+8, 0, 16, 0, 1), wire.ErrFrame},
		{"length-of-all", edit(nonceLen+8, 255, 255, 255, 255), wire.ErrFrame},
		{"another-nonce", edit(nonceLen-1, 0), wire.ErrNonce},
		{"type-zero", edit(nonceLen, 0), wire.ErrFrame},
		{"type-unknown", edit(nonceLen, byte(wire.Fail)+1), wire.ErrFrame},
		{"flag-unknown", edit(nonceLen+1, 4), wire.ErrFrame},
		{"channel-unknown", edit(nonceLen+2, 0, 4), wire.ErrFrame},
		{"stream-zero", edit(nonceLen+4, 0, 0, 0, 0), wire.ErrFrame},
		{"second-without-a-nonce", append(bytes.Clone(good), good[nonceLen:]...), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := framesOf(c.in)
			f, err := r.Next()
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if c.want != nil {
				return
			}
			if f.Type != wire.Data || f.Stream != 7 || string(f.Payload) != "hello" {
				t.Errorf("got %+v", f)
			}
			want := io.EOF
			if len(c.in) > len(good) {
				want = wire.ErrNonce
			}
			if _, err := r.Next(); err != want {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}

// The constants exist on both sides and must be equal.
func TestConstantsOfTheHost(t *testing.T) {
	b, err := os.ReadFile("host/wire.mjs")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	number := func(pattern string) int64 {
		t.Helper()
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s in wire.mjs", pattern)
		}
		product := int64(0)
		for i, f := range strings.Split(m[1], " << ") {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				product = n
			} else {
				product <<= n
			}
		}
		return product
	}
	for _, c := range []struct {
		name string
		want int64
	}{
		{"HELLO", int64(wire.Hello)}, {"BYE", int64(wire.Bye)}, {"OPEN", int64(wire.Open)}, {"DATA", int64(wire.Data)}, {"CREDIT", int64(wire.Credit)},
		{"STOP", int64(wire.Stop)}, {"STARTED", int64(wire.Started)}, {"OUTPUT", int64(wire.Output)}, {"DONE", int64(wire.Done)}, {"FAIL", int64(wire.Fail)},
		{"CONTENTS", int64(wire.Contents)}, {"STDOUT", int64(wire.Stdout)}, {"STDERR", int64(wire.Stderr)}, {"ENTRIES", int64(wire.Entries)},
	} {
		if got := number(`\b` + c.name + `: (\d+)`); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		name string
		want int64
	}{
		{"NONCE", nonceLen}, {"HEADER", wire.HeaderSize}, {"MAX_PAYLOAD", wire.MaxPayload}, {"WINDOW", wire.Window}, {"COST", frameCost},
		{"CHUNK", spanChunk}, {"MORE", int64(wire.More)}, {"END", int64(wire.End)},
	} {
		if got := number(`const ` + c.name + ` = ([0-9 <]+);`); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
	counted := regexp.MustCompile(`const counted = (.*);`).FindString(text)
	for typ := wire.Hello; typ <= wire.Fail; typ++ {
		of := strings.Contains(counted, "TYPE."+strings.ToUpper(typ.String()))
		if want := (wire.Frame{Type: typ}).Costs(); of != want {
			t.Errorf("%v: the host counts it: %v, we do: %v", typ, of, want)
		}
	}
	if maxCode+wire.MaxPayload > number(`const MAX_REQUEST = ([0-9 <]+);`) {
		t.Error("the host would not take the longest code")
	}
}

// value encodes values as the host does.
func value(vs ...any) []byte {
	var b []byte
	for _, v := range vs {
		b = wire.AppendValue(b, v)
	}
	return b
}

// FuzzFrames passes a stream of bytes to the decoder, and the accepted frames to the decoders of
// payloads.
func FuzzFrames(f *testing.F) {
	var session []byte
	for _, fr := range []wire.Frame{
		{Type: wire.Hello, Payload: value(wire.Map{"version": "314.0.7", "ms": 200})},
		{Type: wire.Open, Stream: 1},
		{Type: wire.Started, Stream: 1, Payload: value(wire.Map{"cell": 1})},
		{Type: wire.Data, Channel: wire.Stdout, Stream: 1, Payload: []byte("hello\n")},
		{Type: wire.Output, Stream: 1, Payload: value(wire.Map{"main": true, "data": wire.Map{"text/plain": "42"}})},
		{Type: wire.Output, Flags: wire.More, Stream: 1, Payload: []byte("m")},
		{Type: wire.Output, Flags: wire.End, Stream: 1},
		{Type: wire.Data, Channel: wire.Entries, Flags: wire.End, Stream: 1, Payload: value(wire.Map{"name": "a", "size": 1, "mtime": 2})},
		spoolFrame(spoolEntry{kind: kindFile, id: 1, size: 3}, true, 0, "/workspace/a"),
		dataFrame("abc"),
		{Type: wire.Done, Stream: 1, Payload: value(wire.Map{"exit": 1, "exception": wire.Map{"type": "E", "line": 1}, "left": "a\nb"})},
		{Type: wire.Fail, Stream: 1, Payload: value(wire.Map{"errno": errnoNOENT, "message": "no"})},
		{Type: wire.Bye, Payload: value(wire.Map{"message": "gone"})},
	} {
		b := hostFrame(testNonce, fr)
		f.Add(b)
		session = append(session, b...)
	}
	f.Add(session)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, in []byte) {
		r := framesOf(in)
		sp := newSpool(dir, 1<<20, 100)
		defer sp.close()
		p := wire.Parts{Max: 1 << 16}
		total := 0
		for {
			fr, err := r.Next()
			if err != nil {
				break
			}
			if total += len(fr.Payload); total > len(in) {
				t.Fatalf("%d bytes of payload from %d", total, len(in))
			}
			switch fr.Type {
			case wire.Output:
				if msg, err := p.Add(fr); err == nil && msg != nil {
					if out, err := wire.ParseOutput(msg); err == nil && len(out.Data) > 32 {
						t.Fatalf("%d types", len(out.Data))
					}
				}
			case wire.Data:
				if changed, err := wire.ParseChanged(fr.Payload, 10); err == nil && len(changed) > 10 {
					t.Fatalf("%d changed files", len(changed))
				}
				if sp.frame(fr) != nil {
					sp.abort()
				}
			case wire.Done, wire.Fail:
				if sp.commit() == nil {
					checkSpool(t, sp)
				}
				if m, err := parseMap(fr.Payload); err == nil {
					m.Exit()
					m.FileInfo()
					_ = callError(fr.Type, m)
				}
			}
		}
	})
}
