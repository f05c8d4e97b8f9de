package sessions

import (
	"context"
	"fmt"

	"github.com/execbroker/execbroker/executor"
)

// repeatable makes the checkpoint from which a run can be repeated on a bigger backend. It returns
// nil for a run that is not repeated, whatever becomes of it.
func (le *Lease) repeatable(ctx context.Context, req executor.Request) *point {
	x := le.m.opts.Escalate
	if !req.Repeatable || req.Stdin != nil || x.To == nil || le.spec == nil {
		return nil
	}
	if to, _ := x.To(le.Info().Handle.Backend); to == "" {
		return nil
	}
	ctx, end, err := le.use(ctx, "checkpoint")
	if err != nil {
		return nil
	}
	before, err := le.checkpoint(ctx)
	if end(err) != nil {
		return nil
	}
	return before
}

// runTwice runs code, and runs it again on the bigger backend if it needs that, from the checkpoint
// before the first run. The notice tells of the second one.
func (le *Lease) runTwice(
	ctx context.Context, req executor.Request, emit func(executor.Event) error, before *point,
) (res *executor.Result, notice string, err error) {
	told := numbered{emit: emit}
	res, err = le.run(ctx, req, told.first())
	need, to := le.wants(res)
	if need == "" || err != nil || !le.place.TryLock() {
		return res, "", err
	}
	from := le.Info().Handle.Backend
	moving, end := le.within(ctx)
	kept, failed := le.moveTo(moving, to, before)
	end()
	le.place.Unlock()
	if failed != nil {
		le.m.stays(ctx, le.Key, from, failed)
		return res, "", err
	}
	res, err = le.run(ctx, req, told.again())
	return res, fmt.Sprintf("repeated on %s: needs %s, which %s lacks", to, need, from) + notCarried(kept), err
}

// numbered makes the events of two runs those of one.
type numbered struct {
	emit func(executor.Event) error
	n    int // the number of the next event
}

// first returns what the first run emits to, or nil if nobody listens.
func (e *numbered) first() func(executor.Event) error {
	if e.emit == nil {
		return nil
	}
	return func(ev executor.Event) error {
		e.n = ev.Seq + 1
		return e.emit(ev)
	}
}

// again returns what the second run emits to. A run begins once.
func (e *numbered) again() func(executor.Event) error {
	if e.emit == nil {
		return nil
	}
	return func(ev executor.Event) error {
		if ev.Kind == executor.EventStarted && e.n > 0 {
			return nil
		}
		ev.Seq, e.n = e.n, e.n+1
		return e.emit(ev)
	}
}
