package bubblewrap

import "github.com/execbroker/execbroker/executor"

// unsupported refuses what this machine lacks, though the configuration declares it.
func unsupported(cause error, missing ...string) error {
	return &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: missing, Err: cause}
}
