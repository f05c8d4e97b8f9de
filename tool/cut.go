package tool

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// cut shortens text to about n bytes. What is missing is in the middle, because beginnings say what
// something is and ends how it came out, and a note says how much.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	from, to := start(text, n/2), end(text, len(text)-n/2)
	return text[:from] + missing(int64(to-from)) + text[to:]
}

// start returns the last beginning of a character at or before i.
func start[T string | []byte | executor.Bytes](text T, i int) int {
	for i > 0 && i < len(text) && !utf8.RuneStart(text[i]) {
		i--
	}
	return i
}

// end returns the first beginning of a character at or after i.
func end[T string | []byte | executor.Bytes](text T, i int) int {
	for i < len(text) && !utf8.RuneStart(text[i]) {
		i++
	}
	return i
}

// missing is the note in the place of n bytes.
func missing(n int64) string { return fmt.Sprintf("\n[... %d bytes left out ...]\n", n) }

// plain returns bytes of a program as text.
func plain(b []byte) string { return strings.ToValidUTF8(string(b), "\ufffd") }
