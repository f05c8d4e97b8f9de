//go:build !linux

package kubetest

import (
	"context"
	"fmt"
	"runtime"
)

// Cluster is one that runs: on Linux only.
type Cluster struct{ Kubeconfig, Address string }

// Start fails.
func Start(context.Context, Options) (*Cluster, error) {
	return nil, fmt.Errorf("%w: no containers on %s", ErrMissing, runtime.GOOS)
}

// Stop does nothing.
func (*Cluster) Stop() error { return nil }
