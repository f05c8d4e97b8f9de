package driver

import (
	"errors"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// The longest names that Linux takes.
const (
	maxName    = 4095
	maxElement = 255
)

// checkName refuses names that not every backend can carry: NUL ends a name for the system, and bytes that are no UTF-8 do not
// survive JSON and Protocol Buffers.
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

// absolute returns the clean absolute form of a name. It is lexical, as path.Clean is. A relative name that climbs above Workdir is
// refused: what names a file by a relative name means one of its own, and the rest is a mistake or an attack.
func absolute(name string) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	if path.IsAbs(name) {
		return path.Clean(name), nil
	}
	clean := path.Clean(name)
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", errors.New("the relative name climbs above " + executor.Workdir)
	}
	return path.Join(executor.Workdir, clean), nil
}
