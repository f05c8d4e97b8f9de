package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/server/compat"
)

// frontsAPI is the value of --api for the fronts of the configuration.
const frontsAPI = "fronts"

// frontsOf returns the fronts of a configuration.
func frontsOf(c backends.Config) (fronts []compat.Front) {
	for _, f := range c.Fronts {
		fronts = append(fronts, compat.Front(f))
	}
	return fronts
}

// isCompat reports whether an interface is one of package compat.
func isCompat(api string) bool { return api == frontsAPI || slices.Contains(compat.Names(), api) }

// frontCompat is front for the interfaces of package compat: one at the root, or those of the
// configuration.
func (a *app) frontCompat(f serveFlags, spec executor.Spec) (func(*backends.Broker) (*apiServer, error), error) {
	cfg := compat.Config{
		Fronts: []compat.Front{{API: f.api}}, Spec: spec, Hosts: f.domains, MaxTimeout: f.maxTimeout, Local: loopback(f.listen), Log: a.log(),
	}
	if f.api == frontsAPI {
		c, err := a.fileConfiguration()
		if err != nil {
			return nil, err
		}
		if cfg.Fronts = frontsOf(c); len(cfg.Fronts) == 0 {
			return nil, usage("--api fronts: %s has no fronts", a.config)
		}
	}
	made := ""
	if f.keys != "" || len(a.keyList()) > 0 || compat.NeedKeys(cfg.Fronts) {
		var err error
		if cfg.Keys, made, err = a.clients(f.keys, f.listen); err != nil {
			return nil, err
		}
	}
	if err := cfg.Check(); err != nil {
		return nil, usage("--api %s: %w", f.api, err)
	}
	return func(x *backends.Broker) (*apiServer, error) {
		s, err := compat.New(x, cfg)
		if err != nil {
			return nil, err
		}
		for _, warning := range openFronts(cfg.Fronts) {
			a.log().Warn(warning)
		}
		return &apiServer{Handler: s, made: made, drain: s.Drain, close: s.Close, fronts: cfg.Fronts}, nil
	}, nil
}

// openFronts warns of the fronts that serve requests without a key.
func openFronts(fronts []compat.Front) (warnings []string) {
	for i, f := range fronts {
		if f.AllowUnauthenticated {
			warnings = append(warnings, fmt.Sprintf("fronts[%d]: whoever can reach %s of %s runs code without a key, as the subject %s", i, f.Path+"/", f.API, f.Subject))
		}
	}
	return warnings
}

// frontsText says where the fronts are.
func (s serving) frontsText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "serving %s at %s\n\n", s.API, s.URL)
	for _, f := range s.Fronts {
		fmt.Fprintf(&b, "  %-10s %s%s\n", f.API, s.URL, f.Path)
	}
	if s.Key != "" {
		fmt.Fprintf(&b, "\nclients send the key %s\n", s.Key)
	}
	return b.String()
}
