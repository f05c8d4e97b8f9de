package backends

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/executor/sessions"
)

// shadowPrefix begins the keys of what shadows have counted: with the route and the plan, a
// ShadowCounts.
const shadowPrefix = "shadow/"

// ShadowCounts are what the shadow of a route has found, in all processes that share the store.
type ShadowCounts struct {
	// Arms are the conversations that were repeated on the other backend, and those that were
	// repeated on the backend of the original.
	Arms [2]ShadowArm `json:"arms"`
	// Excluded counts the conversations of the sample that were not repeated, and Left those that
	// were no longer, by the reason.
	Excluded map[string]int64 `json:"excluded,omitempty"`
	Left     map[string]int64 `json:"left,omitempty"`
}

// ShadowArm are conversations that were repeated alike.
type ShadowArm struct {
	Conversations int64            `json:"conversations"`     // of which at least one run was compared
	Runs          int64            `json:"runs"`              // that were compared
	Classes       map[string]int64 `json:"classes,omitempty"` // conversations, by how their first difference looks
	Original      time.Duration    `json:"original_ns"`       // of the compared runs
	Repeated      time.Duration    `json:"repeated_ns"`       // likewise
	Slow          int64            `json:"slow"`              // runs that took more than twice as long, and a second more
}

// maxClasses bounds the classes, because texts of the code may be in their names.
const (
	maxClasses = 50
	otherClass = "other"
)

func note(m *map[string]int64, what string, n int64) {
	if *m == nil {
		*m = map[string]int64{}
	}
	if _, known := (*m)[what]; !known && len(*m) >= maxClasses {
		what = otherClass
	}
	(*m)[what] += n
}

func (c *ShadowCounts) exclude(why string) { note(&c.Excluded, why, 1) }
func (c *ShadowCounts) leave(why string)   { note(&c.Left, why, 1) }

func (c *ShadowCounts) arm(control bool) *ShadowArm {
	if control {
		return &c.Arms[1]
	}
	return &c.Arms[0]
}

// compared counts a run. class is empty if it does not differ.
func (c *ShadowCounts) compared(control, first bool, class string) {
	a := c.arm(control)
	a.Runs++
	if first {
		a.Conversations++
	}
	if class != "" {
		note(&a.Classes, class, 1)
	}
}

// ran counts how long a run took.
func (c *ShadowCounts) ran(control bool, original, repeated time.Duration) {
	a := c.arm(control)
	a.Original += original
	a.Repeated += repeated
	if repeated > 2*original+time.Second {
		a.Slow++
	}
}

func (c *ShadowCounts) empty() bool {
	return len(c.Excluded) == 0 && len(c.Left) == 0 && c.Arms[0].Runs == 0 && c.Arms[1].Runs == 0
}

func (c *ShadowCounts) merge(more ShadowCounts) {
	for i, m := range more.Arms {
		a := &c.Arms[i]
		a.Conversations, a.Runs, a.Slow = a.Conversations+m.Conversations, a.Runs+m.Runs, a.Slow+m.Slow
		a.Original, a.Repeated = a.Original+m.Original, a.Repeated+m.Repeated
		for class, n := range m.Classes {
			note(&a.Classes, class, n)
		}
	}
	for why, n := range more.Excluded {
		note(&c.Excluded, why, n)
	}
	for why, n := range more.Left {
		note(&c.Left, why, n)
	}
}

// ShadowReport says what the shadow of a route has found.
type ShadowReport struct {
	Route string `json:"route"`
	To    string `json:"to"`
	ShadowCounts
	Classes []ShadowClass `json:"classes"` // those that are certain first, then by their size
	// Slow is by how much more often runs took much longer than on the backend of the original.
	Slow rollout.Excess `json:"slow"`
}

// ShadowClass is a way in which conversations differ. What the code does differently by itself does
// so on the backend of the original too, and is subtracted.
type ShadowClass struct {
	Class   string         `json:"class"`
	Shadow  int64          `json:"shadow"`  // conversations on the other backend
	Control int64          `json:"control"` // conversations on that of the original
	Excess  rollout.Excess `json:"excess"`
}

// Differs reports whether the class is due to the backend, and not to the code or to chance.
func (c ShadowClass) Differs() bool { return c.Excess.Low > 0 }

func (c ShadowCounts) report(route, to string) ShadowReport {
	r := ShadowReport{Route: route, To: to, ShadowCounts: c, Classes: []ShadowClass{}}
	other, own := c.Arms[0], c.Arms[1]
	names := map[string]bool{}
	for _, a := range c.Arms {
		for class := range a.Classes {
			names[class] = true
		}
	}
	for class := range names {
		k, l := other.Classes[class], own.Classes[class]
		r.Classes = append(r.Classes, ShadowClass{class, k, l, rollout.NewExcess(k, other.Conversations, l, own.Conversations)})
	}
	slices.SortFunc(r.Classes, func(a, b ShadowClass) int {
		if a.Differs() != b.Differs() {
			if a.Differs() {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Excess.Share, a.Excess.Share), cmp.Compare(a.Class, b.Class))
	})
	r.Slow = rollout.NewExcess(other.Slow, other.Runs, own.Slow, own.Runs)
	return r
}

// ReadShadows returns what the shadows of a configuration have found, in order of their routes.
func ReadShadows(ctx context.Context, store sessions.Store, cfg Config) (all []ShadowReport, err error) {
	for _, route := range slices.Sorted(maps.Keys(cfg.Shadows)) {
		s := cfg.Shadows[route]
		c, _, err := read[ShadowCounts](ctx, store, shadowPrefix+route+"/"+s.id())
		if err != nil {
			return nil, err
		}
		all = append(all, c.report(route, s.To))
	}
	return all, nil
}

// Shadows is ReadShadows with the store and the configuration of b, after what b has counted itself
// has been written.
func (b *Broker) Shadows(ctx context.Context) ([]ShadowReport, error) {
	b.shadows.flushAll(ctx)
	return ReadShadows(ctx, b.shadows.store, b.current().cfg)
}
