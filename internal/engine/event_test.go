package engine_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// piece is what a sandbox writes at once.
type piece struct {
	kind executor.EventKind
	data string
}

// script returns a run that writes the pieces from one buffer, as drivers do.
func script(pieces ...piece) runFunc {
	return func(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
		if err := started(emit); err != nil {
			return driver.Exit{}, err
		}
		var buf []byte
		for _, p := range pieces {
			buf = append(buf[:0], p.data...)
			ev := executor.Event{Kind: p.kind, Data: buf}
			if p.kind == executor.EventOutput {
				ev = executor.Event{Kind: p.kind, Output: &executor.Output{Data: executor.MIMEBundle{"text/plain": executor.Bytes(p.data)}}}
			}
			err := emit(ev)
			for i := range buf {
				buf[i] = '!'
			}
			if err != nil {
				return driver.Exit{}, err
			}
		}
		return driver.Exit{}, nil
	}
}

func out(ss ...string) (ps []piece) {
	for _, s := range ss {
		ps = append(ps, piece{executor.EventStdout, s})
	}
	return ps
}

// collect runs the pieces and returns what came, checking what must hold of all events.
func collect(t testing.TB, limit int64, keep int, pieces []piece) (events []executor.Event, res *executor.Result) {
	t.Helper()
	c := newCloud()
	c.run = script(pieces...)
	s := c.session(t, executor.Spec{Run: executor.RunLimits{OutputBytes: limit}})
	res, err := s.Run(t.Context(), executor.Request{Language: executor.Python, Code: "x", Keep: keep}, func(ev executor.Event) error {
		events = append(events, ev)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var last time.Time
	for i, ev := range events {
		if ev.Seq != i || ev.Time.Before(last) || (ev.Kind == executor.EventStarted) != (i == 0) {
			t.Errorf("event %d is %+v", i, ev)
		}
		last = ev.Time
	}
	return events, res
}

func datas(events []executor.Event, kind executor.EventKind) (all []string) {
	for _, ev := range events {
		if ev.Kind == kind {
			all = append(all, ev.Data.String())
		}
	}
	return all
}

func TestCharacters(t *testing.T) {
	for name, c := range map[string]struct {
		in, want []string
	}{
		"ascii":           {[]string{"a", "b"}, []string{"a", "b"}},
		"split-in-two":    {[]string{"h\xc3", "\xa9llo"}, []string{"h", "éllo"}},
		"split-in-four":   {[]string{"\xf0", "\x9f", "\x98", "\x80!"}, []string{"😀!"}},
		"invalid":         {[]string{"a\xff", "b"}, []string{"a\xff", "b"}},
		"never-goes-on":   {[]string{"a\xe2\x82", "b"}, []string{"a", "\xe2\x82b"}},
		"ends-within":     {[]string{"a\xe2\x82"}, []string{"a", "\xe2\x82"}},
		"lone-tail":       {[]string{"\x82\xac"}, []string{"\x82\xac"}},
		"empty":           {[]string{"", "a", ""}, []string{"a"}},
		"four-and-a-half": {[]string{"😀\xf0\x9f", "\x98\x80"}, []string{"😀", "😀"}},
	} {
		events, res := collect(t, 0, 0, out(c.in...))
		if got := datas(events, executor.EventStdout); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if got, want := res.Stdout.String(), strings.Join(c.in, ""); got != want || res.Dropped != nil {
			t.Errorf("%s: kept %q, want %q", name, got, want)
		}
	}
}

// TestStreamsAreApart tests that half a character on one stream does not meet the other.
func TestStreamsAreApart(t *testing.T) {
	events, res := collect(t, 0, 0, []piece{
		{executor.EventStdout, "o\xc3"}, {executor.EventStderr, "e\xc3"}, {executor.EventStdout, "\xa9"}, {executor.EventStderr, "\xbc"},
	})
	if o, e := datas(events, executor.EventStdout), datas(events, executor.EventStderr); !slices.Equal(o, []string{"o", "é"}) || !slices.Equal(e, []string{"e", "ü"}) {
		t.Errorf("got %q and %q", o, e)
	}
	if res.Stdout.String() != "oé" || res.Stderr.String() != "eü" {
		t.Errorf("kept %q and %q", res.Stdout, res.Stderr)
	}
}

func TestOutputLimit(t *testing.T) {
	for name, c := range map[string]struct {
		limit  int64
		in     []string
		want   string
		killed bool
	}{
		"below":               {5, []string{"1234"}, "1234", false},
		"exact":               {5, []string{"12", "345"}, "12345", false},
		"above":               {5, []string{"12", "3456", "never"}, "12345", true},
		"one-byte-above":      {5, []string{"12345", "6"}, "12345", true},
		"character-at-limit":  {5, []string{"123é"}, "123é", false},
		"character-cut":       {4, []string{"123é"}, "123", true},
		"cut-between-pieces":  {4, []string{"123\xc3", "\xa9"}, "123", true},
		"invalid-not-cut":     {4, []string{"123\xff", "5"}, "123\xff", true},
		"half-character-ends": {4, []string{"123\xc3"}, "123\xc3", false},
		"huge":                {100_000, []string{strings.Repeat("é", 100_000)}, strings.Repeat("é", 50_000), true},
	} {
		events, res := collect(t, c.limit, 1<<20, out(c.in...))
		if got := strings.Join(datas(events, executor.EventStdout), ""); got != c.want || res.Stdout.String() != c.want {
			t.Errorf("%s: got %.20q and %.20q, want %.20q", name, got, res.Stdout, c.want)
		}
		if killed := res.Status == executor.StatusKilled && res.Reason == executor.ReasonOutput && res.ExitCode == -1; killed != c.killed {
			t.Errorf("%s: got %+v, want killed %v", name, res.Status, c.killed)
		}
	}
}

func TestOutputLimitIsShared(t *testing.T) {
	o, e, v := executor.EventStdout, executor.EventStderr, executor.EventOutput
	for name, c := range map[string]struct {
		in     []piece
		want   []executor.EventKind // after the start
		killed bool
	}{
		"both-fit":          {[]piece{{o, "12345"}, {e, "12345"}}, []executor.EventKind{o, e}, false},
		"stderr-too-much":   {[]piece{{o, "12345"}, {e, strings.Repeat("x", 200)}}, []executor.EventKind{o, e}, true},
		"value-fits":        {[]piece{{o, "12345"}, {v, "42"}}, []executor.EventKind{o, v}, false},
		"value-too-large":   {[]piece{{o, "12345"}, {v, strings.Repeat("x", 100)}, {o, "never"}}, []executor.EventKind{o}, true},
		"many-empty-values": {slices.Repeat([]piece{{v, ""}}, 5), []executor.EventKind{v}, true},
	} {
		events, res := collect(t, 120, 0, c.in)
		var got []executor.EventKind
		for _, ev := range events[1:] {
			got = append(got, ev.Kind)
		}
		if !slices.Equal(got, c.want) || (res.Reason == executor.ReasonOutput) != c.killed {
			t.Errorf("%s: got %q, %q, want %q", name, got, res.Reason, c.want)
		}
		if n := len(res.Outputs); n != strings.Count(strings.Join(strings.Fields(joinKinds(c.want)), " "), string(v)) {
			t.Errorf("%s: got %d outputs in the result", name, n)
		}
	}
}

func joinKinds(ks []executor.EventKind) string {
	var b strings.Builder
	for _, k := range ks {
		b.WriteString(string(k) + " ")
	}
	return b.String()
}

func TestHugePiecesAreSplit(t *testing.T) {
	in := "x" + strings.Repeat("é", 100_000)
	events, res := collect(t, 0, 1<<20, out(in))
	got := datas(events, executor.EventStdout)
	if strings.Join(got, "") != in || res.Stdout.String() != in {
		t.Error("the content has changed")
	}
	if len(got) != 4 {
		t.Errorf("got %d events, want 4", len(got))
	}
	for _, d := range got {
		if len(d) > 64<<10 || !utf8.ValidString(d) {
			t.Errorf("got %d bytes, valid %v", len(d), utf8.ValidString(d))
		}
	}
}

func TestOutputs(t *testing.T) {
	c := newCloud()
	c.run = func(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
		for _, ev := range []executor.Event{
			{Kind: executor.EventStarted, Cell: -3},
			{Kind: executor.EventStarted, Cell: 9},
			{Kind: executor.EventOutput},
			{Kind: executor.EventOutput, Output: &executor.Output{}},
			{Kind: executor.EventOutput, Output: &executor.Output{Main: true, Data: executor.MIMEBundle{"Text/HTML; charset=utf-8": executor.Bytes("<b>")}}},
			{Kind: executor.EventOutput, Output: &executor.Output{Data: executor.MIMEBundle{
				"image/png": executor.Bytes("p"), "no type": nil, "a/b\r\nx: y": nil, "/": nil, strings.Repeat("a/", 300): nil,
			}}},
			{Kind: executor.EventDone, Result: &executor.Result{}},
			{Kind: "odd"},
		} {
			if err := emit(ev); err != nil {
				return driver.Exit{}, err
			}
		}
		return driver.Exit{}, nil
	}
	var got []executor.Event
	r, err := c.session(t, executor.Spec{}).Run(t.Context(), code, func(ev executor.Event) error { got = append(got, ev); return nil })
	if err != nil || len(got) != 3 || len(r.Outputs) != 2 || r.Cell != 0 {
		t.Fatalf("got %+v, %+v %v", got, r, err)
	}
	if o := got[1].Output; !o.Main || o.Data["text/html"].String() != "<b>" || len(o.Data) != 1 {
		t.Errorf("got %+v", o)
	}
	if o := got[2].Output; o.Main || !slices.Equal(slices.Collect(maps.Keys(o.Data)), []string{"image/png"}) {
		t.Errorf("got %+v", o)
	}
}

// TestFirstEventIsAStart tests that a driver which forgets EventStarted cannot hide that the code
// has run.
func TestFirstEventIsAStart(t *testing.T) {
	c := newCloud()
	c.run = func(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
		return driver.Exit{}, emit(executor.Event{Kind: executor.EventStdout, Data: []byte("x")})
	}
	var got []executor.EventKind
	r, err := c.session(t, executor.Spec{}).Run(t.Context(), code, func(ev executor.Event) error { got = append(got, ev.Kind); return nil })
	if want := []executor.EventKind{executor.EventStarted, executor.EventStdout}; err != nil || r.Status != executor.StatusOK || !slices.Equal(got, want) {
		t.Errorf("got %q, %+v %v", got, r, err)
	}
}

func TestKeep(t *testing.T) {
	digits := "0123456789"
	for name, c := range map[string]struct {
		keep int
		in   []string
		want string
		gap  executor.Gap
	}{
		"all":             {10, []string{digits}, digits, executor.Gap{}},
		"middle":          {4, []string{digits}, "0189", executor.Gap{At: 2, Bytes: 6}},
		"odd":             {5, []string{digits}, "01289", executor.Gap{At: 3, Bytes: 5}},
		"one":             {1, []string{digits}, "0", executor.Gap{At: 1, Bytes: 9}},
		"nothing":         {-1, []string{digits}, "", executor.Gap{At: 0, Bytes: 10}},
		"many-pieces":     {4, strings.Split(digits, ""), "0189", executor.Gap{At: 2, Bytes: 6}},
		"character-head":  {4, []string{"0é234567"}, "067", executor.Gap{At: 1, Bytes: 6}},
		"character-tail":  {4, []string{"01234é7"}, "017", executor.Gap{At: 2, Bytes: 5}},
		"character-fits":  {6, []string{"é1234567é"}, "é17é", executor.Gap{At: 3, Bytes: 5}},
		"invalid-is-kept": {4, []string{"\xff123456\xff"}, "\xff16\xff", executor.Gap{At: 2, Bytes: 4}},
	} {
		_, res := collect(t, 0, c.keep, out(c.in...))
		want := []executor.Gap{{Stream: executor.EventStdout, At: c.gap.At, Bytes: c.gap.Bytes}}
		if c.gap.Bytes == 0 {
			want = nil
		}
		if res.Stdout.String() != c.want || !slices.Equal(res.Dropped, want) {
			t.Errorf("%s: got %q %+v, want %q %+v", name, res.Stdout, res.Dropped, c.want, want)
		}
	}
	_, res := collect(t, 0, 2, []piece{{executor.EventStdout, digits}, {executor.EventStderr, digits}})
	if len(res.Dropped) != 2 || res.Dropped[1].Stream != executor.EventStderr || res.Stderr.String() != "09" {
		t.Errorf("got %+v", res)
	}
}

// TestKeepIsBounded tests that a long output costs what is kept, not what is written.
func TestKeepIsBounded(t *testing.T) {
	c := newCloud()
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	c.run = func(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
		for range 4096 {
			if err := emit(executor.Event{Kind: executor.EventStdout, Data: chunk}); err != nil {
				return driver.Exit{}, err
			}
		}
		return driver.Exit{}, nil
	}
	s := c.session(t, executor.Spec{Run: executor.RunLimits{OutputBytes: 1 << 30}})
	r := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if r, err := s.Run(t.Context(), executor.Request{Language: executor.Python, Code: "x", Keep: 4096}, nil); err != nil || len(r.Stdout) != 4096 {
				b.Fatalf("got %+v %v", r, err)
			}
		}
	})
	if got := r.AllocedBytesPerOp(); got > 2<<20 {
		t.Errorf("got %d bytes allocated for 256 MiB of output of which 4 KiB are kept", got)
	}
}

