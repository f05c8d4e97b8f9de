package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// Version is the version of the format that this package writes and reads.
const Version = 1

// VersionError says that a later version of this package has made or sealed an archive. It may have
// what this version would lose, so it is not used.
type VersionError struct {
	Version int // of the format, or of the seal
	Known   int // the latest version that this package reads
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("a later version of this program wrote it: it has version %d, and this program knows versions up to %d; update this program", e.Version, e.Known)
}

// checkVersion reports whether this package reads a version of the format.
func checkVersion(v int) error {
	switch {
	case v > Version:
		return &VersionError{v, Version}
	case v != Version:
		return fmt.Errorf("version %d of the format is not known, only %d", v, Version)
	}
	return nil
}

// Bounds of a manifest. They keep the work of a reader small, whatever an archive contains.
const (
	maxManifest = 16 << 20 // bytes of JSON
	maxNames    = 20_000   // imports and steps, and as many omissions
	maxPackages = 1000
	maxText     = 2000 // bytes of a name, a kind or a reason
)

// A Manifest says what an archive contains. It comes from the sandbox, so its texts are untrusted.
type Manifest struct {
	Version  int               `json:"version"`
	Language executor.Language `json:"language"` // Python, or empty if there are files only
	Context  string            `json:"context,omitempty"`
	Python   string            `json:"python"` // version of the interpreter, "3.13.1"
	// Implementation and Platform are sys.implementation.name and sys.platform.
	Implementation string     `json:"implementation"`
	Platform       string     `json:"platform"`
	Dir            string     `json:"dir"` // current directory, relative to executor.Workdir
	Imports        []Import   `json:"imports"`
	Steps          []Step     `json:"steps"`   // in the order in which they are restored
	Omitted        []Omission `json:"omitted"` // what was not carried
	// JavaScript lists what javascript/values has, if there is that entry.
	JavaScript []Variable `json:"javascript,omitempty"`
	// Packages are Options.Packages, with their languages.
	Packages []executor.Packages `json:"packages,omitempty"`
}

// An Import is a name that is bound to a module or, with Attr, to something in it. Without a name
// the module is only imported.
type Import struct {
	Name   string `json:"name,omitempty"`
	Module string `json:"module"`
	Attr   string `json:"attr,omitempty"`
}

// Op says what a Step does.
type Op string

// The operations.
const (
	OpDefine Op = "define" // executes Source, which defines Name
	OpValue  Op = "value"  // binds Name to the value of the next pickle
	OpState  Op = "state"  // sets the attributes and defaults of the definition Name from the next pickle
)

// A Step restores one definition or value.
type Step struct {
	Op        Op     `json:"op"`
	Name      string `json:"name"`
	Kind      string `json:"kind"`                // "function", "class", "type", or the type of the value
	Size      int64  `json:"size,omitempty"`      // bytes of the pickle; zero for OpDefine
	Source    string `json:"source,omitempty"`    // of OpDefine
	Decorated bool   `json:"decorated,omitempty"` // Source has decorators, which run again
}

// A Variable is one of JavaScript.
type Variable struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // type, or the name of the class
}

// An Omission is something that was not carried or not restored, and why. Its texts come from the
// sandbox.
type Omission struct {
	Name   string `json:"name"` // of a variable, an attribute ("Shop.lock"), a file, or what still runs ("thread x")
	Kind   string `json:"kind"` // type of the value, "function", "class", "module", "file", "link", "running", ...
	Reason string `json:"reason"`
}

// decode reads JSON of bounded size strictly.
func decode(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON")
	}
	return nil
}

// check reports whether a manifest is one that Make may have written with this many bytes of
// values.
func (m *Manifest) check(values int64) error {
	if err := checkVersion(m.Version); err != nil {
		return err
	}
	if m.Language != executor.Python && (m.Language != "" || len(m.Imports)+len(m.Steps) > 0) {
		return fmt.Errorf("language %.50q is not known", m.Language)
	}
	if len(m.Imports)+len(m.Steps)+len(m.JavaScript) > maxNames || len(m.Omitted) > maxNames {
		return fmt.Errorf("more than %d names", maxNames)
	}
	if !fs.ValidPath(m.Dir) || len(m.Dir) > maxText {
		return errors.New("dir is not valid")
	}
	for _, s := range []string{m.Context, m.Python, m.Implementation, m.Platform} {
		if !text(s, true) {
			return errors.New("a text is not valid")
		}
	}
	for _, i := range m.Imports {
		if !text(i.Name, true) || !text(i.Module, false) || !text(i.Attr, true) || i.Attr != "" && i.Name == "" {
			return errors.New("an import is not valid")
		}
	}
	for _, v := range m.JavaScript {
		if !text(v.Name, false) || !text(v.Kind, true) {
			return errors.New("a variable of JavaScript is not valid")
		}
	}
	for _, s := range m.Steps {
		if err := s.check(values); err != nil {
			return err
		}
		values -= s.Size
	}
	if values != 0 {
		return errors.New("the sizes of the values are not those of the steps")
	}
	if err := checkPackages(m.Packages); err != nil {
		return err
	}
	return checkOmissions(m.Omitted)
}

// checkPackages bounds the names. What they may be, Session.Install says.
func checkPackages(all []executor.Packages) error {
	n := 0
	for _, p := range all {
		n += len(p.Names)
		if n > maxPackages || len(p.Names) == 0 || !text(string(p.Language), false) || slices.ContainsFunc(p.Names, func(name string) bool { return !text(name, false) }) {
			return fmt.Errorf("packages are not valid: want a language and names for each, at most %d in all", maxPackages)
		}
	}
	return nil
}

func (s *Step) check(left int64) error {
	ok := text(s.Name, false) && text(s.Kind, true)
	switch s.Op {
	case OpDefine:
		ok = ok && s.Size == 0 && s.Source != "" && utf8.ValidString(s.Source) && !strings.Contains(s.Source, "\x00")
	case OpValue, OpState:
		ok = ok && s.Size > 0 && s.Size <= left && s.Source == "" && !s.Decorated
	default:
		ok = false
	}
	if !ok {
		return errors.New("a step is not valid")
	}
	return nil
}

func checkOmissions(all []Omission) error {
	if len(all) > maxNames {
		return fmt.Errorf("more than %d omissions", maxNames)
	}
	for _, o := range all {
		if !text(o.Name, false) || !text(o.Kind, true) || !text(o.Reason, true) {
			return errors.New("an omission is not valid")
		}
	}
	return nil
}

// text reports whether s is a text of bounded size without control characters.
func text(s string, empty bool) bool {
	return (s != "" || empty) && len(s) <= maxText && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
