// Package driver is for people who write adapters. Applications use package executor.
//
// An adapter implements [Driver] and [Session], and of the optional interfaces those that it declares features for, and returns
// New(d, env, opts) from its constructor. New adds what must be the same on every backend: validation, defaults, feature checks,
// clocks, busy and closed states, event numbering, character boundaries, output limits and capture, file names, ownership, labels,
// error wrapping, hooks and cleanup. An adapter does none of that: it translates.
//
// # Rules for adapters
//
// The sandbox enforces the wall time, New the wall time and a grace: the host may be killed at any moment, and the verdict of the
// sandbox is the better one. EventStarted comes from the sandbox, not from having sent the request: it is the line between "nothing
// ran" and "it ran". RanNo needs knowledge: refused before it was sent, or withdrawn and confirmed; a lost reply is RanMaybe.
//
// Errors are made by [Fail]. One that is not is ErrInternal, so classifying is not optional. Errors hold no secret.
//
// Opening an adapter and Capabilities do no remote I/O: a provider that is down at deployment must not keep a program, and its
// fall-back, from starting.
//
// Several holders may be attached to a sandbox. One that hangs or dies, half a frame included, must not disturb the others.
package driver

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Driver is a backend. Its methods are called concurrently.
type Driver interface {
	// Capabilities is called once, by New. It follows from the type and the configuration and does no I/O; what the engine then
	// cannot do, Create refuses.
	Capabilities() executor.Capabilities

	// Create starts a sandbox in which nothing of c.Spec is missing. If it fails it leaves nothing running; if it cannot be sure,
	// because a reply was lost, then what it left carries c.Labels and ends by its TTL.
	Create(ctx context.Context, c *Create) (Session, error)

	// Close releases local resources. It is called once, after all other calls to the driver and its sessions have returned, and no
	// call follows it. If New fails it is not called.
	Close() error
}

// Create asks for a sandbox.
//
// With FeatureAliases the driver makes each of Spec.Aliases a link to Workdir before any code runs, in directories that code cannot write
// to, and refuses what it would have to make over something. Of calls it never sees them again: New has mapped the names.
type Create struct {
	// ID is chosen by New, unique: [a-z0-9], 26 long. It is name and idempotency key at the provider, so that a retry by a client
	// library, or a sweep after a lost reply, finds the same sandbox.
	ID string
	// Labels are those of the Spec and the reserved ones; all are stored at the backend.
	Labels map[string]string
	// Spec is validated and nothing in it is zero that has a default, MaxRun included. Labels, Attributes, Subject and Require are
	// empty. Packages is for drivers that can have them ready when the sandbox starts: New calls Installer for each in any case.
	Spec executor.Spec
}

// The reserved labels. None of them changes during the life of a sandbox, and none says when it ends.
const (
	LabelOwner     = executor.ReservedPrefix + "owner"     // Env.Owner
	LabelInstance  = executor.ReservedPrefix + "instance"  // Env.Instance of the creator
	LabelID        = executor.ReservedPrefix + "id"        // Create.ID
	LabelLanguages = executor.ReservedPrefix + "languages" // Spec.Languages, joined by ","; what an attached session can run
	LabelAliases   = executor.ReservedPrefix + "aliases"   // Spec.Aliases, joined by ","; not there if there are none
)

// Session is a sandbox as this process holds it. Its methods are called concurrently, but Run only as the features allow.
type Session interface {
	// Info describes the sandbox. It does no I/O. New fills in what is empty: Handle but for Session and State, Template, Labels,
	// Capabilities, Limits, Run, MaxRun, State, and Created with the time of the call. Of Labels it removes the reserved ones.
	//
	// Expires is set, by the clock of this process, by backends whose sandboxes do not count use themselves and end at a time unless
	// it is moved. New then moves it by KeepAliver, ahead of runs and after use. A sandbox that counts use leaves Expires empty here;
	// Refresh may tell it.
	Info() executor.SessionInfo

	// Run executes a validated request in which nothing is zero that has a default; Dir is absolute or empty. It blocks until the
	// code has ended. With FeatureTypeScript, and nowhere else than here, a language may be TypeScript instead of JavaScript.
	//
	// emit takes EventStarted once, as soon as the sandbox says that it has accepted the code, then EventStdout, EventStderr and
	// EventOutput. It must be called on the goroutine that called Run. It is done with Data when it returns; an Output it keeps. If
	// it returns an error Run stops the code and returns that very error once the code is known to have stopped.
	//
	// The sandbox enforces req.Limits.WallTime itself, from EventStarted. When ctx ends Run stops the code, passes on what was
	// already produced, within StopContext(ctx), and returns context.Cause(ctx), not wrapped, once the code is known to have
	// stopped, and anything else if it is not known. Nothing of the run is left when Run returns, also when emit panics.
	//
	// A Reset of the interpreter ends the run with ReasonReset, and a Destroy with ReasonLifetime or an error. Errors are for the
	// infrastructure only and made by Fail. Exit is valid also with an error.
	Run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (Exit, error)

	// Destroy removes the sandbox. ctx is fresh. One that is gone is not an error. It may be called again. It is called while calls
	// of Run and Files may be in progress, which then return, and does not wait for them: it may have been called by emit. With
	// FeatureFencing, a holder that was shut out does not destroy: it releases what is local and fails with ErrClosed.
	Destroy(ctx context.Context) error
}

