package server

import (
	"time"

	"github.com/execbroker/execbroker/executor"
)

// LongestRun prepares what a server over x allows: it bounds timeout, the longest run that a client
// may request, by what x permits, and makes spec permit runs as long as that. A zero timeout is
// DefaultMaxTimeout, or what spec permits if it says so and that is shorter. Its error, of kind
// [executor.ErrUnsupported], says what of spec x does not have. op is the name of the server in it.
func LongestRun(op string, x executor.Executor, spec *executor.Spec, timeout *time.Duration) error {
	caps := x.Info().Capabilities
	if *timeout == 0 {
		*timeout = DefaultMaxTimeout
		if _, most := spec.Bounds(); most.WallTime > 0 && (spec.Run.WallTime > 0 || spec.MaxRun.WallTime > 0) {
			*timeout = min(*timeout, most.WallTime) // nobody has said that clients may have more
		}
	}
	if most := caps.MaxRun.WallTime; most > 0 {
		*timeout = min(*timeout, most)
	}
	if spec.MaxRun.WallTime != executor.NoLimit {
		spec.MaxRun.WallTime = max(spec.MaxRun.WallTime, *timeout)
	}
	if missing := caps.MissingFor(*spec); len(missing) > 0 {
		return &executor.Error{Op: op, Backend: x.Info().Name, Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: missing}
	}
	return nil
}

// DefaultRun returns the wall time of a run whose client asks for none: that of spec, and at most
// longest.
func DefaultRun(spec executor.Spec, longest time.Duration) time.Duration {
	run, _ := spec.Bounds()
	if run.WallTime == executor.NoLimit {
		return longest
	}
	return min(run.WallTime, longest)
}
