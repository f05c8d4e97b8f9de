package e2b

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/e2b/internal/api"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
)

// sources are the packages as all adapters understand them.
func (c *Config) sources() *packages.Sources { return (*packages.Sources)(&c.Packages) }

// checkPackages reports every mistake in what says that packages are installed, but those in the file of requirements.
func (c *Config) checkPackages() error {
	s := c.sources()
	used := s.Languages()
	errs := []error{s.CheckLanguages(used, c.languages()), driver.At("packages", s.Check())}
	at := func(path, text string) { errs = append(errs, driver.At(path, errors.New(text))) }
	if len(used) == 0 {
		return errors.Join(errs...)
	}
	if c.kernel() != KernelRunner {
		at("packages", "are those of the template with the kernel "+c.kernel()+"; use the kernel "+KernelRunner)
	}
	if c.user() != DefaultUser {
		at("packages", "need the user "+DefaultUser+": code could change what another one installs")
	}
	if !slices.Contains(c.networks(), c.fetching(s.Offline() && !slices.Contains(used, executor.JavaScript))) {
		at("packages", "are fetched in sandboxes with internet, and networks has no full; use a directory of wheels")
	}
	return errors.Join(errs...)
}

// fetching returns the network of builders. Those that need none have none, where the service can do that.
func (c *Config) fetching(offline bool) executor.NetworkMode {
	if offline && slices.Contains(c.networks(), executor.NetworkNone) {
		return executor.NetworkNone
	}
	return executor.NetworkFull
}

// Install implements driver.Installer. That a package does not exist, or does not go with another, is a result.
func (s *session) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
	failed := driver.Exit{Code: -1}
	o, err := s.b.installer.Order(p)
	if err != nil {
		return failed, err
	}
	r, err := s.Client(ctx)
	if err == nil {
		err = s.Explain(ctx, r.Ping(ctx)) // a later holder may have taken over
	}
	if err != nil {
		return failed, err
	}
	t, err := s.place(ctx, o.Language)
	if err != nil {
		return failed, err
	}
	defer t.Close()
	exit, err := s.b.installer.Install(ctx, packages.Sandbox{
		Placer: t, Base: s.b.cfg.apiURL() + " " + s.d.template, Python: r.Info().Python,
		Build: func(ctx context.Context, f *packages.Fetch, file string) error {
			return s.b.build(ctx, s.d.template, f, file)
		},
	}, o, emit)
	if err != nil && ctx.Err() == nil {
		err = s.Explain(ctx, err)
	}
	return exit, err
}

// place starts a placer.
func (s *session) place(ctx context.Context, l executor.Language) (*packages.Placer, error) {
	ctx, cancel := s.b.service.answer(ctx)
	defer cancel()
	conn, err := s.d.start(ctx, packages.PlaceCommand(python, l), s.b.forget)
	var t *packages.Placer
	if err == nil {
		t, err = packages.NewPlacer(ctx, packages.Process{ReadWriteCloser: conn, Said: conn.said}, l)
	}
	var said *ServiceError
	switch {
	case err == nil:
		return t, nil
	case errors.Is(err, packages.ErrNoRoom):
		return nil, unsupported(err, string(executor.FeaturePackages))
	case errors.As(err, &said) && said.gone():
		return nil, errGone(s.id)
	}
	return nil, s.b.service.fail(ctx, "putting packages into a sandbox", err)
}

// build fetches packages in a sandbox of their own, into a file. To the service it is a sandbox of this owner like others: what finds those
// that were left finds it, and it ends by itself soon after it should have.
func (b *backend) build(ctx context.Context, template string, f *packages.Fetch, file string) error {
	id := strings.ToLower(rand.Text())
	note, err := json.Marshal(remembered{Created: time.Now().Round(0)})
	if err != nil {
		return err
	}
	seconds := wholeSeconds(min(packages.Timeout+b.cfg.timeout(), b.cfg.maxLife()))
	ask := api.NewSandbox{TemplateID: template, Timeout: &seconds, Metadata: &map[string]string{
		driver.LabelOwner: b.env.Owner, driver.LabelInstance: b.env.Instance, driver.LabelID: id, labelNote: string(note),
	}}
	b.network(&ask, executor.NetworkPolicy{Mode: b.cfg.fetching(f.Offline)})
	made, unclear, err := b.tryMake(ctx, id, id, ask)
	if err != nil {
		if unclear != nil { // the answer may take its time, and whoever waits for packages does not
			b.work.Go(func() { b.tidy(ctx, id, unclear) })
		}
		return err
	}
	defer b.tidy(ctx, made.SandboxID, func(ctx context.Context) error { return b.service.kill(ctx, made.SandboxID) })
	if err := b.refuse(made); err != nil {
		return err
	}
	actx, cancel := b.service.answer(ctx)
	defer cancel()
	conn, err := b.service.daemon(made).startNew(actx, f.Command(python))
	if err != nil {
		return b.notStarted(actx, err)
	}
	defer conn.Close()
	return b.installer.Build(ctx, f, packages.Builder{UID: codeID}, packages.Process{ReadWriteCloser: conn, Said: conn.said}, file)
}

// tidy removes a sandbox that has fetched packages, whether or not somebody still waits for them.
func (b *backend) tidy(ctx context.Context, id string, remove func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := remove(ctx); err != nil {
		b.env.Logger().Warn("a sandbox that fetched packages may be left; it ends by itself", "sandbox", id, "error", err)
	}
}
