package pyodide

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var testNonce = [nonceLen]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// hostFrame encodes a frame as the host does.
func hostFrame(nonce [nonceLen]byte, typ frameType, id uint32, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(nonceLen+headLen+len(payload)))
	b = append(b, nonce[:]...)
	b = append(b, byte(typ))
	b = binary.LittleEndian.AppendUint32(b, id)
	return append(b, payload...)
}

func TestFrames(t *testing.T) {
	good := hostFrame(testNonce, fromStdout, 7, []byte("hello"))
	edit := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return b
	}
	for _, c := range []struct {
		name string
		in   []byte
		want error // nil: one frame, then the end
	}{
		{"one", good, nil},
		{"nothing", nil, io.EOF},
		{"half-a-head", good[:10], io.ErrUnexpectedEOF},
		{"half-a-payload", good[:len(good)-1], io.ErrUnexpectedEOF},
		{"printed-by-code", []byte("forged output, long enough for a head\n"), errFrame},
		{"length-zero", edit(func(b []byte) { binary.LittleEndian.PutUint32(b, 0) }), errFrame},
		{"length-without-a-type", edit(func(b []byte) { binary.LittleEndian.PutUint32(b, nonceLen) }), errFrame},
		{"length-beyond-the-bound", edit(func(b []byte) { binary.LittleEndian.PutUint32(b, nonceLen+maxFrame+1) }), errFrame},
		{"length-of-all", edit(func(b []byte) { binary.LittleEndian.PutUint32(b, math.MaxUint32) }), errFrame},
		{"another-nonce", edit(func(b []byte) { b[4+nonceLen-1]++ }), errNonce},
		{"type-zero", edit(func(b []byte) { b[4+nonceLen] = 0 }), errFrame},
		{"type-unknown", edit(func(b []byte) { b[4+nonceLen] = byte(fromGiven) + 1 }), errFrame},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFrameReader(bytes.NewReader(c.in), testNonce)
			f, err := r.next()
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if c.want != nil {
				return
			}
			if f.typ != fromStdout || f.id != 7 || string(f.payload) != "hello" {
				t.Errorf("got %+v", f)
			}
			if _, err := r.next(); err != io.EOF {
				t.Errorf("got %v, want the end", err)
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
		{"INIT", toInit}, {"RUN", toRun}, {"STDIN", toStdin}, {"INTERRUPT", toInterrupt}, {"CREDIT", toCredit}, {"CALL", toCall},
		{"READY", int64(fromReady)}, {"STARTED", int64(fromStarted)}, {"STDOUT", int64(fromStdout)}, {"STDERR", int64(fromStderr)},
		{"OUTPUT", int64(fromOutput)}, {"WANT", int64(fromWant)}, {"END", int64(fromEnd)}, {"FILE", int64(fromFile)}, {"DATA", int64(fromData)},
		{"SYNCED", int64(fromSynced)}, {"REPLY", int64(fromReply)}, {"LATE", int64(fromLate)}, {"STUCK", int64(fromStuck)}, {"FATAL", int64(fromFatal)},
		{"GIVEN", int64(fromGiven)},
	} {
		if got := number(`\b` + c.name + `: (\d+)`); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		name string
		want int64
	}{{"NONCE", nonceLen}, {"HEAD", headLen}, {"MAX_FRAME", maxFrame}, {"WINDOW", window}, {"COST", frameCost}, {"CHUNK", spanChunk}} {
		if got := number(`const ` + c.name + ` = ([0-9 <]+);`); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
	for typ := fromReady; typ <= fromGiven; typ++ {
		name := regexp.MustCompile(`\b([A-Z]+): `+strconv.Itoa(int(typ))+`,`).FindAllStringSubmatch(text, -1)
		counted := regexp.MustCompile(`\[FROM_HOST\.` + name[len(name)-1][1] + `, true\]`).MatchString(text)
		if counted != typ.counted() {
			t.Errorf("%s: the host counts it: %v, we do: %v", name[len(name)-1][1], counted, typ.counted())
		}
	}
	if maxCode+maxFrame > number(`const MAX_REQUEST = ([0-9 <]+);`) {
		t.Error("the host would not take the longest code")
	}
}

func TestParts(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []string
		want string // of the last part
		err  error
	}{
		{"one", []string{"\x01abc"}, "abc", nil},
		{"several", []string{"\x00ab", "\x00", "\x01c"}, "abc", nil},
		{"empty", []string{"\x01"}, "", nil},
		{"broken-and-again", []string{"\x00ab", "\x02", "\x01c"}, "c", nil},
		{"no-flag", []string{""}, "", errFrame},
		{"unknown-flag", []string{"\x03"}, "", errFrame},
		{"too-long", []string{"\x00abcd", "\x00efgh", "\x01i"}, "", errTooLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := parts{max: 8}
			var msg []byte
			var err error
			for _, in := range c.in {
				if msg, err = p.add([]byte(in)); err != nil {
					break
				}
			}
			if !errors.Is(err, c.err) || err == nil && (msg == nil || string(msg) != c.want) {
				t.Errorf("got %q, %v", msg, err)
			}
		})
	}
}

