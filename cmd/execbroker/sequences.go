package main

import "unicode/utf8"

// The bounds of what is held back of a sequence that is not whole yet.
const (
	maxColour = 64      // of one that sets colours; real ones have at most 20 bytes
	maxString = 4 << 10 // of one that has text in it, such as a title; what comes after that is text
)

// sequences makes output of a sandbox fit for a terminal: it lets text and colours through and
// drops everything else that a terminal obeys, such as what sets its title, writes to the
// clipboard, moves the cursor, or has it answer into the user's shell. Bytes that are not UTF-8
// become U+FFFD. It takes its input in pieces, and what is held back between them is bounded. The
// zero value is ready.
type sequences struct {
	state    state
	held     []byte // of a character or a sequence that is not whole
	seen     int    // bytes of a string
	coloured bool   // the last sequence left colours on
}

// state is where in the input a sequences is.
type state int

const (
	inText     state = iota
	atEscape         // ESC
	inOther          // ESC and intermediate bytes
	inCSI            // ESC [ and parameters, in held
	inLostCSI        // one that is dropped
	inString         // OSC, DCS, SOS, PM, APC: text up to ST
	endsString       // ESC in such a text
)

const (
	escape = 0x1b
	bell   = 0x07
)

// add appends what may be shown of data to dst.
func (s *sequences) add(dst, data []byte) []byte {
	for _, c := range data {
		dst = s.step(dst, c)
	}
	return dst
}

// end says that nothing follows. What was held back is dropped, and colours are set back.
func (s *sequences) end(dst []byte) []byte {
	if s.state == inText && len(s.held) > 0 {
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	if s.coloured {
		dst = append(dst, "\x1b[m"...)
	}
	*s = sequences{held: s.held[:0]}
	return dst
}

// step takes one byte.
func (s *sequences) step(dst []byte, c byte) []byte {
	switch s.state {
	case inText:
		return s.text(dst, c)
	case atEscape:
		switch {
		case c == '[':
			s.state = inCSI
		case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_':
			s.state, s.seen = inString, 0
		case c >= 0x20 && c <= 0x2f:
			s.state = inOther
		default:
			return s.after(dst, c, c >= 0x30 && c <= 0x7e)
		}
	case inOther:
		if c < 0x20 || c > 0x2f {
			return s.after(dst, c, c >= 0x30 && c <= 0x7e)
		}
	case inCSI:
		switch {
		case c >= '0' && c <= ';' && len(s.held) < maxColour:
			s.held = append(s.held, c)
		case c == 'm':
			dst = append(append(append(dst, escape, '['), s.held...), 'm')
			s.coloured = !resets(s.held)
			s.state, s.held = inText, s.held[:0]
		case c >= 0x20 && c <= 0x3f:
			s.state, s.held = inLostCSI, s.held[:0]
		default:
			return s.after(dst, c, c >= 0x40 && c <= 0x7e)
		}
	case inLostCSI:
		if c < 0x20 || c > 0x3f {
			return s.after(dst, c, c >= 0x40 && c <= 0x7e)
		}
	case inString:
		s.seen++
		switch {
		case c == escape:
			s.state = endsString
		case c == bell || s.seen > maxString:
			s.state = inText
		case c < 0x20 && c != '\t': // no terminal goes on with it for ever, and neither may a hostile one
			return s.after(dst, c, false)
		}
	case endsString:
		if s.state = inText; c != '\\' {
			s.state = atEscape
			return s.step(dst, c)
		}
	}
	return dst
}

// after is for the byte that ends a sequence: it is part of it, or the text goes on with it.
func (s *sequences) after(dst []byte, c byte, part bool) []byte {
	s.state, s.held = inText, s.held[:0]
	if part {
		return dst
	}
	return s.text(dst, c)
}

// text takes a byte outside of a sequence.
func (s *sequences) text(dst []byte, c byte) []byte {
	if len(s.held) > 0 && c < utf8.RuneSelf { // the character ends early
		s.held = s.held[:0]
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	switch {
	case c == escape:
		s.state = atEscape
		return dst
	case c >= utf8.RuneSelf:
		s.held = append(s.held, c)
		return s.character(dst)
	case c >= 0x20 && c != 0x7f, c == '\n', c == '\r', c == '\t', c == '\b':
		return append(dst, c)
	}
	return dst
}

// character takes what is held of characters beyond ASCII.
func (s *sequences) character(dst []byte) []byte {
	for len(s.held) > 0 && utf8.FullRune(s.held) {
		r, n := utf8.DecodeRune(s.held)
		s.held = append(s.held[:0], s.held[n:]...)
		if r > 0x9f {
			dst = utf8.AppendRune(dst, r)
			continue
		}
		s.state = atEscape // these are ESC and a letter in one character
		dst = s.step(dst, byte(r-0x40))
	}
	return dst
}

// resets reports whether parameters set all colours back.
func resets(parameters []byte) bool {
	for _, c := range parameters {
		if c != '0' && c != ';' {
			return false
		}
	}
	return true
}
