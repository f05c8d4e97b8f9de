package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/server/compat"
	"github.com/execbroker/execbroker/server/e2b"
	"github.com/execbroker/execbroker/server/jupyter"
	"github.com/execbroker/execbroker/server/nemo"
	"github.com/execbroker/execbroker/server/page"
)

// apis are the interfaces that serve supports.
var apis = append([]string{"native", "nemo", "e2b", "jupyter", frontsAPI}, compat.Names()...)

// portsOff is the default of --ports: clients cannot connect to sandboxes.
const portsOff = "off"

var ports = []string{portsOff, string(e2b.PortsPrivate), string(e2b.PortsPublic)}

// onPauses are the values of --on-pause.
var onPauses = []string{string(e2b.PauseKeep), string(e2b.PauseKill), string(e2b.PauseRefuse)}

// serveFlags are the flags of serve.
type serveFlags struct {
	serverFlags
	api          string
	maxSandboxes int
	maxNetwork   reach
	onPause      string
	ports        string
	pausedTTL    time.Duration
	page         bool
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Let other programs use these backends over HTTP",
		Long: `Serve an HTTP API over any backend:

  native  run code, streams, sessions, files, packages; see /v1/openapi.json. With a
          page for browsers at /
  nemo    /execute of the NeMo Agent Toolkit's local sandbox
  e2b     E2B's interfaces, for programs with E2B's SDKs
  jupyter kernels for JupyterLab and other programs that use a Jupyter server
  piston, terrarium, dify, librechat, judge0, onyx
          the interfaces of these services
  fronts  several of these, below the paths of "fronts" in the configuration

The API keys of clients come from $` + keysVariable + `, separated by commas, or
from --keys, a JSON file with a subject and attributes for each key. Each key has its own
sessions. Without any, a key is generated and printed; nemo, piston, terrarium and onyx
then require none, because their clients send none. The protocol is plain HTTP: for access
from other machines, put a TLS proxy in front of it.

At the first signal the server refuses new runs and waits for current ones, at most
as long as --drain says. At the second it ends immediately.`,
		Example: `  execbroker serve --config app.yaml
  execbroker serve --api nemo --listen 127.0.0.1:6000
  execbroker serve --api e2b --config app.yaml --backend box
  execbroker serve --api jupyter --listen 127.0.0.1:8888
  execbroker serve --api piston --listen 127.0.0.1:2000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.given = cmd.Flags().Changed
			return a.serve(cmd.Context(), f)
		},
	}
	l := c.Flags()
	l.StringVar(&f.api, "api", "native", "interface: "+strings.Join(apis, ", "))
	l.StringVar(&f.listen, "listen", "127.0.0.1:3000", "`address` and port, or unix:FILE for a Unix socket; port 0 means any free port")
	l.StringVar(&a.instance, "instance", "", "the `name` of this replica, for a proxy that routes each conversation to its server (default random)")
	l.StringVar(&f.keys, "keys", "", "the `file` with the API keys of clients, in JSON (not for e2b)")
	f.names(c, " (e2b: sandboxes have host names below the first)")
	f.reach(c, "the network of sandboxes that do not set one")
	f.warmth(c)
	f.bounds(c)
	l.DurationVar(&f.maxTimeout, "max-timeout", server.DefaultMaxTimeout, "the longest run of a client; for e2b the longest life of a sandbox (default 24h)")
	l.IntVar(&f.maxSandboxes, "max-sandboxes", e2b.DefaultMaxSandboxes, "the largest number of sessions of a key")
	f.maxNetwork = reach(executor.NetworkFull)
	f.maxNetwork.add(c, "max-network", "e2b: none refuses clients that name hosts for their sandboxes to reach, full does not")
	l.StringVar(&f.onPause, "on-pause", string(e2b.PauseKeep), "e2b: what happens to paused sandboxes on backends that cannot suspend them: keep, kill or refuse")
	l.BoolVar(&f.page, "page", true, "native: answer / with a page for browsers")
	l.StringVar(&f.ports, "ports", portsOff, "e2b: who can connect to servers in sandboxes: off (nobody), private (clients with a token) or public")
	l.DurationVar(&f.pausedTTL, "paused-ttl", e2b.DefaultPausedTTL, "e2b: how long a paused sandbox is kept")
	l.DurationVar(&f.drain, "drain", 0, "how long to wait for runs at the first signal (default the longest run; e2b: not at all)")
	must(c.MarkFlagFilename("keys", "json"))
	must(c.RegisterFlagCompletionFunc("api", cobra.FixedCompletions(apis, cobra.ShellCompDirectiveNoFileComp)))
	must(c.RegisterFlagCompletionFunc("ports", cobra.FixedCompletions(ports, cobra.ShellCompDirectiveNoFileComp)))
	must(c.RegisterFlagCompletionFunc("on-pause", cobra.FixedCompletions(onPauses, cobra.ShellCompDirectiveNoFileComp)))
	return c
}

// serving is what serve prints when it is ready.
type serving struct {
	API     string `json:"api"`
	URL     string `json:"url"`
	Key     string `json:"key,omitempty"`     // set if it was generated
	Page    string `json:"page,omitempty"`    // the URL of the page for browsers
	Metrics string `json:"metrics,omitempty"` // where Prometheus gets measurements

	Fronts []compat.Front `json:"fronts,omitempty"` // below the URL
}

// apiServer is a server of one of the interfaces.
type apiServer struct {
	http.Handler
	made   string                          // the generated key
	drain  func(ctx context.Context) error // waits for runs
	close  func() error
	fronts []compat.Front
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	a.serving, a.shares = true, true
	open, err := a.front(f)
	if err != nil {
		return err
	}
	limits, err := f.limits(a.log())
	if err != nil {
		return err
	}
	return a.overBroker(ctx, f.serverFlags, func(p *progress, x *backends.Broker) error {
		s, err := open(x)
		if err != nil {
			return err
		}
		defer a.closing(p, "removing sandboxes", s.close)
		drain := func() {
			if s.drain != nil {
				a.drain(ctx, p, s.drain, f.drainLimit())
			}
		}
		return a.listen(ctx, f.listen, limits, s, drain, func(l net.Addr) error {
			said := serving{API: f.api, URL: urlOf(l), Key: s.made, Metrics: a.scraped, Fronts: s.fronts}
			if f.api == "native" && f.page && l.Network() != "unix" {
				said.Page = said.URL + "/"
			}
			return a.announce(said)
		})
	})
}

// overBroker opens the backends for serve, examines them, and closes them afterwards.
func (a *app) overBroker(ctx context.Context, f serverFlags, serve func(*progress, *backends.Broker) error) (err error) {
	if f.watch && a.config == "" {
		return usage("--watch: needs --config")
	}
	p := newProgress(a.err)
	reports, err := a.report(ctx, f.metrics)
	if err != nil {
		return err
	}
	defer a.closing(p, "sending telemetry", reports.close)
	var text []byte
	if f.watch {
		text, _ = os.ReadFile(a.config) // an error is told by open, which reads it again
	}
	starting, end := p.begin(ctx, "opening backends")
	x, err := a.open(starting)
	end()
	if err != nil {
		return err
	}
	stop, err := a.observe(reports, x, f.metrics)
	if err != nil {
		a.closing(p, "closing backends", x.Close)
		return err
	}
	defer a.ended(ctx, &err)
	defer stop()
	defer a.closing(p, "closing backends", x.Close)
	defer a.examine(ctx, p, x, f)()
	if f.watch {
		watching, stop := context.WithCancel(ctx)
		var done sync.WaitGroup
		done.Go(func() { a.watch(watching, x, text) })
		defer done.Wait()
		defer stop()
	}
	return serve(p, x)
}

// ended logs why a server has ended, as the last line of its log.
func (a *app) ended(ctx context.Context, err *error) {
	a.log().InfoContext(ctx, "the server has ended", "why", cmp.Or(context.Cause(ctx), *err, io.EOF))
}

// drain waits for runs after ctx has ended, at most as long as limit.
func (a *app) drain(ctx context.Context, p *progress, wait func(context.Context) error, limit time.Duration) {
	ctx = context.WithoutCancel(ctx)
	_, end := p.begin(ctx, "waiting for runs to end")
	defer end()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := wait(ctx); err != nil {
		fmt.Fprintf(a.err, "execbroker: runs were cut off after %v\n", limit)
	}
}

// front checks the flags and returns a function that makes the server over an Executor.
func (a *app) front(f serveFlags) (func(*backends.Broker) (*apiServer, error), error) {
	if !slices.Contains(apis, f.api) {
		return nil, usage("--api: %w", driver.Unknown("interface", f.api, apis))
	}
	var spec executor.Spec
	spec.Network.Mode = executor.NetworkMode(f.network)
	if f.maxTimeout < time.Second || f.maxSandboxes < 1 || f.drain < 0 {
		return nil, usage("--max-timeout, --max-sandboxes and --drain: want at least 1s, 1 and 0")
	}
	if f.api != "e2b" && (f.given("on-pause") || f.given("paused-ttl")) {
		return nil, usage("--on-pause and --paused-ttl: only with --api e2b")
	}
	if f.api != "e2b" && f.given("max-network") {
		return nil, usage("--max-network: only with --api e2b; clients of the others cannot ask for more than --network")
	}
	if f.api != "e2b" && f.given("ports") {
		return nil, usage("--ports: only with --api e2b")
	}
	if f.api != "native" && f.given("page") {
		return nil, usage("--page: only with --api native")
	}
	if !slices.Contains(ports, f.ports) {
		return nil, usage("--ports: want one of %q", ports)
	}
	if !slices.Contains(onPauses, f.onPause) || f.pausedTTL < time.Second {
		return nil, usage("--on-pause and --paused-ttl: want one of %q, and at least 1s", onPauses)
	}
	if err := f.checkNames(); err != nil {
		return nil, err
	}
	origins, err := a.origins(f.api)
	if err != nil {
		return nil, err
	}
	if f.api == "e2b" {
		return a.frontE2B(f, spec)
	}
	if isCompat(f.api) {
		return a.frontCompat(f, spec)
	}
	if f.api == "nemo" {
		cfg := nemo.Config{Spec: spec, Hosts: f.domains, MaxTimeout: f.maxTimeout, Log: a.log()}
		if f.keys != "" || len(a.keyList()) > 0 || !loopback(f.listen) {
			var err error
			if cfg.Keys, _, err = a.clients(f.keys, f.listen); err != nil {
				return nil, err
			}
		}
		return func(x *backends.Broker) (*apiServer, error) {
			s, err := nemo.New(x, cfg)
			if err != nil {
				return nil, err
			}
			return &apiServer{Handler: s, drain: s.Drain, close: s.Close}, nil
		}, nil
	}
	keys, made, err := a.clients(f.keys, f.listen)
	if err != nil {
		return nil, err
	}
	if f.api == "jupyter" {
		return a.frontJupyter(f, spec, keys, made), nil
	}
	cfg := server.Config{Keys: keys, Spec: spec, Hosts: f.domains, Origins: origins, MaxTimeout: f.maxTimeout, MaxSessions: f.maxSandboxes, Log: a.log()}
	return func(x *backends.Broker) (*apiServer, error) {
		cfg.Conversations, cfg.Experiments = x.Manager(), x.Experiments
		cfg.Backends = func() map[string]executor.Executor { return choices(x) }
		cfg.Overview = func(ctx context.Context) (server.Overview, error) { return overview(ctx, x) }
		if f.page {
			cfg.Page = page.Handler()
		}
		s, err := server.New(x, cfg)
		if err != nil {
			return nil, err
		}
		return &apiServer{Handler: s, made: made, drain: s.Drain, close: s.Close}, nil
	}, nil
}

// origins returns the origins of the configuration whose web pages may use the server.
func (a *app) origins(api string) ([]string, error) {
	if a.config == "" {
		return nil, nil
	}
	c, err := a.fileConfiguration()
	switch origins := c.CORS.Origins; {
	case err != nil:
		return nil, err
	case len(origins) > 0 && api != "native":
		return nil, usage("%s: cors: only with --api native; remove it, or serve the native API", plain(a.config))
	default:
		return origins, nil
	}
}

func (a *app) frontE2B(f serveFlags, spec executor.Spec) (func(*backends.Broker) (*apiServer, error), error) {
	if f.keys != "" {
		return nil, usage("--keys: not with --api e2b, which reads its keys from %s", keysVariable)
	}
	cfg := e2b.Config{
		Keys: a.keyList(), Spec: spec, Hosts: f.domains, MaxSandboxes: f.maxSandboxes,
		MaxNetwork: executor.NetworkMode(f.maxNetwork), OnPause: e2b.OnPause(f.onPause), PausedTTL: f.pausedTTL, Log: a.log(),
	}
	if f.ports != portsOff {
		cfg.Ports = e2b.Ports(f.ports)
	}
	if len(f.domains) > 0 {
		cfg.Domain = f.domains[0]
	}
	if f.given("max-timeout") {
		cfg.MaxTimeout = f.maxTimeout
	}
	made := ""
	if len(cfg.Keys) == 0 {
		if !loopback(f.listen) {
			return nil, usage("--listen: other machines can connect to %s, so the keys of clients must be in %s", f.listen, keysVariable)
		}
		made = newKey("e2b_") // older SDKs require this form
		cfg.Keys = append(cfg.Keys, made)
	}
	return func(x *backends.Broker) (*apiServer, error) {
		s, err := e2b.New(x, cfg)
		if err != nil {
			return nil, err
		}
		return &apiServer{Handler: s, made: made, close: s.Close}, nil
	}, nil
}

func (a *app) frontJupyter(f serveFlags, spec executor.Spec, keys server.Keys, made string) func(*backends.Broker) (*apiServer, error) {
	cfg := jupyter.Config{Keys: keys, Spec: spec, Hosts: f.domains, MaxTimeout: f.maxTimeout, MaxKernels: f.maxSandboxes, Log: a.log()}
	return func(x *backends.Broker) (*apiServer, error) {
		cfg.Sessions = x.Manager()
		s, err := jupyter.New(x, cfg)
		if err != nil {
			return nil, err
		}
		return &apiServer{Handler: s, made: made, drain: s.Drain, close: s.Close}, nil
	}
}

// listen serves h until ctx ends. It calls ready with the address when clients can connect, and
// drain before the server stops listening. limits is nil for emulators, which take connections of
// this machine only, and whose answers may take any time.
func (a *app) listen(ctx context.Context, address string, limits *front.Limits, h http.Handler, drain func(), ready func(net.Addr) error) error {
	l, err := listenAt(ctx, address)
	if err != nil {
		return usage("--listen: %w", err)
	}
	srv := front.Server(h)
	if limits == nil {
		srv.WriteTimeout = 0
	} else {
		l = limits.Listen(l)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	failed := make(chan error, 1)
	wg.Go(func() { failed <- srv.Serve(l) })
	defer srv.Close()
	if err := ready(l.Addr()); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return &executor.Error{Op: "serve", Kind: executor.ErrInternal, Ran: executor.RanNo, Err: err}
	case <-ctx.Done():
		drain()
		// Runs that have ended are answered. Endless streams are cut off.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = srv.Shutdown(last) // Close follows
		return ctx.Err()
	}
}

// unixPrefix begins an address that is the name of a Unix socket.
const unixPrefix = "unix:"

// listenAt listens at an address. Only the user of this process can connect to a Unix socket,
// whatever the umask is: a front may need no key there.
func listenAt(ctx context.Context, address string) (net.Listener, error) {
	if file, ok := strings.CutPrefix(address, unixPrefix); ok {
		return listenPrivate(ctx, file)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

// urlOf returns the URL of an address, or the Unix socket.
func urlOf(l net.Addr) string {
	if l.Network() == "unix" {
		return unixPrefix + l.String()
	}
	return "http://" + l.String()
}

// announce prints how clients reach the server.
func (a *app) announce(s serving) error {
	text := map[string]string{
		"native":  "serving at %[1]s; see %[1]s/v1/openapi.json\n\n  curl -H 'Authorization: Bearer %[2]s' -d '{\"code\": \"print(6*7)\"}' %[1]s/v1/run\n",
		"nemo":    "serving nemo at %[1]s; the URL of its sandbox is now\n\n  %[1]s/execute\n",
		"e2b":     "serving e2b at %[1]s; programs need these environment variables:\n\n  E2B_API_URL=%[1]s\n  E2B_SANDBOX_URL=%[1]s\n  E2B_API_KEY=%[2]s\n",
		"jupyter": "serving jupyter at %[1]s; JupyterLab uses its kernels with\n\n  JUPYTER_GATEWAY_AUTH_TOKEN=%[2]s jupyter lab --gateway-url %[1]s\n",
		"mcp":     "serving mcp at %[1]s; clients send the header\n\n  Authorization: Bearer %[2]s\n",
	}[s.API]
	if isCompat(s.API) {
		return a.answer(s, true, func(w io.Writer) { fmt.Fprint(w, s.frontsText()) })
	}
	return a.answer(s, true, func(w io.Writer) {
		fmt.Fprintf(w, text, s.URL, cmp.Or(s.Key, "..."))
		if s.Page != "" {
			fmt.Fprintf(w, "\nin a browser, open %s\nand enter the key %s\n", s.Page, cmp.Or(s.Key, "..."))
		}
	})
}
