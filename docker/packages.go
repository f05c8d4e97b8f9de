package docker

import (
	"errors"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
)

// Packages says what sessions may install and where it comes from. The zero value means that they
// may install nothing, and that those of templates come from the index that the pip of the image
// uses.
//
// A session needs no network for it: a container of the same image, with network and without
// anything of a user, fetches wheels or packages of npm once, and what it made of them is kept in
// the cache directory. In a session they are in memory, which grows by Size for each language that
// can have some.
type Packages struct {
	driver.Packages
	// Network is the engine's network for fetching. Default: "bridge".
	Network string `json:"network,omitempty"`
}

// sources are the packages as all adapters understand them.
func (c *Config) sources() *packages.Sources { return (*packages.Sources)(&c.Packages.Packages) }

// installs returns the languages of which anything can ever be installed.
func (c *Config) installs() []executor.Language { return c.sources().Languages(c.presets()...) }

// presets are the packages of the templates.
func (c *Config) presets() (all []map[executor.Language][]string) {
	for _, t := range c.Templates {
		all = append(all, t.Packages)
	}
	return all
}

// packagesSize returns how much room a session has for the packages of a language that can be
// installed.
func (c *Config) packagesSize() int64 { return pages(c.sources().Bytes()) }

// checkPackages reports every mistake in what says that packages are installed, but those in the
// file of requirements.
func (c *Config) checkPackages() error {
	return errors.Join(c.sources().Validate(c.languages(), c.presets()...), driver.At("packages.network", checkNetwork(c.Packages.Network)))
}
