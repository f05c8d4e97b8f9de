package router

import (
	"errors"
	"slices"

	"github.com/execbroker/execbroker/executor"
)

// Decision explains a choice.
type Decision struct {
	Route string `json:"route"`
	// Assigned is what the split says, whether or not that backend can; "" if the split needs a
	// subject and there is none.
	Assigned string `json:"assigned"`
	// Split is that of the route, with its weights. Who reads it must not change it.
	Split []Share `json:"split"`
	// Bucket is the unit of weight of Assigned, from 1, by which the split has given it the
	// subject. The subject stays while the weight of Assigned is at least that and no other weight
	// grows. 0: the subject has not decided.
	Bucket int `json:"bucket,omitempty"`
	// Eligible is what Create tries, in order: Assigned and the fallbacks, without those in
	// Missing.
	Eligible []string `json:"eligible"`
	// Missing says of the backends that cannot what they lack: see
	// executor.Capabilities.MissingFor.
	Missing map[string][]string `json:"missing,omitempty"`
}

// Decide says where spec would go. It is a pure function of the configuration, the declared
// capabilities and the spec, without I/O, clock or chance, so that every process decides alike. It
// fails with ErrInvalid if no route matches.
func (r *Router) Decide(spec executor.Spec) (Decision, error) {
	i := slices.IndexFunc(r.cfg.Routes, func(rt Route) bool { return rt.Match.match(&spec) })
	if i < 0 {
		return Decision{}, &executor.Error{
			Op: "create", Backend: r.name, Kind: executor.ErrInvalid, Ran: executor.RanNo,
			Err: errors.New("no route matches; a last route without match would take the rest"),
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
		for _, s := range rt.Split { // whichever is drawn
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
