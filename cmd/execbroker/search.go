package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The keys of a search in the history, and the bytes by which keyReader replaces keys that x/term
// would handle itself during a search.
const (
	ctrlC       = 0x03
	ctrlG       = 0x07 // cancels the search
	backspace   = 0x08
	ctrlR       = 0x12 // begins a search, or continues it to an older line
	searchTake  = 0x1e // ends the search with the found line; the key itself follows
	searchErase = 0x1f // removes the last character of the query
	deleteKey   = 0x7f
)

// search is a backward search in the history, as in shells with Ctrl-R. The line editor shows its
// text instead of the line.
type search struct {
	history *history
	on      bool
	query   string
	at      int    // index of the found line; -1: none
	before  string // the line before the search
}

// key handles a key. It returns the line to show and the position of the cursor in bytes. ok is
// false for a key that does not belong to the search.
func (s *search) key(line string, key rune) (text string, pos int, ok bool) {
	switch {
	case !s.on && key != ctrlR:
		return "", 0, false
	case !s.on:
		*s = search{history: s.history, on: true, at: -1, before: line}
	case key == ctrlR:
		s.find(s.at + 1)
	case key == searchErase:
		_, n := utf8.DecodeLastRuneInString(s.query)
		s.query = s.query[:len(s.query)-n]
		s.find(0)
	case key == searchTake, key == ctrlG:
		s.on = false
		if text = s.before; key == searchTake && s.at >= 0 {
			text = s.history.At(s.at)
		}
		return text, len(text), true
	case unicode.IsPrint(key) && len(s.query) < maxHistoryLine:
		s.query += string(key)
		s.find(max(s.at, 0))
	}
	found, failed := "", ""
	if s.at >= 0 {
		found = s.history.At(s.at)
	} else if s.query != "" {
		failed = "failed "
	}
	text = fmt.Sprintf("(%ssearch) %s", failed, s.query)
	return text + ": " + found, len(text), true
}

// find searches for the query from a line towards older ones. If no line matches, a line that was
// found before and still matches stays. Older lines equal to the found one are skipped.
func (s *search) find(from int) {
	was := ""
	if s.at >= 0 && s.at < from {
		was = s.history.At(s.at)
	}
	for i := from; s.query != "" && i < s.history.Len(); i++ {
		if line := s.history.At(i); line != was && strings.Contains(line, s.query) {
			s.at = i
			return
		}
	}
	if s.at >= 0 && (s.query == "" || !strings.Contains(s.history.At(s.at), s.query)) {
		s.at = -1
	}
}
