package kubernetes

import (
	"errors"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
)

// sources are the packages as all adapters understand them.
func (c *Config) sources() *packages.Sources { return (*packages.Sources)(&c.Packages) }

// installs returns the languages of which anything can ever be installed.
func (c *Config) installs() []executor.Language {
	var presets []map[executor.Language][]string
	for _, t := range c.Templates {
		presets = append(presets, t.Packages)
	}
	return c.sources().Languages(presets...)
}

// checkPackages reports every mistake in what says that packages are installed, but those in the
// file of requirements.
func (c *Config) checkPackages() error {
	s := c.sources()
	return errors.Join(s.CheckLanguages(c.installs(), c.languages()), driver.At("packages", s.Check()))
}
