package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/tool"
)

// misfit says that the pools of a backend cannot serve what a part of this program asks for with default options.
type misfit struct {
	Pool    string   `json:"pool"`    // the one that comes nearest, as "backends.box.broker.pools[0]"
	Client  string   `json:"client"`  // "tool", which is also what mcp gives to models, or "serve"
	Differs []string `json:"differs"` // fields of executor.Spec
	Problem string   `json:"problem"` // if it could not be found out; then the other fields but Pool are empty
}

// String writes it for people.
func (m misfit) String() string {
	if m.Problem != "" {
		return fmt.Sprintf("%s: whether it serves anything is not known: %s", m.Pool, m.Problem)
	}
	return fmt.Sprintf("%s: this pool never serves `%s`, because it differs in %s", m.Pool, m.Client, strings.Join(m.Differs, ", "))
}

// misfits examines the pools of a configuration. Backends that have some are opened for it, which asks no provider; what their sessions
// can do is only known then.
func (a *app) misfits(ctx context.Context, cfg backends.Config) (found []misfit) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Backends)) {
		own := cfg.Backends[name]
		if len(own.Broker.Pools) == 0 {
			continue
		}
		path := "backends." + name + ".broker.pools"
		caps, err := a.capabilities(ctx, name, own)
		if err != nil {
			found = append(found, misfit{Pool: path, Problem: err.Error()})
			continue
		}
		for _, c := range []struct {
			name  string
			specs []executor.Spec
		}{{"tool", tool.Options{}.Specs(caps)}, {"serve", []executor.Spec{{}}}} {
			for _, spec := range c.specs {
				i, fields := own.Broker.Misfit(caps, spec)
				if len(fields) == 0 {
					continue
				}
				m := misfit{Pool: fmt.Sprintf("%s[%d]", path, i), Client: c.name, Differs: fields}
				if slices.Contains(fields, "Languages") {
					m.Differs = slices.Clone(fields)
					m.Differs[slices.Index(fields, "Languages")] = fmt.Sprintf("Languages (it asks for %s)", names(spec.Languages))
				}
				found = append(found, m)
			}
		}
	}
	return found
}

// names writes languages; none means the backend's first.
func names(ls []executor.Language) string {
	if len(ls) == 0 {
		return "the first of the backend"
	}
	return fmt.Sprint(ls)
}

// capabilities opens one backend without pools and closes it.
func (a *app) capabilities(ctx context.Context, name string, own backends.Backend) (executor.Capabilities, error) {
	b, err := backends.Open(ctx, a.env(), a.reg, brief(backends.Config{Backends: map[string]backends.Backend{name: own}}))
	if err != nil {
		return executor.Capabilities{}, err
	}
	caps := b.Info().Capabilities
	return caps, b.Close()
}
