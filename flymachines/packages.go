package flymachines

import "github.com/execbroker/execbroker/internal/packages"

// builderMB is the memory of a Machine that fetches packages.
const builderMB = 512

// sources are the packages as all adapters understand them.
func (c *Config) sources() *packages.Sources { return (*packages.Sources)(&c.Packages) }
