package tool

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// cut shortens text to about n bytes. It leaves out the middle, because the beginning says what a
// text is and the end says how it came out. A note says how much is missing.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	from, to := start(text, n/2), end(text, len(text)-n/2)
	return text[:from] + missing(int64(to-from)) + text[to:]
}

// start returns the start of the character at i.
func start[T string | []byte | executor.Bytes](text T, i int) int {
	for i > 0 && i < len(text) && !utf8.RuneStart(text[i]) {
		i--
	}
	return i
}

// end returns the first start of a character at or after i.
func end[T string | []byte | executor.Bytes](text T, i int) int {
	for i < len(text) && !utf8.RuneStart(text[i]) {
		i++
	}
	return i
}

// missing returns the note that replaces n bytes.
func missing(n int64) string { return fmt.Sprintf("\n[... %d bytes left out ...]\n", n) }

// plain returns output of a program as valid UTF-8.
func plain(b []byte) string { return strings.ToValidUTF8(string(b), "\ufffd") }
