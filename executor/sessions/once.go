package sessions

import (
	"context"
	"errors"
	"slices"

	"github.com/execbroker/execbroker/executor"
)

// ErrRepeated says that a message was begun before: see Lease.Once.
var ErrRepeated = errors.New("sessions: the id was used by an earlier message, which is not run again")

// maxIDs is how many IDs a record remembers.
const maxIDs = 100

// Once notes in the Store that the message with this ID is going to run, so that a client can
// repeat it, to any process, without a second run. It fails with ErrRepeated if the ID is one of
// the last 100 of the key: with RanYes if a run of the lease that noted it began, and with RanMaybe
// if that is not known, because a process died. The caller calls undo if the message was not run.
// An ID has the form of executor.Request.ID. The IDs outlive the sandbox for a day, and end with
// Discard. Once waits for one write to the Store.
func (le *Lease) Once(ctx context.Context, id string) (undo func(), err error) {
	ctx, end, err := le.use(ctx, "once")
	if err != nil {
		return nil, err
	}
	repeated, ran := false, executor.RanYes
	err = le.update(ctx, func(r *Record) {
		if repeated = slices.Contains(r.IDs, id); repeated {
			if slices.Contains(r.Unsure, id) {
				ran = executor.RanMaybe
			}
			return
		}
		most := max(maxIDs, len(r.IDs)) // more after Merge
		r.IDs = append(slices.Clone(r.IDs), id)
		r.IDs = r.IDs[max(0, len(r.IDs)-most):]
		r.Unsure = slices.DeleteFunc(append(slices.Clone(r.Unsure), id), func(id string) bool { return !slices.Contains(r.IDs, id) })
	})
	if err = end(err); err != nil {
		return nil, err
	}
	if repeated {
		e := le.m.fail("once", executor.ErrInvalid, ErrRepeated)
		e.Ran = ran
		return nil, e
	}
	le.mu.Lock()
	le.noted = append(le.noted, id)
	le.mu.Unlock()
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(le.ctx), finish)
		defer cancel()
		// If this fails, the ID counts as used: it is safer to refuse a message than to run
		// it twice.
		_ = le.update(ctx, func(r *Record) {
			same := func(other string) bool { return other == id }
			r.IDs, r.Unsure = slices.DeleteFunc(slices.Clone(r.IDs), same), slices.DeleteFunc(slices.Clone(r.Unsure), same)
		})
	}, nil
}
