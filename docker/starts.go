package docker

import "context"

// startsAtOnce is how many containers may be starting at a time on an engine with so many
// processors. Engine, kernel and interpreter keep most of one busy until the runner is up. Many
// more at once would not be up any sooner: all would be late instead of the last, and runs in the
// sandboxes that are there would wait for them.
func startsAtOnce(processors int) int { return 2 * max(2, processors) }

// admit waits until another container may start. The caller releases it when its runner is up, or
// is not going to be.
func (b *backend) admit(ctx context.Context, f *facts) (release func(), err error) {
	b.sized.Do(func() { b.starts = make(chan struct{}, startsAtOnce(f.info.NCPU)) })
	select {
	case b.starts <- struct{}{}:
		return func() { <-b.starts }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
