package kubernetes

import (
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/packages"
)

// sources are the packages as all adapters understand them.
func (c *Config) sources() *packages.Sources { return (*packages.Sources)(&c.Packages) }

// installs returns the languages of which anything can ever be installed.
func (c *Config) installs() []executor.Language { return c.sources().Languages(c.presets()...) }

// presets are the packages of the templates.
func (c *Config) presets() (all []map[executor.Language][]string) {
	for _, t := range c.Templates {
		all = append(all, t.Packages)
	}
	return all
}
