// Package driver is the contract of adapters. Applications use package executor.
//
// An adapter implements [Driver] and [Session], and of the optional interfaces those that it
// declares features for. Its constructor returns New(d, env, opts). The Executor that New makes
// adds what must be the same on every backend: validation, defaults, feature checks, clocks, busy
// and closed states, event numbers, character boundaries, output limits and capture, file names,
// ownership, labels, error wrapping, hooks and cleanup. An adapter does none of that: it
// translates.
//
// Configuration is decoded by a [Factory], which the registry of package backends takes.
//
// # Rules for adapters
//
// The sandbox enforces the wall time. The Executor enforces the wall time and a grace period: the
// host may be killed at any moment, and the sandbox knows better how its code ended. EventStarted
// comes from the sandbox and not from having sent the request: it is the line between "nothing ran"
// and "it ran". RanNo needs knowledge: refused before it was sent, or withdrawn and confirmed. A
// lost reply is RanMaybe.
//
// Errors are made by [Fail]. One that is not is ErrInternal, so every error has to be classified.
// An error contains no secret.
//
// Opening an adapter and Capabilities do no remote I/O: a provider that is down when a program
// starts must not keep it, and its fallback, from starting.
//
// Several processes may be attached to a sandbox. One that hangs or dies, even within a frame, does
// not disturb the others.
package driver

import (
	"context"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/engine"
)

// Driver is a backend. Its methods are called concurrently.
type Driver interface {
	// Capabilities is called once, by New. It follows from the type and the configuration and does
	// no I/O. What the engine or provider then cannot do, Create refuses.
	Capabilities() executor.Capabilities

	// Create starts a sandbox that has everything in c.Spec. If it fails it leaves nothing running.
	// If it cannot be sure of that, because a reply was lost, then what it left carries c.Labels
	// and ends by its TTL: see also Leftover.
	Create(ctx context.Context, c *Create) (Session, error)

	// Close releases local resources. It is called once, after all other calls to the driver and
	// its sessions have returned, and no call follows it. If New fails it is not called.
	Close() error
}

// Create asks for a sandbox.
//
// With FeatureAliases the driver makes each of Spec.Aliases a link to Workdir before any code runs,
// in directories that code cannot write to. It refuses an alias whose name exists already. Other
// calls never use an alias: their names are mapped before.
type Create struct {
	// ID is unique: 26 of [a-z0-9]. It is name and idempotency key at the provider, so that a retry
	// by a client library, or a sweep after a lost reply, finds the same sandbox.
	ID string
	// Labels are those of the Spec and the reserved ones. All are stored at the backend.
	Labels map[string]string
	// Spec is validated, and nothing in it is zero that has a default, MaxRun included. Labels,
	// Attributes, Subject and Require are empty. Packages is for drivers that can have them ready
	// when the sandbox starts: Installer is called for each in any case.
	Spec executor.Spec
}

// The reserved labels, "execbroker.owner" and so on. They do not change during the life of a
// sandbox, and none says when it ends.
const (
	LabelOwner     = engine.LabelOwner     // Env.Owner
	LabelInstance  = engine.LabelInstance  // Env.Instance of the creator
	LabelID        = engine.LabelID        // Create.ID
	LabelLanguages = engine.LabelLanguages // Spec.Languages, joined by ",": what an attached session can run
	LabelAliases   = engine.LabelAliases   // Spec.Aliases, joined by ","; not there if there are none
	// LabelPorts says that the creator of the sandbox has asked for Spec.Ports. Without it no
	// attached session has the feature.
	LabelPorts = engine.LabelPorts
)

// Session is a sandbox as this process uses it. Its methods are called concurrently, but Run only
// as the features allow.
type Session interface {
	// Info describes the sandbox. It does no I/O. What is empty is filled in: Handle but for
	// Session and State, Template, Labels, Capabilities, Limits, Run, MaxRun, State, and Created
	// with the time of the call. The reserved labels are removed.
	//
	// Expires is for backends whose sandboxes do not count use themselves: they end at a time
	// unless it is moved. It is by the clock of this process, and is then moved by KeepAliver,
	// ahead of runs and after use. A sandbox that counts use leaves Expires empty here; Refresh may
	// set it.
	Info() executor.SessionInfo

	// Run executes a validated request in which nothing is zero that has a default; Dir is absolute
	// or empty. It blocks until the code has ended. With FeatureTypeScript, and only here, a
	// language may be TypeScript instead of JavaScript.
	//
	// emit takes EventStarted once, as soon as the sandbox says that it has accepted the code, then
	// EventStdout, EventStderr and EventOutput. It must be called on the goroutine that called Run.
	// It does not keep Data; it keeps an Output. If it returns an error, Run stops the code and
	// returns that very error once the code is known to have stopped.
	//
	// The sandbox enforces req.Limits.WallTime itself, from EventStarted. When ctx ends, Run stops
	// the code, passes on what was already produced, within StopContext(ctx), and returns
	// context.Cause(ctx), not wrapped, once the code is known to have stopped. If that is not known
	// it returns another error. Nothing of the run is left when Run returns, also when emit panics.
	//
	// A Reset of the interpreter ends the run with ReasonReset, and a Destroy with ReasonLifetime
	// or an error. Errors are for the infrastructure only and made by Fail. Exit is valid also with
	// an error.
	Run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (Exit, error)

	// Destroy removes the sandbox. ctx is fresh. One that is gone is not an error. Destroy may be
	// called again. It may be called while calls of Run and Files are in progress, which then
	// return; it does not wait for them, since emit may have called it. With FeatureFencing, a
	// session that was fenced off by a later one does not destroy: it releases what is local and
	// fails with ErrClosed.
	Destroy(ctx context.Context) error
}

// Exit says how code ended. Its texts are bounded by the Executor.
type Exit struct {
	Code             int // as a script would have; -1 if the language has none and the code did not end normally
	Exception        *executor.Exception
	Reason           executor.Reason // "" if the code ended by itself
	Signal           string          // with ReasonSignal
	StateFresh       bool
	StateLost        bool
	FilesLost        bool
	Artifacts        []executor.Artifact // from Collect
	ArtifactsOmitted int                 // from Collect
	LeftRunning      []string            // with FeatureLinger
	Usage            executor.Usage
}
