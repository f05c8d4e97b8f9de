package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/executor"
)

// serverFlags are those of every command that serves.
type serverFlags struct {
	listen     string
	keys       string
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
