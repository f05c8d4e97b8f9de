// Package dbtest runs database servers for tests: Debian's own programs, on a port of the loopback
// interface, with a directory and a password that only the test knows.
package dbtest

import (
	"os/exec"
	"path/filepath"
)

// Find returns the path of a program in PATH, or where Debian has those of PostgreSQL, or "".
func Find(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // the pattern is valid
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}
