package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor/driver"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check what works and what is missing, and say how to fix it",
		Long: `Check what the backends need: programs, engines, networks, credentials. Nothing
is changed.

Without a configuration, every type that needs no settings is checked, and
the exit code is about the type that "run" uses. With a configuration, it is about
all of its backends, or the one that --backend names.

Exit codes: 0 nothing is missing, 1 something is missing.`,
		Example: `  execbroker doctor
  execbroker doctor --config app.yaml --backend box`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context()) },
	}
}

// examined is a backend with the findings, also in JSON.
type examined struct {
	Backend string         `json:"backend"`
	Type    string         `json:"type"` // empty for what is no backend
	OK      bool           `json:"ok"`
	Needed  bool           `json:"needed"` // whether the exit code depends on it
	Checks  []driver.Check `json:"checks"`
	// Warnings are about what works, and is open to others.
	Warnings []string `json:"warnings,omitempty"`
}

func (a *app) doctor(ctx context.Context) error {
	cfg, err := a.configuration()
	if err != nil {
		return err
	}
	needed := maps.Clone(cfg.Backends)
	if a.config == "" && a.backend == "" {
		for _, typ := range a.reg.Types() {
			c := backends.Config{Backends: map[string]backends.Backend{typ: {Type: typ}}}
			if c.Check(a.reg) == nil {
				cfg.Backends[typ] = c.Backends[typ]
			}
		}
	}
	ctx, end := newProgress(a.err).begin(ctx, "examining backends")
	found := backends.Doctor(ctx, a.env(), a.reg, cfg)
	end()
	if err := ctx.Err(); err != nil {
		return err
	}
	all, ok := []examined{}, true
	for _, name := range slices.Sorted(maps.Keys(found)) {
		_, need := needed[name]
		need = need || name == backends.StoreCheck
		e := examine(name, cfg.Backends[name].Type, need, found[name])
		ok = ok && (e.OK || !need)
		all = append(all, e)
	}
	if warnings := openFronts(frontsOf(cfg)); len(warnings) > 0 {
		all = append(all, examined{Backend: frontsAPI, OK: true, Checks: []driver.Check{}, Warnings: warnings})
	}
	return a.answer(all, ok, func(w io.Writer) {
		printExamined(w, all)
		if !ok {
			fmt.Fprint(w, "\nThe guide docs/guides/first-hour.md explains the errors of the first hour.\n")
		}
	})
}

// examine says whether a backend works by what was found.
func examine(name, typ string, need bool, found []driver.Check) examined {
	ok := !slices.ContainsFunc(found, func(c driver.Check) bool { return !c.OK })
	return examined{Backend: name, Type: typ, OK: ok, Needed: need, Checks: found}
}

func printExamined(w io.Writer, all []examined) {
	works := map[bool]string{true: "works", false: "does not work yet"}
	mark := map[bool]string{true: "ok     ", false: "missing"}
	for i, e := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		name := plain(e.Backend)
		if e.Type != "" && e.Backend != e.Type {
			name += " (" + plain(e.Type) + ")"
		}
		fmt.Fprintf(w, "%s %s\n", name, works[e.OK])
		for _, c := range e.Checks {
			line := plain(c.Name)
			if c.Detail != "" {
				line += ": " + plain(c.Detail)
			}
			fmt.Fprintf(w, "  %s  %s\n", mark[c.OK], line)
			if !c.OK && c.Fix != "" {
				fmt.Fprintf(w, "           fix: %s\n", plain(c.Fix))
			}
		}
		for _, text := range e.Warnings {
			fmt.Fprintf(w, "  warning  %s\n", plain(text))
		}
	}
}
