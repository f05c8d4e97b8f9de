package backends

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// checkDrain checks Sessions.Drain: it names backends that no new session is made on.
func (c Config) checkDrain() error {
	var errs []error
	names := slices.Sorted(maps.Keys(c.Backends))
	for i, name := range c.Sessions.Drain {
		path := index("sessions.drain", i)
		if !slices.Contains(names, name) {
			errs = append(errs, driver.At(path, driver.Unknown("backend", name, names)))
			continue
		}
		if len(c.Routes) == 0 {
			errs = append(errs, driver.At(path, errors.New("without routes, new sessions are made there; add routes that lead elsewhere")))
		}
		for _, r := range c.Routes {
			if r.Uses(name) {
				errs = append(errs, driver.At(path, fmt.Errorf("route %q leads there; conversations would not get away from it", r.Name)))
			}
		}
	}
	return errors.Join(errs...)
}

// leaves reports whether the conversation of a session is to leave its backend.
func (b *Broker) leaves(h executor.Handle) bool {
	return slices.Contains(b.current().cfg.Sessions.Drain, h.Backend)
}
