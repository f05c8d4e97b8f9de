package main

import (
	"context"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/server"
)

// choices are the backends of x that an operator may choose for a session.
func choices(x *backends.Broker) map[string]executor.Executor {
	all := map[string]executor.Executor{}
	for _, b := range x.Stats().Backends {
		if c, ok := x.Backend(b.Name); ok {
			all[b.Name] = c
		}
	}
	return all
}

// overview is what operators see of the backends.
func overview(ctx context.Context, x *backends.Broker) (v server.Overview, err error) {
	stats := x.Stats()
	for _, b := range stats.Backends {
		s := server.BackendStatus{Name: b.Name, Sessions: b.Sessions, Waiting: b.Waiting, Breaker: b.Breaker, Removed: b.Removed}
		for _, p := range b.Pools {
			s.Pools = append(s.Pools, server.PoolStatus{Warm: p.Warm, Starting: p.Starting, Hits: p.Hits, Misses: p.Misses + p.Bypasses, Failed: p.Failed + p.Dead})
		}
		v.Backends = append(v.Backends, s)
	}
	for _, a := range stats.Arms {
		v.Arms = append(v.Arms, server.ArmStatus{
			Route: a.Route, Assigned: a.Assigned, Backend: a.Backend, Turns: a.Turns, Answered: a.Answered, Errors: a.TurnErrors,
			P50Seconds: time.Duration(a.Turn.P50).Seconds(), P95Seconds: time.Duration(a.Turn.P95).Seconds(), Cost: a.Cost,
		})
	}
	now := time.Now().UTC()
	rows, err := x.Usage(ctx, now, now)
	if err != nil {
		return v, err
	}
	at := map[string]int{} // of each account in v.Used
	for _, u := range rows {
		i, ok := at[u.Account]
		if !ok {
			i = len(v.Used)
			at[u.Account], v.Used = i, append(v.Used, server.Used{Account: u.Account})
		}
		v.Used[i].Runs += u.Runs
		v.Used[i].Seconds += time.Duration(u.Time).Seconds()
		v.Used[i].Cost += u.Cost
	}
	return v, nil
}
