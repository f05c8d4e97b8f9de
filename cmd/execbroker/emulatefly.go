package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/flymachines/flytest"
)

// emulateFlags are the flags of emulate fly.
type emulateFlags struct {
	listen, proxy string
	engine        string
	apps          []string
	images        map[string]string
	publish       []int
	pull          bool
	rate          float64
	maxMachines   int
}

func (a *app) emulateFlyCommand() *cobra.Command {
	var f emulateFlags
	c := &cobra.Command{
		Use:   "fly",
		Short: "The Machines API of Fly.io, with containers as Machines",
		Long: `Emulate the Machines API of Fly.io. Each Machine is a container of a Docker engine, so
that a configuration for Fly can be tried without an account. At the start the command
prints the environment variables that programs need. Machines end with the emulator. If
it is killed, the next start removes what it has left.

Tokens come from $` + keysVariable + `, separated by commas. Without it a token is generated
and printed. Here a Machine is NOT a boundary against hostile code: its container
has the rights of a guest's root. So only this machine may connect to the emulator.`,
		Example: `  execbroker emulate fly --app sandboxes --pull
  execbroker emulate fly --listen 127.0.0.1:4280 --image registry.fly.io/sandboxes:1=my-image:dev`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.emulateFly(cmd.Context(), f) },
	}
	l := c.Flags()
	l.StringVar(&f.listen, "listen", "127.0.0.1:4280", "`address` and port of the Machines API; port 0 means any free port")
	l.StringVar(&f.proxy, "proxy", "127.0.0.1:4281", "`address` and port of the emulated Fly Proxy; port 0 means any free port")
	l.StringVar(&f.engine, "engine", "", "`address` of the Docker engine (default $DOCKER_HOST, or else the socket of the system)")
	l.StringSliceVar(&f.apps, "app", []string{"sandboxes"}, "`name` of an app that exists from the start; may be repeated")
	l.StringToStringVar(&f.images, "image", nil, "`name=other`: an image that the engine has under another name; may be repeated")
	l.IntSliceVar(&f.publish, "publish", nil, "a further `port` of every Machine to publish on loopback, in addition to those of services; may be repeated")
	l.BoolVar(&f.pull, "pull", false, "let the engine pull images that it does not have")
	l.Float64Var(&f.rate, "rate", 1, "multiply Fly's rate limits by this; 0 means no limits")
	l.IntVar(&f.maxMachines, "max-machines", 50, "the largest number of Machines at the same time")
	return c
}

// emulating is what emulate prints when it is ready.
type emulating struct {
	API   string   `json:"api"`
	URL   string   `json:"url"`
	Proxy string   `json:"proxy"`
	Token string   `json:"token,omitempty"` // set if it was generated
	Apps  []string `json:"apps"`
}

func (a *app) emulateFly(ctx context.Context, f emulateFlags) error {
	if err := errors.Join(emulatedHere("listen", f.listen), emulatedHere("proxy", f.proxy)); err != nil {
		return err
	}
	if f.rate == 0 {
		f.rate = math.Inf(1)
	}
	if f.maxMachines < 1 {
		return usage("--max-machines: want at least 1")
	}
	cfg := flytest.Config{
		Engine: f.engine, Tokens: a.keyList(), Images: f.images, Pull: f.pull, Publish: f.publish, Rate: f.rate, MaxMachines: f.maxMachines, Log: a.log(),
	}
	for _, name := range f.apps {
		cfg.Apps = append(cfg.Apps, flytest.App{Name: name})
	}
	if err := cfg.Check(); err != nil {
		return usage("%w", err)
	}
	open := func(ctx context.Context) (*flytest.Server, error) { return flytest.New(ctx, cfg) }
	return runEmulator(ctx, a, "removing Machines", open, func(s *flytest.Server) error {
		e := emulating{API: "fly", Apps: f.apps}
		if len(cfg.Tokens) == 0 {
			e.Token = s.Token()
		}
		return a.listenBoth(ctx, f, s, e)
	})
}

// listenBoth serves the API and the proxy until ctx ends or one of them fails.
func (a *app) listenBoth(ctx context.Context, f emulateFlags, s *flytest.Server, e emulating) error {
	both, stop := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop(nil)
	proxy := make(chan net.Addr, 1)
	wg.Go(func() {
		stop(a.listen(both, f.proxy, nil, s.Proxy(), func() {}, func(l net.Addr) error { proxy <- l; return nil }))
	})
	err := a.listen(both, f.listen, nil, s, func() {}, func(l net.Addr) error {
		select {
		case at := <-proxy:
			e.URL, e.Proxy = "http://"+l.String(), "http://"+at.String()
			return a.announceEmulator(e)
		case <-both.Done():
			return context.Cause(both)
		}
	})
	if ctx.Err() == nil && both.Err() != nil {
		return context.Cause(both)
	}
	return err
}

// announceEmulator prints how clients reach the emulator.
func (a *app) announceEmulator(e emulating) error {
	return a.answer(e, true, func(w io.Writer) {
		fmt.Fprintf(w, `emulating the Machines API at %s; programs need these environment variables:

  FLY_API_BASE_URL=%s
  FLY_FLAPS_BASE_URL=%s
  FLY_API_HOSTNAME=%s
  FLY_API_TOKEN=%s

apps: %q. Services of Machines answer at %s, with the header
fly-force-instance-id. Machines are containers with the rights of root:
run nothing here that you would not run yourself.
`, e.URL, e.URL, e.URL, e.URL, cmp.Or(e.Token, "..."), e.Apps, e.Proxy)
	})
}
