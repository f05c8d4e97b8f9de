package backends

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/executor/router"
)

// Rollout moves the split of a route from one backend to another in steps, and rolls back if the
// new one is worse than the guard allows: see package rollout. The weights of the split do not
// count while there is a rollout. Conversations stay where they are.
type Rollout struct {
	To      string          `json:"to"`                // one of the two backends of the split
	Steps   []int           `json:"steps,omitempty"`   // percent; default 1, 5, 25, 50, 100
	Every   driver.Duration `json:"every,omitzero"`    // the least time of a step; default 30 min
	Least   int             `json:"least,omitempty"`   // the least number of sessions of the new backend in a step; default 200
	Horizon driver.Duration `json:"horizon,omitzero"`  // how long a subject is observed, or 20 runs; default 10 min
	Guard   RolloutGuard    `json:"guard"`             // at least one
	Advance rollout.Advance `json:"advance,omitempty"` // default no-worse
	Alpha   Percent         `json:"alpha,omitzero"`    // how often a backend that is not worse is rolled back; default 5%
}

// RolloutGuard is how much worse the new backend may be. The zero value of a field means that it is
// not guarded.
type RolloutGuard struct {
	Success Percent `json:"success,omitzero"` // change of the share of good sessions, in points: "-1%"
	P95     Percent `json:"p95,omitzero"`     // change of the 95th percentile of a turn: "+30%"
	Cost    Percent `json:"cost,omitzero"`    // change of the mean cost of a session: "+20%"
	Code    Percent `json:"code,omitzero"`    // change of the share of runs without an exception, in points: "-2%"
}

// Percent is a hundredth, written as "-1%", "+30%" or "5%".
type Percent float64

// MarshalText implements encoding.TextMarshaler.
func (p Percent) MarshalText() ([]byte, error) {
	return []byte(strconv.FormatFloat(math.Round(float64(p)*1e6)/1e4, 'f', -1, 64) + "%"), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Percent) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "%")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return errors.New(`want a percentage in quotes, such as "-1%" or "+30%"`)
	}
	*p = Percent(v / 100)
	return nil
}

// plan converts r.
func (r Rollout) plan() rollout.Plan {
	g := r.Guard
	return rollout.Plan{
		To: r.To, Steps: r.Steps, Every: time.Duration(r.Every), Least: r.Least, Horizon: time.Duration(r.Horizon), Advance: r.Advance, Alpha: float64(r.Alpha),
		Guard: rollout.Guard{Success: -float64(g.Success), P95: float64(g.P95), Cost: float64(g.Cost), Code: -float64(g.Code)},
	}.WithDefaults()
}

// checkRollouts checks the rollouts against the routes.
func (c Config) checkRollouts() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Rollouts)) {
		at := "rollouts." + name
		route, err := c.route(name)
		if err != nil {
			errs = append(errs, driver.At("rollouts", err))
			continue
		}
		r := c.Rollouts[name]
		errs = append(errs, driver.At(at, r.plan().Check()))
		if _, ok := other(route, r.To); r.To != "" && !ok {
			errs = append(errs, driver.At(at+".to", fmt.Errorf("want one of the two backends in the split of the route %q", name)))
		}
		for path, v := range map[string]Percent{"success": r.Guard.Success, "code": r.Guard.Code} {
			if v > 0 {
				errs = append(errs, driver.At(at+".guard."+path, errors.New("want a fall, such as -1%")))
			}
		}
	}
	return errors.Join(errs...)
}

// route returns the route of a name.
func (c Config) route(name string) (router.Route, error) {
	var names []string
	for _, r := range c.Routes {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return router.Route{}, driver.Unknown("route", name, names)
}

// other returns the other backend of a split of two.
func other(r router.Route, name string) (string, bool) {
	if len(r.Split) != 2 {
		return "", false
	}
	for i, s := range r.Split {
		if s.Backend == name {
			return r.Split[1-i].Backend, true
		}
	}
	return "", false
}

// shared returns routes with the shares of rollouts instead of their weights. share returns the
// percentage of the new backend; a rollout of which it knows nothing has the weights of the file.
func (c Config) shared(share func(route string) (int, bool)) []router.Route {
	if len(c.Rollouts) == 0 {
		return c.Routes
	}
	routes := slices.Clone(c.Routes)
	for i, r := range routes {
		plan, ok := c.Rollouts[r.Name]
		if !ok {
			continue
		}
		if percent, known := share(r.Name); known {
			from, _ := other(r, plan.To)
			routes[i].Split = []router.Share{{Backend: from, Weight: 100 - percent}, {Backend: plan.To, Weight: percent}}
		}
	}
	return routes
}
