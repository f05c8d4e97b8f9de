package main

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The questions to a terminal.
const (
	askKitty      = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\" // whether it shows images with kitty's protocol
	askName       = "\x1b[>q"                                    // its name (XTVERSION)
	askSize       = "\x1b[14t"                                   // the size of its window in pixels
	askAttributes = "\x1b[c"                                     // its attributes (DA1); every terminal answers this, so it comes last
)

const (
	answerTime = time.Second // long enough for a terminal at the end of a slow connection
	maxAnswer  = 4 << 10
)

// answerForm matches the answers: kitty's, the name, the size, the attributes.
var answerForm = regexp.MustCompile(`\x1b_G([^\x1b]{0,200})\x1b\\|\x1bP>\|([^\x1b]{0,200})\x1b\\|\x1b\[4;([0-9]{1,5});([0-9]{1,5})t|\x1b\[\?([0-9;]{1,100})c`)

// answers are the answers of a terminal.
type answers struct {
	kitty         bool
	name          string
	width, height int      // pixels
	attributes    []string // nil: the answers are not complete
	typed         []byte   // other bytes, which a person has typed
}

// parseAnswers parses what came from a terminal after the questions.
func parseAnswers(data []byte) (a answers) {
	for {
		at := answerForm.FindSubmatchIndex(data)
		if at == nil {
			break
		}
		part := func(i int) string {
			if at[2*i] < 0 {
				return ""
			}
			return string(data[at[2*i]:at[2*i+1]])
		}
		switch data[at[0]+1] {
		case '_':
			a.kitty = a.kitty || part(1) == "i=31;OK"
		case 'P':
			a.name = part(2)
		case '[':
			if part(5) == "" {
				a.height, _ = strconv.Atoi(part(3)) // digits
				a.width, _ = strconv.Atoi(part(4))
				break
			}
			a.attributes = strings.Split(part(5), ";")
		}
		a.typed = append(a.typed, data[:at[0]]...)
		data = data[at[1]:]
	}
	if i := bytes.IndexByte(data, escape); i >= 0 && a.attributes == nil { // an incomplete answer
		data = data[:i]
	}
	a.typed = append(a.typed, data...)
	return a
}

// itermNames are the beginnings of the names of terminals that show images with iTerm2's protocol:
// the names that they answer, and those in TERM_PROGRAM and LC_TERMINAL.
var itermNames = []string{"iTerm", "WezTerm", "mintty"}

func isITerm(name string) bool {
	return slices.ContainsFunc(itermNames, func(n string) bool { return strings.HasPrefix(name, n) })
}

// graphics says how the terminal of this program shows images. It uses the terminal's answers and,
// if it does not answer, the environment. typed is what a person has typed meanwhile.
func (a *app) graphics() (g graphics, typed []byte) {
	name := a.getenv("TERM")
	if !isTerminal(a.out) || name == "" || name == "dumb" || name == "linux" || a.getenv("TERM_PROGRAM") == "Apple_Terminal" {
		return g, nil // the last two would print questions that they do not know
	}
	multiplexed := withinMultiplexer(a.getenv)
	question := askKitty + askName + askSize + askAttributes
	if multiplexed {
		question = askSize + askAttributes
	}
	data := askTerminal(a.out, question, func(data []byte) bool { return parseAnswers(data).attributes != nil })
	got := parseAnswers(data)
	if got.width > 0 && got.height > 0 {
		g.width, g.height = got.width, got.height
	}
	named := got.name
	if named == "" && !multiplexed {
		named = a.getenv("LC_TERMINAL")
		if !isITerm(named) {
			named = a.getenv("TERM_PROGRAM")
		}
	}
	switch {
	case got.kitty:
		g.protocol = kitty
	case isITerm(named):
		g.protocol = iterm
	case len(got.attributes) > 1 && slices.Contains(got.attributes[1:], "4"): // the first attribute is the kind of terminal
		g.protocol = sixels
	}
	return g, got.typed
}
