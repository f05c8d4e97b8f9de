package tool

import (
	"context"
	"errors"

	"github.com/execbroker/execbroker/executor"
)

// MaxAttempts is the largest number of runs of a Repair.
const MaxAttempts = 10

// Attempt is one run of a Repair.
type Attempt struct {
	Input  Input
	Output Output // its Error tells a model what went wrong
}

// errUnchanged ends a Repair if the model returns the failed code unchanged.
var errUnchanged = errors.New("tool: the code was not changed, so it would fail in the same way")

// Repair runs a call and, while it fails, lets the caller's model correct it. mend gets every
// attempt so far and returns the next call as the model wrote it (see ParseInput), or "" to give
// up. There are at most the given number of attempts, and never more than MaxAttempts. The result
// has all of them in order.
//
// An error is that of mend, or a failure or refusal of the executor, which ends the loop because
// the code may have run. If the code still fails at the end, that is not an error: see the last
// Output. emit may be nil.
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
