package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/tool"
)

// refusal says that the backends cannot serve a command of this program with default options.
type refusal struct {
	Client  string `json:"client"` // "run", "serve" or "mcp"
	Problem string `json:"problem"`
}

// String formats the refusal for people.
func (r refusal) String() string { return fmt.Sprintf("`%s` refuses it: %s", r.Client, r.Problem) }

// refusals checks the default requests of the commands that create sandboxes.
func refusals(b *backends.Broker) (found []refusal) {
	if missing := b.Info().Capabilities.MissingFor(executor.Spec{}); len(missing) > 0 {
		problem := "it lacks " + strings.Join(missing, ", ")
		found = append(found, refusal{"run", problem}, refusal{"serve", problem})
	}
	if _, err := tool.New(b, b.Manager(), tool.Options{}); err != nil {
		found = append(found, refusal{"mcp", err.Error()})
	}
	return found
}

// misfit says that the pools of a backend cannot serve a part of this program with default options.
type misfit struct {
	Pool    string   `json:"pool"`    // the closest pool, as "backends.box.broker.pools[0]"
	Client  string   `json:"client"`  // "tool", which mcp also uses, or "serve"
	Differs []string `json:"differs"` // fields of executor.Spec
}

// String formats the misfit for people.
func (m misfit) String() string {
	return fmt.Sprintf("%s: this pool never serves `%s`, because it differs in %s", m.Pool, m.Client, strings.Join(m.Differs, ", "))
}

// misfits checks the pools of a configuration. The capabilities of their sessions are known once
// the backends are open.
func misfits(b *backends.Broker, cfg backends.Config) (found []misfit) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Backends)) {
		x, _ := b.Backend(name)
		caps := x.Info().Capabilities
		for _, c := range []struct {
			name  string
			specs []executor.Spec
		}{{"tool", tool.Options{}.Specs(caps)}, {"serve", []executor.Spec{{}}}} {
			for _, spec := range c.specs {
				i, fields := cfg.Backends[name].Broker.Misfit(caps, spec)
				if len(fields) == 0 {
					continue
				}
				m := misfit{Pool: fmt.Sprintf("backends.%s.broker.pools[%d]", name, i), Client: c.name, Differs: fields}
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

// names joins languages; none means the backend's first.
func names(ls []executor.Language) string {
	if len(ls) == 0 {
		return "the first of the backend"
	}
	return fmt.Sprint(ls)
}
