package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/execbroker/execbroker/internal/settings"
)

// Secret is a value that configuration names but does not contain: {env: E2B_API_KEY} or {file:
// /run/secrets/e2b}. The zero Secret names none. It holds the name only, so that no form of it
// shows the value.
type Secret struct {
	Env  string `json:"env,omitempty"`  // name of a variable
	File string `json:"file,omitempty"` // path of a file of at most 64 KiB
}

const maxSecret = 64 << 10

// IsZero reports whether s names no secret.
func (s Secret) IsZero() bool { return s == Secret{} }

// String says where the secret is.
func (s Secret) String() string {
	switch {
	case s.Env != "" && s.File == "":
		return "environment variable " + shownName(s.Env)
	case s.File != "" && s.Env == "":
		return "file " + s.File
	case s.IsZero():
		return "no secret"
	}
	return "a secret with both env and file"
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return "driver.Secret(" + s.String() + ")" }

// shownName hides what may be the key itself, pasted where its name belongs: names of variables
// have no lower-case letters by custom.
func shownName(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsUpper(r) && !unicode.IsDigit(r) && r != '_' }) || len(name) > 64 {
		return "(name not shown, it may be the secret itself)"
	}
	return name
}

// UnmarshalJSON implements json.Unmarshaler. It says what to do about a secret that stands in the
// configuration itself, without repeating it.
func (s *Secret) UnmarshalJSON(p []byte) error {
	if len(p) > 0 && p[0] != '{' && string(p) != "null" {
		return errors.New("a configuration names a secret and does not contain it: {env: NAME} or {file: PATH}")
	}
	type plain Secret
	var v plain
	if err := settings.Decode(p, &v); err != nil {
		return err
	}
	*s = Secret(v)
	return s.Validate()
}

// MarshalJSON implements json.Marshaler: where the secret is, as in configuration.
func (s Secret) MarshalJSON() ([]byte, error) {
	type plain Secret
	if s.Env != "" && shownName(s.Env) != s.Env {
		s.Env = shownName(s.Env)
	}
	return json.Marshal(plain(s))
}

// Validate refuses a secret with both fields. The zero Secret is valid; an adapter that needs one
// asks IsZero.
func (s Secret) Validate() error {
	if s.Env != "" && s.File != "" {
		return errors.New("want one of env and file, got both")
	}
	return nil
}

// Value reads the secret, each time anew, so that one that was renewed is seen. White space around
// it is not part of it. One that is empty or not there is an error that says where it was looked
// for.
func (s Secret) Value() (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	var v string
	switch {
	case s.Env != "":
		v = os.Getenv(s.Env)
	case s.File != "":
		f, err := os.Open(s.File)
		if err != nil {
			return "", err
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
		if err != nil {
			return "", err
		}
		if len(b) > maxSecret {
			return "", fmt.Errorf("%s: more than %d bytes", s, maxSecret)
		}
		v = string(b)
	default:
		return "", errors.New("no secret is configured; want {env: NAME} or {file: PATH}")
	}
	if v = strings.TrimSpace(v); v == "" {
		return "", fmt.Errorf("%s: not set or empty", s)
	}
	return v, nil
}
