package backends

import (
	"context"
	"strings"
	"time"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
)

// Usage is what an account has used on one day by one arm of a route.
type Usage struct {
	Day      time.Time       `json:"day,omitzero"`      // its beginning, in UTC; zero: summed over days
	Account  string          `json:"account,omitempty"` // "subject=alice", or an attribute with a quota: "plan=pro"
	Route    string          `json:"route,omitempty"`
	Backend  string          `json:"backend,omitempty"`  // where it ran; empty: not known, because the process that knew it has died
	Assigned string          `json:"assigned,omitempty"` // the backend that the split selected
	Runs     int64           `json:"runs"`
	Time     driver.Duration `json:"time"` // of the runs
	Cost     executor.Money  `json:"cost"`
}

// Usage returns what was used from one day to another, both included, in UTC, sorted by day and
// account. It knows what is limited by a quota or has a price. If the store of the sessions is
// shared, it is what all processes have used, and days are kept for 400 days; otherwise it is what
// this process has used in the last 40 days. Warm sessions of pools belong to nobody.
func (b *Broker) Usage(ctx context.Context, from, to time.Time) ([]Usage, error) {
	u, err := rows(b.guard.ledger.Report(ctx, from, to))
	if err != nil {
		return nil, &executor.Error{Op: "usage", Backend: b.current().info().Name, Kind: executor.ErrUnavailable, Ran: executor.RanNo, Err: err}
	}
	return u, nil
}

// ReadUsage is Broker.Usage for a program that has the store but no Broker.
func ReadUsage(ctx context.Context, store sessions.Store, from, to time.Time) ([]Usage, error) {
	return rows(ledger.Report(ctx, store, from, to))
}

func rows(found []ledger.Row, err error) ([]Usage, error) {
	out := make([]Usage, len(found))
	for i, r := range found {
		out[i] = Usage{Day: r.Day, Account: r.Account, Runs: r.Runs, Time: driver.Duration(r.Time), Cost: r.Cost}
		if arm := strings.Split(r.Arm, " "); len(arm) == 3 {
			out[i].Route, out[i].Assigned, out[i].Backend = arm[0], arm[1], arm[2]
		}
	}
	return out, err
}
