// Package npm reads the names and versions of npm packages as people and models write them,
// "lodash", "@scope/name@^2", and decides where packages must be installed so that each finds its
// dependencies. It does no I/O: the caller passes the documents of a registry, which are parsed as
// untrusted input.
//
// It deliberately accepts only a part of npm's syntax. It refuses everything that would download
// from another place than the registry (URLs, repositories, files, options of an installer), and
// tags, because their meaning changes.
package npm

import (
	"fmt"
	"regexp"
	"strings"
)

// Requirement names a package and the acceptable versions.
type Requirement struct {
	Name  string // with its scope: "@scope/name"
	Range Range  // the zero value: any version
}

// The longest names that registries accept, and the longest ranges that are useful.
const (
	maxName  = 214
	maxRange = 256
)

var nameForm = regexp.MustCompile(`^(?:@[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*$`)

// validName reports whether a registry can have the name. It also becomes the name of a directory.
func validName(name string) bool {
	return len(name) <= maxName && nameForm.MatchString(name) && name != "node_modules" && name != "favicon.ico"
}

// Parse reads a requirement: a name, optionally with "@" and versions.
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

// String formats r so that Parse can read it.
func (r Requirement) String() string {
	if r.Range.text == "" {
		return r.Name
	}
	return r.Name + "@" + r.Range.text
}
