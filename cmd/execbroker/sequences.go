package main

import (
	"bytes"
	"unicode/utf8"
)

// The limits of an incomplete sequence that is held back.
const (
	maxColour = 64      // bytes of a sequence that sets colours; real ones have at most 20
	maxString = 4 << 10 // bytes of a sequence that contains text, such as a title; the rest is treated as text
)

// sequences makes output of a sandbox safe for a terminal. It passes text and colours through and
// drops everything else that a terminal obeys, such as sequences that set its title, write to the
// clipboard, move the cursor, or make it send an answer to the user's shell. Bytes that are not
// UTF-8 become U+FFFD. The input comes in pieces, and what is held back between them is bounded.
// The zero value is ready to use.
type sequences struct {
	state    state
	held     []byte // bytes of an incomplete character or sequence
	seen     int    // number of bytes of a string so far
	coloured bool   // colours are on after the last sequence
}

// state is the position of a sequences in its input.
type state int

const (
	inText     state = iota
	atEscape         // ESC
	inOther          // ESC and intermediate bytes
	inCSI            // ESC [ and parameters, in held
	inLostCSI        // ESC [ of a sequence that is dropped
	inString         // in OSC, DCS, SOS, PM or APC: text up to ST
	endsString       // ESC in such a text
)

const (
	escape = 0x1b
	bell   = 0x07
)

// add appends the part of data that may be shown to dst.
func (s *sequences) add(dst, data []byte) []byte {
	for _, c := range data {
		dst = s.step(dst, c)
	}
	return dst
}

// end marks the end of the input. It drops what is held back and resets colours.
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

// step handles one byte.
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
		case c < 0x20 && c != '\t': // terminals end the string here, and a hostile string must end too
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

// after handles the byte that ends a sequence. The byte is part of the sequence or of the text
// after it.
func (s *sequences) after(dst []byte, c byte, part bool) []byte {
	s.state, s.held = inText, s.held[:0]
	if part {
		return dst
	}
	return s.text(dst, c)
}

// text handles a byte outside of a sequence.
func (s *sequences) text(dst []byte, c byte) []byte {
	if len(s.held) > 0 && c < utf8.RuneSelf { // the character is incomplete
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

// character handles the held bytes of a character beyond ASCII.
func (s *sequences) character(dst []byte) []byte {
	for len(s.held) > 0 && utf8.FullRune(s.held) {
		r, n := utf8.DecodeRune(s.held)
		s.held = append(s.held[:0], s.held[n:]...)
		if r > 0x9f {
			dst = utf8.AppendRune(dst, r)
			continue
		}
		s.state = atEscape // this character means ESC and a letter
		dst = s.step(dst, byte(r-0x40))
	}
	return dst
}

// resets reports whether parameters reset all colours.
func resets(parameters []byte) bool { return len(bytes.Trim(parameters, "0;")) == 0 }
