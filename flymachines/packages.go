package flymachines

import (
	"errors"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
)

// builderMB is the memory of a Machine that fetches packages.
const builderMB = 512

// sources are the packages as all adapters understand them.
func (c *Config) sources() *packages.Sources { return (*packages.Sources)(&c.Packages) }

// checkPackages reports every mistake in what says that packages are installed, but those in the file of requirements.
func (c *Config) checkPackages() error {
	s := c.sources()
	return errors.Join(s.CheckLanguages(s.Languages(), c.languages()), driver.At("packages", s.Check()))
}
