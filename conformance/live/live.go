// Package live runs the conformance suite against a service that costs money, within bounds that
// hold while it runs, looks at each fact about the service that the adapter relies on, and keeps
// what was said as files that can be published.
//
// # Bounds
//
// All requests to the control plane of the service go through a proxy in this process. It sees each
// sandbox that is really made, and when it ends, also those of child processes. A create that would
// go beyond a bound is refused there, and the run ends. What a sandbox costs is counted until its
// end was seen, or until the end of the run: so the figure is what it costs at most.
//
// # What is left
//
// Every sandbox of a run has one of two owners, which follow from that of the program. They are
// removed before a run and at its end, whatever happened in between. If the program is killed, the
// next run removes what is left, and so does "execbroker session reap".
package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
)

// Options are what a run is about. All fields but Only and Hide are needed.
type Options struct {
	Type     string                     // of the backend: one of Types
	Settings map[string]json.RawMessage // of the backend, as configuration has them
	// Open opens the backend with settings for an owner.
	Open  func(ctx context.Context, settings map[string]json.RawMessage, owner string) (executor.Executor, error)
	Owner string // sandboxes are of Owner and OtherOwner

	Bounds Bounds
	Dir    string             // for what is written; made if need be
	Target conformance.Target // without Setup and Open; MaxSessions is that of Bounds
	Traps  []string           // patterns of names as in path.Match; nil: all
	Hide   []string           // further texts that must not be written
}

// Owners returns whose sandboxes those of a run are.
func (o *Options) Owners() []string { return []string{o.Owner, o.Owner + ".other"} }

// Result is what was found.
type Result struct {
	Report   *conformance.Report `json:"-"`
	Traps    []TrapLine          `json:"traps"`
	Spent    Spent               `json:"spent"`
	Before   int                 `json:"removed_before"` // sandboxes of earlier runs
	Left     []string            `json:"left"`           // what could not be removed at the end
	Stopped  string              `json:"stopped,omitempty"`
	Plan     string              `json:"plan"`
	Started  time.Time           `json:"started"`
	Finished time.Time           `json:"finished"`
}

// Holds reports whether nothing was found that is not as it should be.
func (r *Result) Holds() bool {
	bad := func(l conformance.Line) bool {
		return l.Outcome != conformance.Passed && l.Outcome != conformance.Refused && !l.Skipped()
	}
	return r.Stopped == "" && len(r.Left) == 0 && !slices.ContainsFunc(r.Report.Cases, bad) &&
		!slices.ContainsFunc(r.Traps, func(l TrapLine) bool { return l.Outcome == Differs || l.Outcome == Errored })
}

// paramProxy is the key under which children of the suite are told where the proxy is.
const paramProxy = "live.proxy"

// target returns the suite as it runs through a proxy, which is nil in a child process.
func (o *Options) target(svc *service, p *proxy) conformance.Target {
	t := o.Target
	t.MaxSessions = o.Bounds.Sandboxes
	t.Setup = func(context.Context) (map[string]string, func() error, error) {
		return map[string]string{paramProxy: p.url}, nil, nil
	}
	t.Open = func(ctx context.Context, params map[string]string) (executor.Executor, error) {
		owner := o.Owners()[0]
		if params[conformance.ParamOwner] != "" {
			owner = o.Owners()[1]
		}
		return o.through(ctx, svc, params[paramProxy], owner)
	}
	return t
}

// through opens the backend with a control plane that is reached through the proxy.
func (o *Options) through(ctx context.Context, svc *service, proxy, owner string) (executor.Executor, error) {
	settings := map[string]json.RawMessage{}
	maps.Copy(settings, o.Settings)
	at, err := json.Marshal(proxy)
	if err != nil {
		return nil, err
	}
	settings[svc.address] = at
	return o.Open(ctx, settings, owner)
}

