package server

import (
	"time"

	"github.com/execbroker/execbroker/executor"
)

// LongestRun prepares what a server over x allows: it bounds timeout, the longest run that a client
// may request, by what x permits, and makes spec permit runs as long as that. Its error, of kind
// [executor.ErrUnsupported], says what of spec x does not have. op is the name of the server in it.
func LongestRun(op string, x executor.Executor, spec *executor.Spec, timeout *time.Duration) error {
	caps := x.Info().Capabilities
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
