package packages

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/npm"
	"github.com/execbroker/execbroker/internal/requirement"
)

// Order is a request for packages of one language.
type Order struct {
	Language executor.Language
	packages executor.Packages // as they were requested
	python   []requirement.Requirement
	js       []npm.Requirement
}

// Preset returns the order of a configuration, which the lists do not restrict.
func Preset(p executor.Packages) (o Order, err error) {
	o.Language, o.packages = p.Language, p
	if p.Language == executor.JavaScript {
		o.js, err = parseJS(p.Names)
	} else {
		o.python, err = parseAll(p.Names)
	}
	return o, err
}

// allowed is the set of packages that may be installed.
type allowed struct {
	any   bool                                 // any Python package
	names map[string][]requirement.Requirement // by name
	js    allowedJS
}

// allowed reads the lists.
func (s *Sources) allowed() (allowed, error) {
	a := allowed{names: map[string][]requirement.Requirement{}, js: s.allowedJS()}
	lines := slices.Clone(s.Allow[executor.Python])
	if s.Requirements != "" {
		more, err := readRequirements(s.Requirements)
		if err != nil {
			return a, driver.At("packages.requirements", err)
		}
		lines = append(lines, more...)
	}
	for _, l := range lines {
		if l == everything {
			a.any = true
			continue
		}
		r, err := requirement.Parse(l)
		if err != nil {
			return a, driver.At("packages.requirements", err)
		}
		a.names[r.Name] = append(a.names[r.Name], r)
	}
	return a, nil
}

// none reports whether no package of a language may be installed.
func (a allowed) none(l executor.Language) bool {
	if l == executor.JavaScript {
		return !a.js.any && len(a.js.list) == 0
	}
	return l != executor.Python || !a.any && len(a.names) == 0
}

// order reads a request and refuses packages that are not on the lists.
func (a allowed) order(p executor.Packages) (Order, error) {
	o, err := Preset(p)
	if err != nil {
		return o, err
	}
	for _, r := range o.python {
		if err := a.admit(r); err != nil {
			return o, notListed(r.Name, err)
		}
	}
	for _, r := range o.js {
		if err := a.js.admit(r); err != nil {
			return o, notListed(r.Name, err)
		}
	}
	return o, nil
}

// notListed returns the error for a package that is not on the list.
func notListed(name string, why error) error {
	d := executor.Denial{Rule: executor.RulePackage, Package: name}
	return &executor.Error{Kind: executor.ErrDenied, Ran: executor.RanNo, Denied: d, Err: why}
}

// constraints returns the versions that the lists require.
func (a allowed) constraints() []string {
	var cs []string
	for _, name := range slices.Sorted(maps.Keys(a.names)) {
		for _, r := range a.names[name] {
			if r.Specifier != "" {
				cs = append(cs, r.Name+r.Specifier)
			}
		}
	}
	return cs
}

// parseAll reads requirements and sorts them.
func parseAll(names []string) ([]requirement.Requirement, error) {
	return inOrder(names, requirement.Parse)
}

// inOrder reads requirements of either language, sorts them and removes duplicates.
func inOrder[R fmt.Stringer](names []string, parse func(string) (R, error)) ([]R, error) {
	var rs []R
	for _, n := range names {
		r, err := parse(n)
		if err != nil {
			return nil, driver.Fail(executor.ErrInvalid, executor.RanNo, err)
		}
		rs = append(rs, r)
	}
	slices.SortFunc(rs, func(a, b R) int { return strings.Compare(a.String(), b.String()) })
	return slices.CompactFunc(rs, func(a, b R) bool { return a.String() == b.String() }), nil
}

// admit returns why r may not be installed, or nil.
func (a allowed) admit(r requirement.Requirement) error {
	lines, listed := a.names[r.Name]
	if !listed && !a.any {
		return fmt.Errorf("package %s is not on the list of this backend (packages.allow)", r.Name)
	}
	if a.any {
		return nil
	}
	for _, e := range r.Extras {
		if !slices.ContainsFunc(lines, func(l requirement.Requirement) bool { return slices.Contains(l.Extras, e) }) {
			return fmt.Errorf("extra %s of package %s is not on the list of this backend (packages.allow)", e, r.Name)
		}
	}
	if v, exact := strings.CutPrefix(r.Specifier, "=="); exact && !strings.ContainsAny(v, ",*") {
		for _, l := range lines {
			if !l.Allows(v) {
				return fmt.Errorf("package %s: version %s is not allowed by this backend, which wants %s (packages.allow)", r.Name, v, l.Specifier)
			}
		}
	}
	return nil
}
