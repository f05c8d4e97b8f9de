package executor

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// The bounds of Spec.Aliases. Aliases are stored at the provider in one label, joined by ",". A
// label holds 255 bytes.
const (
	maxAliases = 4
	maxAlias   = 60
)

// aliasForm requires a directory between the root and the name. In a read-only root an alias needs
// a directory of its own.
var aliasForm = regexp.MustCompile(`^(/[A-Za-z0-9._-]+){2,}$`)

// aliasNever lists directories where no alias can be: what code or the kernel creates there cannot
// be known in advance.
var aliasNever = []string{Workdir, "/proc", "/sys", "/dev", "/tmp", "/run"}

// checkAliases adds every error in Spec.Aliases to bad.
func checkAliases(aliases []string, bad *invalid) {
	if len(aliases) > maxAliases {
		bad.add("aliases: want at most %d", maxAliases)
		return
	}
	for i, a := range aliases {
		if len(a) > maxAlias || !aliasForm.MatchString(a) || path.Clean(a) != a {
			bad.add("aliases: %q: want a clean absolute name below another directory than /, such as /mnt/data: at most %d of A-Z, a-z, 0-9, '.', '_', '-' and '/'", a[:min(len(a), maxAlias)], maxAlias)
			continue
		}
		for _, dir := range aliasNever {
			if below(a, dir) {
				bad.add("aliases: %q: nothing below %s can be another name of %s", a, dir, Workdir)
			}
		}
		if slices.ContainsFunc(aliases[:i], func(o string) bool { return below(a, o) || below(o, a) }) {
			bad.add("aliases: %q is repeated, or below or above another", a)
		}
	}
}

// below reports whether name, which is clean, is dir or is in dir.
func below(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}
