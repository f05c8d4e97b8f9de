package driver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/execbroker/execbroker/internal/settings"
)

// DecodeStrict decodes JSON into what v points to and reports every error, up to a hundred, each as
// an *executor.FieldError, joined: unknown fields with the nearest known one, fields given twice,
// values of the wrong type, and what the UnmarshalJSON and UnmarshalText methods of the types say.
// Names of fields are compared exactly. A null, and a raw that is empty, leave v as it is. No value
// appears in an error, since it may be a secret in the wrong field, unless a method of a type puts
// it there.
func DecodeStrict(raw []byte, v any) error { return settings.Decode(raw, v) }

// DecodeShort is DecodeStrict for a value of which one text may stand for the whole: a string goes
// to short, and everything else to v.
func DecodeShort(raw []byte, short *string, v any) error {
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, short)
	}
	return DecodeStrict(raw, v)
}

// At puts path before the path of every error in err, which may be one or joined by errors.Join:
// each becomes an *executor.FieldError, and they are joined again. An empty path adds nothing. A
// nil err stays nil.
func At(path string, err error) error { return settings.At(path, err) }

// Unknown says that a name of some kind, such as "field" or "type", is not known, and which of the
// known ones may be meant.
func Unknown(what, name string, known []string) error { return settings.Unknown(what, name, known) }

// Nearest returns the known name that the author of name has probably meant, or "" if none is near.
func Nearest(name string, known []string) string { return settings.Nearest(name, known) }

// Choices checks a list of which each element has to be known and none may be given twice. what
// names the kind of them, for Unknown.
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
