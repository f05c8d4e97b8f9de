package tool

import (
	"sort"
	"strings"
)

// The following reads just enough of Python to separate program text from strings and comments. A
// text counts as something other than a program only if no program could look like that. If in
// doubt, it is left unchanged.

// span is a stretch of source that is a string literal or a comment.
type span struct{ from, to int }

// pythonText is the result of a scan of Python.
type pythonText struct {
	spans []span // strings and comments, in order
	bad   int    // start of a string that does not end on its line; -1: none
	open  bool   // the last span is an unterminated string in triple quotes
	stray int    // the first backslash outside of strings that is not at the end of its line, which is invalid in any program; -1: none
}

func scanPython(src string) pythonText {
	t := pythonText{bad: -1, stray: -1}
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case c == '#':
			end := len(src)
			if n := strings.IndexByte(src[i:], '\n'); n >= 0 {
				end = i + n
			}
			t.spans = append(t.spans, span{i, end})
			i = end
		case c == '\'' || c == '"':
			s := pyString{src: src}
			end, ok := s.skip(i, "", 0)
			if !ok {
				if !s.triple {
					t.bad = i
					return t
				}
				t.open, end = true, len(src)
			}
			t.spans = append(t.spans, span{i, end})
			i = end
		case wordByte(c):
			end := i
			for end < len(src) && wordByte(src[end]) {
				end++
			}
			if end < len(src) && (src[end] == '\'' || src[end] == '"') {
				s := pyString{src: src}
				to, ok := s.skip(end, src[i:end], 0)
				if !ok {
					if !s.triple {
						t.bad = end
						return t
					}
					t.open, to = true, len(src)
				}
				t.spans = append(t.spans, span{i, to})
				end = to
			}
			i = end
		case c == '\\':
			if rest := src[i+1:]; t.stray < 0 && !strings.HasPrefix(rest, "\n") && !strings.HasPrefix(rest, "\r\n") {
				t.stray = i
			}
			i++
		default:
			i++
		}
	}
	return t
}

// clean reports whether the scan found nothing that is invalid in any program.
func (t pythonText) clean() bool { return t.bad < 0 && !t.open && t.stray < 0 }

// inside reports whether position i is in a string or comment. It is false if the text before i is
// not a valid program.
func (t pythonText) inside(i int) bool {
	n := sort.Search(len(t.spans), func(n int) bool { return i < t.spans[n].to })
	return n < len(t.spans) && t.spans[n].from < i
}

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

// maxNesting bounds strings in the expressions of strings. Python's own limit is much lower.
const maxNesting = 50

// pyString finds the ends of string literals.
type pyString struct {
	src    string
	triple bool // whether the outermost string has triple quotes
}

// skip returns the end of the string whose quote is at i. prefix is the word before it. It looks at
// each byte once: one unterminated part makes the whole fail.
func (s *pyString) skip(i int, prefix string, depth int) (end int, ok bool) {
	if depth > maxNesting {
		return 0, false
	}
	prefix = strings.ToLower(prefix)
	format := false
	switch prefix {
	case "f", "fr", "rf", "t", "tr", "rt":
		format = true
	}
	quote := s.src[i : i+1]
	if strings.HasPrefix(s.src[i:], quote+quote+quote) {
		quote = s.src[i : i+3]
	}
	if depth == 0 {
		s.triple = len(quote) == 3
	}
	for i += len(quote); i < len(s.src); {
		switch c := s.src[i]; {
		case c == '\\':
			i++
			if format && strings.HasPrefix(s.src[i:], "N{") && !strings.Contains(prefix, "r") {
				i += 2 // \N{...}: the brace belongs to the name of a character
			} else if strings.HasPrefix(s.src[i:], "\r\n") {
				i += 2
			} else if i < len(s.src) && !(format && (s.src[i] == '{' || s.src[i] == '}')) {
				i++
			}
		case strings.HasPrefix(s.src[i:], quote):
			return i + len(quote), true
		case c == '\n' && len(quote) == 1:
			return 0, false
		case format && c == '{' && strings.HasPrefix(s.src[i:], "{{"):
			i += 2
		case format && c == '{':
			if i, ok = s.replacement(i+1, depth+1); !ok {
				return 0, false
			}
		default:
			i++
		}
	}
	return 0, false
}

// replacement returns the end of a replacement field whose content begins at i.
func (s *pyString) replacement(i, depth int) (end int, ok bool) {
	if depth > maxNesting {
		return 0, false
	}
	brackets := 0
	spec := false
	word := i // start of the word before i
	for i < len(s.src) {
		c := s.src[i]
		begin := word
		if !wordByte(c) {
			word = i + 1
		}
		switch {
		case spec && c == '{':
			if i, ok = s.replacement(i+1, depth+1); !ok {
				return 0, false
			}
			word = i
			continue
		case c == '}' && brackets == 0:
			return i + 1, true
		case spec:
		case c == '\'' || c == '"':
			if i, ok = s.skip(i, s.src[begin:i], depth+1); !ok {
				return 0, false
			}
			word = i
			continue
		case c == '(' || c == '[' || c == '{':
			brackets++
		case c == ')' || c == ']' || c == '}':
			brackets--
		case c == ':' && brackets == 0:
			spec = true
		}
		i++
	}
	return 0, false
}
