package driver

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Attacher is implemented by drivers with FeatureAttach. A handle is hostile input: State and Meta
// may be forged.
type Attacher interface {
	// Lookup asks the provider about the sandbox, dead or not, without changing it. Info.Labels has
	// the reserved ones. It is called before Attach and Destroy. If the owner is another, these are
	// not called, and the answer is ErrNotFound.
	Lookup(ctx context.Context, h executor.Handle) (executor.SessionInfo, error)
	// Attach takes addresses from the provider or its own configuration, never from h.State.
	Attach(ctx context.Context, h executor.Handle) (Session, error)
	// Destroy needs no working sandbox. One that is gone is not an error.
	Destroy(ctx context.Context, h executor.Handle) error
}

// Observer is implemented by drivers with FeatureAttach that can tell whether a holder is connected
// to a sandbox.
type Observer interface {
	// LastContact is that of executor.Executor. Lookup is called before. It believes nothing that
	// code in the sandbox can say: where it cannot tell the two apart it fails with ErrUnsupported.
	LastContact(ctx context.Context, h executor.Handle) (time.Time, error)
}

// Lister is implemented by drivers with FeatureList. labels includes the owner. SessionInfo.Labels
// has the reserved ones, and all of them are checked again.
type Lister interface {
	Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error]
}

// Detacher is implemented by the sessions of drivers with FeatureAttach. It releases local
// resources only. The runs and transfers of the session have been cancelled and have returned,
// unless they took longer than Options.StopTimeout.
type Detacher interface{ Detach() error }

// Refresher is implemented by sessions whose Info can be out of date. Without it Info is the
// answer, and State must be right.
type Refresher interface {
	Refresh(ctx context.Context) (executor.SessionInfo, error)
}

// Resetter is implemented by sessions that have FeatureState in a language. It is called during
// runs, which then return with ReasonReset.
type Resetter interface {
	Reset(ctx context.Context, which executor.Interpreter) error
}

// KeepAliver is implemented by the sessions of drivers with FeatureKeepAlive. It is called during
// runs.
type KeepAliver interface {
	KeepAlive(ctx context.Context, idle time.Duration) (expires time.Time, err error)
}

// Suspender is implemented by the sessions of drivers with Options.Suspends: see
// executor.Suspender. No call of Files of this session is in progress, and of Run and Install only
// with Options.SuspendsRuns. None begins before it returns. The calls that follow wake the sandbox;
// Destroy need not.
type Suspender interface {
	Suspend(ctx context.Context) error
}

// Installer is implemented by sessions that have FeaturePackages in a language. The rules for emit,
// ctx and Exit are those of Run, but the wall time is enforced outside of the sandbox alone, and is
// Options.InstallTimeout. p.Language is set.
type Installer interface {
	Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (Exit, error)
}

// Filer is implemented by sessions that have FeatureFiles in a language.
type Filer interface{ Files() Files }

// Files is executor.Files with clean absolute names, none of which begins with one of Spec.Aliases,
// and without closed and busy states. Errors may be those of io/fs or made by Fail. Without
// FeatureFilesDuringRun no method is called, and nothing that Read returned is open, during a Run,
// nor the other way round.
type Files interface {
	// Read opens a regular file, following links. Close may be called during a Read of what it
	// returns, which then ends.
	Read(ctx context.Context, name string) (io.ReadCloser, error)
	// Write reads r to its end and makes the directories above name. mode has permission bits only
	// and is not zero. An error of r is returned as it is, or wrapped.
	Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error
	// Stat does not follow a link at the end of name. FileInfo.Name is filled in.
	Stat(ctx context.Context, name string) (executor.FileInfo, error)
	// List yields entries in any order. They are sorted and checked afterwards.
	List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error]
	// Mkdir makes name, which must not exist, and the directories above it.
	Mkdir(ctx context.Context, name string) error
	// Rename replaces an existing file. Neither name is Workdir or above it or an alias of it, and
	// to is not below from.
	Rename(ctx context.Context, from, to string) error
	// Remove removes a file or a tree, which is not Workdir or above it or an alias of it. A
	// missing name is not an error.
	Remove(ctx context.Context, name string) error
}

// Dialer is implemented by the sessions of drivers with FeaturePorts. It is called for sessions
// with Spec.Ports only, with a port from 1 to 65535. It connects from within the network namespace
// of the sandbox's code, to 127.0.0.1 and then ::1, and never to a port at which the backend itself
// listens: that is ErrDenied. ctx is for connecting. Closing the connection ends it at once, with
// what waits to be written. A connection whose other side does not read, or writes without an end,
// keeps a bounded number of bytes on this side.
type Dialer interface {
	Dial(ctx context.Context, port int) (executor.Conn, error)
}

// Aser is implemented by sessions that expose backend-specific values to executor.As, or an
// executor.Ender.
type Aser interface{ As(target any) bool }
