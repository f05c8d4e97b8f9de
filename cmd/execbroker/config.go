package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/router"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration, and explain where sessions go",
	}
	cmd.AddCommand(a.configCheckCommand(), a.configExplainCommand())
	return cmd
}

func (a *app) configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Report every mistake in a configuration",
		Long: `Report every mistake in a configuration, each with its place, and the pools that never
serve what the tool for models or the server ask for. No provider is asked. Only
backends with pools are opened, and only for them secrets are read.

Exit codes: 0 it is right, 2 it is not.`,
		Example: "  execbroker config check --config app.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.fileConfiguration()
			if err != nil {
				return err
			}
			unserved := a.misfits(cmd.Context(), cfg)
			if a.json {
				return a.printJSON(struct {
					Backends []string `json:"backends"`
					Routes   []string `json:"routes"`
					Pools    []misfit `json:"pools,omitempty"`
				}{slices.Sorted(maps.Keys(cfg.Backends)), routeNames(cfg), unserved})
			}
			for _, m := range unserved {
				fmt.Fprintln(a.out, plain(m.String()))
			}
			_, err = fmt.Fprintf(a.out, "%s is right: %d backends, %d routes\n", plain(a.config), len(cfg.Backends), len(cfg.Routes))
			return err
		},
	}
}

func routeNames(cfg backends.Config) []string {
	names := []string{}
	for _, r := range cfg.Routes {
		names = append(names, r.Name)
	}
	return names
}

// fileConfiguration is configuration for commands that are about a file.
func (a *app) fileConfiguration() (backends.Config, error) {
	if a.config == "" {
		return backends.Config{}, usage("name the file with --config")
	}
	return a.configuration()
}

func (a *app) configExplainCommand() *cobra.Command {
	var spec executor.Spec
	var languages, require []string
	var isolation string
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Say where a session would go, and why",
		Long: `Say where a session would go: the route that matches, the backend that the split
gives to the subject, what is tried in which order, and what a backend lacks.

That depends on the configuration and the session alone. Whether a backend is up
at the moment makes no difference.

Exit codes: 0 it would go somewhere, 1 no backend can do it, 2 no route matches or
the configuration is wrong.`,
		Example: `  execbroker config explain --config app.yaml --subject user-7 --attribute plan=pro
  execbroker config explain --config app.yaml --language javascript --require command`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, l := range languages {
				spec.Languages = append(spec.Languages, executor.Language(l))
			}
			for _, f := range require {
				spec.Require = append(spec.Require, executor.Feature(f))
			}
			spec.MinIsolation = executor.Isolation(isolation)
			return a.explain(cmd.Context(), spec)
		},
	}
	f := cmd.Flags()
	f.StringVar(&spec.Subject, "subject", "", "who the session is for; splits are sticky by it")
	f.StringToStringVar(&spec.Attributes, "attribute", nil, "what routes may match; may be repeated (`KEY=VALUE`)")
	f.StringToStringVar(&spec.Labels, "label", nil, "a label of the session; may be repeated (`KEY=VALUE`)")
	f.StringSliceVar(&languages, "language", nil, "a `language` of the session; may be repeated")
	f.StringSliceVar(&require, "require", nil, "a `feature` that it must have; may be repeated")
	f.StringVar(&spec.Template, "template", "", "the `template` of the session")
	f.StringVar(&isolation, "min-isolation", "", "the weakest acceptable `isolation`")
	return cmd
}

func (a *app) explain(ctx context.Context, spec executor.Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	cfg, err := a.fileConfiguration()
	if err != nil {
		return err
	}
	b, err := backends.Open(ctx, a.env(), a.reg, brief(cfg))
	if err != nil {
		return err
	}
	defer a.closing(newProgress(a.err), "closing", b.Close)
	d, err := b.Decide(spec)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(d)
	} else {
		err = a.printDecision(d)
	}
	if err == nil && len(d.Eligible) == 0 && d.Assigned != "" {
		err = exitCode(exitFailed)
	}
	return err
}

func (a *app) printDecision(d router.Decision) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	assigned := plain(d.Assigned)
	if assigned == "" {
		assigned = "drawn for each session, since the route splits and no --subject is given"
	}
	fmt.Fprintf(t, "route\t%s\nassigned\t%s\n", plain(d.Route), assigned)
	if len(d.Split) > 1 {
		all := 0
		for _, s := range d.Split {
			all += s.Weight
		}
		var shares []string
		for _, s := range d.Split {
			shares = append(shares, fmt.Sprintf("%s %d of %d", plain(s.Backend), s.Weight, all))
		}
		fmt.Fprintf(t, "split\t%s\n", strings.Join(shares, ", "))
	}
	if len(d.Eligible) > 0 {
		fmt.Fprintf(t, "tried\t%s\n", plain(strings.Join(d.Eligible, ", then ")))
	} else if d.Assigned != "" {
		fmt.Fprint(t, "tried\tnothing: no backend of the route can do it\n")
	}
	for _, name := range slices.Sorted(maps.Keys(d.Missing)) {
		fmt.Fprintf(t, "cannot\t%s lacks %s\n", plain(name), plain(strings.Join(d.Missing[name], ", ")))
	}
	return t.Flush()
}
