package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
)

var frames = []Frame{
	{Type: Hello, Payload: AppendValue(nil, Map{"version": Version})},
	{Type: Open, Stream: 1, Payload: AppendValue(nil, Map{"op": "run", "code": "print(1)"})},
	{Type: Started, Stream: 1, Payload: AppendValue(nil, Map{"cell": 1})},
	{Type: Data, Channel: Stdout, Stream: 1, Payload: []byte("1\n")},
	{Type: Data, Flags: End, Stream: 1<<32 - 1, Payload: []byte{}},
	{Type: Output, Flags: More, Stream: 1, Payload: bytes.Repeat([]byte{7}, 100<<10)},
	CreditFrame(3, 70000),
	{Type: Done, Stream: 1, Payload: []byte("x")},
	{Type: Bye, Payload: []byte{}},
}

func encode(fs []Frame) []byte {
	var p []byte
	for _, f := range fs {
		p = f.Append(p)
	}
	return p
}

func TestReaderReturnsWhatWasAppended(t *testing.T) {
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r },
		"bytes": iotest.OneByteReader,
		"half":  iotest.HalfReader,
		"eof":   iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReader(wrap(bytes.NewReader(encode(frames))))
			for _, want := range frames {
				got, err := r.Next()
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("got %v %d bytes, want %v %d bytes", got.Type, len(got.Payload), want.Type, len(want.Payload))
				}
			}
			for range 2 {
				if _, err := r.Next(); err != io.EOF {
					t.Fatalf("at the end: got %v, want EOF", err)
				}
			}
		})
	}
}

func TestReaderRefuses(t *testing.T) {
	long := Frame{Type: Data, Stream: 1, Payload: []byte("x")}.Append(nil)
	long[8] = 0x7f
	for name, c := range map[string]struct {
		in   []byte
		want error
	}{
		"text":                 {[]byte("Traceback (most recent call last):"), ErrFrame},
		"unknown type":         {Frame{Type: 13, Stream: 1}.Append(nil), ErrFrame},
		"type zero":            {make([]byte, HeaderSize), ErrFrame},
		"unknown flag":         {Frame{Type: Data, Flags: 8, Stream: 1}.Append(nil), ErrFrame},
		"unknown channel":      {Frame{Type: Data, Channel: 9, Stream: 1}.Append(nil), ErrFrame},
		"hello on a stream":    {Frame{Type: Hello, Stream: 1}.Append(nil), ErrFrame},
		"data without stream":  {Frame{Type: Data}.Append(nil), ErrFrame},
		"too long":             {long, ErrFrame},
		"half a header":        {long[:5], io.ErrUnexpectedEOF},
		"half a payload":       {encode(frames[1:2])[:20], io.ErrUnexpectedEOF},
		"nothing after header": {encode(frames[1:2])[:HeaderSize], io.ErrUnexpectedEOF},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			r := NewReader(bytes.NewReader(c.in))
			if _, err := r.Next(); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// A header that announces much and brings little must not cost memory.
func TestReaderAllocatesWhatArrives(t *testing.T) {
	head := Frame{Type: Data, Stream: 1, Payload: make([]byte, MaxPayload)}.Append(nil)[:HeaderSize]
	r := NewReader(bytes.NewReader(head))
	if _, err := r.Next(); err != io.ErrUnexpectedEOF {
		t.Fatalf("got %v", err)
	}
	if len(r.buf) > 64<<10 {
		t.Errorf("the buffer has grown to %d bytes", len(r.buf))
	}
}

func TestValueRoundTrip(t *testing.T) {
	in := Map{"n": nil, "t": true, "f": false, "i": int64(-5), "s": "text", "b": []byte{0, 255}, "l": []any{1, "x", []any{}}, "m": Map{"": nil}}
	want := Map{"n": nil, "t": true, "f": false, "i": int64(-5), "s": []byte("text"), "b": []byte{0, 255},
		"l": []any{int64(1), []byte("x"), []any{}}, "m": Map{"": nil}}
	got, err := ParseMap(AppendValue(nil, in))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got.Text("s") != "text" || got.Int("i") != -5 || !got.Bool("t") || len(got.List("l")) != 3 || got.Map("m") == nil {
		t.Errorf("accessors disagree with %v", got)
	}
	if got.Text("i") != "" || got.Int("s") != 0 || got.Bool("i") || got.List("s") != nil || got.Map("l") != nil || got.Int("none") != 0 {
		t.Errorf("accessors of the wrong type do not return zero values")
	}
}

func TestValueRefuses(t *testing.T) {
	deep := bytes.Repeat([]byte("l\x00\x00\x00\x01"), 1000)
	for name, in := range map[string]string{
		"empty":      "",
		"unknown":    "z",
		"half-int":   "i\x00",
		"long-text":  "s\x7f\xff\xff\xffx",
		"long-list":  "l\xff\xff\xff\xffn",
		"long-map":   "m\xff\xff\xff\xffn",
		"key":        "m\x00\x00\x00\x01tttttt",
		"twice":      "m\x00\x00\x00\x02s\x00\x00\x00\x01ans\x00\x00\x00\x01an",
		"deep":       string(deep) + "n",
		"many":       "l\x00\x02\x00\x00" + strings.Repeat("n", 1<<17),
		"not-a-map":  "n",
		"more":       "m\x00\x00\x00\x00n",
		"cut-in-map": "m\x00\x00\x00\x01s\x00\x00\x00\x01a",
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := ParseMap([]byte(in)); !errors.Is(err, ErrValue) {
				t.Errorf("got %v, %v; want ErrValue", m, err)
			}
		})
	}
}

