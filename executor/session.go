package executor

import (
	"context"
	"time"
)

// A Session is one sandbox, opened by one holder. All methods are safe for concurrent use. After
// Close or Detach, and after a later holder has shut this one out, methods fail with ErrClosed.
//
// Methods may be added to this interface. Implementations and restricting wrappers embed
// BaseSession, which refuses added methods.
type Session interface {
	// Info describes the session as of its creation, its attachment or the last Refresh. It does no
	// I/O. Behind a router that moves sessions, its Handle may change during a Run: a program that
	// stores handles must read it again after each Run. Its maps and slices are shared: callers
	// must not change them.
	Info() SessionInfo

	// Refresh asks the backend for the current state. It fails with ErrNotFound if the sandbox is
	// gone. It does not count as use of the sandbox.
	Refresh(ctx context.Context) (SessionInfo, error)

	// Run executes one request and waits for it to end. The error is about the infrastructure only.
	//
	// If emit is not nil, it is called for each event, in order, on the goroutine that called Run,
	// and never after Run has returned. If emit returns an error, Run stops the code and returns
	// that error, unwrapped; emit is not called again. While emit works, the code may be blocked,
	// and its wall time goes on. So emit functions that write to clients should use bounded buffers
	// and not block.
	//
	// The Result is nil if the code is not known to have started. With an error, the Result has
	// StatusCanceled (the code is known to have stopped) or StatusLost (not known), and contains
	// what was received.
	//
	// Code in one interpreter runs one at a time: a second Run there fails with ErrBusy. Without
	// FeatureParallelRuns that is true for the whole session. A second Run from another process
	// waits or fails with ErrBusy; the two never interleave. When the run of a Command ends, its
	// process group is gone. What code left running lives until Reset or Close, and what it prints
	// after its run is dropped.
	Run(ctx context.Context, req Request, emit func(Event) error) (*Result, error)

	// Install makes packages importable for later runs. It works even if the network policy is
	// NetworkNone. If a package does not exist or conflicts with another, the Result has
	// StatusFailed. The rules for emit, Result and error are those of Run. The backend sets the
	// wall time of an installation. A second Install for the same language fails with ErrBusy, and
	// without FeatureParallelRuns Install and Run exclude each other. An empty Packages.Language
	// means the session's first language. It requires FeaturePackages.
	Install(ctx context.Context, p Packages, emit func(Event) error) (*Result, error)

	// Reset ends the interpreters that match which, and everything that they started, whichever
	// holder started it. A run in progress there, also of another holder, ends with StatusKilled
	// and ReasonReset. That is how to end a run whose holder died. The next use starts a new
	// interpreter, with StateFresh. Files stay. It requires FeatureState for which.Language or, if
	// that is empty, for any of the languages.
	Reset(ctx context.Context, which Interpreter) error

	// Files gives access to the files of the sandbox. It is never nil. Without FeatureFiles every
	// method of it fails with ErrUnsupported.
	Files() Files

	// Dial connects to a port of 127.0.0.1 in the sandbox's own network or, if no server accepts
	// there, of ::1. It fails with ErrNoServer if no server accepts the connection, and with
	// ErrDenied if the port belongs to the backend and not to a program in the sandbox. ctx is for
	// connecting only. What the Conn reads is untrusted. The connection ends with the session, with
	// the sandbox, with a Reset that ends the server, and at MaxForwardBytes and MaxForwardTime.
	// Connecting and what the caller writes count as use of the sandbox; what the server writes
	// does not. It requires that the session was created with Spec.Ports.
	Dial(ctx context.Context, port int) (Conn, error)

	// KeepAlive sets the idle TTL, starts it again, and returns when the sandbox will end. It
	// requires FeatureKeepAlive.
	KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error)

	// Detach releases local resources and leaves the sandbox to its idle TTL. It first cancels the
	// runs of this holder. The Session is then closed. It requires FeatureAttach. It must not be
	// called from emit.
	Detach() error

	// Close destroys the sandbox and everything that runs in it. It takes no context because it
	// must work after the caller's context has ended; the cleanup timeout bounds it. It may be
	// called again; after an error, that tries again. After Detach it does nothing.
	Close() error

	sessionBase() // implementations embed BaseSession
}

// SessionState is the state of a sandbox.
type SessionState string

// The session states.
const (
	SessionRunning SessionState = "running"
	SessionDead    SessionState = "dead" // it can only be destroyed, not attached to
	// SessionUnknown means that the provider cannot reach the sandbox at the moment, for example
	// because its host is down. The sandbox may still run, and it may come back. Until then Attach
	// and Destroy fail with ErrUnavailable. Only listings have this state.
	SessionUnknown SessionState = "unknown"
)

// SessionInfo describes a sandbox.
//
// Never destroy a sandbox because of Expires: a holder may have extended the time since it was
// read.
type SessionInfo struct {
	Handle       Handle            `json:"handle"`
	State        SessionState      `json:"state"`
	Template     string            `json:"template,omitempty"`
	Aliases      []string          `json:"aliases,omitempty"`  // other names of Workdir; a session from a pool may have more than its Spec
	Labels       map[string]string `json:"labels,omitempty"`   // without those that begin with ReservedPrefix
	Instance     string            `json:"instance,omitempty"` // the process that created the sandbox; empty: not known
	Created      time.Time         `json:"created"`
	Expires      time.Time         `json:"expires,omitzero"`      // zero: only the sandbox knows it
	Limits       Limits            `json:"limits"`                // limits in force, after rounding
	Run          RunLimits         `json:"run"`                   // default limits of its runs, in force
	MaxRun       RunLimits         `json:"max_run"`               // highest limits of its runs, in force
	Capabilities Capabilities      `json:"capabilities,omitzero"` // of this session and its languages only; empty in a listing
	CPU          time.Duration     `json:"cpu_ns,omitempty"`      // processor time of everything in the sandbox until the last Refresh; zero: not known
	Cost         Money             `json:"cost,omitempty"`        // that this holder caused until the last Refresh, if a broker knows prices
}

// Interpreter names one interpreter of a session. The empty Context is the default context of the
// language. Other contexts require FeatureContexts; they start at their first use, in the Dir of
// that request. In Reset, a zero field matches all.
type Interpreter struct {
	Language Language `json:"language,omitempty"`
	Context  string   `json:"context,omitempty"`
}
