package checkpoint

import (
	"errors"
	"fmt"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// DefaultMaxBytes is the default of Options.MaxBytes.
const DefaultMaxBytes = 64 << 20

// Options are for Make and Restore. The zero value means the default context, everything that can
// be carried, and the default bounds.
type Options struct {
	// Context is the interpreter (see executor.Request). An archive has the variables of one in
	// each language.
	Context string
	// Languages are those whose variables Make carries. Nil means Python and JavaScript, as far as
	// the session has them. In a language that is not listed Make runs nothing, so an empty list is
	// for sessions of which the caller knows that nothing has run. Restore ignores it.
	Languages []executor.Language
	// AllOrNothing fails with an *OmittedError if anything cannot be carried or restored. What
	// still runs (Report.Running) does not count.
	AllOrNothing bool
	// MaxBytes bounds the archive, and its size in memory. Zero means DefaultMaxBytes. Make omits
	// what exceeds it; Restore fails with executor.ErrTooLarge.
	MaxBytes int64
	// Limits are those of the run in the sandbox. Zero fields mean those of the session.
	Limits executor.RunLimits
	// Spec is what the session was created from, if it is known. Make omits variables whose
	// pickle contains one of the values of its Env, and files that contain one, if the value
	// has at least four bytes. If one would be in the archive nevertheless, in the source of a
	// definition, Make fails with executor.ErrDenied. Only literal copies are found.
	Spec *executor.Spec
	// Packages are what was installed in the session besides those of its Spec. Make cannot see
	// them, and only lists them in the archive. Restore ignores this field: it installs what the
	// archive lists, by Session.Install, before anything else. At most a thousand names.
	Packages []executor.Packages
	// Known says that the archive is not a stranger's: this program has made it, or has opened its
	// seal. Without it Restore needs a Spec that has no network and no Env.
	Known bool
}

// env returns the values that are kept out of an archive.
func (o *Options) env() map[string]string {
	if o.Spec == nil {
		return nil
	}
	return o.Spec.Env
}

// checkOrigin refuses the archive of a stranger where there is something to take or to reach.
func (o *Options) checkOrigin() error {
	if o.Known {
		return nil
	}
	if o.Spec == nil {
		return errors.New("the origin of the archive is unknown: set Known, or Spec if the session has no network and no Env")
	}
	switch network := o.Spec.Network.Mode; {
	case network != "" && network != executor.NetworkNone:
		return fmt.Errorf("an archive of unknown origin is not restored into a session with the network %q", network)
	case len(o.Spec.Env) > 0:
		return errors.New("an archive of unknown origin is not restored into a session whose Spec has an Env")
	}
	return nil
}

func (o *Options) check() error {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxBytes < 0 {
		return fmt.Errorf("max bytes: %d is negative", o.MaxBytes)
	}
	return nil
}

// A Report says what Make carried or Restore restored.
type Report struct {
	Manifest Manifest   `json:"manifest"`
	Files    []string   `json:"files"` // regular files and links below Workdir
	Bytes    int64      `json:"bytes"` // of the archive
	Omitted  []Omission `json:"omitted"`
	// Running names what still runs in the session (Result.LeftRunning), which Make does not carry.
	Running []string       `json:"running,omitempty"`
	Usage   executor.Usage `json:"usage,omitzero"` // of the run in the sandbox
	// Packages are those of the archive, without what Restore could not install.
	Packages []executor.Packages `json:"packages,omitempty"`
}

// An OmittedError is in the chain of the error of an AllOrNothing call.
type OmittedError struct{ Omitted []Omission }

// Error names up to ten of what was omitted, with the reasons.
func (e *OmittedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d cannot be carried", len(e.Omitted))
	for i, o := range e.Omitted {
		if i == 10 {
			b.WriteString("; ...")
			break
		}
		fmt.Fprintf(&b, "; %s (%s): %s", o.Name, o.Kind, o.Reason)
	}
	return b.String()
}

// failure wraps an error of this package. Errors of the session stay as they are.
func failure(s executor.Session, op string, kind error, ran executor.Ran, err error) error {
	if e := (*executor.Error)(nil); errors.As(err, &e) {
		return err
	}
	h := s.Info().Handle
	return &executor.Error{Op: op, Backend: h.Backend, Session: h.Session, Kind: kind, Ran: ran, Err: err}
}

// missing refuses a session without files.
func missing(s executor.Session, op string) error {
	i := s.Info()
	if i.Capabilities.Has(executor.FeatureFiles) {
		return nil
	}
	return &executor.Error{
		Op: op, Backend: i.Handle.Backend, Session: i.Handle.Session, Kind: executor.ErrUnsupported, Ran: executor.RanNo,
		Missing: []string{string(executor.FeatureFiles)},
	}
}

// Names returns the variables, functions, classes and imports of all languages that were carried or
// restored.
func (r *Report) Names() (names []string) {
	lost := map[string]bool{}
	for _, o := range r.Omitted {
		lost[o.Name] = true
	}
	for _, i := range r.Manifest.Imports {
		if i.Name != "" && !lost[i.Name] {
			names = append(names, i.Name)
		}
	}
	for _, v := range r.Manifest.JavaScript {
		if !lost[v.Name] {
			names = append(names, v.Name)
		}
	}
	for _, s := range r.Manifest.Steps {
		if s.Op != OpState && !lost[s.Name] {
			names = append(names, s.Name)
		}
	}
	return names
}
