// Package requirement reads the names of Python packages as people and models write them: "numpy",
// "pandas>=2,<4", "uvicorn[standard]".
//
// It deliberately accepts only a part of PEP 508. It refuses everything that would download from
// another place than the configured index (URLs, files, options of an installer), and environment
// markers, because the caller knows the environment.
package requirement

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	version "github.com/aquasecurity/go-pep440-version"
)

// Requirement names a package and the acceptable versions.
type Requirement struct {
	Name      string   // normalized: see Normalize
	Extras    []string // normalized, sorted, without duplicates
	Specifier string   // such as ">=2,<4"; empty: any version
}

// maxLength bounds the text of a requirement. Real ones are ten times shorter.
const maxLength = 1000

var (
	form       = regexp.MustCompile(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[([^\]]*)\])?\s*(?:\(([^()]*)\)|([^()]*))$`)
	name       = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	clause     = regexp.MustCompile(`^\s*(===|==|~=|!=|<=|>=|<|>)\s*([A-Za-z0-9._+!-]+(?:\.\*)?)\s*$`)
	separators = regexp.MustCompile(`[-_.]+`)
)

// Normalize returns the canonical form of a package name: lower case, with "-" for runs of "-", "_"
// and ".".
func Normalize(name string) string { return strings.ToLower(separators.ReplaceAllString(name, "-")) }

// Parse reads a requirement.
func Parse(text string) (Requirement, error) {
	bad := func(why string) (Requirement, error) {
		return Requirement{}, fmt.Errorf("requirement %.60q: %s", text, why)
	}
	s := strings.TrimSpace(text)
	switch {
	case len(text) > maxLength:
		return bad("too long")
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }):
		return bad("not a package name: it has characters that none has")
	case strings.HasPrefix(s, "-"):
		return bad("options of an installer are not accepted; name packages only")
	case strings.ContainsAny(s, "/\\@") || strings.Contains(s, "://"):
		return bad("addresses and files are not accepted; name packages of the configured index only")
	case strings.ContainsAny(s, ";#"):
		return bad("markers and comments are not accepted; name the package and, if need be, its version")
	}
	m := form.FindStringSubmatch(s)
	if m == nil {
		return bad(`not a package name; write for example "numpy" or "numpy>=2"`)
	}
	r := Requirement{Name: Normalize(m[1])}
	if strings.Contains(s, "[") {
		for e := range strings.SplitSeq(m[2], ",") {
			if e = strings.TrimSpace(e); e == "" {
				continue
			}
			if !name.MatchString(e) {
				return bad(fmt.Sprintf("extra %q is not a name", e))
			}
			r.Extras = append(r.Extras, Normalize(e))
		}
		slices.Sort(r.Extras)
		r.Extras = slices.Compact(r.Extras)
	}
	var err error
	if r.Specifier, err = specifier(m[3] + m[4]); err != nil {
		return bad(err.Error())
	}
	return r, nil
}

// specifier checks the clauses and formats them without spaces.
func specifier(text string) (string, error) {
	if text = strings.TrimSpace(text); text == "" {
		return "", nil
	}
	var clauses []string
	for c := range strings.SplitSeq(text, ",") {
		m := clause.FindStringSubmatch(c)
		if m == nil {
			return "", fmt.Errorf(`%q is not a version; write for example "==2.3" or ">=2,<3"`, strings.TrimSpace(c))
		}
		clauses = append(clauses, m[1]+m[2])
	}
	s := strings.Join(clauses, ",")
	if _, err := version.NewSpecifiers(s); err != nil {
		return "", errors.New("its version cannot be read")
	}
	return s, nil
}

// Allows reports whether a version satisfies r. A version that cannot be parsed satisfies only a
// requirement without versions. As with installers, "==2.3" allows "2.3.0". A pre-release satisfies
// only a requirement that names one, unless the caller has no other version.
func (r Requirement) Allows(v string) bool {
	if r.Specifier == "" {
		return true
	}
	got, err := version.Parse(v)
	if err != nil {
		return false
	}
	want, err := version.NewSpecifiers(r.Specifier, version.WithPreRelease(true))
	return err == nil && want.Check(got)
}

// String formats r for installers.
func (r Requirement) String() string {
	s := r.Name
	if len(r.Extras) > 0 {
		s += "[" + strings.Join(r.Extras, ",") + "]"
	}
	return s + r.Specifier
}
