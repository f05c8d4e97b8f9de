package e2b

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
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
	// A stream is whole only with its last line. The official SDK takes any end in good order for success.
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
		"long":   {`{"type":"stdout","text":"` + strings.Repeat("x", maxLine) + "\"}\n", errLongLine},
		"error":  {wholeStream[:20], errTruncated},
	} {
		if _, err := all(strings.NewReader(c.text)); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if _, err := all(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(wholeStream)))); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("a broken connection: got %v", err)
	}
	// Fields of other types are as good as missing, and long lines are nothing special.
	long := strings.Repeat("渐", 6<<20)
	got, err := all(strings.NewReader(`{"type":"number_of_executions","execution_count":"x"}` + "\n" + `{"type":"stdout","text":"` + long + "\"}\n" +
		`{"type":"result","png":"!","text":5,"extra":[]}` + "\n" + `{"type":"end_of_execution"}` + "\n"))
	if err != io.EOF || len(got) != 4 || got[0].count != 0 || string(got[1].text) != long || !reflect.DeepEqual(got[2].out.Data, executor.MIMEBundle{"text/plain": executor.Bytes("5")}) {
		t.Errorf("got %d events, %v", len(got), err)
	}
}

// FuzzEvents decodes anything: it ends, the text is UTF-8, and only what says so is whole.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(wholeStream))
	for _, seed := range []string{"", "\n\n", "{", "\xff\xfe", `{"type":"stdout","text":"` + "\xe6\xb8" + `"}` + "\n", `{"type":"stdout","text":"\ud800"}` + "\n", `{"type":"end_of_execution"}` + "\nx"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, err := all(bytes.NewReader(stream))
		pieces, perr := all(iotest.HalfReader(bytes.NewReader(stream)))
		if !reflect.DeepEqual(whole, pieces) || (err == io.EOF) != (perr == io.EOF) {
			t.Errorf("in pieces it is something else: %+v, %v and %+v, %v", whole, err, pieces, perr)
		}
		ended := false
		for _, ev := range whole {
			ended = ended || ev.kind == evEnd
			if ev.kind == "" || !utf8.Valid(ev.text) || !utf8.ValidString(ev.fail.name+ev.fail.value+ev.fail.traceback) || ev.count < 0 {
				t.Errorf("got %+v", ev)
			}
			if (ev.kind == evResult) != (ev.out != nil) {
				t.Errorf("got %+v", ev)
			}
		}
		if err == io.EOF && !ended {
			t.Error("it is whole without its end")
		}
	})
}
