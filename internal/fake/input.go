package fake

import (
	"bytes"
	"io"

	"go.starlark.net/starlark"
)

// input is the standard input of a run.
type input struct {
	chunks chan []byte // closed at the end of the input
	buf    []byte
	line   []byte // at a terminal: the line that is not yet complete
}

// newInput starts to read r. Its goroutine ends with the input or with the run, whose end closes
// over. A Read in progress cannot be interrupted, and nothing waits for it.
func newInput(r io.Reader, over <-chan struct{}) *input {
	in := &input{chunks: make(chan []byte)}
	go func() {
		defer close(in.chunks)
		for {
			b := make([]byte, 64<<10)
			n, err := r.Read(b)
			if n > 0 {
				select {
				case in.chunks <- b[:n]:
				case <-over:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return in
}

// more waits for input. It returns false at the end.
func (e *execution) more() bool {
	if e.input == nil {
		if e.req.Stdin == nil {
			if e.req.Terminal != nil {
				e.wait(nil)
			}
			return false
		}
		e.input = newInput(e.req.Stdin, e.hard)
	}
	b, ok := receive(e, e.input.chunks)
	if ok && e.req.Terminal != nil {
		return !e.typed(b)
	}
	e.input.buf = append(e.input.buf, b...)
	if !ok && e.req.Terminal != nil {
		e.wait(nil) // at a terminal, a missing line does not end the program
	}
	return ok
}

// readLine returns a line of the input without its end, or None at the end of the input.
func (e *execution) readLine() starlark.Value {
	for {
		if e.input != nil {
			if line, rest, ok := bytes.Cut(e.input.buf, []byte("\n")); ok {
				e.input.buf = rest
				return starlark.String(line)
			}
		}
		if !e.more() {
			if s := e.readRest(); s != "" {
				return starlark.String(s)
			}
			return starlark.None
		}
	}
}

// readSome returns the available input, or "" at the end.
func (e *execution) readSome() string {
	for e.input == nil || len(e.input.buf) == 0 {
		if !e.more() {
			break
		}
	}
	return e.readRest()
}

// readRest returns input that was read but not used.
func (e *execution) readRest() string {
	if e.input == nil {
		return ""
	}
	s := string(e.input.buf)
	e.input.buf = nil
	return s
}
