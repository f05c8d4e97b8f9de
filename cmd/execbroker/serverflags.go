package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/front"
)

// serverFlags are the flags of every command that is a server.
type serverFlags struct {
	listen     string
	keys       string
	domains    []string
	network    reach
	maxTimeout time.Duration
	drain      time.Duration
	warm       bool
	metrics    string
	watch      bool
	conns      int
	perAddress int
	proxies    []string
	given      func(flag string) bool
}

// reach adds --network.
func (f *serverFlags) reach(c *cobra.Command, usage string) {
	f.network = reach(executor.NetworkNone)
	f.network.add(c, "network", usage)
}

// names adds --domain.
func (f *serverFlags) names(c *cobra.Command, more string) {
	c.Flags().StringArrayVar(&f.domains, "domain", nil, "a `name` or address that clients use for the server; may be repeated"+more)
}

// warmth adds --warm, --watch and --metrics.
func (f *serverFlags) warmth(c *cobra.Command) {
	c.Flags().BoolVar(&f.warm, "warm", false, "first do what setup does, and start one sandbox of each backend")
	c.Flags().BoolVar(&f.watch, "watch", false, "use the file of --config again when it has changed, and at SIGHUP")
	c.Flags().StringVar(&f.metrics, "metrics", "", "answer Prometheus on /metrics of this `address` and port, without a key")
}

// bounds adds --max-connections, --max-connections-per-address and --proxy.
func (f *serverFlags) bounds(c *cobra.Command) {
	l := c.Flags()
	l.IntVar(&f.conns, "max-connections", front.DefaultConnections, "the largest number of connections; more wait")
	l.IntVar(&f.perAddress, "max-connections-per-address", front.DefaultPerAddress, "the largest number of connections of an address whose clients have not shown a key; more are closed")
	l.StringArrayVar(&f.proxies, "proxy", nil, "an `address` or network of proxies, which --max-connections-per-address does not bind; may be repeated")
}

// limits are those of the connections. log gets what they refuse.
func (f *serverFlags) limits(log *slog.Logger) (*front.Limits, error) {
	lim := &front.Limits{Connections: f.conns, PerAddress: f.perAddress, Log: log}
	if min(f.conns, f.perAddress) < 1 {
		return lim, usage("--max-connections and --max-connections-per-address: want at least 1")
	}
	for _, text := range f.proxies {
		p, err := front.ParseProxy(text)
		if err != nil {
			return lim, usage("--proxy: %w", err)
		}
		lim.Proxies = append(lim.Proxies, p)
	}
	return lim, nil
}

// examineTime is how long a server checks its backends before it accepts clients.
const examineTime = 10 * time.Second

// examine logs what the backends lack, before the first client finds out. The server starts
// nevertheless, because what is missing may appear later. A client over standard input and output
// does not wait for the check, which continues until wait is called.
func (a *app) examine(ctx context.Context, p *progress, x *backends.Broker, f serverFlags) (wait func()) {
	log := a.log()
	look := func(ctx context.Context) {
		found := x.Doctor(ctx)
		for _, name := range slices.Sorted(maps.Keys(found)) {
			for _, c := range found[name] {
				if !c.OK && ctx.Err() == nil {
					log.WarnContext(ctx, "backend is not ready", "backend", name, "missing", c.Name, "detail", c.Detail, "fix", c.Fix)
				}
			}
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			log.WarnContext(ctx, "backends do not answer", "after", examineTime)
		}
	}
	if f.warm {
		a.warm(ctx, p, x, f)
	}
	ctx, cancel := context.WithTimeout(ctx, examineTime)
	var wg sync.WaitGroup
	wg.Go(func() { look(ctx) })
	if f.listen != "" {
		wg.Wait()
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// warm does in advance what the first client would have to wait for.
func (a *app) warm(ctx context.Context, p *progress, x *backends.Broker, f serverFlags) {
	sctx, end := p.begin(ctx, "setting up")
	err := x.Setup(sctx)
	end()
	if err != nil {
		a.log().WarnContext(ctx, "setting up", "err", err)
	}
	for _, s := range x.Stats().Backends {
		name := s.Name
		b, _ := x.Backend(name)
		wctx, end := p.begin(ctx, "starting a sandbox of "+name)
		s, err := b.Create(wctx, executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkMode(f.network)}})
		if err == nil {
			err = s.Close()
		}
		end()
		if err != nil {
			a.log().WarnContext(ctx, "starting a sandbox ahead", "backend", name, "err", err)
		}
	}
}

// checkNames checks --domain. It refuses "*", which would disable the protection against web pages.
func (f *serverFlags) checkNames() error {
	if err := (front.Policy{Hosts: f.domains}).Check(); err != nil {
		return usage("--domain: %w", err)
	}
	if slices.Contains(f.domains, "*") {
		return usage("--domain: want names; * would also serve web pages of other origins")
	}
	return nil
}

// drainLimit is how long to wait for runs: the value of --drain or, without it, the time of the
// longest run and a little for its answer.
func (f *serverFlags) drainLimit() time.Duration {
	if f.given("drain") {
		return f.drain
	}
	return f.maxTimeout + 10*time.Second
}

// reach is a flag for a network mode that needs no list.
type reach executor.NetworkMode

// add adds the flag to a command. Its value is the default.
func (r *reach) add(c *cobra.Command, name, usage string) {
	c.Flags().Var(r, name, usage+": none or full")
	must(c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions([]cobra.Completion{"none", "full"}, cobra.ShellCompDirectiveNoFileComp)))
}

func (r *reach) String() string { return string(*r) }
func (r *reach) Type() string   { return "string" }

func (r *reach) Set(s string) error {
	switch mode := executor.NetworkMode(s); mode {
	case executor.NetworkNone, executor.NetworkFull:
		*r = reach(mode)
		return nil
	}
	return errors.New("want none or full")
}
