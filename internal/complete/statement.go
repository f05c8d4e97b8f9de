package complete

import (
	"bytes"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// Statement reports whether lines that were typed are a complete piece of code. As at Python's
// own prompt, code continues in brackets, in strings of several lines and after a backslash, and an
// empty line ends the body of a def or a loop. Code with syntax errors counts as complete, because
// the language has the better error message.
func Statement(l executor.Language, lines []string) bool {
	switch l {
	case executor.Python:
		return completePython(lines)
	case executor.JavaScript, executor.TypeScript:
		return completeJavaScript(strings.Join(lines, "\n"))
	}
	return !strings.HasSuffix(lines[len(lines)-1], `\`)
}

func completePython(lines []string) bool {
	src := strings.Join(lines, "\n")
	block := false // a body follows, which only an empty line ends
	depth := 0
	first, last := byte(0), byte(0) // significant characters of the logical line
	for i := 0; i < len(src); i++ {
		switch c := src[i]; c {
		case '#':
			for i+1 < len(src) && src[i+1] != '\n' {
				i++
			}
			continue
		case '\'', '"':
			end, ok := stringEnd(src, i)
			if !ok {
				return false
			}
			i = end
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case '\\':
			if i+1 == len(src) {
				return false
			}
			i++
			continue
		case '\n':
			if depth <= 0 {
				block = block || last == ':' || first == '@'
				first, last = 0, 0
			}
			continue
		case ' ', '\t', '\r':
			continue
		}
		if last = src[i]; first == 0 {
			first = last
		}
	}
	block = block || last == ':' || first == '@'
	return depth <= 0 && (!block || strings.TrimSpace(lines[len(lines)-1]) == "")
}

// stringEnd returns the index of the last quote of the Python string that begins at i. A
// single-line string without a closing quote ends with its line.
func stringEnd(src string, i int) (end int, ok bool) {
	quote := src[i : i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(src[i:], triple) {
		for j := i + 3; j < len(src); j++ {
			switch {
			case src[j] == '\\':
				j++
			case strings.HasPrefix(src[j:], triple):
				return j + 2, true
			}
		}
		return 0, false
	}
	for j := i + 1; j < len(src); j++ {
		switch src[j] {
		case '\\':
			if j++; j == len(src) { // the string continues in the next line
				return 0, false
			}
		case '\n':
			return j - 1, true
		case quote[0]:
			return j, true
		}
	}
	return len(src) - 1, true
}

// completeJavaScript tracks brackets, strings, templates, comments and regular expressions.
func completeJavaScript(src string) bool {
	var open []byte // brackets, and '`' for a template that contains ${
	last := byte(0) // last significant character
	for i := 0; i < len(src); i++ {
		c := src[i]
		rest := src[i:]
		switch {
		case strings.HasPrefix(rest, "//"):
			n := strings.IndexByte(rest, '\n')
			if n < 0 {
				return len(open) == 0
			}
			i += n
			continue
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest[2:], "*/")
			if n < 0 {
				return false
			}
			i += n + 3
			continue
		case c == '\'' || c == '"' || c == '/' && regexpMayBegin(last):
			i = lineEnd(src, i)
		case c == '(' || c == '[' || c == '{':
			open = append(open, c)
		case c == '`', c == '}' && bytes.HasSuffix(open, []byte("`")): // the text of a template follows
			if c == '}' {
				open = open[:len(open)-1]
			}
			end, kind := templateEnd(src, i+1)
			if kind == 0 {
				return false
			}
			if i = end; kind == '{' {
				open = append(open, '`')
			}
		case c == ')' || c == ']' || c == '}':
			if len(open) == 0 {
				return true
			}
			open = open[:len(open)-1]
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			continue
		}
		last = c
	}
	return len(open) == 0
}

// regexpMayBegin reports whether a slash after last begins a regular expression instead of being a
// division.
func regexpMayBegin(last byte) bool {
	return last == 0 || strings.IndexByte("(,=:[!&|?{};+-*%~^<>\n", last) >= 0
}

// lineEnd returns the index of the end of the string or regular expression that begins at i. It
// ends at the end of the line at the latest.
func lineEnd(src string, i int) int {
	class := false
	for j := i + 1; j < len(src); j++ {
		switch c := src[j]; {
		case c == '\\':
			j++
		case c == '\n':
			return j - 1
		case src[i] == '/' && (c == '[' || c == ']'):
			class = c == '['
		case c == src[i] && !class:
			return j
		}
	}
	return len(src) - 1
}

// templateEnd returns where the text of a template ends, and how: '`', '{' for an expression, or 0
// if it does not end.
func templateEnd(src string, i int) (end int, kind byte) {
	for ; i < len(src); i++ {
		switch {
		case src[i] == '\\':
			i++
		case src[i] == '`':
			return i, '`'
		case strings.HasPrefix(src[i:], "${"):
			return i + 1, '{'
		}
	}
	return 0, 0
}
