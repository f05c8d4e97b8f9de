package executor

import (
	"context"
	"time"
)

// A Session is one sandbox as one holder has it. All methods are safe for concurrent use. After
// Close or Detach, and after a later holder has shut this one out, methods fail with ErrClosed.
//
// Methods may be added. Implementations and restricting wrappers embed BaseSession, which refuses
// them.
type Session interface {
	// Info describes the session as of its creation, attachment or last Refresh. It does no I/O.
	// Its Handle may change during a Run behind a router that moves sessions: who stores handles
	// reads it again after each Run. Its maps and slices are shared: callers do not change them.
	Info() SessionInfo

	// Refresh asks the backend. It fails with ErrNotFound if the sandbox is gone, and does not
	// count as use.
	Refresh(ctx context.Context) (SessionInfo, error)

	// Run executes one request and waits for it to end. The error is about the infrastructure only.
	//
	// If emit is not nil it is called for each event, in order, on the goroutine that called Run,
	// and never after Run has returned. If emit returns an error, Run stops the code and returns
	// that error, unwrapped; emit is not called again. The code may be held up while emit works,
	// and its wall time goes on: front ends buffer within bounds and do not block.
	//
	// The Result is nil if the code is not known to have started. With an error it has
	// StatusCanceled (the code is known to have stopped) or StatusLost (unknown), and holds what
	// was received.
	//
	// Code in one interpreter is serialized: a second Run there fails with ErrBusy. Without
	// FeatureParallelRuns that holds for the whole session. From another process the second waits
	// or fails with ErrBusy, and never interleaves. When the run of a Command ends its process
	// group is gone. What code left running lives until Reset or Close, and what it prints after
	// its run is dropped.
	Run(ctx context.Context, req Request, emit func(Event) error) (*Result, error)

	// Install makes packages importable for later runs. It works while the network policy is
	// NetworkNone. That a package does not exist or conflicts is StatusFailed. Rules for emit,
	// Result and error are those of Run; wall time is the backend's for installing. A second
	// Install for the language fails with ErrBusy, and without FeatureParallelRuns Install and Run
	// exclude each other. An empty Packages.Language is the session's first. It requires
	// FeaturePackages.
	Install(ctx context.Context, p Packages, emit func(Event) error) (*Result, error)

	// Reset ends the interpreters that match which, with everything that they started, whoever
	// started it. A run in progress there ends with StatusKilled and ReasonReset, also one of
	// another holder: so a run is ended whose holder died. The next use starts anew, with
	// StateFresh. Files stay. It requires FeatureState, in which.Language or, if that is empty, in
	// any of the languages.
	Reset(ctx context.Context, which Interpreter) error

	// Files gives access to the files of the sandbox. It is never nil; without FeatureFiles every
	// method fails with ErrUnsupported.
	Files() Files

	// Dial connects to a port of 127.0.0.1 or, if nothing takes it there, of ::1 in the sandbox's
	// own network. It fails with ErrNoServer if no server takes the connection, and with ErrDenied
	// if the port belongs to the backend and not to what runs in the sandbox. ctx is for connecting
	// only. What the Conn reads is untrusted. It ends with the session, the sandbox or a Reset that
	// ends the server, and at MaxForwardBytes and MaxForwardTime. Connecting and what the caller
	// writes count as use of the sandbox; what the server writes does not. It requires Spec.Ports,
	// by whoever has created the session.
	Dial(ctx context.Context, port int) (Conn, error)

	// KeepAlive sets the idle TTL, counts it from now and returns when the sandbox will end. It
	// requires FeatureKeepAlive.
	KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error)

	// Relabel replaces the labels. It requires FeatureRelabel.
	Relabel(ctx context.Context, labels map[string]string) error

	// Detach releases local resources and leaves the sandbox to its TTL. Runs of this holder are
	// cancelled first. The Session is then closed. It requires FeatureAttach, and must not be
	// called from emit.
	Detach() error

	// Close destroys the sandbox, with what runs in it. It takes no context because it must work
	// after the caller's has ended; the cleanup timeout bounds it. It may be called again, and
	// after an error that tries again. After Detach it does nothing.
	Close() error

	sessionBase() // implementations embed BaseSession
}

// SessionState is the state of a sandbox.
type SessionState string

// The session states.
const (
	SessionRunning SessionState = "running"
	SessionDead    SessionState = "dead" // it cannot be attached to, only destroyed
	// SessionUnknown is that of a sandbox that its provider does not reach at the moment, because
	// its host is down for example. It may run on, and it may come back: until then Attach and
	// Destroy fail with ErrUnavailable. Only listings have it.
	SessionUnknown SessionState = "unknown"
)

// SessionInfo describes a sandbox.
//
// Expires never justifies destroying a sandbox: it was true when it was asked, and a holder may
// have extended it since.
type SessionInfo struct {
	Handle       Handle            `json:"handle"`
	State        SessionState      `json:"state"`
	Template     string            `json:"template,omitempty"`
	Aliases      []string          `json:"aliases,omitempty"`  // other names of Workdir that it has; a warm session may have more than its Spec
	Labels       map[string]string `json:"labels,omitempty"`   // without the reserved ones
	Instance     string            `json:"instance,omitempty"` // the process that created it; empty: not known
	Created      time.Time         `json:"created"`
	Expires      time.Time         `json:"expires,omitzero"`      // zero: not known without asking the sandbox
	Limits       Limits            `json:"limits"`                // in force, after rounding
	Run          RunLimits         `json:"run"`                   // default of its runs, in force
	MaxRun       RunLimits         `json:"max_run"`               // ceiling of its runs, in force
	Capabilities Capabilities      `json:"capabilities,omitzero"` // of this session, its languages only; empty in a listing
}

// Interpreter names one interpreter of a session. The empty Context is the default one of the
// language; others need FeatureContexts, and start at their first use in the Dir of that request.
// In Reset, zero fields match all.
type Interpreter struct {
	Language Language `json:"language,omitempty"`
	Context  string   `json:"context,omitempty"`
}
