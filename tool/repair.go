package tool

import (
	"context"
	"errors"

	"github.com/execbroker/execbroker/executor"
)

// MaxAttempts is how many runs a Repair has at most.
const MaxAttempts = 10

// Attempt is one run of a Repair.
type Attempt struct {
	Input  Input
	Output Output // its Error says in words for a model what went wrong
}

// errUnchanged ends a Repair whose model gives back what has failed.
var errUnchanged = errors.New("tool: the code was not changed, so it would fail in the same way")

// Repair runs a call and, while it fails, lets the caller's model mend it: mend gets every attempt
// until then and returns the next call as the model wrote it, see ParseInput, or "" to give up.
// There are at most so many attempts, and never more than MaxAttempts. Each is in the result, the
// last one at the end.
//
// The error is a failure or refusal of the executor, which ends the loop because the code may have
// run, or that of mend. That the code still fails at the end is none: see the last Output. emit may
// be nil.
func (t *Tool) Repair(ctx context.Context, c Conversation, arguments string, attempts int, mend func(ctx context.Context, tried []Attempt) (string, error), emit func(executor.Event) error) ([]Attempt, error) {
	var tried []Attempt
	attempts = min(max(attempts, 1), MaxAttempts)
	for {
		in, err := ParseInput(arguments, t.language(""))
		var out Output
		if err != nil {
			out = refused(t.language(""), err)
		} else {
			out, err = t.Run(ctx, c, in, emit)
			if err != nil {
				return append(tried, Attempt{in, out}), err
			}
		}
		tried = append(tried, Attempt{in, out})
		if out.Success || len(tried) == attempts {
			return tried, nil
		}
		next, err := mend(ctx, tried)
		if err != nil || next == "" {
			return tried, err
		}
		if next == arguments {
			return tried, errUnchanged
		}
		arguments = next
	}
}
