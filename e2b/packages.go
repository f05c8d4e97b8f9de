package e2b

import (
	"errors"
	"slices"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
)

// sources are the packages as all adapters understand them.
func (c *Config) sources() *packages.Sources { return (*packages.Sources)(&c.Packages) }

// checkPackages reports every mistake in what says that packages are installed, but those in the
// file of requirements.
func (c *Config) checkPackages() error {
	s := c.sources()
	used := s.Languages()
	errs := []error{s.Validate(c.languages())}
	at := func(path, text string) { errs = append(errs, driver.At(path, errors.New(text))) }
	if len(used) == 0 {
		return errors.Join(errs...)
	}
	if c.kernel() != KernelRunner {
		at("packages", "are those of the template with the kernel "+c.kernel()+"; use the kernel "+KernelRunner)
	}
	if c.user() != DefaultUser {
		at("packages", "need the user "+DefaultUser+": code could change what another one installs")
	}
	if !slices.Contains(c.networks(), c.fetching(s.Offline() && !slices.Contains(used, executor.JavaScript))) {
		at("packages", "are fetched in sandboxes with internet, and networks has no full; use a directory of wheels")
	}
	return errors.Join(errs...)
}

// fetching returns the network of builders. Those that need none have none, where the service can
// do that.
func (c *Config) fetching(offline bool) executor.NetworkMode {
	if offline && slices.Contains(c.networks(), executor.NetworkNone) {
		return executor.NetworkNone
	}
	return executor.NetworkFull
}
