//go:build !linux

package bubblewrap

import (
	"context"
	"fmt"
	"runtime"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// machine starts nothing here.
type machine struct {
	runner.Transport
	runner.Finder
	driver.Lister
}

func (m *machine) limits() bool { return false }

func newMachine(env driver.Env, _ Config) (*machine, error) {
	if env.Elsewhere {
		return &machine{}, nil
	}
	return nil, errSystem()
}

func errSystem() error { return fmt.Errorf("bubblewrap needs Linux, and this is %s", runtime.GOOS) }

// Doctor says that the backend cannot be used here.
func Doctor(context.Context, driver.Env, Config) []driver.Check {
	return []driver.Check{{Name: "system", Detail: errSystem().Error(), Fix: "use another backend on this system"}}
}
