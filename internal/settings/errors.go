// Package settings decodes configurations strictly and words what is wrong in them. Its functions
// are those of package driver, for packages that cannot import driver.
package settings

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/execbroker/execbroker/executor"
)

// MaxErrors is how many errors Join reports. A list of a hundred thousand wrong elements has more.
const MaxErrors = 100

// Join joins all, up to MaxErrors, and says how many there are besides: those and more.
func Join(all []*executor.FieldError, more int) error {
	errs := make([]error, 0, MaxErrors+1)
	for _, e := range all[:min(len(all), MaxErrors)] {
		errs = append(errs, e)
	}
	if more += len(all) - len(errs); more > 0 {
		errs = append(errs, &executor.FieldError{Err: fmt.Errorf("and %d more errors", more)})
	}
	return errors.Join(errs...)
}

// At is driver.At.
func At(path string, err error) error {
	all := errorsAt(path, err)
	if len(all) == 1 {
		return all[0]
	}
	errs := make([]error, len(all))
	for i, e := range all {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// errorsAt is At as a list.
func errorsAt(path string, err error) []*executor.FieldError {
	all := executor.FieldErrors(err)
	if path == "" {
		return all
	}
	for i, e := range all {
		at := *e
		switch {
		case at.Path == "":
			at.Path = path
		case strings.HasPrefix(at.Path, "["):
			at.Path = path + at.Path
		default:
			at.Path = path + "." + at.Path
		}
		all[i] = &at
	}
	return all
}

// Member returns the path of what is called name below path. A name that would make the path
// ambiguous, or that has characters which control a terminal, is quoted.
func Member(path, name string) string {
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

// maxShown is how many bytes of a name from a configuration are repeated in an error.
const maxShown = 64

func quoted(name string) string {
	if len(name) > maxShown {
		return strconv.Quote(name[:maxShown]) + "..."
	}
	return strconv.Quote(name)
}

// Unknown is driver.Unknown.
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

// Nearest is driver.Nearest.
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
