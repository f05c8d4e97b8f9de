package backends

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
)

// Escalation lets the conversations of a backend go on on a bigger one when their code needs more:
// see sessions.Escalation. It requires sessions.checkpoint.
type Escalation struct {
	From string          `json:"from"`
	To   string          `json:"to"` // where MinIsolation of the Spec does not hold, conversations stay
	On   []sessions.Need `json:"on"` // subprocess, threads, package, memory, disk, timeout
}

// checkEscalations checks the entries of escalate.
func (c Config) checkEscalations() error {
	var errs []error
	if len(c.Escalate) > 0 && c.Sessions.Checkpoint.Every == 0 {
		errs = append(errs, driver.At("escalate", errors.New("want sessions.checkpoint, or conversations would be lost")))
	}
	names := slices.Sorted(maps.Keys(c.Backends))
	var needs []string
	for _, n := range sessions.Needs() {
		needs = append(needs, string(n))
	}
	for i, e := range c.Escalate {
		path := index("escalate", i)
		bad := func(field string, err error) { errs = append(errs, driver.At(path+"."+field, err)) }
		for _, f := range []struct{ field, name string }{{"from", e.From}, {"to", e.To}} {
			if !slices.Contains(names, f.name) {
				bad(f.field, driver.Unknown("backend", f.name, names))
			}
		}
		if slices.ContainsFunc(c.Escalate[:i], func(o Escalation) bool { return o.From == e.From }) {
			bad("from", fmt.Errorf("backend %q has an entry already; join their needs", e.From))
		}
		if c.returns(e) {
			bad("to", fmt.Errorf("leads back to %q", e.From))
		}
		if len(e.On) == 0 {
			bad("on", fmt.Errorf("missing; want some of %v", needs))
		}
		for j, n := range e.On {
			if !slices.Contains(needs, string(n)) {
				bad(index("on", j), driver.Unknown("need", string(n), needs))
			}
		}
	}
	return errors.Join(errs...)
}

// returns reports whether conversations that follow e come back to where they were.
func (c Config) returns(e Escalation) bool {
	at := e.To
	for range c.Escalate {
		if at == e.From {
			return true
		}
		at, _ = c.escalation(at)
	}
	return false
}

// escalation returns where conversations of a backend go, and for which needs.
func (c Config) escalation(backend string) (to string, on []sessions.Need) {
	for _, e := range c.Escalate {
		if e.From == backend {
			return e.To, e.On
		}
	}
	return "", nil
}

// escalations are those of the current configuration, for the Manager.
func (b *Broker) escalations() sessions.Escalation {
	return sessions.Escalation{
		To: func(backend string) (string, []sessions.Need) { return b.current().cfg.escalation(backend) },
		Create: func(ctx context.Context, backend string, spec executor.Spec) (executor.Session, error) {
			return b.create(ctx, backend, spec, false)
		},
	}
}
