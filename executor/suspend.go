package executor

import "context"

// Suspender is what As finds in sessions of an Executor whose Info has Suspends.
type Suspender interface {
	// Suspend puts the sandbox aside until it is used again, with what it holds, at a fraction of
	// what it costs to run: at a provider, of its price; in a container, which keeps its memory, of
	// processor time. Every method of the Session that asks the backend wakes it, but Close, and so
	// does Attach. Its idle TTL goes on. Where nothing of the sandbox is awake, as at a provider,
	// it is enforced when the sandbox wakes: a suspended sandbox that is never woken is removed
	// only by Reap.
	//
	// What runs goes on when the sandbox wakes, where the backend can do that; its wall time goes
	// on at once, and kills it if it is over before. Elsewhere Suspend fails with ErrBusy while
	// this holder runs something, and everywhere while this holder transfers a file, or something
	// is being started, stopped or installed. It fails with ErrUnsupported if a sandbox of this
	// size cannot be suspended.
	//
	// A provider may lose what a suspended sandbox holds. One that was never used is then set up
	// anew, and another one is gone: the next call fails with ErrNotFound.
	Suspend(ctx context.Context) error
}
