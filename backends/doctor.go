package backends

import (
	"context"
	"sync"

	"github.com/execbroker/execbroker/executor/driver"
)

// Doctor is Broker.Doctor for a configuration that cannot be opened. It examines the backends at
// the same time, because one that does not answer takes long, and changes nothing. An invalid entry
// has one finding, "configuration". A store that processes share is examined too, as StoreCheck.
func Doctor(ctx context.Context, env driver.Env, reg *Registry, cfg Config) map[string][]driver.Check {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		found = make(map[string][]driver.Check, len(cfg.Backends))
	)
	examine := func(name string, f func() []driver.Check) {
		wg.Go(func() {
			checks := f()
			mu.Lock()
			defer mu.Unlock()
			found[name] = checks
		})
	}
	for name, b := range cfg.Backends {
		examine(name, func() []driver.Check { return b.doctor(ctx, env, name, reg) })
	}
	if cfg.Sessions.Shared() {
		examine(StoreCheck, func() []driver.Check { return cfg.Sessions.doctor(ctx) })
	}
	wg.Wait()
	return found
}

func (b Backend) doctor(ctx context.Context, env driver.Env, name string, reg *Registry) []driver.Check {
	if err := b.check(reg); err != nil {
		return []driver.Check{{Name: "configuration", Detail: err.Error(), Fix: "correct the entry " + name + " of the configuration"}}
	}
	raw, err := b.settings()
	if err != nil {
		return []driver.Check{{Name: "configuration", Detail: err.Error()}}
	}
	env.Name = name
	return reg.m[b.Type].Doctor(ctx, env, raw)
}
