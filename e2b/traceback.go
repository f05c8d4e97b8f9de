package e2b

import (
	"regexp"
	"strconv"
	"strings"
)

// frames find lines of the user's code in tracebacks: of IPython, of other Pythons that name cells,
// of JavaScript.
var frames = []*regexp.Regexp{
	regexp.MustCompile(`Cell In\[(\d+)\], line (\d+)`),
	regexp.MustCompile(`<cell (\d+)>", line (\d+)`),
	regexp.MustCompile(`<cell (\d+)>:(\d+)`),
	regexp.MustCompile(`evalmachine\.<anonymous>()?:(\d+)`),
}

// line returns the last line of the code that an exception has passed, and 0 if that is not known.
func (c *cell) line(traceback string) int {
	for i, form := range frames {
		all := form.FindAllStringSubmatch(traceback, -1)
		if i >= 2 && len(all) > 0 { // these begin with the innermost
			all = all[:1]
		}
		for j := len(all) - 1; j >= 0; j-- {
			if n, err := strconv.Atoi(all[j][2]); err == nil && (all[j][1] == "" || all[j][1] == strconv.Itoa(c.k.seen)) {
				return n
			}
		}
	}
	return 0
}

var escapes = regexp.MustCompile("\x1b(\\[[0-9;?]*[ -/]*[@-~]|[@-_])?")

// plain returns a text without escape sequences.
func plain(s string) string { return escapes.ReplaceAllString(s, "") }

// joints are where the parts of IPython's tracebacks meet, which E2B joins without anything in
// between.
var joints = []*regexp.Regexp{
	regexp.MustCompile(`^(-{20,})([^-\n])`),
	regexp.MustCompile(`(Traceback \(most recent call last\))([^:\s])`),
	regexp.MustCompile(`([^\n])((?:Cell|Input) In ?\[\d+\])`),
	regexp.MustCompile(`([^\n])(File [/~<][^\n]*?:\d+, in )`),
}

// trace returns a traceback as text, each part in lines of its own.
func (e *codeError) trace() string {
	s := plain(e.traceback)
	for _, j := range joints {
		s = j.ReplaceAllString(s, "$1\n$2")
	}
	// The last part is the exception.
	last := strings.TrimRight(e.name+": "+e.value, "\n")
	if at := strings.LastIndex(s, last); e.name != "" && at > 0 && at+len(last) == len(strings.TrimRight(s, "\n")) && s[at-1] != '\n' && s[at-1] != '.' {
		s = s[:at] + "\n" + s[at:]
	}
	return s
}
