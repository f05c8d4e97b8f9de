package main

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/executor/rollout/report"
	"github.com/execbroker/execbroker/executor/router"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/server"
)

// reportForms are the forms of a report besides JSON.
var reportForms = map[string]func(io.Writer, []rollout.Experiment) error{
	"markdown": report.Markdown, "html": report.HTML, "csv": report.CSV,
}

// maxFigures bounds the answer of a server that a report is made of.
const maxFigures = 16 << 20

func (a *app) experimentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "experiment", Short: "Compare the arms of routes with a split", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var form, from string
	c := &cobra.Command{
		Use:   "report [ROUTE...]",
		Short: "Report what the arms of each route with a split have done",
		Long: `Report what the arms of each route with a split have done: sessions, turns,
success, errors, times and cost, with intervals, and what a rollout says of them.
The figures are those of all programs that share the session store of the
configuration. --from uses the answer of a server to GET /v1/experiments instead,
for programs that share no store.`,
		Example: `  execbroker experiment report --config app.yaml
  execbroker experiment report chat --config app.yaml --format html > report.html
  curl -H "Authorization: Bearer $KEY" $SERVER/v1/experiments | execbroker experiment report --from -`,
		RunE: func(cmd *cobra.Command, routes []string) error {
			write := reportForms[form]
			if write == nil {
				return usage("--format: %w", driver.Unknown("form", form, slices.Sorted(maps.Keys(reportForms))))
			}
			all, err := a.experiments(cmd.Context(), from)
			if err != nil {
				return err
			}
			if all, err = chosen(all, routes); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(server.ExperimentList{Experiments: all})
			}
			return write(a.out, all)
		},
	}
	c.Flags().StringVar(&form, "format", "markdown", "the form: markdown, html or csv")
	c.Flags().StringVar(&from, "from", "", "a `file` with the answer of a server; - means the standard input")
	must(c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(slices.Sorted(maps.Keys(reportForms)), cobra.ShellCompDirectiveNoFileComp)))
	cmd.AddCommand(c)
	return cmd
}

// experiments reads the figures from the store of the configuration, or from a file.
func (a *app) experiments(ctx context.Context, from string) (all []rollout.Experiment, err error) {
	if from != "" {
		return a.answered(from)
	}
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(c.Routes, func(r router.Route) bool { return len(r.Split) > 1 }) {
		return nil, usage("the configuration has no route with a split between backends")
	}
	err = a.withStore(ctx, c, "only the program itself knows its figures, which --from gets from a server", func(s sessions.Store) error {
		all, err = backends.ReadExperiments(ctx, s, c)
		return err
	})
	return all, err
}

// answered reads the answer of a server.
func (a *app) answered(from string) ([]rollout.Experiment, error) {
	in := a.in
	if from != "-" {
		f, err := os.Open(from)
		if err != nil {
			return nil, usage("--from: %w", err)
		}
		defer f.Close()
		in = f
	}
	var list server.ExperimentList
	if err := json.NewDecoder(io.LimitReader(in, maxFigures)).Decode(&list); err != nil {
		return nil, usage("--from: not the answer of a server to GET /v1/experiments: %w", err)
	}
	return list.Experiments, nil
}

// chosen returns the experiments of some routes, or all.
func chosen(all []rollout.Experiment, routes []string) ([]rollout.Experiment, error) {
	if len(routes) == 0 {
		return all, nil
	}
	byRoute := map[string]rollout.Experiment{}
	for _, x := range all {
		byRoute[x.Route] = x
	}
	var out []rollout.Experiment
	for _, r := range routes {
		x, ok := byRoute[r]
		if !ok {
			return nil, usage("%w", driver.Unknown("experiment", r, slices.Sorted(maps.Keys(byRoute))))
		}
		out = append(out, x)
	}
	return out, nil
}
