package e2b

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// maxLine bounds one event of the code interpreter. All that code prints at once, and a value in all its representations, is one line.
const maxLine = 64 << 20

// The types of events. Others are ignored: there are some that no document names, and there may be more.
const (
	evStarted = "number_of_executions"
	evStdout  = "stdout"
	evStderr  = "stderr"
	evResult  = "result"
	evError   = "error"
	evEnd     = "end_of_execution"
)

var (
	errTruncated = errors.New("the stream of events broke off")
	errLongLine  = fmt.Errorf("an event has more than %d bytes", maxLine)
	errNoEvent   = errors.New("the stream has something that is no event")
)

// codeEvent is an event of POST /execute.
type codeEvent struct {
	kind  string
	count int    // evStarted
	text  []byte // evStdout, evStderr
	out   *executor.Output
	fail  codeError // evError
}

// codeError is what code ended with.
type codeError struct{ name, value, traceback string }

// eventReader decodes the stream of POST /execute: lines of JSON. What arrives in pieces is put together before it is decoded, so that no
// letter is torn, and a stream counts as whole only if it says so.
type eventReader struct {
	r    *bufio.Reader
	line []byte
	over bool // evEnd was read
}

func newEventReader(r io.Reader) *eventReader { return &eventReader{r: bufio.NewReaderSize(r, 64<<10)} }

// next returns the next event, and io.EOF at the end of a whole stream.
func (e *eventReader) next() (codeEvent, error) {
	for {
		line, err := e.readLine()
		if err != nil {
			return codeEvent{}, err
		}
		if len(strings.TrimSpace(string(line[:min(len(line), 8)]))) == 0 && len(strings.TrimSpace(string(line))) == 0 {
			continue // some send empty lines in between
		}
		ev, err := parseEvent(line)
		e.over = e.over || ev.kind == evEnd
		return ev, err
	}
}

// readLine returns a line without its end. It is valid until the next call.
func (e *eventReader) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		piece, err := e.r.ReadSlice('\n')
		if len(e.line)+len(piece) > maxLine {
			return nil, errLongLine
		}
		e.line = append(e.line, piece...)
		switch {
		case err == nil:
			return e.line[:len(e.line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && e.over && len(e.line) == 0:
			return nil, io.EOF
		case err == io.EOF:
			return nil, errTruncated // however orderly its end looks
		default:
			return nil, err
		}
	}
}

// parseEvent decodes a line. Text that is not UTF-8 is made so.
func parseEvent(line []byte) (codeEvent, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return codeEvent{}, fmt.Errorf("%w: %s", errNoEvent, printable(string(line[:min(len(line), maxMessage)]), maxMessage))
	}
	ev := codeEvent{kind: textOf(fields["type"])}
	switch ev.kind {
	case "":
		return ev, fmt.Errorf("%w: it has no type", errNoEvent)
	case evStarted:
		_ = json.Unmarshal(fields["execution_count"], &ev.count) // what is no number is not known
		ev.count = max(ev.count, 0)
	case evStdout, evStderr:
		ev.text = []byte(textOf(fields["text"]))
	case evError:
		ev.fail = codeError{textOf(fields["name"]), textOf(fields["value"]), textOf(fields["traceback"])}
	case evResult:
		ev.out = parseResult(fields)
	}
	return ev, nil
}

// textOf returns the text in a field. A list of texts is that of lines.
func textOf(raw json.RawMessage) string {
	var s string
	var list []string
	if len(raw) > 0 && raw[0] == '[' && json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, "\n")
	}
	_ = json.Unmarshal(raw, &s) // what is no text is none
	return s
}

// resultTypes are the media types that have a field of their own in a result, and how their content is written there.
var resultTypes = map[string]struct {
	mime   string
	base64 bool
}{
	"text": {mime: "text/plain"}, "html": {mime: "text/html"}, "markdown": {mime: "text/markdown"}, "latex": {mime: "text/latex"},
	"svg": {mime: "image/svg+xml"}, "javascript": {mime: "application/javascript"}, "json": {mime: "application/json"},
	"png": {"image/png", true}, "jpeg": {"image/jpeg", true}, "pdf": {"application/pdf", true},
	"data": {mime: "e2b/data"}, "chart": {mime: "e2b/chart"},
}

// parseResult returns the value or display of a line. A representation that is not what its type says is left out.
func parseResult(fields map[string]json.RawMessage) *executor.Output {
	o := &executor.Output{Data: executor.MIMEBundle{}}
	_ = json.Unmarshal(fields["is_main_result"], &o.Main) // else it is a display
	var extra map[string]json.RawMessage
	_ = json.Unmarshal(fields["extra"], &extra) // else there is none
	for mime, raw := range extra {
		mime = strings.ToLower(mime)
		put(o.Data, mime, raw, binary(mime))
	}
	for field, t := range resultTypes {
		put(o.Data, t.mime, fields[field], t.base64)
	}
	return o
}

// binary reports whether Jupyter writes content of a type in base64.
func binary(mime string) bool {
	kind, _, _ := strings.Cut(mime, "/")
	return kind == "audio" || kind == "video" || kind == "image" && !strings.HasSuffix(mime, "+xml") || mime == "application/octet-stream"
}

// put adds a representation: a text, or JSON as it is.
func put(b executor.MIMEBundle, mime string, raw json.RawMessage, encoded bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	if raw[0] != '"' || mime == "application/json" || mime == "e2b/data" || mime == "e2b/chart" {
		b[mime] = append([]byte(nil), raw...)
		return
	}
	text := textOf(raw)
	if encoded {
		data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), "")) // in lines of 76, or not
		if err != nil {
			return
		}
		b[mime] = data
		return
	}
	b[mime] = []byte(text)
}
