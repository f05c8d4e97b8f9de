package runner

import (
	"context"
	"io"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// Transport starts sandboxes at a provider. An adapter implements it, and passes it to Open. Its
// methods are called concurrently.
//
// A Transport that can find sandboxes again implements Finder, too, and one that can list them
// driver.Lister. One that implements io.Closer is closed with the Executor, after all other calls
// have returned.
//
// Errors are made by driver.Fail. One that is not is executor.ErrUnavailable. Where the context has
// ended, its cause is the error, or one that wraps it.
type Transport interface {
	// Start makes a sandbox, starts s.Command in it, and returns the standard input and output of
	// that process as one stream. It does not wait for the process to say anything. Its standard
	// error is diagnosis: Termination has the end of it.
	//
	// The process and the sandbox outlive ctx, which is for the start alone.
	//
	// Start refuses with executor.ErrUnsupported what it finds out only now that the provider
	// cannot do. If it fails after it has begun, it returns a Sandbox with the error, whose Remove
	// is then called, again and again until it succeeds. A nil Sandbox says that nothing was made.
	// A *LostError says that the process has broken off at once: then Termination is asked why.
	Start(ctx context.Context, s *Start) (Sandbox, io.ReadWriteCloser, error)
}

// Start asks for a sandbox. What it holds was validated, and has all defaults.
type Start struct {
	// Create has the ID, the labels and the Spec. The Transport enforces Spec.Limits and
	// Spec.Network, and stores the labels if it implements Finder. The rest of the Spec is in
	// Config already.
	*driver.Create

	// Command is the command line of the runner, for the Python that Options names. It runs as
	// root of the sandbox, or with Config.SameUser as any user. Its environment does not reach
	// user code.
	Command []string

	// Config says how the runner is set up. The Transport changes what its sandboxes need:
	// SameUser, UID, Rlimits and others.
	Config Config

	// Info is what the session tells of itself, with the ID as Handle.Session, the template, the
	// labels and the time of the call. The Transport adds what it knows better: Limits that are in
	// force, Handle.State. It sets Expires only if its Sandbox is a driver.KeepAliver, whose
	// provider ends it at that time; what is later than the idle TTL is moved back when the sandbox
	// is set up. Note makes text of it, to be stored with the sandbox.
	Info executor.SessionInfo

	// Base is empty for a session. Otherwise the sandbox fetches packages for another one, whose
	// Sandbox has returned it: it is made from the same, and nothing of a user is in it.
	Base string

	// Preinstall lists packages that the sandbox gets before anybody sees it, by language, whatever
	// Options.Packages allows. The Transport sets it, from a template for example.
	Preinstall map[executor.Language][]string

	// Attempt counts the sandboxes that were made for this session before and given up. It is
	// zero unless Options.Attempts is more than one. What is idempotent at the provider has to be
	// asked for with another key.
	Attempt int
}

// Sandbox is one sandbox at its provider. Its methods are called concurrently.
//
// What a Sandbox can do beyond this it says by further methods: those of Suspender and Explainer,
// of driver.KeepAliver and driver.Refresher where the provider counts the time of sandboxes, of
// Base where packages can be installed, and of driver.Aser.
type Sandbox interface {
	// Connect starts a further process in the same sandbox, as the user of the runner, and returns
	// its standard input and output as one stream. The process is a bridge: it passes its streams
	// on to the runner and ends when the runner lets go of them. It is called when a connection was
	// cut, and by processes that attach.
	//
	// A provider that reaches sandboxes by a network instead, with an Endpoint, ignores command.
	// One that cannot do either fails with executor.ErrUnsupported; then the sandbox is lost with
	// its first connection.
	Connect(ctx context.Context, command []string) (io.ReadWriteCloser, error)

	// Termination asks the provider how the sandbox has ended, if it has. It is called after a
	// connection has ended, to tell a sandbox that has died from a connection that was cut. It may
	// wait for the answer for a moment, because connections often end earlier than the provider
	// knows.
	Termination(ctx context.Context) (Termination, error)

	// Remove destroys the sandbox, whatever runs in it, and returns when it is gone. It may be
	// called again, also by several goroutines, and one that is gone is not an error. The
	// connections to it may still be open.
	Remove(ctx context.Context) error
}

// Termination is the end of a sandbox.
type Termination struct {
	// Ended is false if the sandbox lives or may come back. Then nothing else is set.
	Ended bool
	// Reason says why: executor.ReasonMemory if its memory ran out, ReasonLifetime if its time was
	// over or somebody has removed it, ReasonSandbox if it has failed. Empty: the provider does not
	// know. Then a run that was in progress fails with executor.ErrUnavailable.
	Reason executor.Reason
	// Code is the exit code of the runner if it has ended by itself; zero if that is not known. It
	// is looked at when a runner has not come up, to tell an image without a usable Python.
	Code int
	// Stderr is the end of what the runner has written to its standard error, a few KB at most.
	Stderr string
}

// Finder is implemented by a Transport that finds its sandboxes again, also in another process. It
// gives sessions executor.FeatureAttach and executor.FeatureFencing.
type Finder interface {
	// Find asks the provider for the sandbox of a handle, dead or not, without changing it. The
	// info says what is known of it: whether it lives, its labels, reserved ones included, and
	// what Start has put into Start.Info. Recall reads it from a Note. Find fails with
	// executor.ErrNotFound if there is none.
	//
	// The handle is hostile input. Handle.Session has to be checked before it becomes part of a
	// name or a path, and nothing in Handle.State is an address.
	Find(ctx context.Context, h executor.Handle) (Sandbox, executor.SessionInfo, error)
}

// Base is implemented by sandboxes that are made from something that others are made from, too.
// They start faster, because the program of the runner is compiled once for all of them, and they
// can have packages: see Options.Packages. For packages they need a directory /opt/packages for
// Python and /node_modules for JavaScript that root can write to or make, and nobody else.
type Base interface {
	// Base names what the sandbox is made from: an image, a template. What the Python of one new
	// sandbox has compiled, and what was fetched for one, is used for others of the same base.
	Base() string
}

// Suspender is implemented by sandboxes that the provider can suspend, so that they cost less. The
// next Connect wakes the sandbox. Where a Sandbox is none, the runner stops the processes of user
// code instead. Options.Suspends says whether sessions offer it.
type Suspender interface {
	// Suspend suspends the sandbox. Its connections are closed, and no other is opened before it
	// returns.
	Suspend(ctx context.Context) error
	// Suspended reports whether the sandbox is suspended. It is called before a suspended sandbox
	// is removed: one that is still suspended has no later holder who has to be asked.
	Suspended(ctx context.Context) (bool, error)
}

// Explainer is implemented by sandboxes that know more of an error than the runner does.
type Explainer interface {
	// Explain returns the error of setting up or connecting in the words of the provider, made by
	// driver.Fail, or err. In err errors.As and errors.Is find what the streams have returned, a
	// *LostError, a *StatusError or ErrUnprepared. It is called when Termination has been asked,
	// and only of a sandbox that has not ended.
	Explain(ctx context.Context, err error) error
}

// Options say what a backend on a Transport is.
type Options struct {
	// Options are those of every adapter. Type is required.
	driver.Options

	// Capabilities are what only the adapter can know: Isolation, Templates, MaxLimits, MaxLife,
	// and of Features those of networks and limits. Languages names those of the sandboxes; none
	// means Python. Open adds all features that the runner and the Transport bring.
	Capabilities executor.Capabilities

	// Python is the program that runs the runner in the sandbox, Python 3.9 or later. Empty means
	// "python3".
	Python string

	// Packages says what sessions may install and where it comes from. The zero value: nothing. It
	// needs sandboxes with Base, and networks for those that fetch: see Start.Base.
	Packages driver.Packages

	// Without lists what the runner brings and these sandboxes cannot have, such as
	// executor.FeaturePTY under a kernel that has no terminals.
	Without []executor.Feature

	// Socket is where a bridge finds the runner: the path of a socket in a directory that only the
	// user of the runner can reach or, behind "@", an abstract name. Empty means an abstract name
	// made of Handle.Session, which another process can find again.
	Socket string

	// AnswerTimeout is how long a runner may take to come up, a bridge to reach it, and both to say
	// how a session is. Zero means one minute.
	AnswerTimeout time.Duration

	// Attempts is how many sandboxes may be made for one session when the connection to the first
	// breaks while it is set up, before any user code has run, or Start fails with a *LostError.
	// Zero means one.
	Attempts int
}
