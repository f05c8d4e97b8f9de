package executor

import (
	"context"
	"iter"
	"time"
)

// Workdir is the working directory of every interpreter and command.
const Workdir = "/workspace"

// DataDir is the alias of Workdir that the tool for language models gives its sandboxes by default.
// Models know this name.
const DataDir = "/mnt/data"

// Home is the value of HOME in every sandbox with FeatureWorkdir. Files there are never artifacts.
const Home = "/tmp/home"

// An Executor creates sandboxes on one backend. All methods are safe for concurrent use.
//
// Methods may be added to this interface. Implementations and restricting wrappers embed
// BaseExecutor, which refuses added methods.
type Executor interface {
	// Info describes the backend. It does no I/O. It changes only when the configuration is
	// reloaded. Its slices are shared: callers must not change them.
	Info() Info

	// Create starts a sandbox. The caller owns the Session and must Close or Detach it. A Spec that
	// the backend cannot satisfy or enforce fails with ErrUnsupported, and nothing is started. A
	// package of Spec.Packages that cannot be installed is ErrInvalid. A provider that does not
	// answer in time is ErrUnavailable. Errors have RanNo.
	Create(ctx context.Context, spec Spec) (Session, error)

	// Attach opens the session that h names, whichever process created it. It fails with
	// ErrNotFound if the sandbox is gone, is dead or belongs to another owner, and with ErrInvalid
	// if h belongs to another type of backend. A sandbox may have several holders; Handle.Fence
	// shuts out older ones. Attaching may wake the sandbox, which the provider then bills. It
	// requires FeatureAttach. Errors have RanNo.
	Attach(ctx context.Context, h Handle) (Session, error)

	// Destroy removes the sandbox that h names, and everything that runs in it, without attaching.
	// The sandbox may be dead. If it is already gone, that is not an error. If it belongs to
	// another owner, the error is ErrNotFound. For sessions that this Executor does not hold,
	// Destroy requires FeatureAttach. Errors have RanNo.
	Destroy(ctx context.Context, h Handle) error

	// Sessions yields the sandboxes of this owner that have all of the given labels, including dead
	// ones and those that other processes created. It does not attach to any of them. An error is
	// about one backend, and more elements may follow it. It requires FeatureList.
	Sessions(ctx context.Context, labels map[string]string) iter.Seq2[SessionInfo, error]

	// LastContact returns when the sandbox that h names last received something from a holder, by
	// the clock of this process. A connected holder sends something at least every 20 seconds, even
	// if nobody uses its session. LastContact does not attach, does not shut out a holder, does not
	// count as use and does not wake a suspended sandbox. It fails with ErrUnsupported if the
	// backend cannot tell, and with ErrNotFound if the sandbox is dead, gone or belongs to another
	// owner. Errors have RanNo.
	LastContact(ctx context.Context, h Handle) (time.Time, error)

	// Close destroys the sandboxes that this Executor created or attached to, except those that
	// were closed or detached before. Later calls fail with ErrClosed. The cleanup timeout bounds
	// Close. It may be called again; after an error, that tries again.
	Close() error

	executorBase() // implementations embed BaseExecutor
}

// Info describes an Executor.
type Info struct {
	Name         string       `json:"name"` // from the configuration; by default the type
	Type         string       `json:"type"` // the adapter: "docker", ...; a router has "router"
	Capabilities Capabilities `json:"capabilities"`
	// Suspends says that sessions of the usual size can be suspended through a Suspender, so that a
	// pool can keep suspended ones. It is not a Feature, because nothing in the contract requires
	// it and the suite does not check it.
	Suspends bool `json:"suspends,omitempty"`
	// Grace is how long a run may take beyond its wall time, for the sandbox to stop the code. Zero
	// means that it is not known, or that it differs between the backends of a broker.
	Grace time.Duration `json:"grace_ns,omitempty"`
}
