package main

import (
	"bufio"
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
	// line reads one. pasted says that it came from the clipboard in one go, so that an empty line
	// in it means nothing. The error is io.EOF at the end and errInterrupt after Ctrl-C.
	line(prompt string) (text string, pasted bool, err error)
	// abandon leaves the terminal as it was, while a line is still awaited that nobody wants any
	// more.
	abandon()
}

// typed is what editor.line returns.
type typed struct {
	text   string
	pasted bool
	err    error
}

// readLine is editor.line that ctx ends. Nothing ends a read from a terminal but a key, so the
// goroutine then ends with the program.
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

// terminalEditor edits lines on a terminal. The terminal is in raw mode only while a line is read,
// so that during a run Ctrl-C is a signal and output looks as it should.
type terminalEditor struct {
	in      *os.File
	out     io.Writer
	history *history
	tab     func(before string) (insert string, choices []string)
	ahead   []byte // what was typed before the first line was asked for
	t       *term.Terminal
	search  search
	keys    *keyReader

	mu     sync.Mutex
	cooked *term.State // to go back to; nil: the terminal is as it was
}

// keyReader is the terminal as the editor of x/term wants it. It gives one byte at a time, so that
// what the editor does with it is known before the next: x/term takes Ctrl-C for the end of the
// input, and keeps to itself some keys that end a search.
type keyReader struct {
	io.Reader
	io.Writer
	search      *search
	interrupted bool
	held        []byte // read, and not given yet
}

func (k *keyReader) Read(p []byte) (int, error) {
	if len(k.held) == 0 {
		buf := make([]byte, 1024)
		n, err := k.Reader.Read(buf)
		if n == 0 {
			return 0, err
		}
		k.held = buf[:n]
	}
	c := k.held[0]
	if k.search.on {
		switch {
		case c == backspace, c == deleteKey:
			c = searchErase
		case c < ' ' && c != ctrlR && c != ctrlG:
			p[0] = searchTake // and then the key
			return 1, nil
		}
	}
	k.held = k.held[1:]
	k.interrupted = c == ctrlC
	p[0] = c
	return 1, nil
}

// renew begins with an empty line: after Ctrl-C x/term keeps the old one.
func (e *terminalEditor) renew() {
	ahead := e.ahead
	if e.keys != nil {
		ahead = e.keys.held
	}
	e.search = search{history: e.history}
	e.keys = &keyReader{Reader: e.in, Writer: e.out, search: &e.search, held: ahead}
	e.t = term.NewTerminal(e.keys, "")
	e.t.History = e.history
	e.t.AutoCompleteCallback = func(line string, pos int, key rune) (string, int, bool) {
		if key != '\t' {
			return e.search.key(line, key)
		}
		insert, choices := e.tab(line[:pos])
		if insert == "" && len(choices) > 0 {
			fmt.Fprintln(e.t, strings.Join(choices, "  ")) // it draws the line anew below
		}
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

// unread has the next lines begin with what was typed while nobody asked for one.
func (e *terminalEditor) unread(data []byte) { e.keys.held = append(e.keys.held, data...) }

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
