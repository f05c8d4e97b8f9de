package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
)

func (a *app) setupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "setup",
		Short: "Fetch and prepare ahead what the first run would wait for",
		Long: `Fetch and prepare ahead what the backends need on this machine and would otherwise
fetch and prepare at the first run. It may be run again, and does only what is
left to do.`,
		Example: `  execbroker setup
  execbroker setup --config app.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.setup(cmd.Context()) },
	}
}

func (a *app) setup(ctx context.Context) error {
	cfg, err := a.configuration()
	if err != nil {
		return err
	}
	ctx, end := newProgress(a.err).begin(ctx, "setting up")
	err = backends.Setup(ctx, a.env(), a.reg, cfg)
	end()
	names := slices.Sorted(maps.Keys(cfg.Backends))
	if a.json {
		doc := struct {
			Backends []string     `json:"backends"`
			Error    *errorReport `json:"error,omitempty"`
		}{Backends: names}
		return a.printDocument(ctx, &doc, &doc.Error, err)
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := fmt.Fprintf(a.out, "%s is set up\n", plain(name)); err != nil {
			return err
		}
	}
	return nil
}
