package flymachines

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// What Fly offers: numbers of CPUs, and for each kind the memory of one in MiB, in steps.
var cpuCounts = []int{1, 2, 4, 8, 16}

const memoryStep = 256

var memoryPerCPU = map[string]struct{ least, most int }{"shared": {256, 2048}, "performance": {2048, 8192}}

const (
	kindShared   = "shared"
	defaultCPUs  = 2
	defaultMB    = 512
	supervisorMB = 64 // for the kernel, Fly's init and the runner: code gets at least what was asked for
	mib          = 1 << 20
)

func (g Guest) check() error {
	var errs []error
	if _, ok := memoryPerCPU[cmp.Or(g.Kind, kindShared)]; !ok {
		errs = append(errs, driver.At("kind", driver.Unknown("kind", g.Kind, []string{kindShared, "performance"})))
	}
	if g.CPUs != 0 && !slices.Contains(cpuCounts, g.CPUs) {
		errs = append(errs, driver.At("cpus", fmt.Errorf("Fly has %v", cpuCounts)))
	}
	if g.MemoryMB < 0 {
		errs = append(errs, driver.At("memory_mb", errors.New("negative")))
	}
	if len(errs) == 0 && g.CPUs != 0 && g.MemoryMB > g.CPUs*memoryPerCPU[cmp.Or(g.Kind, kindShared)].most {
		errs = append(errs, driver.At("memory_mb", fmt.Errorf("%d CPUs have at most %d", g.CPUs, g.CPUs*memoryPerCPU[cmp.Or(g.Kind, kindShared)].most)))
	}
	return errors.Join(errs...)
}

// guest returns the smallest size that has what a session asks for, or the configured size if it
// asks for nothing, and the limits in force.
func (c *Config) guest(spec *executor.Spec) (*fly.MachineGuest, executor.Limits, error) {
	t := c.Templates[spec.Template].Guest
	kind := cmp.Or(t.Kind, c.Guest.Kind, kindShared)
	cpus, mb := cmp.Or(t.CPUs, c.Guest.CPUs, defaultCPUs), cmp.Or(t.MemoryMB, c.Guest.MemoryMB, defaultMB)
	if n := spec.Limits.CPUs; n > 0 {
		cpus = int(math.Ceil(min(n, math.MaxInt32)))
	}
	if n := spec.Limits.MemoryBytes; n > 0 {
		mb = int(min((n+mib-1)/mib, math.MaxInt32)) + supervisorMB
	}
	per := memoryPerCPU[kind]
	for _, n := range cpuCounts {
		if n < cpus || n*per.most < mb {
			continue
		}
		mb = max((mb+memoryStep-1)/memoryStep*memoryStep, n*per.least)
		g := &fly.MachineGuest{CPUKind: kind, CPUs: n, MemoryMB: mb}
		return g, executor.Limits{
			CPUs: float64(n), MemoryBytes: int64(mb) * mib, Processes: cmp.Or(spec.Limits.Processes, c.Processes, defaultProcesses),
		}, nil
	}
	most := cpuCounts[len(cpuCounts)-1]
	return nil, executor.Limits{}, &executor.Error{
		Kind: executor.ErrUnsupported, Ran: executor.RanNo, Err: fmt.Errorf("Fly has no %s Machine of that size", kind),
		Missing: []string{fmt.Sprintf("cpus<=%d", most), fmt.Sprintf("memory<=%d", int64(most*per.most-supervisorMB)*mib)},
	}
}

// defaultLimits are the limits of a Spec that gets the configured size.
func (c *Config) defaultLimits() executor.Limits {
	_, l, err := c.guest(&executor.Spec{})
	if err != nil { // so every Create fails
		return executor.Limits{}
	}
	l.MemoryBytes -= supervisorMB * mib
	return l
}

// maxLimits is the largest size of any template.
func (c *Config) maxLimits() executor.Limits {
	most := memoryPerCPU[cmp.Or(c.Guest.Kind, kindShared)].most
	for _, t := range c.Templates {
		most = max(most, memoryPerCPU[cmp.Or(t.Guest.Kind, c.Guest.Kind, kindShared)].most)
	}
	n := cpuCounts[len(cpuCounts)-1]
	return executor.Limits{CPUs: float64(n), MemoryBytes: int64(n*most-supervisorMB) * mib}
}
