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
	// Context is the interpreter (see executor.Request). An archive has the variables of one.
	Context string
	// AllOrNothing fails with an *OmittedError if anything cannot be carried or restored. What
	// still runs (Report.Running) does not count.
	AllOrNothing bool
	// MaxBytes bounds the archive, and its size in memory. Zero means DefaultMaxBytes. Make omits
	// what exceeds it; Restore fails with executor.ErrTooLarge.
	MaxBytes int64
	// Limits are those of the run in the sandbox. Zero fields mean those of the session.
	Limits executor.RunLimits
	// Env is the Spec.Env of the session. Make omits variables whose pickle contains one of these
	// values, and files that contain one, if the value has at least four bytes. If one would be in
	// the archive nevertheless, in the source of a definition, Make fails with executor.ErrDenied.
	// Only literal copies are found. Restore ignores Env.
	Env map[string]string
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
	Files    int        `json:"files"` // entries below Workdir: files, directories and links
	Bytes    int64      `json:"bytes"` // of the archive
	Omitted  []Omission `json:"omitted"`
	// Running names what still runs in the session (Result.LeftRunning), which Make does not carry.
	Running []string       `json:"running,omitempty"`
	Usage   executor.Usage `json:"usage,omitzero"` // of the run in the sandbox
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

// missing refuses a session that lacks something.
func missing(s executor.Session, op string) error {
	c := s.Info().Capabilities
	var lacks []string
	if _, ok := c.Runtime(executor.Python); !ok {
		lacks = append(lacks, "language:"+string(executor.Python))
	} else if !c.HasFor(executor.Python, executor.FeatureState) {
		lacks = append(lacks, string(executor.FeatureState)+":"+string(executor.Python))
	}
	if !c.Has(executor.FeatureFiles) {
		lacks = append(lacks, string(executor.FeatureFiles))
	}
	if lacks == nil {
		return nil
	}
	h := s.Info().Handle
	return &executor.Error{Op: op, Backend: h.Backend, Session: h.Session, Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: lacks}
}
