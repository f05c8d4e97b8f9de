package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// The limits of the history.
const (
	maxHistory     = 1000    // number of lines
	maxHistoryLine = 4 << 10 // bytes of a line; longer ones are not kept
	maxHistoryFile = 4 << 20
)

// history keeps the lines that were typed, in a file that only the user can read. It serves the
// line editor, for which line 0 is the newest. Several programs may append at the same time.
// Without a file it is only in memory.
type history struct {
	file  string // empty: no file
	lines []string
}

// openHistory reads the history. If the file cannot be used, it returns an error together with a
// history that is only in memory.
func openHistory(file string) (*history, error) {
	h := &history{}
	data, err := readEnd(file, maxHistoryFile)
	if errors.Is(err, os.ErrNotExist) {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err != nil {
		return h, err
	}
	h.file = file
	for line := range bytes.Lines(data) {
		h.lines = append(h.lines, strings.TrimSuffix(string(line), "\n"))
	}
	if over := len(h.lines) - maxHistory; over > 0 {
		h.lines = slices.Clone(h.lines[over:])
		if len(data) > maxHistoryFile/2 {
			return h, h.rewrite()
		}
	}
	return h, nil
}

// readEnd returns the last n bytes of a file, starting at the beginning of a line.
func readEnd(file string, n int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(f)
	if over := info.Size() - n; over > 0 {
		if _, err := f.Seek(over, io.SeekStart); err != nil {
			return nil, err
		}
		if _, err := r.ReadSlice('\n'); err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(r, n))
}

// rewrite makes the file as short as the history. Only a line that another program appends
// meanwhile can be lost.
func (h *history) rewrite() error {
	part, err := os.CreateTemp(filepath.Dir(h.file), "history-*") // its mode is 0600
	if err != nil {
		return err
	}
	_, err = part.WriteString(strings.Join(h.lines, "\n") + "\n")
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), h.file)
	}
	if err != nil {
		os.Remove(part.Name())
	}
	return err
}

// Add implements term.History. It does not keep empty lines, repeated lines, and lines that begin
// with a blank.
func (h *history) Add(line string) {
	if strings.TrimSpace(line) == "" || line[0] == ' ' && !h.indented() || len(line) > maxHistoryLine || strings.ContainsAny(line, "\r\n") {
		return
	}
	if n := len(h.lines); n > 0 && h.lines[n-1] == line {
		return
	}
	if h.lines = append(h.lines, line); len(h.lines) > maxHistory {
		h.lines = h.lines[1:]
	}
	if h.file == "" {
		return
	}
	f, err := os.OpenFile(h.file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(line + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		h.file = "" // report only once; the history stays in memory
	}
}

// indented reports whether the previous line may have a body, whose lines must begin with blanks.
func (h *history) indented() bool {
	if len(h.lines) == 0 {
		return false
	}
	last := h.lines[len(h.lines)-1]
	return last[0] == ' ' || last[0] == '\t' || strings.ContainsAny(last[len(last)-1:], ":({[,\\`")
}

// Len implements term.History.
func (h *history) Len() int { return len(h.lines) }

// At implements term.History.
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }

// stateDir is the directory for data of the user that needs no backup.
func stateDir(getenv func(string) string) (string, error) {
	switch runtime.GOOS {
	case "windows":
		if dir := getenv("LocalAppData"); dir != "" {
			return filepath.Join(dir, "execbroker"), nil
		}
	case "darwin", "ios":
	default:
		if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
			return filepath.Join(dir, "execbroker"), nil
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "execbroker"), nil
	}
	return filepath.Join(home, ".local", "state", "execbroker"), nil
}
