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
		Short: "Download and prepare in advance what the first run needs",
		Long: `Download and prepare in advance what the backends need on this machine. Otherwise the
first run does this. The command may be run again, and then does only what is still
missing.`,
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
		words := "is set up"
		if !a.reg.HasSetup(cfg.Backends[name].Type) {
			words = "needs no setup; execbroker doctor says whether it works"
		}
		if _, err := fmt.Fprintf(a.out, "%s %s\n", plain(name), words); err != nil {
			return err
		}
	}
	return nil
}
