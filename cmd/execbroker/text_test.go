package main

import (
	"strings"
	"testing"
	"unicode"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"plain text":    "plain text",
		"渐 é 😀":         "渐 é 😀",
		"a\nb":          `"a\nb"`,
		"\x1b[31mred":   `"\x1b[31mred"`,
		"\u202eright":   `"\u202eright"`,
		"\x9b31m":       `"\x9b31m"`,
		"\u009b31m":     `"\u009b31m"`,
		"bad \xff utf8": `"bad \xff utf8"`,
		`has "quotes"`:  `has "quotes"`,
	} {
		if got := plain(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestPlainText(t *testing.T) {
	for in, want := range map[string]string{
		"a\n\tb\n":       "a\n\tb\n",
		"\x1b]0;x\x07":   `\x1b]0;x\a`,
		"bad \xff\u202e": `bad \xff\u202e`,
		"over\rwritten":  `over\rwritten`,
	} {
		if got := plainText(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("a\x1b[31m\u202e\xff\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, got := range []string{plain(s), strings.NewReplacer("\n", "", "\t", "").Replace(plainText(s))} {
			if strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q: got %q", s, got)
			}
		}
	})
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1: "1 byte", 999: "999 bytes", 1234: "1.2 kB", 16 << 20: "16.8 MB", 5e9: "5.0 GB"} {
		if got := size(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
