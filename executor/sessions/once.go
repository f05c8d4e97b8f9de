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
// repeat it, to any process, without a second run. It fails with ErrRepeated and RanMaybe if the ID
// is one of the last 100 of the key. The caller calls undo if the message was not run. An ID has
// the form of executor.Request.ID. Once waits for one write to the Store.
func (le *Lease) Once(ctx context.Context, id string) (undo func(), err error) {
	ctx, end, err := le.use(ctx, "once")
	if err != nil {
		return nil, err
	}
	repeated := false
	err = le.update(ctx, func(r *Record) {
		if repeated = slices.Contains(r.IDs, id); repeated {
			return
		}
		r.IDs = append(slices.Clone(r.IDs), id)
		r.IDs = r.IDs[max(0, len(r.IDs)-maxIDs):]
	})
	if err = end(err); err != nil {
		return nil, err
	}
	if repeated {
		e := le.m.fail("once", executor.ErrInvalid, ErrRepeated)
		e.Ran = executor.RanMaybe
		return nil, e
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(le.ctx), finish)
		defer cancel()
		// If this fails, the ID counts as used: it is safer to refuse a message than to run
		// it twice.
		_ = le.update(ctx, func(r *Record) {
			r.IDs = slices.DeleteFunc(slices.Clone(r.IDs), func(other string) bool { return other == id })
		})
	}, nil
}