// FuzzEvents tests what must hold however a sandbox cuts its output: nothing is lost, changed or
// split, and the limits hold.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("héllo 😀\xff\xe2\x82"), []byte{1, 2, 3}, uint16(1000), uint16(8))
	f.Add([]byte("\xf0\x9f\x98\x80\xf0\x9f\x98\x80"), []byte{1}, uint16(6), uint16(5))
	f.Add(bytes.Repeat([]byte("é"), 300), []byte{0, 7, 200}, uint16(301), uint16(3))
	f.Add([]byte("\xed\xa0\x80\xc0\x80\xf5"), []byte{2, 1}, uint16(4), uint16(0))
	f.Fuzz(func(t *testing.T, data, cuts []byte, limit16, keep16 uint16) {
		limit, keep := int64(limit16)+1, int(keep16)-1
		var pieces []piece
		whole := map[executor.EventKind]string{}
		for i, rest := 0, data; len(rest) > 0; i++ {
			n, kind := 1, executor.EventStdout
			if len(cuts) > 0 {
				n = min(int(cuts[i%len(cuts)]), len(rest))
				if cuts[i%len(cuts)]%5 == 4 {
					kind = executor.EventStderr
				}
			}
			if n == 0 {
				n = len(rest)
			}
			pieces = append(pieces, piece{kind, string(rest[:n])})
			whole[kind] += string(rest[:n])
			rest = rest[n:]
		}
		events, res := collect(t, limit, keep, pieces)
		over := int64(len(data)) > limit
		if (res.Reason == executor.ReasonOutput) != over {
			t.Errorf("got reason %q for %d bytes with a limit of %d", res.Reason, len(data), limit)
		}
		total := 0
		for kind, sent := range whole {
			parts := datas(events, kind)
			got := strings.Join(parts, "")
			total += len(got)
			if !over && got != sent || !strings.HasPrefix(sent, got) {
				t.Errorf("%s: got %q of %q", kind, got, sent)
			}
			at := 0
			for _, p := range parts {
				if at += len(p); splits(sent, at) {
					t.Errorf("%s: an event ends within a character, at %d of %q", kind, at, sent)
				}
			}
			checkKept(t, kind, got, res)
		}
		if most := min(int64(len(data)), limit); int64(total) > most || int64(total) < most-3*int64(len(whole)) {
			t.Errorf("got %d bytes of %d with a limit of %d", total, len(data), limit)
		}
	})
}

