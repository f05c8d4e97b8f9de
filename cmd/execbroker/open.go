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

// configuration returns what the flags ask for: the file, narrowed to one backend if one is named,
// or one backend with default settings. The file is checked as a whole also then.
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
		return c, a.inFile(err)
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

// configError says in which file the errors are.
type configError struct {
	file string
	err  error
}

func (e *configError) Error() string { return e.file + ": " + e.err.Error() }

// Unwrap returns the errors in the file.
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

// open opens the backend that the flags ask for, or what the routes of the configuration say. The
// caller closes it.
func (a *app) open(ctx context.Context, opts ...backends.Option) (*backends.Broker, error) {
	c, err := a.routed()
	if err != nil {
		return nil, err
	}
	return a.openBroker(ctx, c, opts...)
}

// openBroker opens the backends of c. Errors that it finds are those of the file, too.
func (a *app) openBroker(ctx context.Context, c backends.Config, opts ...backends.Option) (*backends.Broker, error) {
	c.Sessions = backends.Sessions{} // of conversations, which this program has none of
	b, err := backends.Open(ctx, a.env(), a.reg, c, opts...)
	return b, a.inFile(err)
}

// inFile says in which file the errors of a configuration are.
func (a *app) inFile(err error) error {
	if in := (*executor.FieldError)(nil); a.config != "" && errors.As(err, &in) {
		return &configError{file: a.config, err: err}
	}
	return err
}

// routed returns a configuration that says where code runs.
func (a *app) routed() (backends.Config, error) {
	c, err := a.configuration()
	if err == nil {
		err = a.inFile(unrouted(c))
	}
	return c, err
}

// unrouted returns the mistake of a configuration that does not say where code runs. For programs
// that do by themselves it is none.
func unrouted(c backends.Config) error {
	if len(c.Backends) < 2 || len(c.Routes) > 0 {
		return nil
	}
	return driver.At("routes", errors.New("there are none, and several backends; write some, or choose a backend with --backend: "+
		strings.Join(slices.Sorted(maps.Keys(c.Backends)), ", ")))
}

// closing closes what a command has opened. That it failed is said and changes nothing: a sandbox
// has a TTL.
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
