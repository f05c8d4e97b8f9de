package flymachines

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/runner"
)

// What a Machine that fetches packages has. It ends by itself soon after its program has ended, which it does when it is no longer heard.
const (
	builderMB   = 512
	builderIdle = 10 * time.Second // its program is started as soon as it is up
)

// sources are the packages as all adapters understand them.
func (c *Config) sources() *packages.Sources { return (*packages.Sources)(&c.Packages) }

// checkPackages reports every mistake in what says that packages are installed, but those in the file of requirements.
func (c *Config) checkPackages() error {
	s := c.sources()
	return errors.Join(s.CheckLanguages(s.Languages(), c.languages()), driver.At("packages", s.Check()))
}

// Install implements driver.Installer. That a package does not exist, or does not go with another, is a result.
func (s *session) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
	failed := driver.Exit{Code: -1}
	o, err := s.b.installer.Order(p)
	if err != nil {
		return failed, err
	}
	s.used.Store(true)
	r, err := s.Client(ctx)
	if err == nil {
		err = s.Explain(ctx, r.Ping(ctx)) // a later holder may have taken over
	}
	if err != nil {
		return failed, err
	}
	t, err := placer(ctx, r, o.Language)
	if err != nil {
		return failed, s.Explain(ctx, err)
	}
	defer t.Close()
	image := s.m.GetConfig().Image
	exit, err := s.b.installer.Install(ctx, packages.Sandbox{
		Placer: t, Base: image, Python: r.Info().Python,
		Build: func(ctx context.Context, f *packages.Fetch, file string) error { return s.b.build(ctx, image, f, file) },
	}, o, emit)
	if err != nil && ctx.Err() == nil {
		err = s.Explain(ctx, err)
	}
	return exit, err
}

// placer starts a process that puts packages into a sandbox.
func placer(ctx context.Context, r *runner.Client, l executor.Language) (*packages.Placer, error) {
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	conn, err := r.StartSidecar(ctx, packages.PlaceCommand(python, l))
	if err != nil {
		return nil, err
	}
	t, err := packages.NewPlacer(ctx, packages.Process{ReadWriteCloser: conn, Said: conn.Said}, l)
	if errors.Is(err, packages.ErrNoRoom) {
		return nil, &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{string(executor.FeaturePackages)}, Err: err}
	}
	return t, err
}

// build fetches packages in a Machine of their own, into a file. To the API it is a Machine of this owner like others: what finds those
// that were left finds it. Nobody can attach to it.
func (b *backend) build(ctx context.Context, image string, f *packages.Fetch, file string) error {
	mode := executor.NetworkFull
	if f.Offline {
		mode = executor.NetworkNone
	}
	id := strings.ToLower(rand.Text())
	c := &driver.Create{
		ID:     id,
		Labels: map[string]string{driver.LabelOwner: b.env.Owner, driver.LabelInstance: b.env.Instance, driver.LabelID: id},
		Spec: executor.Spec{
			Network: executor.NetworkPolicy{Mode: mode}, Limits: executor.Limits{MemoryBytes: (builderMB - supervisorMB) * mib},
			IdleTTL: builderIdle, MaxLife: packages.Timeout + b.cfg.timeout(),
		},
	}
	in, secret, limits, err := b.launch(c, image, true)
	if err != nil {
		return err
	}
	s, err := b.obtain(ctx, in, secret, limits, c)
	if err != nil {
		return err
	}
	defer b.tidy(ctx, s)
	p, err := s.Connected().StartSidecar(ctx, f.Command(python))
	if err != nil {
		return s.Explain(ctx, err)
	}
	defer p.Close()
	where := packages.Builder{UID: userID(id), Dir: executor.Workdir}
	return b.installer.Build(ctx, f, where, packages.Process{ReadWriteCloser: p, Said: p.Said}, file)
}

// tidy removes a Machine that has fetched packages, whether or not somebody still waits for them.
func (b *backend) tidy(ctx context.Context, s *session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	s.Detach()
	if err := b.api.destroy(ctx, s.m.ID); err != nil {
		b.env.Logger().Warn("a Machine that fetched packages may be left; it ends by itself", "machine", s.m.Name, "error", err)
	}
}
