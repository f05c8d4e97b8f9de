package e2b

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// all decodes a stream to its end.
func all(r io.Reader) (evs []codeEvent, err error) {
	d := newEventReader(r)
	for {
		ev, err := d.next()
		if err != nil {
			return evs, err
		}
		evs = append(evs, ev)
	}
}

const wholeStream = `{"type":"number_of_executions","execution_count":3}
{"type":"stdout","text":"渐\n","timestamp":"2026-11-22T05:00:00.000001Z"}

{"type":"keepalive"}
{"type":"stderr","text":"\u6e10"}
{"type":"result","text":"<x>","png":"iVBO\nRw==","json":[1, null],"chart":{"type":"bar"},"svg":null,"extra":{"image/gif":"R0lG","text/x-own":"own"},"is_main_result":true}
{"type":"error","name":"ValueError","value":"no","traceback":["a","b"]}
{"type":"end_of_execution"}
`

func TestEvents(t *testing.T) {
	want := []codeEvent{
		{kind: evStarted, count: 3},
		{kind: evStdout, text: []byte("渐\n")},
		{kind: "keepalive"},
		{kind: evStderr, text: []byte("渐")},
		{kind: evResult, out: &executor.Output{Main: true, Data: executor.MIMEBundle{
			"text/plain": executor.Bytes("<x>"), "image/png": executor.Bytes("\x89PNG"), "application/json": executor.Bytes("[1, null]"),
			"e2b/chart": executor.Bytes(`{"type":"bar"}`), "image/gif": executor.Bytes("GIF"), "text/x-own": executor.Bytes("own"),
		}}},
		{kind: evError, fail: codeError{"ValueError", "no", "a\nb"}},
		{kind: evEnd},
	}
	// However the stream is cut into pieces, letters included.
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(wholeStream), "bytes": iotest.OneByteReader(strings.NewReader(wholeStream))} {
		got, err := all(r)
		if err != io.EOF || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	// A stream is whole only with its last line. The official SDK takes any end in good order for
	// success.
	for n := range len(wholeStream) {
		if _, err := all(strings.NewReader(wholeStream[:n])); !errors.Is(err, errTruncated) {
			t.Errorf("after %d bytes: got %v, want %v", n, err, errTruncated)
		}
	}
}

func TestGarbageIsNoEvent(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"html":   {"<html></html>\n", errNoEvent},
		"list":   {"[]\n", errNoEvent},
		"null":   {"null\n", errNoEvent},
		"number": {`{"type":7}` + "\n", errNoEvent},
		"empty":  {"", errTruncated},
		"error":  {wholeStream[:20], errTruncated},
	} {
		if _, err := all(strings.NewReader(c.text)); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if _, err := all(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(wholeStream)))); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("a broken connection: got %v", err)
	}
	// A line ends somewhere, with the bytes that it may have or before.
	for n, want := range map[int]error{64: nil, 65: errLongLine} {
		d := newEventReader(strings.NewReader(fmt.Sprintf("%-*s\n", n-1, `{"type":"keepalive"}`)))
		d.most = 64
		if _, err := d.next(); !errors.Is(err, want) || newEventReader(nil).most != maxLine {
			t.Errorf("a line of %d bytes: got %v, want %v", n, err, want)
		}
	}
	// Fields of other types are as good as missing.
	got, err := all(strings.NewReader(`{"type":"number_of_executions","execution_count":"x"}` + "\n" +
		`{"type":"result","png":"!","text":5,"extra":[]}` + "\n" + `{"type":"end_of_execution"}` + "\n"))
	if err != io.EOF || len(got) != 3 || got[0].count != 0 || !reflect.DeepEqual(got[1].out.Data, executor.MIMEBundle{"text/plain": executor.Bytes("5")}) {
		t.Errorf("got %d events, %v", len(got), err)
	}
}

// Events that nobody takes wait, and no more of them than there is room for, however long the lines
// are that a sandbox sends. Of a line that is longer than there is room for no more is read.
func TestEventsWaitInLittleRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ lines, size, room, piece int }{
		"lines": {40, 100 << 10, 1 << 20, 100 << 10},
		"line":  {1, 24 << 20, 4 * maxPiece, maxPiece},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := `{"type":"stdout","text":"` + strings.Repeat("x", c.size) + "\"}\n"
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat(line, c.lines)+`{"type":"end_of_execution"}`+"\n") // who has left misses nothing
			}))
			defer srv.Close()
			i := &interpreter{base: srv.URL, http: srv.Client(), timeout: time.Minute, silence: time.Minute, room: int64(c.room)}
			x, err := i.execute(t.Context(), "x", "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer x.close()
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for len(x.events) < cap(x.events) && x.room.TryAcquire(int64(c.piece)) { // until it is full, or has too many
				x.room.Release(int64(c.piece))
				<-tick.C
			}
			if n := len(x.events); n == 0 || n > c.room/c.piece {
				t.Errorf("%d events of %d bytes wait", n, c.piece)
			}
			for got := 0; ; {
				h := <-x.events
				x.took(h)
				if got += len(h.text); h.err != nil {
					if h.err != io.EOF || got != c.lines*c.size {
						t.Errorf("the stream ended with %v after %d bytes", h.err, got)
					}
					break
				}
			}
		})
	}
}

