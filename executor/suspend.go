package executor

import "context"

// Suspender is what As finds in the sessions of an Executor with Info.Suspends.
type Suspender interface {
	// Suspend stops the sandbox until its next use and keeps its contents. A suspended sandbox
	// costs a fraction of a running one: at a provider, of the price; in a container, which keeps
	// its memory, of the processor time. Every method of the Session that asks the backend wakes
	// the sandbox, except Close. So does Attach. The idle TTL goes on. If nothing of the sandbox
	// runs while it is suspended, as at a provider, the TTL is enforced only when the sandbox
	// wakes: a suspended sandbox that is never woken is removed only by Reap.
	//
	// If the backend can do that, programs that run continue when the sandbox wakes. The wall time
	// of a run also counts while the sandbox is suspended, and kills the run when it ends. On other
	// backends Suspend fails with ErrBusy while this holder runs something. On every backend it
	// fails with ErrBusy while this holder transfers a file, and while something is being started,
	// stopped or installed. It fails with ErrUnsupported if a sandbox of this size cannot be
	// suspended.
	//
	// A provider may lose the contents of a suspended sandbox. A sandbox that was never used is
	// then set up again. Any other one is gone: the next call fails with ErrNotFound.
	Suspend(ctx context.Context) error
}
