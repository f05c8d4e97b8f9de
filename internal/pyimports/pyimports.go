// Package pyimports finds the modules that Python code imports, from its text alone.
package pyimports

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// most bounds the names that Modules returns.
const most = 100

// Modules returns the top-level names of the modules that code imports with a statement outside of
// any function, class or other block: code that runs to its end has imported them. So imports in a
// try statement, which may fail, do not count, and neither does importlib. Code that is not Python
// has any modules. The work is linear in the size of code.
func Modules(code string) []string {
	var found []string
	for s := (scanner{rest: code}); len(found) < most; {
		words, ok := s.statement()
		if !ok {
			break
		}
		for _, name := range imported(words) {
			if !slices.Contains(found, name) && len(found) < most {
				found = append(found, name)
			}
		}
	}
	return found
}

// imported returns the modules of a statement.
func imported(words []string) (names []string) {
	if len(words) < 2 {
		return nil
	}
	switch words[0] {
	case "from":
		if len(words) > 2 && identifier(words[1]) && slices.Contains(words, "import") {
			return words[1:2]
		}
	case "import":
		for i, w := range words[1:] {
			if identifier(w) && (i == 0 || words[i] == ",") {
				names = append(names, w)
			}
		}
	}
	return names
}

func identifier(w string) bool {
	for i, r := range w {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return w != "" && len(w) <= 200
}

// mostWords bounds the words of a statement that are looked at.
const mostWords = 400

// A scanner splits code into statements.
type scanner struct {
	rest   string
	within bool // the next statement is on the line of the last one
	block  bool // which is in a block, or began one
}

// statement returns the words of the next statement outside of blocks: names, and single characters
// that are neither part of a name nor space. Strings and comments are no words.
func (s *scanner) statement() (words []string, ok bool) {
	for s.rest != "" {
		block := s.block || !s.within && (strings.HasPrefix(s.rest, " ") || strings.HasPrefix(s.rest, "\t"))
		words, end := s.words()
		block = block || len(words) > 0 && compound[words[0]]
		s.within = end == ';'
		s.block = block && s.within
		if !block && len(words) > 0 {
			return words, true
		}
	}
	return nil, false
}

// compound begin a statement that has a block.
var compound = map[string]bool{"if": true, "for": true, "while": true, "try": true, "except": true, "finally": true, "else": true, "elif": true, "with": true, "def": true, "class": true, "async": true, "match": true}

// words reads up to the end of a statement, and returns what ended it: a line feed, a semicolon or
// 0 for the end of the code.
func (s *scanner) words() (words []string, end byte) {
	depth := 0
	add := func(w string) {
		if len(words) < mostWords {
			words = append(words, w)
		}
	}
	for s.rest != "" {
		r, n := utf8.DecodeRuneInString(s.rest)
		switch {
		case r == '\n' || r == ';':
			s.rest = s.rest[1:]
			if depth == 0 {
				return words, byte(r)
			}
		case r == '\\' && strings.HasPrefix(s.rest, "\\\n"):
			s.rest = s.rest[2:]
		case r == '#':
			if i := strings.IndexByte(s.rest, '\n'); i >= 0 {
				s.rest = s.rest[i:]
			} else {
				s.rest = ""
			}
		case r == '\'' || r == '"':
			s.text(byte(r))
			add("''")
		case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			i := strings.IndexFunc(s.rest, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
			if i < 0 {
				i = len(s.rest)
			}
			add(s.rest[:i])
			s.rest = s.rest[i:]
		case unicode.IsSpace(r):
			s.rest = s.rest[n:]
		default:
			if strings.ContainsRune("([{", r) {
				depth++
			} else if strings.ContainsRune(")]}", r) {
				depth = max(depth-1, 0)
			}
			add(s.rest[:n])
			s.rest = s.rest[n:]
		}
	}
	return words, 0
}

// text skips a string that begins with quote. A string that does not end ends with its line, or
// with the code if it has three quotes.
func (s *scanner) text(quote byte) {
	three := strings.Repeat(string(quote), 3)
	long := strings.HasPrefix(s.rest, three)
	i := 1
	if long {
		i = 3
	}
	for i < len(s.rest) {
		switch c := s.rest[i]; {
		case c == '\\' && i+1 < len(s.rest):
			i++ // a raw string cannot end behind one either
		case c == '\n' && !long:
			s.rest = s.rest[i:]
			return
		case c == quote && !long:
			s.rest = s.rest[i+1:]
			return
		case c == quote && strings.HasPrefix(s.rest[i:], three):
			s.rest = s.rest[i+3:]
			return
		}
		i++
	}
	s.rest = ""
}
