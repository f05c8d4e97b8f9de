package wheels

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/requirement"
)

// UnknownError says that the index does not have a package, or not in an acceptable version.
type UnknownError struct {
	Requirement string
	Have        string // the version in the index; empty: none
	Near        string // a similar name
	By          string // the package that depends on it; empty: it was requested directly
}

// Error implements error. The adapter adds advice, because it knows the names of its settings.
func (e *UnknownError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no package fits %q", e.Requirement)
	if e.By != "" {
		fmt.Fprintf(&b, ", which %q depends on", e.By)
	}
	switch {
	case e.Have != "":
		fmt.Fprintf(&b, "; there is version %s", e.Have)
	case e.Near != "":
		fmt.Fprintf(&b, "; did you mean %q?", e.Near)
	}
	return b.String()
}

// Resolve returns the wheels for the given requirements and all their dependencies, dependencies
// first. Extras are refused, because neither a lock file nor a wheel for Pyodide says what they
// contain. All errors are returned at once.
func (x *Index) Resolve(requirements []string) ([]Wheel, error) {
	var (
		out  []Wheel
		errs []error
		seen = map[string]bool{}
	)
	var visit func(r requirement.Requirement, by string)
	visit = func(r requirement.Requirement, by string) {
		w, ok := x.wheels[r.Name]
		if !ok || !r.Allows(w.Version) {
			errs = append(errs, &UnknownError{Requirement: r.String(), Have: w.Version, Near: driver.Nearest(r.Name, slices.Collect(maps.Keys(x.wheels))), By: by})
			return
		}
		if seen[r.Name] {
			return
		}
		seen[r.Name] = true // also ends cycles, which exist in the distribution
		for _, d := range w.Depends {
			visit(requirement.Requirement{Name: d}, w.Name)
		}
		out = append(out, w)
	}
	for _, text := range requirements {
		r, err := requirement.Parse(text)
		switch {
		case err != nil:
			errs = append(errs, err)
		case len(r.Extras) > 0:
			errs = append(errs, fmt.Errorf("requirement %q: extras are not known for Pyodide; name the packages that you need", text))
		default:
			visit(r, "")
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}
