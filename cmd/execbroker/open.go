package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/server/compat"
)

// configuration returns the configuration that the flags select: the file, or only one of its
// backends if --backend is set; without a file, one backend with default settings. The file is
// always checked as a whole.
func (a *app) configuration() (backends.Config, error) {
	if a.config == "" {
		typ := a.backend
		if typ == "" {
			typ = a.standard
		}
		if !slices.Contains(a.reg.Types(), typ) {
			return backends.Config{}, usage("--backend: %w; without --config the name must be a type", driver.Unknown("backend", typ, a.reg.Types()))
		}
		c := backends.Config{Backends: map[string]backends.Backend{typ: {Type: typ}}}
		if err := c.Check(a.reg); err != nil {
			return c, usage("a backend of type %s needs settings, so --config is required: %w", typ, err)
		}
		return c, nil
	}
	data, err := os.ReadFile(a.config)
	if err != nil {
		return backends.Config{}, usage("--config: %w", err)
	}
	c, err := backends.Parse(data)
	if c.Backends != nil {
		err = errors.Join(err, c.Check(a.reg), c.Located(compat.CheckFronts(frontsOf(c))))
	}
	if err != nil {
		return c, a.inFile(err)
	}
	if a.backend != "" {
		b, ok := c.Backends[a.backend]
		if !ok {
			return c, usage("--backend: %w", driver.Unknown("backend", a.backend, slices.Collect(maps.Keys(c.Backends))))
		}
		c.Backends = map[string]backends.Backend{a.backend: b}
		c = withoutRoutes(c)
	}
	return c, nil
}

// withoutRoutes returns a configuration without routes, and without what needs them.
func withoutRoutes(c backends.Config) backends.Config {
	c.Routes, c.Rollouts, c.Shadows, c.Escalate, c.Sessions.Drain = nil, nil, nil, nil, nil
	return c
}

// configError adds the name of the file to the errors.
type configError struct {
	file string
	err  error
}

func (e *configError) Error() string { return e.file + ": " + e.err.Error() }

// Unwrap returns the errors in the file.
func (e *configError) Unwrap() error { return e.err }

// env returns what the program passes to every adapter.
func (a *app) env() driver.Env {
	owner := a.owner
	if owner == "" {
		owner = defaultOwner()
	}
	return driver.Env{Name: "execbroker", Owner: owner, Instance: a.instance, Log: a.log(), Hooks: a.hooks, OneShot: !a.serving}
}

// defaultOwner returns an owner that separates the sandboxes of several users of one engine.
func defaultOwner() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return "cli." + cut(strings.Map(func(r rune) rune {
		if r > '~' || r <= ' ' {
			return '_'
		}
		return r
	}, name), 100)
}

// open opens the backend that the flags select, or the backends of the configuration with its
// routes. The caller closes it.
func (a *app) open(ctx context.Context, opts ...backends.Option) (*backends.Broker, error) {
	c, err := a.routed()
	if err != nil {
		return nil, err
	}
	return a.openBroker(ctx, c, opts...)
}

// openBroker opens the backends of c. Errors that it finds are also reported as errors of the file.
func (a *app) openBroker(ctx context.Context, c backends.Config, opts ...backends.Option) (*backends.Broker, error) {
	b, err := backends.Open(ctx, a.env(), a.reg, a.shared(c), opts...)
	return b, a.inFile(err)
}

// shared returns c without its sessions unless the program counts with others. They are for
// conversations, which the program does not have.
func (a *app) shared(c backends.Config) backends.Config {
	if !a.shares {
		c.Sessions = backends.Sessions{}
	}
	return c
}

// inFile adds the name of the file to errors.
func (a *app) inFile(err error) error {
	if in := (*executor.FieldError)(nil); a.config != "" && errors.As(err, &in) {
		return &configError{file: a.config, err: err}
	}
	return err
}

// routed returns the configuration if it says where code runs.
func (a *app) routed() (backends.Config, error) {
	c, err := a.configuration()
	if err == nil {
		err = a.inFile(unrouted(c))
	}
	return c, err
}

// unrouted returns an error if the configuration does not say where code runs. It is nil for
// programs that choose a backend themselves.
func unrouted(c backends.Config) error {
	if len(c.Backends) < 2 || len(c.Routes) > 0 {
		return nil
	}
	return driver.At("routes", errors.New("missing; with several backends write routes, or choose one of the backends with --backend: "+
		strings.Join(slices.Sorted(maps.Keys(c.Backends)), ", ")))
}

// closing closes what a command has opened. A failure is only reported, because a sandbox also ends
// by its idle TTL.
func (a *app) closing(p *progress, what string, close func() error) {
	_, end := p.begin(context.Background(), what)
	err := close()
	end()
	if err != nil && !errors.Is(err, executor.ErrClosed) {
		fmt.Fprintf(a.err, "execbroker: %s: %s\n", what, plainText(err.Error()))
	}
}

// completeFlags completes the values of the flags that every command has, for the shell.
func (a *app) completeFlags(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp) // most flags take no file
	must(root.RegisterFlagCompletionFunc("backend", a.backendNames))
	must(root.MarkPersistentFlagFilename("config", "yaml", "yml", "json"))
}

// backendNames completes the backends of the configuration or, without one, the types.
func (a *app) backendNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	backend := a.backend
	defer func() { a.backend = backend }()
	a.backend = ""
	c, err := a.configuration()
	if err != nil || a.config == "" {
		return a.reg.Types(), cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(c.Backends)), cobra.ShellCompDirectiveNoFileComp
}

// must panics on an error that only a bug in this package can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
