package executor

import "context"

// Suspender is what As finds in sessions of an Executor whose Info has Suspends.
type Suspender interface {
	// Suspend puts the sandbox aside until it is used again, with what it holds, at a fraction of what it costs to run. Every method of the
	// Session that asks the backend wakes it, but Close, and so does Attach. Its idle TTL goes on, and is enforced when it wakes: nothing
	// ends a sandbox that nobody wakes but who reaps what its owner has left.
	//
	// A provider may lose what a suspended sandbox holds. One that was never used is then set up anew, and another one is gone: the next
	// call fails with ErrNotFound. Suspend fails with ErrBusy while this holder uses the sandbox, and with ErrUnsupported if one of this
	// size cannot be suspended.
	Suspend(ctx context.Context) error
}
