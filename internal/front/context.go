package front

import "context"

// Both returns a context that ends with either of two contexts. stop releases it.
func Both(ctx, other context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() { release(); cancel(nil) }
}
