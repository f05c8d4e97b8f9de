package pool

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Fits reports whether warm sessions can serve spec. If not, fields names the fields of spec that
// prevent it. Attributes and Subject never do. Labels always do. Run and MaxRun do only if the
// backend allows less. IdleTTL needs FeatureKeepAlive. MinIsolation and Require need a session that
// satisfies them. Aliases must be among those of the warm sessions, which may have more. All other
// fields must be equal.
func (p *Pool) Fits(spec executor.Spec) (ok bool, fields []string) {
	fields = Differs(p.opts.Spec, p.Info().Capabilities, spec)
	return len(fields) == 0, fields
}

// Differs is Fits for a pool that does not exist yet: have is the Spec of its Options, and caps are
// the capabilities of its backend.
func Differs(have executor.Spec, caps executor.Capabilities, spec executor.Spec) (fields []string) {
	ceiling, all := ceiling(caps), caps
	caps = caps.For(have.Languages...)
	equal := func(name string, same bool) {
		if !same {
			fields = append(fields, name)
		}
	}
	equal("Template", spec.Template == have.Template)
	equal("Languages", slices.Equal(explicit(all, have.Languages), explicit(all, spec.Languages)))
	equal("Packages", slices.Equal(requirements(spec.Packages, caps), requirements(have.Packages, caps)))
	equal("Env", maps.Equal(spec.Env, have.Env))
	equal("Aliases", !slices.ContainsFunc(spec.Aliases, func(a string) bool { return !slices.Contains(have.Aliases, a) }))
	equal("Ports", spec.Ports == have.Ports)
	equal("Labels", maps.Equal(spec.Labels, have.Labels))
	equal("Limits", spec.Limits == have.Limits)
	run, most := spec.Bounds()
	equal("Run", len(run.Exceeds(ceiling)) == 0)
	equal("MaxRun", len(most.Exceeds(ceiling)) == 0)
	equal("Network", mode(spec.Network) == mode(have.Network) && slices.Equal(spec.Network.Hosts, have.Network.Hosts))
	equal("IdleTTL", ttl(spec) == ttl(have) || caps.Has(executor.FeatureKeepAlive))
	equal("MaxLife", spec.MaxLife == have.MaxLife)
	equal("MinIsolation", caps.Isolation.AtLeast(spec.MinIsolation))
	equal("Require", !slices.ContainsFunc(spec.Require, func(f executor.Feature) bool { return !caps.Has(f) }))
	return fields
}

// maxOutput is an output limit that no run reaches, in bytes.
const maxOutput = 1 << 50

// ceiling returns the highest limits of runs in warm sessions: all that the backend allows, because
// a warm session must be able to serve any Spec.
func ceiling(caps executor.Capabilities) executor.RunLimits {
	return caps.MaxRun.Or(executor.RunLimits{WallTime: executor.NoLimit, OutputBytes: maxOutput})
}

// explicit returns the languages that a Spec means: an empty list means the first language of the
// backend.
func explicit(caps executor.Capabilities, ls []executor.Language) []executor.Language {
	if len(ls) == 0 && len(caps.Languages) > 0 {
		return []executor.Language{caps.Languages[0].Language}
	}
	return ls
}

// requirements returns packages in a fixed order, for comparison.
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
	return cmp.Or(n.Mode, executor.NetworkNone)
}

func ttl(s executor.Spec) time.Duration {
	return cmp.Or(s.IdleTTL, executor.DefaultIdleTTL)
}

// adapt changes a warm session that Fits into the session that spec requests. It fails if the
// session is not alive.
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
	if ttl(spec) != ttl(p.opts.Spec) {
		if _, err := s.KeepAlive(ctx, ttl(spec)); err != nil {
			return nil, err
		}
	}
	run, most := spec.Bounds()
	return &session{Session: s, run: run, most: most}, nil
}
