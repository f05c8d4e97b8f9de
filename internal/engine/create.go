package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// Create implements executor.Executor.
func (x *exec) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	ctx, endProgress := executor.ScopeProgress(ctx)
	defer endProgress()
	var s *session
	err := x.do(ctx, executor.Op{Name: "create"}, func(c *call) error {
		if err := spec.Validate(); err != nil {
			return err
		}
		if m := x.info.Capabilities.MissingFor(spec); len(m) > 0 {
			return unsupported(m...)
		}
		req, base := x.resolve(spec)
		var box *Sandbox
		err := x.attempt(c, x.o.CreateTimeout, func(ctx context.Context) (err error) {
			box, err = x.b.Create(ctx, req)
			if left := (*leftoverError)(nil); errors.As(err, &left) {
				x.left.add(left.remove)
				err = left.err
			}
			return err
		})
		if err != nil {
			return err
		}
		s, err = x.adopt(box, base, req.Labels)
		if err == nil {
			c.out.Session = s.id
			err = s.installAll(c.ctx, req.Spec.Packages)
		}
		if s != nil && err != nil {
			s.abandon()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// resolve fills in the defaults of spec: what the driver is asked for, and what is known of the
// session before the driver says more.
func (x *exec) resolve(spec executor.Spec) (*Create, executor.SessionInfo) {
	c := &Create{ID: NewID(), Labels: maps.Clone(spec.Labels), Spec: spec}
	s := &c.Spec
	if len(s.Languages) == 0 {
		s.Languages = []executor.Language{x.info.Capabilities.Languages[0].Language}
	}
	named := s.Languages
	s.Languages = x.info.Capabilities.Interpreters(named)
	s.Packages = slices.Clone(s.Packages)
	for i := range s.Packages {
		s.Packages[i].Language = x.info.Capabilities.Interpreter(cmp.Or(s.Packages[i].Language, s.Languages[0]))
	}
	s.Run, s.MaxRun = s.Bounds()
	s.IdleTTL = min(cmp.Or(s.IdleTTL, executor.DefaultIdleTTL), longest)
	s.MaxLife = cmp.Or(s.MaxLife, x.info.Capabilities.MaxLife)
	s.Network.Mode = cmp.Or(s.Network.Mode, executor.NetworkNone)
	s.Labels, s.Attributes, s.Subject, s.Require = nil, nil, "", nil
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	maps.Copy(c.Labels, map[string]string{
		LabelOwner:     x.env.Owner,
		LabelInstance:  x.env.Instance,
		LabelID:        c.ID,
		LabelLanguages: joinLanguages(named),
	})
	if len(spec.Aliases) > 0 {
		c.Labels[LabelAliases] = joinAliases(spec.Aliases)
	}
	if spec.Ports {
		c.Labels[LabelPorts] = portsAsked
	}
	return c, executor.SessionInfo{
		Handle:       executor.Handle{Run: s.Run, MaxRun: s.MaxRun, IdleTTL: s.IdleTTL, MaxLife: s.MaxLife},
		Template:     s.Template,
		Labels:       spec.Labels,
		Limits:       s.Limits,
		Capabilities: x.info.Capabilities.For(named...),
	}
}

func joinLanguages(ls []executor.Language) string {
	names := make([]string, len(ls))
	for i, l := range ls {
		names[i] = string(l)
	}
	return strings.Join(names, ",")
}

// splitLanguages reads LabelLanguages. No label, as of a sandbox of an older version, is no
// language.
func splitLanguages(label string) (ls []executor.Language) {
	for name := range strings.SplitSeq(label, ",") {
		if name != "" {
			ls = append(ls, executor.Language(name))
		}
	}
	return ls
}

// adopt makes a session of a sandbox and registers it. base is what is known of it besides what the
// driver says, labels has the reserved ones. If the Executor was closed meanwhile, or the session
// breaks its declarations, adopt returns it with an error, and the caller destroys it or detaches
// from it.
func (x *exec) adopt(box *Sandbox, base executor.SessionInfo, labels map[string]string) (*session, error) {
	if box == nil {
		return nil, Fail(executor.ErrInternal, executor.RanNo, errors.New("the driver returned neither a session nor an error"))
	}
	s := &session{x: x, box: box, info: base, reserved: reservedLabels(labels), names: splitAliases(labels[LabelAliases])}
	s.calls.ofSession = true
	s.busy = map[executor.Interpreter]int{}
	info := box.Info()
	s.expiry.fixed, s.expiry.end = !info.Expires.IsZero(), info.Expires
	info = s.setInfo(info)
	s.id, s.caps = info.Handle.Session, info.Capabilities
	err := s.check()
	x.mu.Lock()
	x.live[s] = true
	x.mu.Unlock()
	if err == nil && x.calls.isClosed() { // Close may have looked at live before
		err = Fail(executor.ErrClosed, executor.RanNo, nil)
	}
	return s, err
}

// abandon destroys a sandbox that was not returned to a caller. If that fails, Close tries again,
// and otherwise the sandbox ends by its TTL.
func (s *session) abandon() {
	if err := s.Close(); err != nil {
		s.x.log.Warn("a session that could not be used was not destroyed either", "session", s.id, "error", err)
	}
}

// check compares what the session has declared with what it implements.
func (s *session) check() error {
	var errs []error
	agree := func(f executor.Feature, has bool) {
		if s.someHave(f) && !has {
			errs = append(errs, fmt.Errorf("%s declares %s and does not implement it", s.box.Type, f))
		}
	}
	agree(executor.FeatureAttach, s.box.Detach != nil)
	agree(executor.FeatureKeepAlive, s.box.KeepAlive != nil)
	agree(executor.FeatureState, s.box.Reset != nil)
	agree(executor.FeaturePackages, s.box.Install != nil)
	agree(executor.FeatureFiles, s.box.Files != nil)
	agree(executor.FeaturePorts, s.box.Dial != nil)
	if s.id == "" {
		errs = append(errs, fmt.Errorf("%s has no name: SessionInfo.Handle.Session is empty", s.box.Type))
	}
	if err := errors.Join(errs...); err != nil {
		return Fail(executor.ErrInternal, executor.RanNo, err)
	}
	return nil
}

// installAll installs the packages of a Spec. A package that cannot be installed is an error of the
// Spec.
func (s *session) installAll(ctx context.Context, ps []executor.Packages) error {
	for _, p := range ps {
		res, err := s.install(ctx, p, nil)
		if err == nil {
			err = installError(p, res)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxInstallOutput is how much of what an installer has said goes into an error.
const maxInstallOutput = 2 << 10

// installError makes an error of an Install that did not succeed.
func installError(p executor.Packages, res *executor.Result) error {
	failed := res.Err()
	if failed == nil {
		return nil
	}
	said := res.Stderr
	if len(strings.TrimSpace(said.String())) == 0 {
		said = res.Stdout
	}
	if over := len(said) - maxInstallOutput; over > 0 {
		said = said[over:]
	}
	err := &executor.PackageError{Packages: p, Err: fmt.Errorf("%w: %s", failed, strings.TrimSpace(strings.ToValidUTF8(said.String(), "")))}
	if res.Status == executor.StatusTimedOut {
		return Fail(executor.ErrUnavailable, executor.RanNo, err)
	}
	return Fail(executor.ErrInvalid, executor.RanNo, err)
}

// unsupported refuses what would need missing.
func unsupported(missing ...string) error {
	return &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: missing}
}

// reservedLabels returns the reserved ones among labels.
func reservedLabels(labels map[string]string) map[string]string {
	m := maps.Clone(labels)
	maps.DeleteFunc(m, func(k, _ string) bool { return !strings.HasPrefix(k, executor.ReservedPrefix) })
	return m
}

// openLabels returns the others.
func openLabels(labels map[string]string) map[string]string {
	m := maps.Clone(labels)
	maps.DeleteFunc(m, func(k, _ string) bool { return strings.HasPrefix(k, executor.ReservedPrefix) })
	return m
}
