package main

import (
	"context"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor/sessions"
)

// withStore calls f with the session store of a configuration. so says why that is no use if
// programs do not share it.
func (a *app) withStore(ctx context.Context, c backends.Config, so string, f func(sessions.Store) error) error {
	if !c.Sessions.Shared() {
		return usage("the configuration has no session store that programs share, so %s: set sessions.store", so)
	}
	store, closer, err := c.Sessions.OpenStore(ctx)
	if err != nil {
		return a.inFile(err)
	}
	defer closer.Close()
	return f(store)
}
