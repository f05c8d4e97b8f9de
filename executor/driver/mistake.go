package driver

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A FieldError is one mistake in settings, with the path of the field: "pool.sizes[2]". An empty Path is the whole.
type FieldError struct {
	Path  string
	Field string // the name below Path that nobody knows, if that is the mistake: whoever has the text finds it by that
	Err   error

	surplus bool // the field should not be there, so that no value is missing because of it
}

// Error implements error.
func (e *FieldError) Error() string {
	if e.Path == "" {
		return e.Err.Error()
	}
	return e.Path + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// At makes every mistake in err, which may be one or joined by errors.Join, a *FieldError with path before its own path, joined. An
// empty path adds nothing. A nil err stays nil.
func At(path string, err error) error {
	var all []error
	for _, e := range mistakesAt(path, err) {
		all = append(all, e)
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// mistakesAt is At as a list.
func mistakesAt(path string, err error) []*FieldError {
	if err == nil {
		return nil
	}
	if fe, ok := err.(*FieldError); ok { //nolint:errorlint // what wraps one says something of its own
		at := *fe
		switch {
		case path == "":
		case at.Path == "":
			at.Path = path
		case strings.HasPrefix(at.Path, "["):
			at.Path = path + at.Path
		default:
			at.Path = path + "." + at.Path
		}
		return []*FieldError{&at}
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(j.Unwrap()...).Error() { // as errors.Join, which adds no words
		var all []*FieldError
		for _, e := range j.Unwrap() {
			all = append(all, mistakesAt(path, e)...)
		}
		return all
	}
	return []*FieldError{{Path: path, Err: err}}
}

// member returns the path of what is called name below path. A name that would make the path ambiguous, or that plays with terminals,
// is quoted.
func member(path, name string) string {
	plain := name != "" && len(name) <= maxShown
	for _, r := range name {
		plain = plain && (r == '_' || r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r))
	}
	switch {
	case !plain:
		return path + "[" + quoted(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// maxShown is how much of a name that somebody wrote is repeated.
const maxShown = 64

func quoted(name string) string {
	if len(name) > maxShown {
		return strconv.Quote(name[:maxShown]) + "..."
	}
	return strconv.Quote(name)
}

// Unknown says that nobody knows a name of some kind, such as "field" or "type", and which of the known ones may be meant.
func Unknown(what, name string, known []string) error {
	best := Nearest(name, known)
	switch {
	case best != "":
		return fmt.Errorf("unknown %s %s; did you mean %q?", what, quoted(name), best)
	case len(known) == 0:
		return fmt.Errorf("unknown %s %s; there are none", what, quoted(name))
	}
	return fmt.Errorf("unknown %s %s; there are %s", what, quoted(name), strings.Join(slices.Sorted(slices.Values(known)), ", "))
}

// Choices checks a list of which each element has to be known and none may be given twice. what names the kind of them, for Unknown.
func Choices[T ~string](what string, chosen, known []T) error {
	var errs []error
	for i, c := range chosen {
		at := fmt.Sprintf("[%d]", i)
		switch {
		case !slices.Contains(known, c):
			var names []string
			for _, k := range known {
				names = append(names, string(k))
			}
			errs = append(errs, At(at, Unknown(what, string(c), names)))
		case slices.Contains(chosen[:i], c):
			errs = append(errs, At(at, errors.New("given twice")))
		}
	}
	return errors.Join(errs...)
}

// Nearest returns the known name that somebody who wrote name has probably meant, or "" if none is near.
func Nearest(name string, known []string) string {
	if len(name) > maxShown {
		return ""
	}
	best, distance := "", 1+max(2, len(name)/3)
	for _, k := range known {
		if d := editDistance(strings.ToLower(name), k); d < distance && d < len(k) {
			best, distance = k, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, substitutions and exchanges of neighbours.
func editDistance(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, prev, row = prev, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			differs := 1
			if a[i-1] == b[j-1] {
				differs = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+differs)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
