package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
		Short: "Report every error in a configuration",
		Long: `Report every error in a configuration, each with its position: all errors for which
run, serve and mcp refuse it. It asks no provider and does not read their keys.

The file may be for another machine, such as a pod. What this machine lacks for its
backends is no error. It is listed as not checked here: execbroker doctor checks it
where the backends will run.

Then it lists the commands among these whose default options the backends cannot serve,
and the pools that can never serve the tool for models or the server.

Exit codes: 0 no error, 2 errors.`,
		Example: "  execbroker config check --config app.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.fileConfiguration()
			if err != nil {
				return err
			}
			b, unchecked, err := a.openForCheck(cmd.Context(), cfg)
			if err == nil {
				defer a.closing(newProgress(a.err), "closing", b.Close)
			}
			if in := (*configError)(nil); errors.As(err, &in) {
				err = in.err // beside an error of the same file
			}
			if err := a.inFile(errors.Join(unrouted(cfg), err)); err != nil {
				return err
			}
			refused, unserved := refusals(b), misfits(b, cfg)
			doc := struct {
				Backends []string  `json:"backends"`
				Routes   []string  `json:"routes"`
				Refusing []refusal `json:"refusing,omitempty"`
				Pools    []misfit  `json:"pools,omitempty"`
				// Unchecked is what only the machine can say that the file is for.
				Unchecked []fieldReport `json:"unchecked,omitempty"`
			}{slices.Sorted(maps.Keys(cfg.Backends)), routeNames(cfg), refused, unserved, fieldReports(unchecked)}
			return a.answer(doc, true, func(w io.Writer) {
				printUnchecked(w, unchecked)
				for _, r := range refused {
					fmt.Fprintln(w, plain(r.String()))
				}
				for _, m := range unserved {
					fmt.Fprintln(w, plain(m.String()))
				}
				found := count(len(cfg.Backends), "backend") + ", " + count(len(cfg.Routes), "route")
				if len(unchecked) > 0 {
					fmt.Fprintf(w, "%s is right as far as this machine can say: %s; execbroker doctor checks the rest where the backends will run\n", plain(a.config), found)
					return
				}
				fmt.Fprintf(w, "%s is right: %s\n", plain(a.config), found)
			})
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

// fileConfiguration is configuration for commands that require a file.
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
assigns to the subject, the unit of its weight (the bucket), the order in which
backends are tried, and what a backend lacks. Without --subject it describes every
backend that the split may choose.

The result depends only on the configuration and the session, not on whether a
backend works at the moment.

Exit codes: 0 a backend can run it, 1 no backend can, 2 no route matches or
the configuration has errors.`,
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
	f.StringVar(&spec.Subject, "subject", "", "the user of the session; a split always assigns it to the same backend")
	f.StringToStringVar(&spec.Attributes, "attribute", nil, "an attribute that routes can match; may be repeated (`KEY=VALUE`)")
	f.StringToStringVar(&spec.Labels, "label", nil, "a label of the session; may be repeated (`KEY=VALUE`)")
	f.StringSliceVar(&languages, "language", nil, "a `language` of the session; may be repeated")
	f.StringSliceVar(&require, "require", nil, "a `feature` that the session must have; may be repeated")
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
	b, unchecked, err := a.openForCheck(ctx, cfg)
	if err != nil {
		return err
	}
	defer a.closing(newProgress(a.err), "closing", b.Close)
	printUnchecked(a.err, unchecked)
	d, err := b.Decide(spec)
	if err != nil {
		return err
	}
	return a.answer(d, serves(d), func(w io.Writer) { printDecision(w, d) })
}

// serves reports whether a backend can run a session. Without a subject it is enough that one of
// them can.
func serves(d router.Decision) bool {
	return len(d.Eligible) > 0 || d.Assigned == "" && slices.ContainsFunc(d.Split, func(s router.Share) bool {
		return s.Weight > 0 && d.Missing[s.Backend] == nil
	})
}

func printDecision(w io.Writer, d router.Decision) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	assigned := cmp.Or(plain(d.Assigned), "drawn for each session, since the route splits and no --subject is given")
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
	if d.Bucket > 0 {
		i := slices.IndexFunc(d.Split, func(s router.Share) bool { return s.Backend == d.Assigned })
		fmt.Fprintf(t, "bucket\t%d of the %d of %s\n", d.Bucket, d.Split[i].Weight, assigned)
	}
	tried := d.Eligible
	if d.Assigned == "" {
		tried = append([]string{"the one that is drawn, if it can"}, tried...)
	}
	if serves(d) {
		fmt.Fprintf(t, "tried\t%s\n", plain(strings.Join(tried, ", then ")))
	} else {
		fmt.Fprint(t, "tried\tnone: no backend of the route can run it\n")
	}
	for _, name := range slices.Sorted(maps.Keys(d.Missing)) {
		fmt.Fprintf(t, "cannot\t%s lacks %s\n", plain(name), plain(strings.Join(d.Missing[name], ", ")))
	}
}
