package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/live"
	"github.com/execbroker/execbroker/executor"
)

// liveOptions are the flags of conformance live.
type liveOptions struct {
	budget    string
	sandboxes int
	time      time.Duration
	dir       string
	only      []string
	traps     []string
	hide      []string
	dry       bool
}

func (a *app) conformanceLiveCommand() *cobra.Command {
	var o liveOptions
	cmd := &cobra.Command{
		Use:   "live --backend NAME --budget AMOUNT",
		Short: "Check a backend against a paid service, within a budget",
		Long: `Run the conformance suite against a service with your account, and then check
each fact about the service that the adapter relies on. First it says what it
will create and what that may cost. With --dry-run it stops there.

The limits on sandboxes, time and money apply while it runs. They are computed from the
sandboxes that are really created and their life. A create that would exceed a limit
is refused, and the run ends. At the end its sandboxes are removed in any case.
If the program is killed, the next run removes them, or "session reap" with
the owner that the program prints.

It writes a report and the requests and answers of the service, without keys, names
and addresses, so that they can be published. Check them before you do that.

Supported services: ` + strings.Join(live.Types(), ", ") + `.

Exit codes: 0 every case and every fact is as expected, 1 one is not or a limit was
reached, 2 and 3 as for all commands.`,
		Example: `  execbroker conformance live --backend e2b --budget 2USD --dry-run
  execbroker conformance live --config app.yaml --backend cloud --budget 0.5USD --out cloud-live`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.live(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.budget, "budget", "", "the largest cost: an `amount` such as 2USD")
	f.IntVar(&o.sandboxes, "max-sandboxes", 600, "create at most this `number` of sandboxes")
	f.DurationVar(&o.time, "max-time", 2*time.Hour, "end after this `time`")
	f.StringVar(&o.dir, "out", "", "write to this `directory`, which must be empty or is created (default live- and the type)")
	f.StringArrayVar(&o.only, "only", nil, "run the cases whose ID matches this `pattern`; may be repeated")
	f.StringArrayVar(&o.traps, "fact", nil, "check the facts whose name matches this `pattern`; may be repeated")
	f.StringArrayVar(&o.hide, "hide", nil, "a `text` to leave out of the files, such as the name of your organization; may be repeated")
	f.BoolVar(&o.dry, "dry-run", false, "only say what would be created")
	must(cmd.MarkFlagDirname("out"))
	return cmd
}

func (a *app) live(ctx context.Context, o liveOptions) error {
	usd, err := live.ParseBudget(o.budget)
	if err != nil {
		return usage("--budget: %w", err)
	}
	if o.sandboxes < 1 || o.time <= 0 {
		return usage("--max-sandboxes and --max-time: want at least 1")
	}
	cfg, err := a.configuration()
	if err != nil {
		return err
	}
	if len(cfg.Backends) != 1 {
		return usage("choose one backend with --backend")
	}
	var name string
	var b backends.Backend
	for name, b = range cfg.Backends {
	}
	lo := live.Options{
		Type: b.Type, Settings: b.Settings, Owner: a.env().Owner + ".live", Dir: cmp.Or(o.dir, "live-"+b.Type), Traps: o.traps, Hide: o.hide,
		Bounds: live.Bounds{USD: usd, Sandboxes: o.sandboxes, Time: o.time},
		Open: func(ctx context.Context, settings map[string]json.RawMessage, owner string) (executor.Executor, error) {
			env := a.env()
			env.Owner = owner
			one := backends.Config{Backends: map[string]backends.Backend{name: {Type: b.Type, Settings: settings}}}
			return backends.Open(ctx, env, a.reg, one)
		},
	}
	plan, err := lo.Plan()
	if err != nil {
		return &usageError{err: err}
	}
	if lo.Target, err = a.target(ctx, conformanceOptions{mode: string(modeOf(b)), only: o.only, parallel: 1}); err != nil {
		return err
	}
	if was, err := live.RunChild(ctx, lo); was {
		return err
	}
	if _, err := fmt.Fprint(a.err, plainText(plan)); err != nil || o.dry {
		return err
	}
	running, end := a.watchCases(ctx, "live", &lo.Target)
	r, err := live.Run(running, lo)
	end()
	if r == nil {
		return err
	}
	found := a.lived(r, lo.Dir)
	switch {
	case err == nil:
		return found
	case r.Stopped == "" || ctx.Err() != nil || len(r.Left) > 0:
		return err
	}
	fmt.Fprintf(a.err, "execbroker: ended early: %s\n", plainText(err.Error())) // by a limit
	return exitCode(exitFailed)
}

// lived prints the result of a live run.
func (a *app) lived(r *live.Result, dir string) error {
	return a.answer(r, r.Holds(), func(w io.Writer) {
		for _, l := range r.Traps {
			if l.Outcome != live.Unselected {
				fmt.Fprintf(w, "%s %s: expected %s; seen %s\n", l.Outcome, plain(l.Name), plain(l.Expected), shown(l.Seen))
			}
		}
		fmt.Fprintf(w, "suite %v; %d sandboxes, at most %.4f USD; removed %d of earlier runs, left %d; written to %s\n",
			r.Report.Totals, r.Spent.Sandboxes, r.Spent.USD, r.Before, len(r.Left), plain(dir))
	})
}

// modeOf says what is behind an address: a server on this machine is not the real service.
func modeOf(b backends.Backend) conformance.Mode {
	for _, key := range []string{"api", "api_url"} {
		var at string
		if json.Unmarshal(b.Settings[key], &at) != nil {
			continue
		}
		if u, err := url.Parse(at); err == nil && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()) {
			return conformance.Emulated
		}
	}
	return conformance.Live
}
