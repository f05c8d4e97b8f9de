package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
)

// dayForm is how people write days.
const dayForm = "2006-01-02"

// usageFlags are those of the command usage.
type usageFlags struct {
	from, to string
	by       []string
	csv      bool
}

// usageColumns are what usage can be summed by, in their order in the output.
var usageColumns = []string{"day", "account", "arm"}

func (a *app) usageCommand() *cobra.Command {
	var f usageFlags
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show what subjects have used and what it cost",
		Long: `Show the runs, their time and the cost of each subject, by day and by arm of
the routes, as all programs have counted them that share the session store of the
configuration. An attribute with a quota is counted too, as in "plan=pro": its
amounts are also among those of its subjects.

Days are those of UTC. Costs are in the currency of the prices.`,
		Example: `  execbroker usage --config app.yaml
  execbroker usage --config app.yaml --from 2026-11-01 --to 2026-11-30 --by account --csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.usage(cmd.Context(), f) },
	}
	l := cmd.Flags()
	l.StringVar(&f.from, "from", "", "the first `day`, as 2026-11-01 (default 30 days ago)")
	l.StringVar(&f.to, "to", "", "the last `day` (default today)")
	l.StringSliceVar(&f.by, "by", usageColumns, "what to sum by: any of day, account and arm (`LIST`)")
	l.BoolVar(&f.csv, "csv", false, "print comma-separated values")
	return cmd
}

func (a *app) usage(ctx context.Context, f usageFlags) error {
	to, err := day("--to", f.to, time.Now())
	if err != nil {
		return err
	}
	from, err := day("--from", f.from, to.AddDate(0, 0, -30))
	if err != nil {
		return err
	}
	for _, by := range f.by {
		if !slices.Contains(usageColumns, by) {
			return usage("--by: %w", driver.Unknown("column", by, usageColumns))
		}
	}
	c, err := a.configuration()
	if err != nil {
		return err
	}
	return a.withStore(ctx, c, "each of them has only its own numbers", func(store sessions.Store) error {
		rows, err := backends.ReadUsage(ctx, store, from, to)
		if err != nil {
			return err
		}
		return a.printUsage(summed(rows, f.by), f)
	})
}

// day parses a day of a flag.
func day(flag, text string, otherwise time.Time) (time.Time, error) {
	if text == "" {
		return otherwise, nil
	}
	t, err := time.Parse(dayForm, text)
	if err != nil {
		return t, usage("%s: want a day as 2026-11-30, got %q", flag, text)
	}
	return t, nil
}

// summed adds up rows that differ only in what is not in by.
func summed(rows []backends.Usage, by []string) []backends.Usage {
	var out []backends.Usage
	at := map[backends.Usage]int{}
	for _, r := range rows {
		if !slices.Contains(by, "account") && !strings.HasPrefix(r.Account, "subject=") {
			continue // counted with its subjects
		}
		k := r
		k.Runs, k.Time, k.Cost = 0, 0, 0
		if !slices.Contains(by, "day") {
			k.Day = time.Time{}
		}
		if !slices.Contains(by, "account") {
			k.Account = ""
		}
		if !slices.Contains(by, "arm") {
			k.Route, k.Assigned, k.Backend = "", "", ""
		}
		i, known := at[k]
		if !known {
			i = len(out)
			at[k], out = i, append(out, k)
		}
		out[i].Runs, out[i].Time, out[i].Cost = out[i].Runs+r.Runs, out[i].Time+r.Time, out[i].Cost+r.Cost
	}
	slices.SortStableFunc(out, func(a, b backends.Usage) int {
		return cmp.Or(a.Day.Compare(b.Day), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Route, b.Route), cmp.Compare(a.Assigned, b.Assigned), cmp.Compare(a.Backend, b.Backend))
	})
	return out
}

// usageDocument is the JSON output of the command.
type usageDocument struct {
	Usage []backends.Usage `json:"usage"`
}

func (a *app) printUsage(rows []backends.Usage, f usageFlags) error {
	if a.json {
		return a.printJSON(usageDocument{append([]backends.Usage{}, rows...)})
	}
	var head []string
	cells := func(r backends.Usage) (out []string) {
		for _, c := range usageColumns {
			switch {
			case !slices.Contains(f.by, c):
			case c == "day":
				out = append(out, r.Day.Format(dayForm))
			case c == "account":
				out = append(out, r.Account)
			default:
				out = append(out, r.Route, r.Assigned, r.Backend)
			}
		}
		return append(out, fmt.Sprint(r.Runs), fmt.Sprintf("%.3f", time.Duration(r.Time).Seconds()), r.Cost.String())
	}
	for _, c := range usageColumns {
		switch {
		case !slices.Contains(f.by, c):
		case c == "arm":
			head = append(head, "route", "assigned", "backend")
		default:
			head = append(head, c)
		}
	}
	head = append(head, "runs", "seconds", "cost")
	if f.csv {
		w := csv.NewWriter(a.out)
		if err := w.Write(head); err != nil {
			return err
		}
		for _, r := range rows {
			if err := w.Write(cells(r)); err != nil {
				return err
			}
		}
		w.Flush()
		return w.Error()
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.err, "execbroker: nothing was used in these days, or nothing has a quota or a price")
		return nil
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ToUpper(strings.Join(head, "\t")))
	for _, r := range rows {
		line := cells(r)
		for i := range line {
			line[i] = cmp.Or(plain(line[i]), "-")
		}
		fmt.Fprintln(t, strings.Join(line, "\t"))
	}
	return t.Flush()
}
