package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/conformance/parity"
	"github.com/execbroker/execbroker/executor/sessions"
)

func (a *app) shadowCommand() *cobra.Command {
	var examples string
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "Show where conversations differ that were repeated on another backend",
		Long: `Show what the shadows of the configuration have found: by class, by how much more
often conversations differ on the other backend than on their own. What the code
does differently each time is subtracted. The programs that share the session
store of the configuration repeat the conversations.

With --examples the conversations that were kept, if the configuration has keep.
"execbroker parity --from-shadow" repeats them.`,
		Example: `  execbroker shadow --config app.yaml
  execbroker shadow --examples chat --config app.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.shadows(cmd.Context(), func(ctx context.Context, store sessions.Store, cfg backends.Config) error {
				if examples != "" {
					all, err := backends.ReadShadowExamples(ctx, store, cfg, examples)
					if err != nil {
						return err
					}
					return a.printExamples(all)
				}
				all, err := backends.ReadShadows(ctx, store, cfg)
				if err != nil {
					return err
				}
				return a.printShadows(all)
			})
		},
	}
	cmd.Flags().StringVar(&examples, "examples", "", "show the conversations of this `route` that were kept")
	return cmd
}

// shadows calls f with the session store of the configuration.
func (a *app) shadows(ctx context.Context, f func(context.Context, sessions.Store, backends.Config) error) error {
	return a.stored(ctx, "shadows", func(c backends.Config) bool { return len(c.Shadows) > 0 }, f)
}

func (a *app) printShadows(all []backends.ShadowReport) error {
	if a.json {
		return a.printJSON(append([]backends.ShadowReport{}, all...))
	}
	t := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	for i, r := range all {
		if i > 0 {
			fmt.Fprintln(t)
		}
		other, own := r.Arms[0], r.Arms[1]
		fmt.Fprintf(t, "%s: %d conversations were repeated on %s, and %d for control\n", plain(r.Route), other.Conversations, plain(r.To), own.Conversations)
		fmt.Fprintln(t, "class\tmore often by\tat least\tat most\t")
		for _, c := range r.Classes {
			verdict := "may be chance"
			if c.Differs() {
				verdict = "due to the backend"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", plain(c.Class), percent(c.Excess.Share), percent(c.Excess.Low), percent(c.Excess.High), verdict)
		}
		fmt.Fprintf(t, "runs that take much longer\t%s\t%s\t%s\t%s\n", percent(r.Slow.Share), percent(r.Slow.Low), percent(r.Slow.High), times(other, own))
		for _, list := range []struct {
			what   string
			counts map[string]int64
		}{{"not repeated", r.Excluded}, {"left the sample", r.Left}} {
			var texts []string
			for _, why := range slices.Sorted(maps.Keys(list.counts)) {
				texts = append(texts, fmt.Sprintf("%s %d", plain(why), list.counts[why]))
			}
			if len(texts) > 0 {
				fmt.Fprintf(t, "%s: %s\n", list.what, strings.Join(texts, ", "))
			}
		}
	}
	return t.Flush()
}

// times says how much longer all runs took than their originals, or nothing without runs.
func times(other, own backends.ShadowArm) string {
	if other.Original == 0 || own.Original == 0 {
		return ""
	}
	factor := func(a backends.ShadowArm) float64 { return float64(a.Repeated) / float64(a.Original) }
	return fmt.Sprintf("all take %.2f times as long, for control %.2f times", factor(other), factor(own))
}

func (a *app) printExamples(all []backends.ShadowExample) error {
	if a.json {
		return a.printJSON(append([]backends.ShadowExample{}, all...))
	}
	for _, x := range all {
		fmt.Fprintf(a.out, "%s  %s\n", x.Time.Local().Format(time.DateTime), plain(x.Class))
		printDifferences(a.out, "    ", x.Differences)
		if len(x.Program) > 0 {
			fmt.Fprintf(a.out, "    %s\n", plain(string(x.Program)))
		}
	}
	return nil
}

// fromShadow returns the examples of a route that can be repeated.
func (a *app) fromShadow(ctx context.Context, route string) (programs []parity.Program, err error) {
	err = a.shadows(ctx, func(ctx context.Context, store sessions.Store, cfg backends.Config) error {
		all, err := backends.ReadShadowExamples(ctx, store, cfg, route)
		if err != nil {
			return err
		}
		var lines []byte
		for _, x := range all {
			if len(x.Program) > 0 {
				lines = append(append(lines, bytes.ReplaceAll(x.Program, []byte("\n"), nil)...), '\n')
			}
		}
		if len(lines) == 0 {
			return usage("--from-shadow: no example of %s is kept; shadows.%s.keep.code in the configuration keeps them", plain(route), plain(route))
		}
		programs, err = parity.ReadLines(bytes.NewReader(lines))
		return err
	})
	return programs, err
}
