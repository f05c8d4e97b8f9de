package main

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What a terminal is asked.
const (
	askKitty      = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\" // whether it takes images as kitty does
	askName       = "\x1b[>q"                                    // what it is (XTVERSION)
	askSize       = "\x1b[14t"                                   // how many pixels its window has
	askAttributes = "\x1b[c"                                     // what it can do (DA1); every terminal answers, so it comes last
)

const (
	answerTime = time.Second // for a terminal at the other end of a slow line
	maxAnswer  = 4 << 10
)

// answerForm matches the answers: kitty's, the name, the size, the attributes.
var answerForm = regexp.MustCompile(`\x1b_G([^\x1b]{0,200})\x1b\\|\x1bP>\|([^\x1b]{0,200})\x1b\\|\x1b\[4;([0-9]{1,5});([0-9]{1,5})t|\x1b\[\?([0-9;]{1,100})c`)

// answers are what a terminal has said.
type answers struct {
	kitty         bool
	name          string
	width, height int      // pixels
	attributes    []string // nil: it has not answered to the end
	typed         []byte   // what came besides, from somebody who types
}

// parseAnswers understands what came from a terminal after the questions.
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
	if i := bytes.IndexByte(data, escape); i >= 0 && a.attributes == nil { // an answer that was cut off
		data = data[:i]
	}
	a.typed = append(a.typed, data...)
	return a
}

// itermNames are the terminals that take images as iTerm2 does, by how their names begin: those
// that they answer, and those of TERM_PROGRAM and LC_TERMINAL.
var itermNames = []string{"iTerm", "WezTerm", "mintty"}

func isITerm(name string) bool {
	for _, n := range itermNames {
		if strings.HasPrefix(name, n) {
			return true
		}
	}
	return false
}

// graphics says how the terminal of this program takes images: what it answers counts, and what the
// environment says of it where it does not answer to that. typed is what somebody has typed
// meanwhile.
func (a *app) graphics() (g graphics, typed []byte) {
	name := a.getenv("TERM")
	if !isTerminal(a.out) || name == "" || name == "dumb" || name == "linux" || a.getenv("TERM_PROGRAM") == "Apple_Terminal" {
		return g, nil // the last two show questions that they do not know
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
	case len(got.attributes) > 1 && slices.Contains(got.attributes[1:], "4"): // the first is what kind of terminal it is
		g.protocol = sixels
	}
	return g, got.typed
}
