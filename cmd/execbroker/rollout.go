package main

import (
	"context"
	"fmt"
	"math"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/executor/sessions"
)

func (a *app) rolloutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Show how rollouts are doing, and decide by hand",
		Long: `Show the rollouts of the configuration: which share of new sessions the new
backend gets, what is known of each guard, and what was decided and why. The
programs that share the session store of the configuration make the decisions.`,
		Example: `  execbroker rollout --config app.yaml
  execbroker rollout pause chat --config app.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.rollouts(cmd.Context(), func(ctx context.Context, store sessions.Store, cfg backends.Config) error {
				all, err := backends.ReadRollouts(ctx, store, cfg)
				if err != nil {
					return err
				}
				return a.printRollouts(all)
			})
		},
	}
	for _, c := range []struct {
		change backends.RolloutChange
		short  string
	}{
		{backends.RolloutPause, "Keep the shares of a rollout as they are"},
		{backends.RolloutResume, "Go on with a rollout after a pause"},
		{backends.RolloutAbort, "Give all new sessions to the old backend"},
		{backends.RolloutPromote, "Give all new sessions to the new backend"},
		{backends.RolloutRestart, "Begin a rollout anew"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: string(c.change) + " ROUTE", Short: c.short, Long: c.short + ". Conversations stay where they are.", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.rollouts(cmd.Context(), func(ctx context.Context, store sessions.Store, cfg backends.Config) error {
					by := "unknown"
					if u, err := user.Current(); err == nil {
						by = u.Username
					}
					return backends.ChangeRollout(ctx, store, cfg, args[0], c.change, by)
				})
			},
		})
	}
	return cmd
}

// rollouts calls f with the session store of the configuration.
func (a *app) rollouts(ctx context.Context, f func(context.Context, sessions.Store, backends.Config) error) error {
	return a.stored(ctx, "rollouts", func(c backends.Config) bool { return len(c.Rollouts) > 0 }, f)
}

// stored calls f with the session store of the configuration, which must have what f reads.
func (a *app) stored(ctx context.Context, what string, has func(backends.Config) bool, f func(context.Context, sessions.Store, backends.Config) error) error {
	c, err := a.configuration()
	if err != nil {
		return err
	}
	if !has(c) {
		return usage("the configuration has no %s", what)
	}
	return a.withStore(ctx, c, "only the program itself knows its "+what, func(store sessions.Store) error { return f(ctx, store, c) })
}

// sentence says what is known of a guard.
func sentence(f rollout.Finding) string {
	switch {
	case f.Harm:
		return "worse than the guard allows"
	case f.Shown:
		return "no worse than the guard allows"
	}
	return "not known yet"
}

func (a *app) printRollouts(all []rollout.Report) error {
	if a.json {
		return a.printJSON(append([]rollout.Report{}, all...))
	}
	t := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	for i, r := range all {
		if i > 0 {
			fmt.Fprintln(t)
		}
		fmt.Fprintf(t, "%s: %d %% of new sessions go to %s, %s since %s\n", plain(r.Route), r.Share, plain(r.To), r.Status, r.Since.Local().Format(time.DateTime))
		fmt.Fprintln(t, "arm\tsubjects\tsessions\tbad\tturns\tfailed")
		for j, f := range r.Arms {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\n", []string{"old", "new"}[j], f.Subjects, f.Sessions, f.Bad, f.Turns, f.Failed)
		}
		fmt.Fprintln(t, "guard\tpairs\told\tnew\tworse by\t")
		for _, g := range r.Guards {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s to %s\t%s\n", g.Guard, g.Pairs, percent(g.Old), percent(g.New), percent(g.Low), percent(g.High), sentence(g))
		}
		for _, d := range r.Log {
			by := ""
			if d.By != "" {
				by = " by " + plain(d.By)
			}
			fmt.Fprintf(t, "%s\t%s%s\t%d %%\t%s\n", d.Time.Local().Format(time.DateTime), d.What, by, d.Step, d.Why)
		}
	}
	return t.Flush()
}

func percent(v float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", math.Round(v*1000)/10), ".0") + " %"
}
