package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/tool"
	"github.com/execbroker/execbroker/tool/mcp"
)

// mcpFlags are the flags of mcp.
type mcpFlags struct {
	serverFlags
	maxSessions int
	perKey      int
	idle        time.Duration
	dir         string
}

func (a *app) mcpCommand() *cobra.Command {
	var f mcpFlags
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Serve sandboxes to clients of the Model Context Protocol",
		Long: `Serve the tools execute_code, install_packages, upload_file, download_file,
list_files, list_packages, get_capabilities and reset_session over the Model Context
Protocol.

A client starts the program itself and uses its standard input and output. With
--listen it serves the protocol's streamable HTTP instead, at /mcp, and clients send
their key as a bearer token. Keys come from --keys or $` + keysVariable + `; without
any, a key is generated and printed. Each client session has a separate sandbox.

With --dir the sandbox gets copies of the files of a directory before each call, and the
files that code makes are copied back. If a file has changed on both sides, both are
kept, and the answer says so. Hidden files and symbolic links are not copied.

At the first signal an HTTP server refuses new calls and waits for calls in progress, at
most as long as --drain says. At the second it ends immediately. Over standard input and
output the program ends with its client.`,
		Example: `  {"mcpServers": {"sandbox": {"command": "execbroker", "args": ["mcp"]}}}
  execbroker mcp install cursor
  execbroker mcp install claude-desktop --dir ~/reports
  execbroker mcp --config app.yaml --backend box
  execbroker mcp --listen 127.0.0.1:3001`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.given = cmd.Flags().Changed
			return a.mcp(cmd.Context(), f)
		},
	}
	c.AddCommand(a.mcpInstallCommand())
	l := c.Flags()
	l.StringVar(&f.listen, "listen", "", "serve HTTP at this `address` and port instead; port 0 means any free port")
	l.StringVar(&f.dir, "dir", "", "copy the files of this `directory` into the sandbox, and results back")
	l.StringVar(&f.keys, "keys", "", "the `file` with the API keys of clients over HTTP, in JSON")
	f.names(c, "")
	f.reach(c, "the network of the code")
	f.warmth(c)
	f.bounds(c)
	l.DurationVar(&f.maxTimeout, "max-timeout", tool.DefaultMaxTimeout, "the longest timeout of a call")
	l.IntVar(&f.maxSessions, "max-sessions", mcp.DefaultMaxSessions, "the largest number of sessions of all clients over HTTP")
	l.IntVar(&f.perKey, "max-sessions-per-key", mcp.DefaultMaxSessionsPerKey, "the largest number of sessions of a key; a new one replaces the one that was idle longest")
	l.DurationVar(&f.idle, "idle", mcp.DefaultIdle, "how long a session lives without a request, over HTTP")
	l.DurationVar(&f.drain, "drain", 0, "how long to wait for calls at the first signal, over HTTP (default the longest call)")
	must(c.MarkFlagFilename("keys", "json"))
	must(c.MarkFlagDirname("dir"))
	return c
}

func (a *app) mcp(ctx context.Context, f mcpFlags) error {
	a.serving = true
	o := tool.Options{MaxTimeout: f.maxTimeout, Timeout: min(tool.DefaultTimeout, f.maxTimeout)}
	o.Spec.Network.Mode = executor.NetworkMode(f.network)
	if f.maxTimeout < time.Second || f.idle < time.Second || min(f.maxSessions, f.perKey) < 1 || f.drain < 0 {
		return usage("--max-timeout, --idle, --max-sessions, --max-sessions-per-key and --drain: want at least 1s, 1s, 1, 1 and 0")
	}
	if err := f.checkNames(); err != nil {
		return err
	}
	if f.listen == "" && f.keys != "" {
		return usage("--keys: only with --listen; a client that starts the program needs no key")
	}
	if f.listen != "" && f.dir != "" {
		return usage("--dir: not with --listen; a directory belongs to one client")
	}
	mo := mcp.Options{Version: version(), Log: a.log()}
	if f.dir != "" {
		m, err := openMirror(f.dir)
		if err != nil {
			return err
		}
		defer m.close()
		mo.Mirror = m
	}
	if f.listen == "" && isTerminal(a.in) {
		if err := a.mcpHello(); err != nil {
			return err
		}
	}
	return a.overBroker(ctx, f.serverFlags, func(p *progress, x *backends.Broker) error {
		t, err := tool.New(x, x.Manager(), o)
		if err != nil {
			return err
		}
		s := mcp.New(t, mo)
		defer a.closing(p, "removing sandboxes", s.Close)
		if f.listen == "" {
			return s.Serve(ctx, interruptible(a.in), noClose{a.out})
		}
		return a.mcpHTTP(ctx, f, p, s)
	})
}

func (a *app) mcpHTTP(ctx context.Context, f mcpFlags, p *progress, s *mcp.Server) error {
	keys, made, err := a.clients(f.keys, f.listen)
	if err != nil {
		return err
	}
	limits, err := f.limits(a.log())
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.Handler(mcp.HTTPOptions{Hosts: f.domains, MaxSessions: f.maxSessions, MaxSessionsPerKey: f.perKey, Idle: f.idle, Authenticate: func(key string) (string, map[string]string, bool) {
		c, ok := keys.Lookup(key)
		return c.Subject, c.Attributes, ok
	}}))
	return a.listen(ctx, f.listen, limits, mux, func() { a.drain(ctx, p, s.Drain, f.drainLimit()) }, func(l net.Addr) error {
		return a.announce(serving{API: "mcp", URL: "http://" + l.String() + "/mcp", Key: made, Metrics: a.scraped})
	})
}

// interruptible returns a reader that can be closed during a read, which standard input cannot on
// every system. A read that is still in progress then ends with the program.
func interruptible(in io.Reader) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
	}()
	return r
}

// noClose keeps the standard output open for what comes after.
type noClose struct{ io.Writer }

func (noClose) Close() error { return nil }
