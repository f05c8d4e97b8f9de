package router

import (
	"errors"
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
	// those in Missing.
	Eligible []string `json:"eligible"`
	// Missing says what each backend lacks that cannot run the Spec: see
	// executor.Capabilities.MissingFor.
	Missing map[string][]string `json:"missing,omitempty"`
}

// Decide says where spec would go. It depends only on the configuration, the declared capabilities
// and the spec. It uses no I/O, clock or random numbers, so that every process decides alike. It
// fails with ErrInvalid if no route matches.
func (r *Router) Decide(spec executor.Spec) (Decision, error) {
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
	consider := func(name string) {
		if slices.Contains(d.Eligible, name) || d.Missing[name] != nil {
			return
		}
		if m := r.backends[name].Info().Capabilities.MissingFor(spec); len(m) > 0 {
			if d.Missing == nil {
				d.Missing = map[string][]string{}
			}
			d.Missing[name] = m
			return
		}
		d.Eligible = append(d.Eligible, name)
	}
	if d.Assigned != "" {
		consider(d.Assigned)
	} else {
		for _, s := range rt.Split { // any of them may be drawn
			if s.Weight > 0 && len(r.backends[s.Backend].Info().Capabilities.MissingFor(spec)) > 0 {
				consider(s.Backend)
			}
		}
	}
	for _, name := range rt.Fallback {
		consider(name)
	}
	return d, nil
}
