package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// A payload of any length comes out as it went in, in frames of which all but the last have More.
func TestLongPayloads(t *testing.T) {
	for _, n := range []int{0, 1, MaxPayload, MaxPayload + 1, 3*MaxPayload + 7} {
		want := bytes.Repeat([]byte{7}, n)
		rest := Frame{Type: Output, Stream: 1, Payload: want}.AppendLong(nil)
		p := Parts{Max: n}
		for {
			f, more, err := Parse(rest)
			if err != nil {
				t.Fatal(err)
			}
			rest = more
			got, err := p.Add(f)
			if err != nil {
				t.Fatal(err)
			}
			if got == nil {
				continue
			}
			if !bytes.Equal(got, want) || len(rest) > 0 {
				t.Errorf("%d bytes: got %d, %d are left", n, len(got), len(rest))
			}
			break
		}
	}
}

func TestParts(t *testing.T) {
	part := func(flags Flags, s string) Frame {
		return Frame{Type: Output, Flags: flags, Stream: 1, Payload: append([]byte{}, s...)}
	}
	for _, c := range []struct {
		name string
		in   []Frame
		want string // of the last part
		err  error
	}{
		{"one", []Frame{part(0, "abc")}, "abc", nil},
		{"several", []Frame{part(More, "ab"), part(More, ""), part(0, "c")}, "abc", nil},
		{"empty", []Frame{part(0, "")}, "", nil},
		{"empty-parts", []Frame{part(More, ""), part(0, "")}, "", nil},
		{"void-and-again", []Frame{part(More, "ab"), part(End, ""), part(0, "c")}, "c", nil},
		{"void-with-more", []Frame{part(More, "ab"), part(End|More, "x"), part(0, "c")}, "c", nil},
		{"too-long", []Frame{part(More, "abcd"), part(More, "efgh"), part(0, "i")}, "", ErrLong},
		{"one-too-long", []Frame{part(0, "abcdefghi")}, "", ErrLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Parts{Max: 8}
			var got []byte
			var err error
			for _, f := range c.in {
				if got, err = p.Add(f); err != nil {
					break
				}
			}
			if !errors.Is(err, c.err) || err == nil && (got == nil || string(got) != c.want) {
				t.Errorf("got %q, %v", got, err)
			}
			if len(p.buf) > 0 {
				t.Errorf("%q is kept", p.buf)
			}
		})
	}
}

// Each frame has the nonce in front of it, however it arrives.
func TestNonce(t *testing.T) {
	nonce := []byte("sixteen-bytes-it")
	var in []byte
	for _, f := range frames {
		in = f.Append(append(in, nonce...))
	}
	reader := func(r io.Reader) *Reader {
		frames := NewReader(r)
		frames.Nonce = nonce
		return frames
	}
	r := reader(iotest.HalfReader(bytes.NewReader(in)))
	for _, want := range frames {
		if got, err := r.Next(); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v, %v, want %v", got.Type, err, want.Type)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: got %v", err)
	}
	if _, err := reader(bytes.NewReader(frames[1].Append(nil))).Next(); err != ErrNonce {
		t.Errorf("without it: got %v", err)
	}
	if _, err := reader(bytes.NewReader(nonce[:9])).Next(); err != io.ErrUnexpectedEOF {
		t.Errorf("half of it: got %v", err)
	}
}

func TestOutputs(t *testing.T) {
	shown := func(data Map) []byte { return AppendValue(nil, Map{"main": true, "data": data}) }
	out, err := ParseOutput(shown(Map{"text/plain": "42", "image/png": "\x89PNG"}))
	if err != nil || !out.Main || len(out.Data) != 2 || string(out.Data["image/png"]) != "\x89PNG" {
		t.Errorf("got %+v, %v", out, err)
	}
	many := Map{}
	for c := range byte(maxTypes + 1) {
		many["text/"+string(rune('a'+c/16))+string(rune('a'+c%16))] = "x"
	}
	for name, b := range map[string][]byte{
		"empty":        nil,
		"no-data":      AppendValue(nil, Map{"main": true}),
		"cut-short":    shown(Map{"text/plain": "42"})[:30],
		"rest":         append(shown(Map{"text/plain": "42"}), 0),
		"many":         shown(many),
		"no-bytes":     shown(Map{"text/plain": 42}),
		"no-slash":     shown(Map{"text": "x"}),
		"two-slashes":  shown(Map{"a/b/c": "x"}),
		"half":         shown(Map{"text/": "x"}),
		"upper-case":   shown(Map{"Text/plain": "x"}),
		"parameter":    shown(Map{"text/plain;a=b": "x"}),
		"line":         shown(Map{"text/pl\nain": "x"}),
		"not-in-ascii": shown(Map{"text/\xff": "x"}),
		"long-type":    shown(Map{"a/" + strings.Repeat("b", maxTypeLen): "x"}),
	} {
		if out, err := ParseOutput(b); !errors.Is(err, ErrValue) {
			t.Errorf("%s: got %+v, %v", name, out, err)
		}
	}
}

func TestEnds(t *testing.T) {
	m := Map{"exit": int64(3), "lost": true, "left": []byte("task a\ntimer"), "exception": Map{
		"type": []byte("E"), "message": []byte("m\xff"), "traceback": []byte("t"), "line": int64(-1),
	}}
	want := driver.Exit{
		Code: 3, StateLost: true, LeftRunning: []string{"task a", "timer"},
		Exception: &executor.Exception{Type: "E", Message: "m\uFFFD", Traceback: "t"},
	}
	if got := m.Exit(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := (Map{}).Exit(); !reflect.DeepEqual(got, driver.Exit{}) {
		t.Errorf("of nothing: got %+v", got)
	}
	entries := AppendValue(AppendValue(nil, Map{"name": "a", "size": 1, "mtime": 5}), Map{"name": "b"})
	changed, err := ParseChanged(entries, 2)
	if err != nil || len(changed) != 2 || changed[0].Name != "a" || changed[0].Size != 1 || !changed[0].ModTime.Equal(time.Unix(0, 5)) {
		t.Errorf("got %+v, %v", changed, err)
	}
	if _, err := ParseChanged(entries, 1); !errors.Is(err, ErrValue) {
		t.Errorf("more than there can be: got %v", err)
	}
	for _, m := range []Map{{}, {"path": "/f", "size": 1}, {"name": "a", "size": -1}, {"name": 1}} {
		if _, err := ParseChanged(AppendValue(nil, m), 2); !errors.Is(err, ErrValue) {
			t.Errorf("%v: got %v", m, err)
		}
	}
	if _, err := ParseChanged(entries[:20], 2); !errors.Is(err, ErrValue) {
		t.Errorf("cut short: got %v", err)
	}
}
