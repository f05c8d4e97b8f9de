package e2b

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// small returns a reader with a small buffer, so that lines come in pieces.
func small(r io.Reader) *eventReader {
	e := newEventReader(nil)
	e.r = bufio.NewReaderSize(r, 16)
	return e
}

// TestLongEvents decodes lines that are longer than what is taken at once. Text comes in pieces,
// and nothing of it is lost or torn; of an exception what comes first is kept; a value has an end.
func TestLongEvents(t *testing.T) {
	t.Parallel()
	const end = `{"type":"end_of_execution"}` + "\n"
	text := strings.Repeat(`a\"渐é😀`+"\n\t\x00\u2028", 500)
	ascii := strings.NewReplacer("渐", `\u6e10`, "😀", `\ud83d\ude00`, "é", `\u00E9`)
	plain, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]string{
		"utf-8":     `{"type":"stdout","text":` + string(plain) + `,"timestamp":"now"}`,
		"ascii":     `{"type": "stdout", "text": ` + ascii.Replace(string(plain)) + `, "timestamp": "now"}`,
		"no-more":   `{"type":"stdout","text":` + string(plain) + `}`,
		"long-rest": `{"type":"stdout","text":` + string(plain) + `,"x":"` + strings.Repeat("x", 5000) + `"}`,
	} {
		for _, piece := range []int{50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 1000, 1 << 20} {
			d := small(iotest.HalfReader(strings.NewReader(line + "\n" + end)))
			d.piece = piece
			var got strings.Builder
			ev, err := d.next()
			for ; err == nil && ev.kind == evStdout; ev, err = d.next() {
				got.Write(ev.text)
				if len(ev.text) > piece+d.r.Size() {
					t.Errorf("%s: got %d bytes at once", name, len(ev.text))
				}
			}
			if got.String() != text || err != nil || ev.kind != evEnd {
				t.Errorf("%s in pieces of %d: got %d bytes of %d, %v, %v", name, piece, got.Len(), len(text), ev.kind, err)
			}
		}
	}
	long := strings.Repeat("x", 5000)
	for name, c := range map[string]struct {
		line string
		most int
		want codeError
		err  error
	}{
		"long-value":   {`{"type":"error","name":"Exception","value":"` + long + `","traceback":"` + long + `"}`, 0, codeError{name: "Exception"}, nil},
		"long-trace":   {`{"type":"error","name":"Exception","value":"no","traceback":"` + long + `"}`, 0, codeError{name: "Exception", value: "no"}, nil},
		"long-unnamed": {`{"type":"error","traceback":"` + long + `"}`, 0, codeError{}, nil},
		"long-result":  {`{"type":"result","text":"` + long + `"}`, 1000, codeError{}, errLongLine},
		"control":      {`{"type":"stdout","text":"` + long + "\x01" + `"}`, 0, codeError{}, errNoEvent},
		"cut":          {`{"type":"stdout","text":"` + long, 0, codeError{}, errTruncated},
	} {
		d := small(strings.NewReader(c.line + "\n" + end))
		if name == "cut" {
			d = small(strings.NewReader(c.line))
		}
		d.piece = 100
		if c.most > 0 {
			d.most = c.most
		}
		var all []codeEvent
		ev, err := d.next()
		for ; err == nil; ev, err = d.next() {
			all = append(all, ev)
		}
		if c.err != nil {
			if !errors.Is(err, c.err) {
				t.Errorf("%s: got %v, want %v", name, err, c.err)
			}
			continue
		}
		if err != io.EOF || len(all) != 2 {
			t.Errorf("%s: got %d events, %v", name, len(all), err)
			continue
		}
		got := all[0].fail
		if got.name != c.want.name || c.want.value != "" && got.value != c.want.value || !strings.Contains(got.traceback, "left out") || name == "long-value" && !strings.HasPrefix(long, got.value) {
			t.Errorf("%s: got %.80q %.80q %.80q", name, got.name, got.value, got.traceback)
		}
	}
}