func TestCredits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Credits
		got := make(chan int)
		go func() {
			defer close(got)
			for {
				n, err := c.Take(t.Context(), 10)
				if err != nil {
					if err != io.ErrClosedPipe {
						t.Errorf("got %v, want the error of Close", err)
					}
					return
				}
				got <- n
			}
		}()
		synctest.Wait()
		if err := c.Grant(14); err != nil {
			t.Fatal(err)
		}
		if a, b := <-got, <-got; a != 10 || b != 4 {
			t.Errorf("got %d and %d, want 10 and 4", a, b)
		}
		if err := c.Grant(maxCredit + 1); !errors.Is(err, ErrCredit) {
			t.Errorf("got %v, want ErrCredit", err)
		}
		c.Close(io.ErrClosedPipe)
		<-got
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(io.ErrNoProgress)
		if _, err := new(Credits).Take(ctx, 1); err != io.ErrNoProgress {
			t.Errorf("got %v, want the cause of the context", err)
		}
	})
}

func TestGranted(t *testing.T) {
	g := NewGranted()
	if err := g.Receive(Window); err != nil {
		t.Fatal(err)
	}
	if n := g.Consume(Window/2 - 1); n != 0 {
		t.Errorf("granted %d for little", n)
	}
	if n := g.Consume(1); n != Window/2 {
		t.Errorf("granted %d, want %d", n, Window/2)
	}
	if err := g.Receive(Window/2 + 1); !errors.Is(err, ErrCredit) {
		t.Errorf("got %v, want ErrCredit", err)
	}
}

func TestParseCredit(t *testing.T) {
	if n, err := ParseCredit(CreditFrame(1, 77)); n != 77 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := ParseCredit(Frame{Type: Credit, Payload: []byte{1}}); !errors.Is(err, ErrFrame) {
		t.Errorf("got %v, want ErrFrame", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(encode(frames[:5]))
	f.Add(encode(frames[6:]))
	f.Add([]byte("Traceback (most recent call last):\n"))
	f.Add(encode(frames[:2])[:30])
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(iotest.HalfReader(bytes.NewReader(in)))
		var out []byte
		for {
			fr, err := r.Next()
			if err != nil {
				break
			}
			out = fr.Append(out)
			if m, err := ParseMap(fr.Payload); err == nil {
				m2, err := ParseMap(AppendValue(nil, m))
				if err != nil || !reflect.DeepEqual(m, m2) {
					t.Fatalf("%v became %v, %v", m, m2, err)
				}
			}
		}
		if !bytes.HasPrefix(in, out) {
			t.Fatalf("read %q from %q", out, in)
		}
	})
}

func FuzzValue(f *testing.F) {
	f.Add(AppendValue(nil, Map{"op": "run", "env": Map{"A": "b"}, "argv": []any{"ls", "-l"}, "wall": int64(5), "x": nil, "y": true}))
	f.Add([]byte("l\xff\xff\xff\xffn"))
	f.Add(bytes.Repeat([]byte("l\x00\x00\x00\x01"), 20))
	f.Fuzz(func(t *testing.T, in []byte) {
		v, rest, err := ParseValue(in)
		if err != nil {
			return
		}
		if got := len(AppendValue(nil, v)) + len(rest); got != len(in) {
			t.Fatalf("%d bytes became %d", len(in), got)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	p := encode([]Frame{{Type: Data, Channel: Stdout, Stream: 1, Payload: make([]byte, 64<<10)}})
	b.SetBytes(int64(len(p)))
	r := NewReader(repeat{p: p, off: new(int)})
	for b.Loop() {
		if _, err := r.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// repeat yields p again and again.
type repeat struct {
	p   []byte
	off *int
}

func (r repeat) Read(b []byte) (int, error) {
	n := copy(b, r.p[*r.off:])
	*r.off = (*r.off + n) % len(r.p)
	return n, nil
}