// Exit says how code ended. New bounds its texts.
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

// Attacher is implemented by drivers with FeatureAttach. A handle is hostile input: State and Meta may be forged.
type Attacher interface {
	// Lookup asks the provider about the sandbox, dead or not, without changing it. Info.Labels has the reserved ones. New calls it
	// before Attach and Destroy, and answers ErrNotFound itself if the owner is another.
	Lookup(ctx context.Context, h executor.Handle) (executor.SessionInfo, error)
	// Attach takes addresses from the provider or its own configuration, never from h.State.
	Attach(ctx context.Context, h executor.Handle) (Session, error)
	// Destroy needs no working sandbox. One that is gone is not an error.
	Destroy(ctx context.Context, h executor.Handle) error
}

// Detacher is implemented by the sessions of drivers with FeatureAttach. It releases local resources only. The runs and transfers of
// the session have been cancelled and have returned, unless they took longer than Options.StopTimeout.
type Detacher interface{ Detach() error }

// Lister is implemented by drivers with FeatureList. The labels include the owner; SessionInfo.Labels has the reserved ones, and New
// checks them all.
type Lister interface {
	Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error]
}

// Refresher is implemented by sessions whose Info can be out of date. Without it Info is the answer, and State must be right.
type Refresher interface {
	Refresh(ctx context.Context) (executor.SessionInfo, error)
}

// Resetter is implemented by sessions that have FeatureState in a language. It is called during runs, which then return with
// ReasonReset.
type Resetter interface {
	Reset(ctx context.Context, which executor.Interpreter) error
}

// KeepAliver is implemented by the sessions of drivers with FeatureKeepAlive. It is called during runs.
type KeepAliver interface {
	KeepAlive(ctx context.Context, idle time.Duration) (expires time.Time, err error)
}

// Suspender is implemented by the sessions of drivers with Options.Suspends: see executor.Suspender. No call of Files of this holder is in
// progress, and of Run and Install only with Options.SuspendsRuns. None begins before it returns. The calls that follow wake the sandbox;
// Destroy need not.
type Suspender interface {
	Suspend(ctx context.Context) error
}

// Installer is implemented by sessions that have FeaturePackages in a language. Rules for emit, ctx and Exit are those of Run, but the
// wall time is New's alone: Options.InstallTimeout. p.Language is set.
type Installer interface {
	Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (Exit, error)
}

// Filer is implemented by sessions that have FeatureFiles in a language.
type Filer interface{ Files() Files }

// Files is executor.Files with clean absolute names, none of which begins with one of Spec.Aliases, and
// without closed and busy states. Errors may be those of io/fs or made by Fail.
// Without FeatureFilesDuringRun no method is called, and nothing that Read returned is open, during a Run, nor the other way round.
type Files interface {
	// Read opens a regular file, following links. Close may be called during a Read of what it returns, which then ends.
	Read(ctx context.Context, name string) (io.ReadCloser, error)
	// Write reads r to its end and makes the directories above name. mode has permission bits only and is not zero. An error of r is
	// returned as it is, or wrapped.
	Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error
	// Stat does not follow a link at the end of name. New sets Name.
	Stat(ctx context.Context, name string) (executor.FileInfo, error)
	// List yields entries in any order. New sorts and checks them.
	List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error]
	// Mkdir makes name, which must not exist, and the directories above it.
	Mkdir(ctx context.Context, name string) error
	// Rename replaces an existing file. Neither name is Workdir or above it or an alias of it, and to is not below from.
	Rename(ctx context.Context, from, to string) error
	// Remove removes a file or a tree, which is not Workdir or above it or an alias of it. A missing name is not an error.
	Remove(ctx context.Context, name string) error
}

// Aser is implemented by sessions that expose backend-specific values to executor.As.
type Aser interface{ As(target any) bool }
