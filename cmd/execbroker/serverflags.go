package main

import (
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/origin"
)

// serverFlags are those of every command that serves.
type serverFlags struct {
	listen     string
	keys       string
	domains    []string
	network    reach
	maxTimeout time.Duration
	drain      time.Duration
	given      func(flag string) bool
}

// reach adds --network.
func (f *serverFlags) reach(c *cobra.Command, usage string) {
	f.network = reach(executor.NetworkNone)
	c.Flags().Var(&f.network, "network", usage+": none or full")
	must(c.RegisterFlagCompletionFunc("network", cobra.FixedCompletions([]cobra.Completion{"none", "full"}, cobra.ShellCompDirectiveNoFileComp)))
}

// names adds --domain.
func (f *serverFlags) names(c *cobra.Command, more string) {
	c.Flags().StringArrayVar(&f.domains, "domain", nil, "a `name` or address that clients use for the server; may be repeated"+more)
	must(c.RegisterFlagCompletionFunc("domain", cobra.NoFileCompletions))
}

// checkNames looks at --domain. Every name would let in what the check is there to keep out, so that is not to be had here.
func (f *serverFlags) checkNames() error {
	if err := (origin.Policy{Hosts: f.domains}).Check(); err != nil {
		return usage("--domain: %w", err)
	}
	if slices.Contains(f.domains, "*") {
		return usage("--domain: want names; * would serve web pages of others, too")
	}
	return nil
}

// drainLimit is how long runs may take to end: as long as one may take, and a little to be answered, unless --drain says something else.
func (f *serverFlags) drainLimit() time.Duration {
	if f.given("drain") {
		return f.drain
	}
	return f.maxTimeout + 10*time.Second
}

// reach is a flag for a mode of the network that needs no list.
type reach executor.NetworkMode

func (r *reach) String() string { return string(*r) }
func (r *reach) Type() string   { return "string" }

func (r *reach) Set(s string) error {
	switch mode := executor.NetworkMode(s); mode {
	case executor.NetworkNone, executor.NetworkFull:
		*r = reach(mode)
		return nil
	}
	return errors.New("want none or full")
}
