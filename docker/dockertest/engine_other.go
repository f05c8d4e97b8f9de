//go:build !linux

package dockertest

import (
	"context"
	"errors"
	"io"
)

// Engine is a dockerd that this process has started or found. It runs on Linux only; tests
// elsewhere use the engine that is there.
type Engine struct{ Host string }

var errSystem = errors.New("dockerd runs on Linux only")

// Start fails.
func Start(context.Context, Options) (*Engine, error) { return nil, errSystem }

// Started reports whether Start has started the engine.
func (*Engine) Started() bool { return false }

// Stop fails.
func (*Engine) Stop(context.Context) error { return errSystem }

// Use does nothing: there is no engine of this package.
func Use(string) (io.Closer, error) { return io.NopCloser(nil), nil }
