package e2b

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// longForm is the beginning of an event that may have more text than is taken at once.
var longForm = regexp.MustCompile(`^\s*\{\s*"type"\s*:\s*"(?:(stdout|stderr)"\s*,\s*"text"\s*:\s*"|error")`)

// longBegin is how many bytes of a line longForm looks at.
const longBegin = 128

// errLongText says that a line is to be read in pieces.
var errLongText = errors.New("the line has more text than is taken at once")

// long begins with an event whose line is too long to be taken at once.
func (e *eventReader) long() (codeEvent, error) {
	m := longForm.FindSubmatchIndex(e.line[:min(len(e.line), longBegin)])
	if m[2] >= 0 {
		e.text = string(e.line[m[2]:m[3]])
		e.line = append(e.line[:0], e.line[m[1]:]...)
		return e.goOn()
	}
	ev := codeEvent{kind: evError, fail: codeError{
		name: begun(e.line, "name"), value: begun(e.line, "value"),
		traceback: fmt.Sprintf("the traceback is left out: with it the exception has more than %d bytes", e.piece),
	}}
	return ev, e.skip()
}

// goOn returns the next piece of a long text. It splits neither a character nor an escape sequence.
func (e *eventReader) goOn() (codeEvent, error) {
	for {
		n, ended := letters(e.line)
		if n == 0 && !ended {
			if err := e.fill(); err != nil {
				return codeEvent{}, err
			}
			continue
		}
		ev := codeEvent{kind: e.text}
		text, err := unquoted(e.line[:n])
		if err != nil {
			return codeEvent{}, fmt.Errorf("%w: %w", errNoEvent, err)
		}
		ev.text = []byte(text)
		e.line = append(e.line[:0], e.line[n:]...)
		if !ended {
			return ev, e.fill()
		}
		e.text = ""
		if last := e.line[len(e.line)-1]; last != '\n' { // which no text has
			err = e.skip()
		}
		e.line = e.line[:0]
		return ev, err
	}
}

// fill reads more of a line.
func (e *eventReader) fill() error {
	for {
		piece, err := e.r.ReadSlice('\n')
		e.line = append(e.line, piece...)
		switch {
		case err == io.EOF:
			return errTruncated
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		case err == nil || len(e.line) >= e.piece:
			return nil
		}
	}
}

// skip reads the rest of a line.
func (e *eventReader) skip() error {
	for {
		switch _, err := e.r.ReadSlice('\n'); {
		case err == io.EOF:
			return errTruncated
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// letters returns how many bytes of b are whole characters and escape sequences of a JSON text, and
// whether the end of the text follows.
func letters(b []byte) (n int, ended bool) {
	for n < len(b) {
		size := 1
		switch c := b[n]; {
		case c == '"':
			return n, true
		case c == '\\':
			if size = escaped(b[n:]); size == 0 {
				return n, false
			}
		case c >= utf8.RuneSelf:
			if !utf8.FullRune(b[n:]) {
				return n, false
			}
			_, size = utf8.DecodeRune(b[n:])
		}
		n += size
	}
	return n, false
}

// escaped returns the length of the escape sequence at the beginning of b, and 0 if it is not
// complete. Two sequences that make one character count as one.
func escaped(b []byte) int {
	switch {
	case len(b) < 2:
		return 0
	case b[1] != 'u':
		return 2
	case len(b) < 6:
		return 0
	}
	r, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	switch {
	case err != nil || r < 0xd800 || r > 0xdbff: // or it is no JSON
		return 6
	case len(b) < 8:
		return 0
	case b[6] != '\\' || b[7] != 'u':
		return 6
	case len(b) < 12:
		return 0
	}
	return 12
}

func unquoted(b []byte) (s string, err error) {
	err = json.Unmarshal([]byte(`"`+string(b)+`"`), &s)
	return s, err
}

// begun returns the beginning of the text in a field of a line that was not read to its end.
// Whoever shows it cuts it.
func begun(line []byte, field string) string {
	at := regexp.MustCompile(`"` + field + `"\s*:\s*"`).FindIndex(line)
	if at == nil {
		return ""
	}
	n, _ := letters(line[at[1]:])
	s, _ := unquoted(line[at[1] : at[1]+n]) // what is no text is none
	return s
}
