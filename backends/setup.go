package backends

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/execbroker/execbroker/executor/driver"
)

// Setup downloads and prepares what the backends of cfg need on this machine, so that the first
// session does not wait for it. It reports its steps to executor.WithProgress, continues after a
// failure, and may be called again.
func Setup(ctx context.Context, env driver.Env, reg *Registry, cfg Config) error {
	if err := cfg.Check(reg); err != nil {
		return err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Backends)) {
		errs = append(errs, driver.At("backends."+name, cfg.Backends[name].setup(ctx, env, name, reg)))
	}
	return errors.Join(errs...)
}

func (b Backend) setup(ctx context.Context, env driver.Env, name string, reg *Registry) error {
	raw, err := b.settings()
	if err != nil {
		return err
	}
	env.Name = name
	return reg.m[b.Type].Setup(ctx, env, raw)
}
