// Package bwrap is what both users of the program bwrap share: the layer around Pyodide's process,
// and the backend that is made of it.
package bwrap

import (
	"os/exec"
	"sync"
)

// Users that no distribution, container or directory service gives away: those from FirstUser on,
// of which there are Users. Root gives sandboxes of theirs.
const (
	FirstUser = 0x7000_0000
	Users     = 1 << 28
)

// Find finds the program, once: a PATH that changes later does not undo what was found to work.
var Find = sync.OnceValues(func() (string, error) { return exec.LookPath("bwrap") })
