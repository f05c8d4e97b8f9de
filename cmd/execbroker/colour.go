package main

import "io"

// The colours of what this program says by itself, as parameters of the sequence that sets them.
const (
	colourPrompt = "1;32"
	colourError  = "31"
	colourNote   = "2"
)

// colours reports whether text for w may have colours: on a terminal that has some, unless
// https://no-color.org asks for none.
func (a *app) colours(w io.Writer) bool {
	return isTerminal(w) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// coloured puts text into a colour, if there are any.
func coloured(on bool, colour, text string) string {
	if !on || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[m"
}
