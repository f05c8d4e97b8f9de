package docker

import (
	"errors"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
)

// Packages says what sessions may install and where it comes from. The zero value means that they may install nothing, and that those of
// templates come from the index that the pip of the image uses.
//
// A session needs no network for it: a container of the same image, with network and without anything of a user, fetches wheels or
// packages of npm once, and what it made of them is kept in the cache directory.
type Packages struct {
	// Allow lists what may be asked for, by language: "numpy", "pandas>=2,<3", "uvicorn[standard]" for Python, "lodash", "@scope/name@^2"
	// for JavaScript, or "*" for everything that there is. What they depend on comes along. Versions bound all that is installed. A
	// language that has no list declares no packages.
	Allow map[executor.Language][]string `json:"allow,omitempty"`
	// Requirements is a file of pip's with further lines for Python: names with versions, and comments.
	Requirements string `json:"requirements,omitempty"`

	// IndexURL is the address of an index (PEP 503), FindLinks are pages with links to wheels. Empty: what the pip of the image uses.
	IndexURL  string   `json:"index_url,omitempty"`
	FindLinks []string `json:"find_links,omitempty"`
	// Registry is the address of a registry of npm packages, for JavaScript. It has no default: the image need not have an npm to ask.
	Registry string `json:"registry,omitempty"`
	// Insecure allows http, by which anybody on the way can exchange packages.
	Insecure bool `json:"insecure,omitempty"`
	// Wheels is a directory with wheels. Without IndexURL and FindLinks nothing else is looked at, and nothing has a network.
	Wheels string `json:"wheels,omitempty"`

	// Network is the engine's network for fetching. Default: "bridge".
	Network string `json:"network,omitempty"`
	// Size is the most that the packages of a session may take for each language that can have some, unpacked. They are in memory, which
	// grows by as much. Default: 256 MiB.
	Size Size `json:"size,omitempty"`
}

// sources are the words of p that all adapters understand.
func (p *Packages) sources() *packages.Sources {
	return &packages.Sources{
		Allow: p.Allow, Requirements: p.Requirements, IndexURL: p.IndexURL, FindLinks: p.FindLinks, Registry: p.Registry, Insecure: p.Insecure,
		Wheels: p.Wheels,
	}
}

// installs returns the languages of which anything can ever be installed.
func (c *Config) installs() []executor.Language {
	var presets []map[executor.Language][]string
	for _, t := range c.Templates {
		presets = append(presets, t.Packages)
	}
	return c.Packages.sources().Languages(presets...)
}

// packagesSize returns how much room a session has for the packages of a language that can be installed.
func (c *Config) packagesSize() int64 {
	if c.Packages.Size == 0 {
		return packages.DefaultSize
	}
	return pages(int64(c.Packages.Size))
}

// checkPackages reports every mistake in what says that packages are installed, but those in the file of requirements.
func (c *Config) checkPackages() error {
	s := c.Packages.sources()
	errs := []error{s.CheckLanguages(c.installs(), c.languages()), driver.At("packages", s.Check())}
	if c.Packages.Size < 0 {
		errs = append(errs, driver.At("packages.size", errors.New("negative")))
	}
	return errors.Join(append(errs, driver.At("packages.network", checkNetwork(c.Packages.Network)))...)
}
