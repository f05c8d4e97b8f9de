package runner

import (
	"slices"

	"github.com/execbroker/execbroker/executor"
)

// GVisorLacks returns the features that sessions under gVisor do not have. Its kernel is a process
// of the host in the control group of the container, so that what goes beyond memory, or beyond a
// number of tasks that a program does not see, ends the whole sandbox. Its clocks of processor time
// do not know of the quota that the host enforces. Its terminals are no controlling ones for what a
// shell starts, edit no lines and send no signals.
func GVisorLacks() []executor.Feature {
	return []executor.Feature{executor.FeaturePTY, executor.FeatureLimitCPU, executor.FeatureLimitMemory, executor.FeatureLimitProcesses}
}

// UnderGVisor returns o without what GVisorLacks names.
func (o Options) UnderGVisor() Options {
	o.Without = append(slices.Clone(o.Without), GVisorLacks()...)
	o.Capabilities.Features = slices.DeleteFunc(slices.Clone(o.Capabilities.Features), func(f executor.Feature) bool { return slices.Contains(GVisorLacks(), f) })
	o.Capabilities.DefaultLimits = executor.Limits{DiskBytes: o.Capabilities.DefaultLimits.DiskBytes} // a Spec cannot set the others
	return o
}
