package executor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// A FieldError is one error in a configuration, or in what a constructor is configured with.
// Whoever checks a configuration reports every error that it finds, joined by errors.Join: see
// FieldErrors.
type FieldError struct {
	// Path names the field: "backends.box.image", "pool.sizes[2]". Empty: the whole.
	Path string
	// Field is a name below Path that should not be there, because it is unknown or given twice.
	// Empty: the error is about the value at Path.
	Field string
	// Line and Column are the position in the text of the configuration, from 1. Zero: not known.
	Line, Column int
	// Err says what is wrong and, if that is known, what was meant. A value of the configuration
	// does not appear in its text: it may be a secret.
	Err error
}

// Error returns `backends.box: unknown field "imgae"; did you mean "image"? (line 3, column 5)`.
func (e *FieldError) Error() string {
	text := e.Err.Error()
	if e.Path != "" {
		text = e.Path + ": " + text
	}
	switch {
	case e.Line > 0 && e.Column > 0:
		return fmt.Sprintf("%s (line %d, column %d)", text, e.Line, e.Column)
	case e.Line > 0:
		return fmt.Sprintf("%s (line %d)", text, e.Line)
	}
	return text
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// FieldErrors returns the errors that were joined to err, in the order of their positions. One that
// is no *FieldError becomes the Err of one. A nil err has none.
func FieldErrors(err error) []*FieldError {
	all := fieldErrors(err)
	slices.SortStableFunc(all, func(a, b *FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return all
}

func fieldErrors(err error) (all []*FieldError) {
	if err == nil {
		return nil
	}
	if fe, ok := err.(*FieldError); ok { //nolint:errorlint // what wraps one has a text of its own
		return []*FieldError{fe}
	}
	// Only errors.Join adds no text of its own, which would be lost.
	if j, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(j.Unwrap()...).Error() {
		for _, e := range j.Unwrap() {
			all = append(all, fieldErrors(e)...)
		}
		return all
	}
	return []*FieldError{{Err: err}}
}
