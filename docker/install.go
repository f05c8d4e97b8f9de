package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
)

// Install implements driver.Installer. That a package does not exist, or does not go with another, is a result.
func (s *session) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
	o, err := s.b.installer.Order(p)
	if err != nil {
		return driver.Exit{Code: -1}, err
	}
	return s.install(ctx, o, emit)
}

// preinstall installs the packages of a template.
func (s *session) preinstall(ctx context.Context, preset map[executor.Language][]string) error {
	for _, l := range slices.Sorted(maps.Keys(preset)) {
		o, err := packages.Preset(executor.Packages{Language: l, Names: preset[l]})
		if err != nil {
			return err
		}
		exit, err := s.install(ctx, o, func(executor.Event) error { return nil })
		if err != nil {
			return err
		}
		if exit.Exception != nil {
			return driver.Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("packages of template %s: %s", s.info.Template, exit.Exception.Message))
		}
	}
	return nil
}

// install fetches packages and puts them into the sandbox, in a directory that code cannot change.
func (s *session) install(ctx context.Context, o packages.Order, emit func(executor.Event) error) (driver.Exit, error) {
	failed := driver.Exit{Code: -1}
	r, err := s.Client(ctx)
	if err != nil {
		return failed, err
	}
	if err := r.Ping(ctx); err != nil { // a later holder may have taken over
		return failed, s.Explain(ctx, err)
	}
	use, done := context.WithCancel(ctx)
	var using sync.WaitGroup
	using.Go(func() { s.stayUsed(use) })
	defer using.Wait()
	defer done()

	t, err := s.b.engine.place(ctx, s.container, o.Language)
	if err != nil {
		return failed, err
	}
	defer t.Close()
	exit, err := s.b.installer.Install(ctx, packages.Sandbox{Placer: t, Base: s.image, Python: r.Info().Python, Build: s.b.build}, o, emit)
	if err != nil && ctx.Err() == nil {
		err = s.Explain(ctx, err)
	}
	return exit, err
}

// stayUsed keeps a session from being idle until ctx ends: its supervisor does not know of installations.
func (s *session) stayUsed(ctx context.Context) {
	t := time.NewTicker(10 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			_, _ = s.Files().Stat(ctx, executor.Workdir) // if it fails the next one may not
		}
	}
}

// place starts a placer.
func (e *engine) place(ctx context.Context, id string, l executor.Language) (*packages.Placer, error) {
	ctx, cancel := e.answer(ctx)
	defer cancel()
	conn, err := e.beside(ctx, id, packages.PlaceCommand(python, l, true))
	if err != nil {
		return nil, err
	}
	t, err := packages.NewPlacer(ctx, packages.Process{ReadWriteCloser: conn, Said: conn.stderr}, l)
	switch {
	case errors.Is(err, packages.ErrNoRoom):
		return nil, unsupported(err, string(executor.FeaturePackages))
	case err != nil:
		return nil, e.notBridged(ctx, id, err)
	}
	return t, nil
}
