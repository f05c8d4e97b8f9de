package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSequences(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"text":              {"hello\tworld\r\n渐😀\b", "hello\tworld\r\n渐😀\b"},
		"colours":           {"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"},
		"true-colours":      {"\x1b[38:2::1:2:3mx\x1b[m", "\x1b[38:2::1:2:3mx\x1b[m"},
		"colours-stay-on":   {"\x1b[8mhidden", "\x1b[8mhidden\x1b[m"},
		"title":             {"a\x1b]0;title\x07b", "ab"},
		"title-st":          {"a\x1b]0;title\x1b\\b", "ab"},
		"clipboard":         {"\x1b]52;c;ZWNobyBoaQ==\x07", ""},
		"link":              {"\x1b]8;;http://evil.example\x1b\\text\x1b]8;;\x1b\\", "text"},
		"cursor":            {"a\x1b[2J\x1b[1;1H\x1b[5Ab", "ab"},
		"private-mode":      {"a\x1b[?1049hb\x1b[>4;1mc", "abc"},
		"question":          {"a\x1b[6n\x1b[c\x1b[>q\x1bZb", "ab"},
		"intermediate":      {"a\x1b[1 qb\x1b[0$mc", "abc"},
		"device-control":    {"a\x1bPq#0;2;0;0;0~-\x1b\\b", "ab"},
		"kitty":             {"a\x1b_Gf=100;AAAA\x1b\\b", "ab"},
		"privacy":           {"a\x1b^x\x1b\\\x1bXy\x1b\\b", "ab"},
		"character-set":     {"a\x1b(0b\x0e\x0fc", "abc"},
		"reset":             {"a\x1bcb\x1b7\x1b8c", "abc"},
		"c1-csi":            {"a\u009b2Jb\u009b31mc\u009b0m", "ab\x1b[31mc\x1b[0m"},
		"c1-osc":            {"a\u009d0;title\x07b", "ab"},
		"c1-other":          {"a\u0085b\u008ec", "abc"},
		"bytes":             {"a\x9b2Jb\xffc", "a\ufffd2Jb\ufffdc"},
		"controls":          {"a\x00\x07\x0b\x0c\x7fb", "ab"},
		"half-character":    {"a\xe6\xb8", "a\ufffd"},
		"half-sequence":     {"a\x1b[31", "a"},
		"escape":            {"a\x1b", "a"},
		"escape-escape":     {"a\x1b\x1b[31mb\x1b[m", "a\x1b[31mb\x1b[m"},
		"control-in-csi":    {"a\x1b[3\n1mb", "a\n1mb"},
		"character-in-csi":  {"a\x1b[3渐b", "a渐b"},
		"string-ends-badly": {"a\x1b]0;t\x1b[31mb\x1b[0m", "a\x1b[31mb\x1b[0m"},
		"string-and-line":   {"a\x1b]0;t\nb", "a\nb"},
		"endless-string":    {"a\x1b]0;" + strings.Repeat("x", maxString) + "yz", "axyz"},
		"endless-colour":    {"a\x1b[" + strings.Repeat("1;", 1000) + "mb", "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			var s sequences
			got := s.end(s.add(nil, []byte(test.in)))
			if string(got) != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// allowed matches what may reach a terminal.
var allowed = regexp.MustCompile("^([^\x00-\x07\x0b\x0c\x0e-\x1f\x7f\u0080-\u009f]|\x1b\\[[0-9:;]{0,64}m)*$")

// For any input in any pieces, only text and colours get through, all colours are reset, text is
// kept, and what is held back is bounded.
func FuzzSequences(f *testing.F) {
	for _, s := range []string{"a\x1b[31mb", "\x1b]0;t\x07", "\u009b31m\u009d", "\xe6\xb8\x1b\xff", "\x1bP\x1b\x1b\\", "a\x1b[1;1Hb"} {
		f.Add(s, uint8(1))
	}
	f.Fuzz(func(t *testing.T, in string, size uint8) {
		var whole, pieces sequences
		want := whole.end(whole.add(nil, []byte(in)))
		var got []byte
		for rest := []byte(in); len(rest) > 0; {
			n := min(int(size)+1, len(rest))
			got = pieces.add(got, rest[:n])
			rest = rest[n:]
			if len(pieces.held) > maxColour {
				t.Fatalf("%d bytes are held", len(pieces.held))
			}
		}
		if got = pieces.end(got); !bytes.Equal(got, want) {
			t.Errorf("in pieces of %d: got %q, want %q", int(size)+1, got, want)
		}
		if !utf8.Valid(got) || !allowed.Match(got) {
			t.Errorf("%q: got %q", in, got)
		}
		if len(got) > 3*len(in)+len("\x1b[m") {
			t.Errorf("%d bytes became %d", len(in), len(got))
		}
		if i := bytes.LastIndexByte(got, escape); i >= 0 && !resets(bytes.TrimSuffix(bytes.TrimPrefix(got[i:][:bytes.IndexByte(got[i:], 'm')+1], []byte("\x1b[")), []byte("m"))) {
			t.Errorf("colours stay on: %q", got)
		}
		if plain := strings.Map(func(r rune) rune {
			if r < 0x20 || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
				return -1
			}
			return r
		}, in); plain == in && string(got) != in {
			t.Errorf("text %q became %q", in, got)
		}
	})
}
