package main

import "io"

// The colours of this program's own messages, as parameters of the escape sequence that sets them.
const (
	colourPrompt = "1;32"
	colourError  = "31"
	colourNote   = "2"
)

// colours reports whether text for w may have colours: w is a terminal with colours, and NO_COLOR
// (https://no-color.org) is not set.
func (a *app) colours(w io.Writer) bool {
	return isTerminal(w) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// coloured adds a colour to text, if on is set.
func coloured(on bool, colour, text string) string {
	if !on || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[m"
}
