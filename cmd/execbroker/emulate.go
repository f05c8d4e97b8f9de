package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/executor"
)

func (a *app) emulateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "emulate",
		Short: "Emulate a provider on this machine",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return usage("want a provider: fly or modal") },
	}
	c.AddCommand(a.emulateFlyCommand(), a.emulateModalCommand())
	return c
}

// emulatedHere refuses an address that other machines can connect to.
func emulatedHere(flag, address string) error {
	if loopback(address) {
		return nil
	}
	return usage("--%s: other machines can connect to %s, and clients of the emulator can become root on the engine's machine; use a loopback address", flag, address)
}

// runEmulator opens an emulator and serves it. cleanup says what its Close does, which is called at
// the end.
func runEmulator[S io.Closer](ctx context.Context, a *app, cleanup string, open func(context.Context) (S, error), serve func(S) error) error {
	p := newProgress(a.err)
	starting, end := p.begin(ctx, "looking for the engine")
	s, err := open(starting)
	end()
	if err != nil {
		return &executor.Error{Op: "emulate", Kind: executor.ErrUnavailable, Ran: executor.RanNo, Err: err}
	}
	defer a.closing(p, cleanup, s.Close)
	return serve(s)
}
