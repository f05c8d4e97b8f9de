package pool

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Fits reports whether warm sessions can serve spec, and if not, which fields are in the way. Attributes and Subject never are; Run
// and MaxRun may be tighter; Labels need FeatureRelabel; IdleTTL needs FeatureKeepAlive; MinIsolation and Require need what they say;
// the rest must be equal.
func (p *Pool) Fits(spec executor.Spec) (ok bool, fields []string) {
	have, caps := p.opts.Spec, p.Info().Capabilities
	caps = caps.For(have.Languages...)
	equal := func(name string, same bool) {
		if !same {
			fields = append(fields, name)
		}
	}
	equal("Template", spec.Template == have.Template)
	equal("Languages", sameLanguages(caps, spec.Languages))
	equal("Packages", slices.Equal(requirements(spec.Packages, caps), requirements(have.Packages, caps)))
	equal("Env", maps.Equal(spec.Env, have.Env))
	equal("Labels", maps.Equal(spec.Labels, have.Labels) || caps.Has(executor.FeatureRelabel))
	equal("Limits", spec.Limits == have.Limits)
	run, most := spec.Bounds()
	_, ceiling := have.Bounds()
	equal("Run", len(run.Exceeds(ceiling)) == 0)
	equal("MaxRun", len(most.Exceeds(ceiling)) == 0)
	equal("Network", mode(spec.Network) == mode(have.Network) && slices.Equal(spec.Network.Hosts, have.Network.Hosts))
	equal("IdleTTL", ttl(spec) == ttl(have) || caps.Has(executor.FeatureKeepAlive))
	equal("MaxLife", spec.MaxLife == have.MaxLife)
	equal("MinIsolation", caps.Isolation.AtLeast(spec.MinIsolation))
	equal("Require", !slices.ContainsFunc(spec.Require, func(f executor.Feature) bool { return !caps.Has(f) }))
	return len(fields) == 0, fields
}

// sameLanguages compares with the languages of a warm session. None means the backend's first, as it does there.
func sameLanguages(warm executor.Capabilities, want []executor.Language) bool {
	if len(want) == 0 {
		return len(warm.Languages) == 1
	}
	return slices.EqualFunc(warm.Languages, want, func(r executor.Runtime, l executor.Language) bool { return r.Language == l })
}

// requirements writes packages in one order.
func requirements(ps []executor.Packages, caps executor.Capabilities) []string {
	var out []string
	for _, p := range ps {
		l := p.Language
		if l == "" && len(caps.Languages) > 0 {
			l = caps.Languages[0].Language
		}
		for _, n := range p.Names {
			out = append(out, string(l)+" "+strings.TrimSpace(n))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func mode(n executor.NetworkPolicy) executor.NetworkMode {
	if n.Mode == "" {
		return executor.NetworkNone
	}
	return n.Mode
}

func ttl(s executor.Spec) time.Duration {
	if s.IdleTTL == 0 {
		return executor.DefaultIdleTTL
	}
	return s.IdleTTL
}

// adapt makes a warm session that Fits the session that spec asks for. It fails if the session is not alive.
func (p *Pool) adapt(ctx context.Context, s executor.Session, spec executor.Spec) (executor.Session, error) {
	info, err := s.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	if info.State != executor.SessionRunning {
		return nil, &executor.Error{
			Op: "create", Backend: info.Handle.Backend, Session: info.Handle.Session, Kind: executor.ErrNotFound, Ran: executor.RanNo,
		}
	}
	if !maps.Equal(spec.Labels, p.opts.Spec.Labels) {
		if err := s.Relabel(ctx, spec.Labels); err != nil {
			return nil, err
		}
	}
	if ttl(spec) != ttl(p.opts.Spec) {
		if _, err := s.KeepAlive(ctx, ttl(spec)); err != nil {
			return nil, err
		}
	}
	run, most := spec.Bounds()
	if haveRun, haveMost := p.opts.Spec.Bounds(); run == haveRun && most == haveMost && ttl(spec) == ttl(p.opts.Spec) {
		return s, nil
	}
	return &session{Session: s, run: run, most: most, idle: ttl(spec)}, nil
}
