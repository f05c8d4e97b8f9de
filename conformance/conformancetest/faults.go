package conformancetest

import (
	"context"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// Fault breaks one rule of the contract in any driver, or above it.
type Fault struct {
	Name string // "stdout-stderr-swapped", "state-kept-undeclared", "cancel-ignored", ...
	Doc  string // what goes wrong, as its author would have put it
	// Needs are the features without which there is nothing to break. In a backend that lacks one
	// the fault cannot be planted.
	Needs []executor.Feature
	// Plant wraps a driver, for driver.Env.Wrap. It is nil for faults that driver.New would undo:
	// Above wraps what Target.Open returns, and so plants them above it, where an implementation
	// without package driver could have them.
	Plant func(driver.Driver) driver.Driver
	Above func(OpenFunc) OpenFunc
}

// OpenFunc is the type of conformance.Target.Open.
type OpenFunc = func(ctx context.Context, params map[string]string) (executor.Executor, error)

// in returns target with the fault planted; open makes it with a function for driver.Env.Wrap.
func (f Fault) in(open func(wrap func(driver.Driver) driver.Driver) conformance.Target) conformance.Target {
	target := open(f.Plant)
	if f.Above != nil {
		target.Open = f.Above(target.Open)
	}
	return target
}

// fits reports whether a backend has what f breaks.
func (f Fault) fits(c executor.Capabilities) (missing executor.Feature, ok bool) {
	for _, n := range f.Needs {
		has := c.Has(n)
		for _, r := range c.Languages {
			has = has || c.HasFor(r.Language, n)
		}
		if !has {
			return n, false
		}
	}
	return "", true
}

// Faults lists the faults.
func Faults() []Fault {
	var all []Fault
	for _, fs := range [][]Fault{runFaults(), stateFaults(), optionFaults(), limitFaults(), fileFaults(), lifeFaults(), leakFaults(), portFaults(), aboveFaults()} {
		all = append(all, fs...)
	}
	return all
}