// RunChild does the work of a child process of the suite, if this is one: see conformance.RunChild.
func RunChild(ctx context.Context, o Options) (was bool, err error) {
	svc, err := o.service()
	if err != nil {
		return false, err
	}
	return conformance.RunChild(ctx, o.target(svc, nil))
}

// Run runs the suite and the traps, and writes what was found to Options.Dir. The error is about
// the run itself: a bound that was reached, the end of ctx, a file that cannot be written. The
// Result is nil if nothing was begun.
func Run(ctx context.Context, o Options) (r *Result, err error) {
	svc, err := o.service()
	if err != nil {
		return nil, err
	}
	plan, err := o.Plan()
	if err != nil {
		return nil, err
	}
	if err := prepare(o.Dir); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, o.Bounds.Time, errTime)
	defer stop()
	m := newMeter(o.Bounds, cancel)
	rec := &recorder{scrub: newScrubber(svc, &o)}
	p, err := startProxy(svc, m, rec)
	if err != nil {
		return nil, err
	}
	defer p.close()

	r = &Result{Plan: plan, Started: time.Now().UTC(), Report: &conformance.Report{}, Left: []string{}, Traps: []TrapLine{}}
	if r.Before, _, err = o.reap(ctx, svc, p); err != nil {
		return nil, fmt.Errorf("removing what earlier runs have left: %w", err)
	}
	watching := m.watch()
	defer func() { // also after a panic
		_, r.Left, err = o.cleaned(ctx, svc, p, m, err)
		watching()
		r.Spent, r.Finished = m.spent(), time.Now().UTC()
		if cause := context.Cause(ctx); cause != nil {
			r.Stopped = cause.Error()
		}
		err = errors.Join(err, write(o.Dir, r, rec))
	}()
	r.Report, err = conformance.Run(ctx, o.target(svc, p))
	if err != nil {
		return r, err
	}
	s := &site{svc: svc, o: &o, proxy: p, rec: rec}
	r.Traps, err = s.all(ctx, svc.traps)
	return r, err
}

// The time that removing takes at most, and with it the creates that are under way: the money for
// it is kept back.
const (
	reapTime = 2 * time.Minute
	keptBack = reapTime + createTime
)

// cleaned removes what is left at the end of a run, whatever has ended it.
func (o *Options) cleaned(ctx context.Context, svc *service, p *proxy, m *meter, err error) (int, []string, error) {
	m.close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reapTime)
	defer cancel()
	n, left, rerr := o.reap(ctx, svc, p)
	for _, id := range m.alive() { // the service may not list what it has only just made
		if derr := p.destroy(ctx, id); derr != nil {
			left = append(left, id)
			rerr = errors.Join(rerr, fmt.Errorf("sandbox %s: %w", id, derr))
		}
	}
	if rerr != nil {
		err = errors.Join(err, fmt.Errorf("sandboxes may be left, of the owners %q: %w", o.Owners(), rerr))
	}
	return n, append([]string{}, left...), err
}

// reap removes the sandboxes of all runs.
func (o *Options) reap(ctx context.Context, svc *service, p *proxy) (removed int, left []string, err error) {
	for _, owner := range o.Owners() {
		x, oerr := o.through(ctx, svc, p.url, owner)
		if oerr != nil {
			return removed, left, oerr
		}
		for info, lerr := range x.Sessions(ctx, nil) {
			if lerr == nil {
				lerr = x.Destroy(ctx, info.Handle)
			}
			if lerr != nil {
				err = errors.Join(err, lerr)
				if info.Handle.Session != "" {
					left = append(left, info.Handle.Session)
				}
				continue
			}
			removed++
		}
		err = errors.Join(err, x.Close())
	}
	return removed, left, err
}

// prepare makes the directory of the results, in which nothing is yet: a run does not overwrite
// what another one has found.
func prepare(dir string) error {
	if dir == "" {
		return errors.New("no directory for the results")
	}
	if err := os.MkdirAll(filepath.Join(dir, exchangesDir), 0o755); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%s has results already; choose another directory", dir)
	}
	return err
}
