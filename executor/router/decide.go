package router

import (
	"errors"
	"fmt"
	"slices"

	"github.com/execbroker/execbroker/executor"
)

// Decision explains where a Spec goes.
type Decision struct {
	Route string `json:"route"`
	// Assigned is the backend that the split selects, whether it can run the Spec or not. It is ""
	// if the split needs a subject and the Spec has none.
	Assigned string `json:"assigned"`
	// Split is the split of the route, with its weights. Callers must not change it.
	Split []Share `json:"split"`
	// Bucket is the unit of weight of Assigned, from 1, that won the subject. The subject stays
	// with Assigned while the weight of Assigned is at least Bucket and no other weight grows. 0:
	// the subject was not used for the decision.
	Bucket int `json:"bucket,omitempty"`
	// Eligible lists the backends that Create tries, in order: Assigned and the fallbacks, without
	// those in Missing. Callers must not change it.
	Eligible []string `json:"eligible"`
	// Missing says what each backend lacks that cannot run the Spec: see
	// executor.Capabilities.MissingFor.
	Missing map[string][]string `json:"missing,omitempty"`
}

// Decide says where spec would go. It depends only on the configuration, the declared capabilities
// and the spec. It uses no I/O, clock or random numbers, so that every process decides alike. It
// fails with ErrInvalid if no route matches.
func (r *Router) Decide(spec executor.Spec) (Decision, error) { return r.decide(spec, "") }

// Choice is an assignment that a program makes instead of the hash. The zero value makes none.
type Choice struct {
	Backend string // one with weight in the split of the route; empty: the hash assigns
	Reason  string // executor.Outcome.Assignment; empty: "split"
}

// decide is Decide with the arm of a Choice, unless it is empty.
func (r *Router) decide(spec executor.Spec, arm string) (Decision, error) {
	i := slices.IndexFunc(r.cfg.Routes, func(rt Route) bool { return rt.Match.match(&spec) })
	if i < 0 {
		return Decision{}, &executor.Error{
			Op: "create", Backend: r.name, Kind: executor.ErrInvalid, Ran: executor.RanNo,
			Err: errors.New("no route matches; add a last route without match to match the rest"),
		}
	}
	rt := &r.cfg.Routes[i]
	d := Decision{Route: rt.Name, Assigned: rt.only(), Split: rt.Split}
	if d.Assigned == "" && spec.Subject != "" {
		d.Assigned, d.Bucket = rt.assign(spec.Subject)
	}
	if arm != "" {
		if !slices.ContainsFunc(rt.Split, func(s Share) bool { return s.Backend == arm && s.Weight > 0 }) {
			return Decision{}, r.fail("create", executor.ErrInvalid, fmt.Errorf("%q has no weight in the split of the route %q", arm, rt.Name))
		}
		d.Assigned = arm
	}
	d.Eligible = rt.orders[d.Assigned]
	for _, name := range d.Eligible {
		d.consider(name, r.backends[name], &spec)
	}
	if d.Assigned == "" { // any of them may be drawn
		for _, s := range rt.Split {
			if s.Weight > 0 {
				d.consider(s.Backend, r.backends[s.Backend], &spec)
			}
		}
	}
	if len(d.Missing) > 0 {
		d.Eligible = slices.DeleteFunc(slices.Clone(d.Eligible), func(name string) bool { return d.Missing[name] != nil })
	}
	return d, nil
}

// consider notes what a backend lacks, if that is anything.
func (d *Decision) consider(name string, x executor.Executor, spec *executor.Spec) {
	if m := x.Info().Capabilities.MissingFor(*spec); len(m) > 0 {
		if d.Missing == nil {
			d.Missing = map[string][]string{}
		}
		d.Missing[name] = m
	}
}
