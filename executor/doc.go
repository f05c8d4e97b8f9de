// Package executor runs untrusted code in sandboxes on interchangeable backends.
//
// Four things have separate lifetimes. A sandbox is what the provider runs and bills. An
// interpreter is a process in the sandbox that keeps variables; a sandbox has one for each language
// and context. A run is one execution. A holder is a program that has the sandbox open, as a
// [Session] value. An [Executor] creates sandboxes. Closing a Session destroys its sandbox.
// Detaching a Session leaves the sandbox running.
//
// Every run finds the same environment: the working directory is /workspace (FeatureWorkdir),
// TZ=UTC, LANG=C.UTF-8, HOME=/tmp/home and the temporary directory are writable, there is no
// variable of the host's environment, and tracebacks name cells <cell 1>, <cell 2>
// (FeatureCellNames).
//
// # Results and errors
//
// What the submitted code does is data. An exception, a non-zero exit, a timeout and an
// out-of-memory kill are described by a [Result] and a nil error. An error means that the
// infrastructure could not do its part. Callers often retry after an error, and running code twice
// repeats its side effects. So results and errors are kept apart, and [Error.Ran] says whether the
// code may have run. Nothing in this module retries a call whose code may have run.
//
// An error is always an [*Error], with one exception: an error that the caller's emit function
// returned comes back unwrapped, so that the caller can compare it.
//
// # Contexts and clocks
//
// A context governs only the call that it is passed to. When the context ends, that call stops, and
// in Run and Install the code stops too. A context never destroys the sandbox. Three clocks are
// separate:
//
//   - The caller's context: an error, with a Result of StatusCanceled if the code had started and
//     is known to have stopped.
//   - The wall time of a run, from EventStarted: StatusTimedOut and no error. Waiting for the
//     backend is not counted.
//   - The idle TTL and the maximum life of a sandbox: ErrNotFound, or ReasonLifetime during a run.
//
// # Features
//
// Backends differ, and everything that a backend may lack has a [Feature]. A request that needs an
// undeclared feature is refused with ErrUnsupported before any code has run.
// [Capabilities.MissingFor] and [Capabilities.MissingForRequest] are the only mapping from requests
// to features. A number beyond a limit of the backend is refused in the same way. Nothing is ever
// silently ignored. The defaults are defined in this package and are the same on every backend, so
// that a program means the same everywhere. A program that must run on several backends names its
// languages, because a Spec without languages gets the first one of the backend.
//
// # Wrappers
//
// Wrappers that restrict embed [BaseExecutor] and [BaseSession]: methods that are added later are
// then refused instead of being passed through unchecked. Wrappers that only add embed the
// interface.
//
// # JSON
//
// Text is encoded as text, and other bytes as base64 under that name (see [Bytes]). Durations are
// integers with names that end in _ns. Readers skip event kinds and fields that they do not know.
// Fields are only added, never removed.
package executor
