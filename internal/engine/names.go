package engine

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// The longest names that Linux takes.
const (
	maxName    = 4095
	maxElement = 255
)

// checkName refuses names that not every backend can carry: NUL ends a name for the system, and
// bytes that are no UTF-8 do not survive JSON and Protocol Buffers.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("empty name")
	case strings.ContainsRune(name, 0):
		return errors.New("NUL in the name")
	case !utf8.ValidString(name):
		return errors.New("the name is not UTF-8")
	case len(name) > maxName:
		return errors.New("name of more than 4095 bytes")
	}
	for elem := range strings.SplitSeq(name, "/") {
		if len(elem) > maxElement {
			return errors.New("element of more than 255 bytes in the name")
		}
	}
	return nil
}

// names are what a session knows about names: the aliases of Workdir.
type names []string

// absolute returns the clean absolute form of a name, by Workdir where it is by an alias. It is
// lexical, as path.Clean is. A relative name that climbs above Workdir is refused: what names a
// file by a relative name means one of its own, and the rest is a mistake or an attack.
func (n names) absolute(name string) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	if path.IsAbs(name) {
		return n.mapped(path.Clean(name)), nil
	}
	clean := path.Clean(name)
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", errors.New("the relative name climbs above " + executor.Workdir)
	}
	return path.Join(executor.Workdir, clean), nil
}

// mapped returns a clean absolute name by Workdir, if it begins with an alias.
func (n names) mapped(name string) string {
	for _, a := range n {
		if rest, ok := strings.CutPrefix(name, a); ok && (rest == "" || rest[0] == '/') {
			return executor.Workdir + rest
		}
	}
	return name
}

// relative returns a glob that is relative to Workdir.
func (n names) relative(glob string) (string, error) {
	if !path.IsAbs(glob) {
		return glob, nil
	}
	below, ok := strings.CutPrefix(n.mapped(glob), executor.Workdir+"/")
	if below = strings.TrimLeft(below, "/"); !ok || below == "" {
		return "", fmt.Errorf("artifacts: glob %q: want one relative to %s, or below it", glob, executor.Workdir)
	}
	return below, nil
}

// protects reports whether the clean name is Workdir or above it, or an alias or above one. These
// are neither removed nor renamed.
func (n names) protects(name string) bool {
	above := func(dir string) bool { return name == "/" || name == dir || strings.HasPrefix(dir, name+"/") }
	return above(executor.Workdir) || slices.ContainsFunc(n, above)
}

// joinAliases and splitAliases write and read LabelAliases. What no Spec could say is not read:
// whoever wrote it, those names go to the sandbox as they are.
func joinAliases(aliases []string) string { return strings.Join(aliases, ",") }

func splitAliases(label string) []string {
	if label == "" {
		return nil
	}
	aliases := strings.Split(label, ",")
	if (executor.Spec{Aliases: aliases}).Validate() != nil {
		return nil
	}
	return aliases
}
