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
)

// configuration returns what the flags ask for: the file, narrowed to one backend if one is named, or one backend with default
// settings. The file is checked as a whole also then.
func (a *app) configuration() (backends.Config, error) {
	if a.config == "" {
		typ := a.backend
		if typ == "" {
			typ = a.standard
		}
		if !slices.Contains(a.reg.Types(), typ) {
			return backends.Config{}, usage("--backend: %w; without --config it is a type", driver.Unknown("backend", typ, a.reg.Types()))
		}
		c := backends.Config{Backends: map[string]backends.Backend{typ: {Type: typ}}}
		if err := c.Check(a.reg); err != nil {
			return c, usage("a backend of type %s needs settings, and so --config: %w", typ, err)
		}
		return c, nil
	}
	data, err := os.ReadFile(a.config)
	if err != nil {
		return backends.Config{}, usage("--config: %w", err)
	}
	c, err := backends.Parse(data)
	if c.Backends != nil {
		err = errors.Join(err, c.Check(a.reg))
	}
	if err != nil {
		return c, &configError{file: a.config, err: err}
	}
	if a.backend != "" {
		b, ok := c.Backends[a.backend]
		if !ok {
			return c, usage("--backend: %w", driver.Unknown("backend", a.backend, slices.Collect(maps.Keys(c.Backends))))
		}
		c.Backends = map[string]backends.Backend{a.backend: b}
		c.Routes = nil
	}
	return c, nil
}

// brief is a configuration for a program that ends soon: no session is kept warm, and none outlives it.
func brief(c backends.Config) backends.Config {
	c.Backends = maps.Clone(c.Backends)
	for name, b := range c.Backends {
		b.Broker.Pools = nil
		c.Backends[name] = b
	}
	c.Sessions = backends.Sessions{}
	return c
}

// configError says in which file the mistakes are.
type configError struct {
	file string
	err  error
}

func (e *configError) Error() string { return e.file + ": " + e.err.Error() }
func (e *configError) Unwrap() error { return e.err }

// env is what the program gives to every adapter.
func (a *app) env() driver.Env {
	owner := a.owner
	if owner == "" {
		owner = defaultOwner()
	}
	return driver.Env{Name: "execbroker", Owner: owner, Log: a.log()}
}

// defaultOwner keeps the sandboxes of the users of one engine apart.
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

// open opens the backend that the flags ask for, or what the routes of the configuration say. The caller closes it.
func (a *app) open(ctx context.Context) (*backends.Broker, error) {
	c, err := a.routed()
	if err != nil {
		return nil, err
	}
	return backends.Open(ctx, a.env(), a.reg, brief(c))
}

// routed returns a configuration that says where code runs.
func (a *app) routed() (backends.Config, error) {
	c, err := a.configuration()
	if err == nil && len(c.Backends) > 1 && len(c.Routes) == 0 {
		err = usage("%s has several backends and no routes; choose one with --backend: %s",
			plain(a.config), strings.Join(slices.Sorted(maps.Keys(c.Backends)), ", "))
	}
	return c, err
}

// closing closes what a command has opened. That it failed is said and changes nothing: a sandbox has a TTL.
func (a *app) closing(p *progress, what string, close func() error) {
	_, end := p.begin(context.Background(), what)
	err := close()
	end()
	if err != nil && !errors.Is(err, executor.ErrClosed) {
		fmt.Fprintf(a.err, "execbroker: %s: %s\n", what, plainText(err.Error()))
	}
}

// completeFlags gives the shell the values of the flags that every command has.
func (a *app) completeFlags(root *cobra.Command) {
	must(root.RegisterFlagCompletionFunc("backend", a.backendNames))
	must(root.RegisterFlagCompletionFunc("owner", cobra.NoFileCompletions))
	must(root.MarkPersistentFlagFilename("config", "yaml", "yml", "json"))
}

// backendNames gives the shell the backends of the configuration or, without one, the types.
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

// must is for errors that only a mistake in this package makes.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
