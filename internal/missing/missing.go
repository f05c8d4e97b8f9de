// Package missing says what a machine lacks for a backend, and what to do about it. An error says
// all of it in one line; a check of doctor has the same words apart, so that the two never differ.
package missing

import (
	"errors"
	"fmt"
	"strings"

	"github.com/execbroker/execbroker/executor/driver"
)

// Error is something that a machine lacks.
type Error struct {
	Name string // of the check of doctor; empty: what already says it
	What error
	Fix  string
}

// New returns an error about what is missing, and what to do about it.
func New(name string, what error, fix string) *Error { return &Error{Name: name, What: what, Fix: fix} }

// Error implements error.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%v; %s", e.What, e.Fix)
	}
	return fmt.Sprintf("%s: %v; %s", e.Name, e.What, e.Fix)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.What }

// Check returns what doctor says of err. If no Error is in it, the check has the given name and
// fix.
func Check(name string, err error, fix string) driver.Check {
	var e *Error
	if errors.As(err, &e) {
		err, fix = e.What, e.Fix
		if e.Name != "" {
			name = e.Name
		}
	}
	return driver.Check{Name: name, Detail: strings.ReplaceAll(err.Error(), "\n", "; "), Fix: fix}
}
