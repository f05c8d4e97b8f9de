package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
)

// fetchIdle is how long a sandbox that fetches packages lives on when nobody hears it any more.
const fetchIdle = 10 * time.Second

// labelFetches marks such a sandbox.
const labelFetches = executor.ReservedPrefix + "fetches"

// fetchMemory is what such a sandbox has of memory, where that can be limited.
const fetchMemory = 512 << 20

// Install implements driver.Installer. That a package does not exist, or does not go with another, is
// a result.
func (s *session) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
	o, err := s.b.installer.Order(p)
	if err != nil {
		return driver.Exit{Code: -1}, err
	}
	return s.install(ctx, o, emit)
}

// preinstall installs what a sandbox has from the beginning.
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
	base, ok := s.box.(Base)
	if !ok {
		return failed, unsupported(nil, string(executor.FeaturePackages))
	}
	c, err := s.use(ctx)
	if err != nil {
		return failed, err
	}
	if err := c.Ping(ctx); err != nil { // a later holder may have taken over
		return failed, s.explain(ctx, err)
	}
	t, err := s.placer(ctx, c, o.Language)
	if err != nil {
		return failed, s.explain(ctx, err)
	}
	defer t.Close()
	exit, err := s.b.installer.Install(ctx, packages.Sandbox{
		Placer: t, Base: base.Base(), Python: c.Info().Python,
		Build: func(ctx context.Context, f *packages.Fetch, file string) error {
			return s.b.fetch(ctx, base.Base(), f, file)
		},
	}, o, emit)
	if err != nil && ctx.Err() == nil {
		err = s.explain(ctx, err)
	}
	return exit, err
}

// placer starts a process that puts packages into the sandbox.
func (s *session) placer(ctx context.Context, c *client, l executor.Language) (*packages.Placer, error) {
	ctx, cancel := s.b.answer(ctx)
	defer cancel()
	conn, err := c.StartSidecar(ctx, packages.PlaceCommand(s.b.o.Python, l))
	if err != nil {
		return nil, err
	}
	t, err := packages.NewPlacer(ctx, packages.Process{ReadWriteCloser: conn, Said: conn.Said}, l)
	if errors.Is(err, packages.ErrNoRoom) {
		return nil, unsupported(err, string(executor.FeaturePackages))
	}
	return t, err
}

// fetch fetches packages in a sandbox of their own, into a file. To the provider it is a sandbox of
// this owner like others: what finds those that were left finds it.
func (b *backend) fetch(ctx context.Context, base string, f *packages.Fetch, file string) error {
	id := strings.ToLower(rand.Text())
	spec := executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}, IdleTTL: fetchIdle, MaxLife: packages.Timeout + b.o.AnswerTimeout}
	features := b.o.Capabilities.Features
	if f.Offline && slices.Contains(features, executor.FeatureNetworkNone) {
		spec.Network.Mode = executor.NetworkNone
	}
	if slices.Contains(features, executor.FeatureLimitMemory) {
		spec.Limits.MemoryBytes = fetchMemory
	}
	if slices.Contains(features, executor.FeatureLimitDisk) {
		spec.Limits.DiskBytes = 4*f.Max + 64<<20
	}
	labels := map[string]string{driver.LabelOwner: b.env.Owner, driver.LabelInstance: b.env.Instance, driver.LabelID: id, labelFetches: "packages"}
	st := b.ask(&driver.Create{ID: id, Labels: labels, Spec: spec}, 0)
	st.Base = base
	s, _, err := b.obtain(ctx, st)
	if err != nil {
		return err
	}
	defer func() {
		s.Detach()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.o.CleanupTimeout)
		defer cancel()
		if err := s.box.Remove(ctx); err != nil {
			b.env.Logger().Warn("a sandbox that fetched packages may be left; it ends by itself", "session", id, "error", err)
		}
	}()
	conn, err := s.connected().StartSidecar(ctx, f.Command(b.o.Python))
	if err != nil {
		return s.explain(ctx, err)
	}
	defer conn.Close()
	where := packages.Builder{UID: st.Config.UID, Dir: executor.Workdir}
	return b.installer.Build(ctx, f, where, packages.Process{ReadWriteCloser: conn, Said: conn.Said}, file)
}
