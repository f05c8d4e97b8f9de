package e2b

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

const (
	// maxLine bounds one event of the code interpreter: a value in all its representations is one
	// line.
	maxLine = 32 << 20
	// maxPiece is how much of one event is text. All that code prints at once is one line, of which
	// there may be any number of bytes, and becomes several events. Of a longer exception what
	// comes first is kept.
	maxPiece = 1 << 20
)

// The types of events. Others are ignored: the service sends types that no document names.
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

// size is about how much memory an event takes.
func (e *codeEvent) size() int64 {
	n := len(e.text) + len(e.fail.name) + len(e.fail.value) + len(e.fail.traceback)
	if e.out != nil {
		for mime, data := range e.out.Data {
			n += len(mime) + len(data)
		}
	}
	return int64(n)
}

// codeError is the error of code that failed.
type codeError struct{ name, value, traceback string }

// eventReader decodes the stream of POST /execute, which has a JSON object in each line. A line is
// decoded when it is whole, so that no character is torn. A stream is whole only if its last event
// says so.
type eventReader struct {
	r     *bufio.Reader
	most  int // bytes of a line
	piece int // bytes of text in an event
	line  []byte
	text  string // the type of an event whose text goes on in line
	over  bool   // evEnd was read
}

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{r: bufio.NewReaderSize(r, 64<<10), most: maxLine, piece: maxPiece}
}

// next returns the next event, and io.EOF after the last one of a whole stream. Other errors are
// errTruncated, errLongLine, errNoEvent, and errors of reading.
func (e *eventReader) next() (codeEvent, error) {
	for {
		if e.text != "" {
			return e.goOn()
		}
		line, err := e.readLine()
		if err == errLongText {
			return e.long()
		}
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
		if len(e.line)+len(piece) > e.most {
			return nil, errLongLine
		}
		e.line = append(e.line, piece...)
		switch {
		case err == nil:
			return e.line[:len(e.line)-1], nil
		case len(e.line) > e.piece && longForm.Match(e.line[:min(len(e.line), longBegin)]):
			return nil, errLongText
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

// eventLine has the fields of events. Others are skipped, so that a line with many small fields
// takes no more memory than its length.
type eventLine struct {
	Type, Text, Name, Value, Traceback                                        json.RawMessage
	HTML, Markdown, Latex, SVG, JavaScript, JSON, PNG, JPEG, PDF, Data, Chart json.RawMessage
	Count                                                                     json.RawMessage `json:"execution_count"`
	Main                                                                      json.RawMessage `json:"is_main_result"`
	Extra                                                                     json.RawMessage
}

// parseEvent decodes a line. Text that is not UTF-8 is made so.
func parseEvent(line []byte) (codeEvent, error) {
	var l eventLine
	if err := json.Unmarshal(line, &l); err != nil {
		return codeEvent{}, fmt.Errorf("%w: %s", errNoEvent, printable(string(line[:min(len(line), maxMessage)]), maxMessage))
	}
	ev := codeEvent{kind: textOf(l.Type)}
	switch ev.kind {
	case "":
		return ev, fmt.Errorf("%w: it has no type", errNoEvent)
	case evStarted:
		_ = json.Unmarshal(l.Count, &ev.count) // what is no number is not known
		ev.count = max(ev.count, 0)
	case evStdout, evStderr:
		ev.text = []byte(textOf(l.Text))
	case evError:
		ev.fail = codeError{textOf(l.Name), textOf(l.Value), textOf(l.Traceback)}
	case evResult:
		ev.out = l.output()
	}
	return ev, nil
}

// textOf returns the text in a field. A list of texts is that of lines.
func textOf(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || raw[0] != '[' {
		_ = json.Unmarshal(raw, &s) // what is no text is none
		return s
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	_, err := d.Token()
	var b strings.Builder
	for n := 0; err == nil && d.More(); n++ { // one at a time: a slice of them takes more memory than the line
		if n > 0 {
			b.WriteByte('\n')
		}
		err = d.Decode(&s)
		b.WriteString(s)
	}
	if err != nil {
		return ""
	}
	return b.String()
}

// maxTypes bounds the media types of an output that have no field of their own. The rest are left
// out.
const maxTypes = 64

// output returns the value or display of a line. Content that does not fit its media type is left
// out.
func (l *eventLine) output() *executor.Output {
	o := &executor.Output{Data: executor.MIMEBundle{}}
	_ = json.Unmarshal(l.Main, &o.Main) // else it is a display
	if len(l.Extra) > 0 && l.Extra[0] == '{' {
		d := json.NewDecoder(bytes.NewReader(l.Extra))
		_, err := d.Token()
		for n := 0; err == nil && n < maxTypes && d.More(); n++ {
			var raw json.RawMessage
			key, _ := d.Token()
			if err = d.Decode(&raw); err == nil {
				name, _ := key.(string) // and nothing else, since the line was decoded before
				mime := strings.ToLower(name)
				put(o.Data, mime, raw, binary(mime))
			}
		}
	}
	for _, f := range []struct {
		mime   string
		raw    json.RawMessage
		base64 bool
	}{
		{"text/plain", l.Text, false}, {"text/html", l.HTML, false}, {"text/markdown", l.Markdown, false}, {"text/latex", l.Latex, false},
		{"image/svg+xml", l.SVG, false}, {"application/javascript", l.JavaScript, false}, {"application/json", l.JSON, false},
		{"image/png", l.PNG, true}, {"image/jpeg", l.JPEG, true}, {"application/pdf", l.PDF, true},
		{"e2b/data", l.Data, false}, {"e2b/chart", l.Chart, false},
	} {
		put(o.Data, f.mime, f.raw, f.base64)
	}
	return o
}

// mediaType matches those that an event may have.
var mediaType = regexp.MustCompile(`^[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,60}$`)

// binary reports whether Jupyter writes content of a type in base64.
func binary(mime string) bool {
	kind, _, _ := strings.Cut(mime, "/")
	return kind == "audio" || kind == "video" || kind == "image" && !strings.HasSuffix(mime, "+xml") || mime == "application/octet-stream"
}

// put adds a representation: a text, or JSON as it is. The kernel takes any text of the code's for
// a media type: what is none is left out.
func put(b executor.MIMEBundle, mime string, raw json.RawMessage, encoded bool) {
	if len(raw) == 0 || string(raw) == "null" || !mediaType.MatchString(mime) {
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
