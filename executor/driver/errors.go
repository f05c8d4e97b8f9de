package driver

import (
	"context"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/engine"
)

// Fail makes an error of the infrastructure. Its other fields are filled in by the Executor. An
// error of a driver that Fail did not make is ErrInternal with RanMaybe, but for errors of io/fs
// from Files. cause may be nil; its text is shown to users and contains no secret.
func Fail(kind error, ran executor.Ran, cause error) error { return engine.Fail(kind, ran, cause) }

// Leftover returns err, the failure of a Create, for a Create that may have left a sandbox which it
// could not remove, because the provider did not answer or went away. remove is called again and
// again, with growing pauses, until it returns nil, and once more in Close. It finds out itself
// whether there is anything to remove: the call before it may have succeeded.
func Leftover(err error, remove func(ctx context.Context) error) error {
	return engine.Leftover(err, remove)
}

// StopContext returns the context in which to stop the code of a run whose ctx has ended: it lasts
// for Options.StopTimeout.
func StopContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return engine.StopContext(ctx)
}

// Linger returns a context that outlives ctx by a moment, for the request that makes a sandbox. A
// provider goes on with a request that is withdrawn, and what it makes then cannot be found and
// removed until it is there. Waiting for the answer is quicker than looking for what becomes of it.
func Linger(ctx context.Context) (context.Context, context.CancelFunc) { return engine.Linger(ctx) }