// bundle encodes a value as session.py does.
func bundle(main byte, count uint16, rest ...string) []byte {
	b := binary.LittleEndian.AppendUint16([]byte{main}, count)
	for i, s := range rest {
		if i%2 == 0 {
			b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
		} else {
			b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		}
		b = append(b, s...)
	}
	return b
}

func TestBundles(t *testing.T) {
	t.Parallel()
	out, err := decodeBundle(bundle(1, 2, "text/plain", "42", "image/png", "\x89PNG"))
	if err != nil || !out.Main || len(out.Data) != 2 || string(out.Data["image/png"]) != "\x89PNG" {
		t.Errorf("got %+v, %v", out, err)
	}
	for name, b := range map[string][]byte{
		"empty":         nil,
		"count-too-big": bundle(0, 2, "text/plain", "42"),
		"rest":          append(bundle(0, 1, "text/plain", "42"), 0),
		"many":          bundle(0, maxTypes+1),
		"no-slash":      bundle(0, 1, "text", "x"),
		"upper-case":    bundle(0, 1, "Text/plain", "x"),
		"parameter":     bundle(0, 1, "text/plain;a=b", "x"),
		"line":          bundle(0, 1, "text/pl\nain", "x"),
		"long-type":     bundle(0, 1, "a/"+strings.Repeat("b", maxTypeLen), "x"),
	} {
		if out, err := decodeBundle(b); err == nil {
			t.Errorf("%s: got %+v", name, out)
		}
	}
}

// FuzzFrames passes a stream of bytes to the decoder, and the accepted frames to the decoders of
// payloads.
func FuzzFrames(f *testing.F) {
	var session []byte
	for _, fr := range []struct {
		typ     frameType
		payload string
	}{
		{fromReady, `{"version":"314.0.7","ms":200}`},
		{fromGiven, ""},
		{fromStarted, "\x01\x00\x00\x00"},
		{fromStdout, "hello\n"},
		{fromOutput, "\x01" + string(bundle(1, 1, "text/plain", "42"))},
		{fromEnd, "\x01" + `{"exit_code":0,"exception":null,"interrupted":false,"changes":[["a",1,2]]}`},
		{fromFile, string(spoolFrame(spoolEntry{kind: kindFile, id: 1, size: 3}, true, "/workspace/a"))},
		{fromData, string(dataFrame(1, 0, "abc"))},
		{fromSynced, ""},
		{fromReply, string(envelope(callReply{Token: 1})) + "data"},
		{fromFatal, `{"message":"gone"}`},
	} {
		b := hostFrame(testNonce, fr.typ, 1, []byte(fr.payload))
		f.Add(b)
		session = append(session, b...)
	}
	f.Add(session)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, in []byte) {
		r := newFrameReader(bytes.NewReader(in), testNonce)
		sp := newSpool(dir, 1<<20, 100)
		defer sp.close()
		p := parts{max: 1 << 16}
		total := 0
		for {
			fr, err := r.next()
			if err != nil {
				break
			}
			if total += len(fr.payload); total > len(in) {
				t.Fatalf("%d bytes of payload from %d", total, len(in))
			}
			switch fr.typ {
			case fromOutput, fromEnd:
				if msg, err := p.add(fr.payload); err == nil && msg != nil {
					if out, err := decodeBundle(msg); err == nil && len(out.Data) > maxTypes {
						t.Fatalf("%d types", len(out.Data))
					}
				}
			case fromFile, fromData:
				if sp.frame(fr) != nil {
					sp.abort()
				}
			case fromSynced:
				if sp.commit() == nil {
					checkSpool(t, sp)
				}
			case fromReply:
				var rep callReply
				if _, err := openEnvelope(fr.payload, &rep); err == nil {
					for _, e := range rep.Entries {
						e.info()
					}
				}
			}
		}
	})
}
