package executor

import (
	"context"
	"iter"
)

// Workdir is the working directory of every interpreter and command.
const Workdir = "/workspace"

// DataDir is the alias that the tool for language models gives its sandboxes by default: the name
// that models know.
const DataDir = "/mnt/data"

// Home is the directory that HOME names in every sandbox with FeatureWorkdir. What code leaves
// there is no artifact.
const Home = "/tmp/home"

// An Executor creates sandboxes on one backend. All methods are safe for concurrent use.
//
// Methods may be added. Implementations and restricting wrappers embed BaseExecutor, which refuses
// them.
type Executor interface {
	// Info describes the backend. It does no I/O. It changes only if the configuration is reloaded.
	// Its slices are shared: callers do not change them.
	Info() Info

	// Create starts a sandbox. The caller owns the Session and must Close or Detach it. What the
	// backend cannot do or enforce is refused with ErrUnsupported and starts nothing. A package of
	// Spec.Packages that cannot be installed is ErrInvalid. A provider that does not answer in time
	// is ErrUnavailable. Errors have RanNo.
	Create(ctx context.Context, spec Spec) (Session, error)

	// Attach opens the session that h names, whoever created it. It fails with ErrNotFound if the
	// sandbox is gone, dead or another owner's, and with ErrInvalid if h is of another type of
	// backend. A sandbox may have several holders; Handle.Fence shuts out the older ones. Attaching
	// may wake and bill a sandbox. It requires FeatureAttach. Errors have RanNo.
	Attach(ctx context.Context, h Handle) (Session, error)

	// Destroy removes the sandbox that h names without attaching, even if it is dead, and whatever
	// runs in it. One that is gone is not an error; one of another owner is ErrNotFound. For
	// sessions that this Executor does not hold it requires FeatureAttach. Errors have RanNo.
	Destroy(ctx context.Context, h Handle) error

	// Sessions yields the sandboxes of this owner that carry all of the given labels, whichever
	// process created them, dead ones too. It attaches to none. An error concerns one backend;
	// elements may follow it. It requires FeatureList.
	Sessions(ctx context.Context, labels map[string]string) iter.Seq2[SessionInfo, error]

	// Close destroys the sandboxes that this Executor created or attached and that were neither
	// closed nor detached. Later calls fail with ErrClosed. It is bounded by the cleanup timeout.
	// It may be called again, and after an error that tries again.
	Close() error

	executorBase() // implementations embed BaseExecutor
}

// Info describes an Executor.
type Info struct {
	Name         string       `json:"name"` // in the configuration; by default the type
	Type         string       `json:"type"` // the adapter: "docker", ...; or "router"
	Capabilities Capabilities `json:"capabilities"`
	// Suspends says that sessions of the usual size can be suspended by a Suspender, and so that a
	// pool can keep them suspended. It is no Feature, because nothing in the contract asks for it
	// and the suite does not check it.
	Suspends bool `json:"suspends,omitempty"`
}
