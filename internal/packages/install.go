package packages

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/requirement"
)

// Installer installs packages in sandboxes.
type Installer struct {
	sources Sources
	allowed allowed
	env     driver.Env
	typ     string // type of the adapter
}

// New returns an installer. The cache of env has a directory for each type of adapter, which stores
// the fetched packages.
func New(env driver.Env, typ string, s *Sources) (*Installer, error) {
	a, err := s.allowed()
	return &Installer{*s, a, env, typ}, err
}

// None reports whether no package of a language may be requested.
func (i *Installer) None(l executor.Language) bool { return i.allowed.none(l) }

// Order reads a request. It fails with ErrInvalid if the request contains no valid packages, and
// with ErrDenied if a package is not on the lists.
func (i *Installer) Order(p executor.Packages) (Order, error) { return i.allowed.order(p) }

// Sandbox is the sandbox in which packages are installed.
type Sandbox struct {
	*Placer
	// Base names what builders for the sandbox are made from, and Python its Python version. If one
	// of them differs, results are not shared.
	Base, Python string
	// Build makes a builder fetch packages into a file: see Installer.Build.
	Build func(ctx context.Context, f *Fetch, file string) error
}

// Install installs missing packages in a sandbox. If a package does not exist or conflicts with
// another, that is an Exit. An error without a class becomes one about packages that could not be
// fetched.
func (i *Installer) Install(ctx context.Context, s Sandbox, o Order, emit func(executor.Event) error) (driver.Exit, error) {
	failed := driver.Exit{Code: -1}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := emit(executor.Event{Kind: executor.EventStarted}); err != nil {
		return failed, err
	}
	head, err := i.bring(ctx, s, o)
	if perr := (*packageError)(nil); errors.As(err, &perr) {
		if err := emit(executor.Event{Kind: executor.EventStderr, Data: []byte(perr.text + "\n")}); err != nil {
			return failed, err
		}
		first, _, _ := strings.Cut(perr.text, "\n")
		return driver.Exit{Code: 1, Exception: &executor.Exception{Type: "PackageError", Message: first}}, nil
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return failed, cause
		}
		return failed, aboutPackages(o.packages, asUnavailable(err))
	}
	for _, p := range head.Packages {
		if err := emit(executor.Event{Kind: executor.EventStdout, Data: fmt.Appendf(nil, "%s %s\n", p[0], p[1])}); err != nil {
			return failed, err
		}
	}
	for _, n := range head.Notes {
		if err := emit(executor.Event{Kind: executor.EventStderr, Data: []byte(n + "\n")}); err != nil {
			return failed, err
		}
	}
	return driver.Exit{}, nil
}

// bring installs the packages of an order that the sandbox does not have.
func (i *Installer) bring(ctx context.Context, s Sandbox, o Order) (head fetched, err error) {
	var f *Fetch
	if o.Language == executor.JavaScript {
		f = i.fetchJS(o.js, s.have)
	} else {
		f, err = i.fetchPython(o.python, s.Python, s.have)
	}
	if err != nil || f == nil {
		return head, err
	}
	f.Base, f.Facts, f.Insecure = s.Base, s.facts, i.sources.Insecure
	name, err := i.get(ctx, f, s.Build)
	if err != nil {
		return head, err
	}
	content, err := os.Open(name)
	if err != nil {
		return head, err
	}
	defer content.Close()
	head, _, err = readHead(bufio.NewReader(content))
	if err != nil {
		return head, err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return head, err
	}
	return head, s.Put(content)
}

// fetchPython returns the Fetch for what a session with some packages needs in addition, or nil if
// nothing is missing.
func (i *Installer) fetchPython(rs []requirement.Requirement, python string, have []installed) (*Fetch, error) {
	s := &i.sources
	f := &Fetch{Python: python, Constraints: i.allowed.constraints(), IndexURL: s.IndexURL, FindLinks: s.FindLinks, Offline: s.Offline(), Max: s.Bytes()}
	for _, r := range rs {
		has := func(h installed) bool { return h.name == r.Name && len(r.Extras) == 0 && r.Allows(h.version) }
		if !slices.ContainsFunc(have, has) {
			f.Requirements = append(f.Requirements, r.String())
		}
	}
	if len(f.Requirements) == 0 {
		return nil, nil
	}
	for _, h := range have {
		f.Constraints = append(f.Constraints, h.name+"=="+h.version) // packages in use are not changed
	}
	slices.Sort(f.Constraints)
	var err error
	f.Wheels, err = s.wheels()
	return f, err
}
