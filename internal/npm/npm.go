// Package npm reads the names and versions of npm's packages as people and models write them,
// "lodash", "@scope/name@^2", and decides which packages have to be where so that each finds what
// it needs. It does no I/O: documents of a registry are handed in, and are parsed as what they are,
// the words of a stranger.
//
// It accepts a part of what npm does on purpose. What fetches something from elsewhere than the
// registry (addresses, repositories, files, options of an installer, tags, which change their
// meaning) is refused.
package npm

import (
	"fmt"
	"regexp"
	"strings"
)

// Requirement names a package and says which versions will do.
type Requirement struct {
	Name  string // with its scope: "@scope/name"
	Range Range  // the zero value: any version
}

// The longest names that registries take, and ranges that anybody needs.
const (
	maxName  = 214
	maxRange = 256
)

var nameForm = regexp.MustCompile(`^(?:@[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*$`)

// validName reports whether a name is one that a registry can have. It becomes a directory, too.
func validName(name string) bool {
	return len(name) <= maxName && nameForm.MatchString(name) && name != "node_modules" && name != "favicon.ico"
}

// Parse reads a requirement: a name, perhaps with "@" and versions.
func Parse(text string) (Requirement, error) {
	bad := func(why string) (Requirement, error) {
		return Requirement{}, fmt.Errorf("requirement %.60q: %s", text, why)
	}
	s := strings.TrimSpace(text)
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return bad("not a package name: it has characters that none has")
	}
	if strings.HasPrefix(s, "-") {
		return bad("options of an installer are not accepted; name packages only")
	}
	name, rest := s, ""
	if at := strings.LastIndexByte(s, '@'); at > 0 {
		name, rest = s[:at], s[at+1:]
		if strings.TrimSpace(rest) == "" {
			return bad(`no version behind "@"`)
		}
	}
	switch {
	case strings.ContainsAny(s, ":\\#") || strings.HasPrefix(s, ".") || strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~"):
		return bad("addresses, repositories, files and aliases are not accepted; name packages of the registry only")
	case !validName(name):
		return bad(`not a package name; write for example "lodash", "lodash@^4.17" or "@scope/name"`)
	}
	r, err := ParseRange(rest)
	if err != nil {
		return bad(err.Error())
	}
	return Requirement{name, r}, nil
}

// String writes r in the form that Parse reads.
func (r Requirement) String() string {
	if r.Range.text == "" {
		return r.Name
	}
	return r.Name + "@" + r.Range.text
}
