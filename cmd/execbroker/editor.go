package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// errInterrupt says that Ctrl-C was pressed at the prompt.
var errInterrupt = errors.New("interrupted")

// editor reads lines from the user.
type editor interface {
	// line reads one. pasted says that it came from the clipboard in one go, so that an empty line in it means nothing. The error is
	// io.EOF at the end and errInterrupt after Ctrl-C.
	line(prompt string) (text string, pasted bool, err error)
	// abandon leaves the terminal as it was, while a line is still awaited that nobody wants any more.
	abandon()
}

// typed is what editor.line returns.
type typed struct {
	text   string
	pasted bool
	err    error
}

// readLine is editor.line that ctx ends. Nothing ends a read from a terminal but a key, so the goroutine then ends with the program.
func readLine(ctx context.Context, ed editor, prompt string) typed {
	ch := make(chan typed, 1)
	go func() {
		text, pasted, err := ed.line(prompt)
		ch <- typed{text, pasted, err}
	}()
	select {
	case t := <-ch:
		return t
	case <-ctx.Done():
		ed.abandon()
		return typed{err: ctx.Err()}
	}
}

// plainEditor reads from a pipe or a file, without prompts.
type plainEditor struct{ r *bufio.Reader }

func (e *plainEditor) abandon() {}

func (e *plainEditor) line(string) (string, bool, error) {
	text, err := e.r.ReadString('\n')
	if errors.Is(err, io.EOF) && text != "" {
		err = nil
	}
	if len(text) > maxCode {
		return "", false, fmt.Errorf("a line of more than %s", size(maxCode))
	}
	return strings.TrimRight(text, "\r\n"), false, err
}

// terminalEditor edits lines on a terminal. The terminal is in raw mode only while a line is read, so that during a run Ctrl-C is a
// signal and output looks as it should.
type terminalEditor struct {
	in      *os.File
	out     io.Writer
	history *history
	tab     func(before string) (insert string)
	t       *term.Terminal
	keys    *keyReader

	mu     sync.Mutex
	cooked *term.State // to go back to; nil: the terminal is as it was
}

// keyReader is the terminal as the editor of x/term wants it. That takes Ctrl-C for the end of the input, so it is noted here.
type keyReader struct {
	io.Reader
	io.Writer
	interrupted bool
}

const ctrlC = 3

func (k *keyReader) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	k.interrupted = bytes.IndexByte(p[:n], ctrlC) >= 0
	return n, err
}

// renew begins with an empty line: after Ctrl-C x/term keeps the old one.
func (e *terminalEditor) renew() {
	e.keys = &keyReader{Reader: e.in, Writer: e.out}
	e.t = term.NewTerminal(e.keys, "")
	e.t.History = e.history
	e.t.AutoCompleteCallback = func(line string, pos int, key rune) (string, int, bool) {
		if key != '\t' {
			return "", 0, false
		}
		insert := e.tab(line[:pos])
		return line[:pos] + insert + line[pos:], pos + len(insert), true
	}
}

func (e *terminalEditor) line(prompt string) (text string, pasted bool, err error) {
	if e.t == nil {
		e.renew()
	}
	if err := e.raw(); err != nil {
		return "", false, err
	}
	defer e.abandon()
	if width, height, err := term.GetSize(int(e.in.Fd())); err == nil && width > 0 {
		if err := e.t.SetSize(width, height); err != nil {
			return "", false, err
		}
	}
	e.t.SetPrompt(prompt)
	text, err = e.t.ReadLine()
	switch {
	case errors.Is(err, term.ErrPasteIndicator):
		return text, true, nil
	case errors.Is(err, io.EOF) && e.keys.interrupted:
		e.renew()
		err = errInterrupt
		fallthrough
	case errors.Is(err, io.EOF):
		if _, werr := io.WriteString(e.out, "\r\n"); werr != nil {
			return "", false, werr
		}
	}
	return text, false, err
}

// The switches for pasted text to arrive between marks.
const (
	pasteOn  = "\x1b[?2004h"
	pasteOff = "\x1b[?2004l"
)

func (e *terminalEditor) raw() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	state, err := term.MakeRaw(int(e.in.Fd()))
	if err != nil {
		return err
	}
	e.cooked = state
	_, err = io.WriteString(e.out, pasteOn)
	return err
}

// abandon has no one to tell if the terminal is gone.
func (e *terminalEditor) abandon() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cooked != nil {
		term.Restore(int(e.in.Fd()), e.cooked)
		io.WriteString(e.out, pasteOff)
		e.cooked = nil
	}
}
