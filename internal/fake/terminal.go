package fake

import (
	"bytes"
	"context"

	"github.com/execbroker/execbroker/executor"
)

// The control characters of a terminal.
const (
	interruptKey = 3
	endKey       = 4
	eraseKey     = 127
)

// typed processes input as a terminal does: it echoes the input, edits lines, and passes whole
// lines to the program. It reports whether the input has ended.
func (e *execution) typed(b []byte) (end bool) {
	in := e.input
	var echo bytes.Buffer
	for _, c := range b {
		switch {
		case c == interruptKey:
			e.interrupted = true
			in.line = nil
		case c == endKey:
			end = len(in.line) == 0
			in.buf, in.line = append(in.buf, in.line...), nil
		case c == eraseKey:
			if n := len(in.line); n > 0 {
				in.line = in.line[:n-1]
				echo.WriteString("\b \b")
			}
		default:
			if c == '\r' {
				c = '\n'
			}
			in.line = append(in.line, c)
			echo.WriteByte(c)
			if c == '\n' {
				in.buf, in.line = append(in.buf, in.line...), nil
			}
		}
	}
	e.write(executor.EventStdout, echo.String())
	if e.interrupted && !e.awaited {
		e.signal = "SIGINT"
		e.stop(errDied, true)
	}
	e.check()
	return end
}

// interrupt waits until the terminal interrupts the program.
func (e *execution) interrupt() {
	e.awaited = true
	for !e.interrupted && e.more() {
	}
}

// resized waits until the size of the terminal changes.
func (e *execution) resized() {
	if e.req.Terminal == nil {
		e.wait(nil)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var size executor.TerminalSize
	go func() {
		defer close(done)
		size, _ = e.req.Terminal.Changed(ctx, e.size) // an error means the end of the run
	}()
	defer func() {
		cancel()
		<-done
	}()
	receive(e, done)
	e.size = size
}
