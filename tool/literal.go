package tool

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// parseLiteral reads a literal of JSON or Python, whichever the model used: strings in either
// quotes, also with line breaks; true and True; commas before closing brackets. It returns maps,
// slices, strings, numbers, booleans and nil. ok is false unless the whole text is one literal.
func parseLiteral(text string) (v any, ok bool) {
	p := literal{s: text}
	v, ok = p.value(0)
	p.space()
	return v, ok && p.i == len(p.s)
}

// maxLiteral bounds the nesting of a literal.
const maxLiteral = 64

type literal struct {
	s string
	i int
}

func (p *literal) space() {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
}

// take skips space and then text, if text comes next.
func (p *literal) take(text string) bool {
	p.space()
	if !strings.HasPrefix(p.s[p.i:], text) {
		return false
	}
	p.i += len(text)
	return true
}

func (p *literal) value(depth int) (any, bool) {
	p.space()
	if depth > maxLiteral || p.i == len(p.s) {
		return nil, false
	}
	switch c := p.s[p.i]; {
	case c == '{':
		return p.dict(depth)
	case c == '[' || c == '(':
		return p.list(depth)
	case c == '"' || c == '\'':
		return p.strings()
	case wordByte(c) || c == '-' || c == '+' || c == '.':
		begin := p.i
		for p.i < len(p.s) && (wordByte(p.s[p.i]) || strings.IndexByte("+-.", p.s[p.i]) >= 0) {
			p.i++
		}
		word := p.s[begin:p.i]
		switch word {
		case "true", "True":
			return true, true
		case "false", "False":
			return false, true
		case "null", "None":
			return nil, true
		case "r", "R", "u", "U":
			p.i = begin
			return p.strings()
		}
		f, err := strconv.ParseFloat(word, 64)
		return f, err == nil
	}
	return nil, false
}

func (p *literal) dict(depth int) (any, bool) {
	m := map[string]any{}
	for p.take("{"); !p.take("}"); {
		p.space()
		key, ok := p.strings()
		if !ok || !p.take(":") {
			return nil, false
		}
		if m[key], ok = p.value(depth + 1); !ok {
			return nil, false
		}
		if p.take(",") {
			continue
		}
		if p.take("}") {
			break
		}
		return nil, false
	}
	return m, true
}

func (p *literal) list(depth int) (any, bool) {
	end := "]"
	if p.take("(") {
		end = ")"
	} else {
		p.take("[")
	}
	l := []any{}
	for !p.take(end) {
		v, ok := p.value(depth + 1)
		if !ok {
			return nil, false
		}
		l = append(l, v)
		if !p.take(",") {
			if !p.take(end) {
				return nil, false
			}
			break
		}
	}
	return l, true
}

// strings reads adjacent string literals, which are one string in Python.
func (p *literal) strings() (string, bool) {
	var b strings.Builder
	for n := 0; ; n++ {
		p.space()
		begin := p.i
		raw := false
		if p.i+1 < len(p.s) && strings.IndexByte("rRuU", p.s[p.i]) >= 0 {
			raw = p.s[p.i]|0x20 == 'r'
			p.i++
		}
		if p.i == len(p.s) || p.s[p.i] != '"' && p.s[p.i] != '\'' {
			p.i = begin
			return b.String(), n > 0
		}
		if !p.oneString(&b, raw) {
			return "", false
		}
	}
}

func (p *literal) oneString(b *strings.Builder, raw bool) bool {
	quote := p.s[p.i : p.i+1]
	if strings.HasPrefix(p.s[p.i:], quote+quote+quote) {
		quote = p.s[p.i : p.i+3]
	}
	for p.i += len(quote); p.i < len(p.s); {
		switch {
		case strings.HasPrefix(p.s[p.i:], quote):
			p.i += len(quote)
			return true
		case p.s[p.i] == '\\' && p.i+1 < len(p.s):
			if raw {
				b.WriteString(p.s[p.i : p.i+2])
				p.i += 2
				continue
			}
			n, text := unescape(p.s[p.i:])
			b.WriteString(text)
			p.i += n
		default:
			b.WriteByte(p.s[p.i])
			p.i++
		}
	}
	return false
}

// unescape reads the escape sequence at the beginning of s and returns its length and its meaning.
// A sequence that JSON and Python do not have means itself, as in Python.
func unescape(s string) (n int, text string) {
	if len(s) < 2 {
		return len(s), s
	}
	c := s[1]
	if at := strings.IndexByte("ntrbfav", c); at >= 0 {
		return 2, "\n\t\r\b\f\a\v"[at : at+1]
	}
	switch {
	case c == '\n':
		return 2, ""
	case strings.IndexByte(`\'"/`, c) >= 0:
		return 2, string(c)
	case c == 'u':
		hi, _ := hex(s, 4)
		if utf16.IsSurrogate(hi) && strings.HasPrefix(s[6:], `\u`) {
			if lo, ok := hex(s[6:], 4); ok && utf16.DecodeRune(hi, lo) != utf8.RuneError {
				return 12, string(utf16.DecodeRune(hi, lo))
			}
		}
	case '0' <= c && c <= '7':
		n = 2
		for n < min(4, len(s)) && '0' <= s[n] && s[n] <= '7' {
			n++
		}
		v, _ := strconv.ParseUint(s[1:n], 8, 32) // only octal digits
		return n, string(rune(v))
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if r, ok := hex(s, digits); ok {
		return 2 + digits, string(r)
	}
	return 2, s[:2]
}

// hex returns the character with the number in the digits after the letter of an escape sequence.
func hex(s string, digits int) (rune, bool) {
	if len(s) < 2+digits {
		return 0, false
	}
	v, err := strconv.ParseUint(s[2:2+digits], 16, 32)
	return rune(v), err == nil
}
