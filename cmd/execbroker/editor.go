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
	// line reads a line. pasted says that it is part of a pasted text, in which an empty line has
	// no special meaning. The error is io.EOF at the end and errInterrupt after Ctrl-C.
	line(prompt string) (text string, pasted bool, err error)
	// abandon restores the terminal while a call of line is still waiting for a line that is no
	// longer needed.
	abandon()
}

// typed is the result of editor.line.
type typed struct {
	text   string
	pasted bool
	err    error
}

// readLine is editor.line that also ends with ctx. Only a key can end a read from a terminal, so
// its goroutine lives until the program ends.
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
// so that during a run Ctrl-C is a signal and output is shown normally.
type terminalEditor struct {
	in      *os.File
	out     io.Writer
	history *history
	tab     func(before string) (insert string, choices []string)
	ahead   []byte // typed before the first line was read
	t       *term.Terminal
	search  search
	keys    *keyReader

	mu     sync.Mutex
	cooked *term.State // the state to restore; nil: the terminal is not in raw mode
}

// keyReader reads the terminal for the editor of x/term. It returns one byte at a time, so that the
// effect of each byte on the editor is known before the next one. This is necessary because x/term
// takes Ctrl-C for the end of the input, and consumes some keys that end a search.
type keyReader struct {
	io.Reader
	io.Writer
	search      *search
	interrupted bool
	held        []byte // read from the terminal, not yet returned
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
			p[0] = searchTake // the key itself follows
			return 1, nil
		}
	}
	k.held = k.held[1:]
	k.interrupted = c == ctrlC
	p[0] = c
	return 1, nil
}

// renew starts with an empty line: after Ctrl-C x/term keeps the old one.
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
			fmt.Fprintln(e.t, strings.Join(choices, "  ")) // x/term draws the line again below
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

// unread puts text that was typed before a line was read in front of the next lines.
func (e *terminalEditor) unread(data []byte) { e.keys.held = append(e.keys.held, data...) }

// The escape sequences that switch bracketed paste on and off.
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

// abandon ignores errors: the terminal may be gone.
func (e *terminalEditor) abandon() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cooked != nil {
		term.Restore(int(e.in.Fd()), e.cooked)
		io.WriteString(e.out, pasteOff)
		e.cooked = nil
	}
}
