// Package executor runs untrusted code in sandboxes that live on interchangeable backends.
//
// Four things have lives of their own. A sandbox is what the provider runs and bills. An
// interpreter is a process in it that keeps variables; a sandbox has one for each language and
// context. A run is one execution. A holder is a process that has the sandbox open: the [Session]
// value. An [Executor] creates sandboxes; closing a Session destroys its sandbox, detaching only
// lets go of it.
//
// Every run finds the same surroundings: working directory /workspace (FeatureWorkdir), TZ=UTC,
// LANG=C.UTF-8, HOME=/tmp/home and the temporary directory writable, no variable of the host's
// environment, and cells named <cell 1>, <cell 2> in tracebacks (FeatureCellNames).
//
// # Results and errors
//
// What the submitted code does is data: an exception, a non-zero exit, a timeout and an
// out-of-memory kill are described by a [Result] and a nil error. An error means that the
// infrastructure could not do its part. Callers repeat what failed, and repeating code repeats what
// it did; so the two are never mixed, and [Error.Ran] says whether the code may have run. Nothing
// in this module repeats what may have run.
//
// An error is always an [*Error], with one exception: an error that the caller's emit function
// returned comes back unwrapped, so that the caller can compare it.
//
// # Contexts and clocks
//
// A context governs the one call that it is passed to. When it ends that call stops and, in Run and
// Install, the code stops too. It never destroys the sandbox. Three clocks are kept apart:
//
//   - The caller's context: an error, with a Result of StatusCanceled if the code had started and
//     is known to have stopped.
//   - The wall time of a run, from EventStarted: StatusTimedOut, no error. Waiting for the backend
//     is not the code's time.
//   - The idle TTL and the maximum life of a sandbox: ErrNotFound, or ReasonLifetime during a run.
//
// # Features
//
// Backends differ, and everything that one may lack has a [Feature]. What is not declared is
// refused with ErrUnsupported before any code has run; [Capabilities.MissingFor] and
// [Capabilities.MissingForRequest] are the only mapping from what is asked to what is needed. A
// number beyond a bound is refused like a feature. Nothing is ever silently ignored. The defaults
// are those of this package and the same on every backend, so that the same program means the same
// everywhere. A program that must run on several backends names its languages: a Spec without gets
// the backend's first.
//
// # Wrappers
//
// Wrappers that restrict embed [BaseExecutor] and [BaseSession], so that methods which are added
// later are refused and not let through unchecked. Wrappers that only add embed the interface.
//
// # JSON
//
// Text is text and other bytes are base64 by name (see [Bytes]); durations are integers with names
// in _ns. Readers skip event kinds and fields that they do not know; fields are only added.
package executor