// splits reports whether at is within a valid character of s.
func splits(s string, at int) bool {
	for i := max(at-3, 0); i < at && i < len(s); i++ {
		if _, n := utf8.DecodeRuneInString(s[i:]); n > 1 && i+n > at {
			// The character counts only if it begins one when s is read from its start.
			for j := 0; j <= i; {
				_, m := utf8.DecodeRuneInString(s[j:])
				if j == i {
					return true
				}
				j += m
			}
		}
	}
	return false
}

// checkKept tests that the kept output is the beginning and the end of what was emitted, and that
// the gap adds up.
func checkKept(t *testing.T, kind executor.EventKind, emitted string, res *executor.Result) {
	t.Helper()
	kept := res.Stdout.String()
	if kind == executor.EventStderr {
		kept = res.Stderr.String()
	}
	gap := executor.Gap{At: len(kept)}
	for _, g := range res.Dropped {
		if g.Stream == kind {
			gap = g
		}
	}
	if gap.At > len(kept) || int64(len(kept))+gap.Bytes != int64(len(emitted)) {
		t.Fatalf("%s: kept %q with gap %+v of %q", kind, kept, gap, emitted)
	}
	if want := emitted[:gap.At] + emitted[int64(gap.At)+gap.Bytes:]; kept != want {
		t.Errorf("%s: kept %q, want %q", kind, kept, want)
	}
	if gap.Bytes > 0 && (splits(emitted, gap.At) || splits(emitted, gap.At+int(gap.Bytes))) {
		t.Errorf("%s: the gap %+v splits a character of %s", kind, gap, strconv.Quote(emitted))
	}
}