// What a line holds besides events is skipped, and of what an event holds without end there is an
// end.
func TestManyRepresentations(t *testing.T) {
	var extra strings.Builder
	for i := range 10 * maxTypes {
		fmt.Fprintf(&extra, `"x/%d":"x",`, i)
	}
	got, err := all(strings.NewReader(`{"type":"result","text":"t","other":[{}],"extra":{` + strings.TrimSuffix(extra.String(), ",") + `}}` + "\n" + `{"type":"end_of_execution"}` + "\n"))
	if err != io.EOF || len(got) != 2 || len(got[0].out.Data) != maxTypes+1 || got[0].out.Data["text/plain"].String() != "t" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Code names the media types of what it displays, and the kernel takes any text.
func TestMediaTypes(t *testing.T) {
	extra := `{"":"x","text":"x","a/b/c":"x","/":"x","text/html; charset=utf-8":"x","TEXT/X-Fine":"odd","a/` + strings.Repeat("b", 200) + `":"x","a/\u0000":"x"}`
	got, err := all(strings.NewReader(`{"type":"result","text":"t","extra":` + extra + `}` + "\n" + `{"type":"end_of_execution"}` + "\n"))
	if err != io.EOF || len(got) != 2 || len(got[0].out.Data) != 2 || got[0].out.Data["text/x-fine"].String() != "odd" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// streams are what a stand-in has sent, and in described.ndjson what E2B's own sends by its
// description.
func streams(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/streams/*.ndjson")
	if err != nil || len(names) == 0 {
		t.Fatalf("no streams: %v", err)
	}
	found := map[string][]byte{}
	for _, name := range names {
		if found[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func TestRecordedStreams(t *testing.T) {
	for name, stream := range streams(t) {
		evs, err := all(bytes.NewReader(stream))
		if err != io.EOF || evs[0].kind != evStarted || evs[0].count == 0 || evs[len(evs)-1].kind != evEnd {
			t.Errorf("%s: got %+v, %v", name, evs, err)
		}
		for _, ev := range evs {
			if ev.kind == evResult && len(ev.out.Data) < 2 || ev.kind == evError && ev.fail.name == "" {
				t.Errorf("%s: got %+v", name, ev)
			}
		}
	}
}

// FuzzEvents decodes anything, also as what a connection left that broke in the middle: it ends
// with events or an error that says what is wrong, text is UTF-8, nothing takes much more memory
// than it is long, and only what says so is whole.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(wholeStream))
	for _, stream := range streams(f) {
		f.Add(stream)
	}
	for _, seed := range []string{
		"", "\n\n", "{", "\xff\xfe", `{"type":"stdout","text":"` + "\xe6\xb8" + `"}` + "\n", `{"type":"stdout","text":"\ud800"}` + "\n",
		`{"type":"end_of_execution"}` + "\nx", `{"type":"error","traceback":["a",null,1]}` + "\n", `{"type":"result","extra":{"image/png":"!","A/B":"YQ==","a/b":null},"PNG":[]}` + "\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		for _, stream := range [][]byte{stream, stream[:len(stream)/2]} {
			whole, err := checkEvents(t, stream, maxLine)
			pieces, perr := all(iotest.HalfReader(bytes.NewReader(stream)))
			if !reflect.DeepEqual(whole, pieces) || (err == io.EOF) != (perr == io.EOF) {
				t.Errorf("in pieces it is something else: %+v, %v and %+v, %v", whole, err, pieces, perr)
			}
			checkEvents(t, stream, 64)
		}
	})
}

// checkEvents decodes a stream whose lines may have so many bytes, and checks what comes of it.
func checkEvents(t *testing.T, stream []byte, most int) (evs []codeEvent, err error) {
	d := &eventReader{r: bufio.NewReaderSize(bytes.NewReader(stream), 16), most: most, piece: most / 2} // lines are put together from pieces
	ended := false
	for {
		var ev codeEvent
		if ev, err = d.next(); err != nil {
			break
		}
		if len(d.line) > most {
			t.Fatalf("a line has %d bytes, of %d", len(d.line), most)
		}
		evs = append(evs, ev)
		ended = ended || ev.kind == evEnd
		if ev.kind == "" || !utf8.Valid(ev.text) || !utf8.ValidString(ev.fail.name+ev.fail.value+ev.fail.traceback) || ev.count < 0 {
			t.Errorf("got %+v", ev)
		}
		if (ev.kind == evResult) != (ev.out != nil) {
			t.Errorf("got %+v", ev)
		}
		size := len(ev.kind) + len(ev.text) + len(ev.fail.name) + len(ev.fail.value) + len(ev.fail.traceback)
		if ev.out != nil {
			for mime, data := range ev.out.Data {
				size += len(mime) + len(data)
			}
		}
		if size > 3*(len(d.line)+min(d.piece, 64))+64 { // a byte that is not UTF-8 becomes three, and what was taken of a long text is no longer there
			t.Errorf("%d bytes came of a line of %d", size, len(d.line))
		}
	}
	if err == io.EOF && !ended {
		t.Error("it is whole without its end")
	}
	if err != io.EOF && !errors.Is(err, errTruncated) && !errors.Is(err, errLongLine) && !errors.Is(err, errNoEvent) {
		t.Errorf("got %v", err)
	}
	return evs, err
}
