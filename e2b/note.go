package e2b

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// identity identifies a process of the sandbox, so that a later one with the same ID is another.
type identity struct {
	pid  int
	born string // when, in the words of /proc
}

func (i identity) known() bool { return i.pid > 1 && bornForm.MatchString(i.born) }

var bornForm = regexp.MustCompile(`^\d{1,20}$`)

// note is what other holders have to know about a context, in a file of the sandbox. Code that
// changes it harms only itself.
type note struct {
	id      string // of the context; empty: there is none
	process identity
	before  int  // of kernel
	over    bool // the process has ended; only a lease says so
}

// maxNote bounds what is read of a file with a note.
const maxNote = 1000

func (k *kernel) note() note {
	n := note{id: k.id, before: k.before}
	if k.process.known() {
		n.process = k.process
	}
	return n
}

func (n note) String() string {
	return fmt.Sprintf("%s %d %d %s", n.id, n.before, n.process.pid, n.process.born)
}

// parseNote returns the note in a text, or none. A lease adds a word if the process has ended.
func parseNote(s string) (n note) {
	f := strings.Fields(s)
	if len(f) == 0 || len(s) > maxNote || !contextID.MatchString(f[0]) {
		return n
	}
	n.id = f[0]
	if len(f) < 4 {
		return n
	}
	n.before, _ = strconv.Atoi(f[1]) // what is no number is not known
	n.process.pid, _ = strconv.Atoi(f[2])
	n.process.born = f[3]
	if !n.process.known() {
		n.process = identity{}
	}
	n.before = max(n.before, 0)
	n.over = len(f) > 4 && f[4] == over
	return n
}
