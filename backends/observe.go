package backends

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/executor/telemetry"
)

// The measurements of Broker.Observe, which are those of Stats and of the guard.
const (
	MetricSessions    = "execbroker.sessions"     // sessions now, warm ones included, by backend
	MetricWaiting     = "execbroker.queue.length" // Creates in the queue now, by backend
	MetricBreaker     = "execbroker.breaker.open" // 1: the breaker is open or trying
	MetricWarm        = "execbroker.pool.warm"    // warm sessions now, by backend
	MetricHits        = "execbroker.pool.requests"
	MetricTurns       = "execbroker.turns"              // by route, assigned and actual backend; failed ones with error.type
	MetricSandboxTime = "execbroker.sandbox.time"       // seconds that sessions were held, by arm
	MetricCost        = "execbroker.cost"               // in millionths of the currency of the prices, by arm
	MetricLost        = "execbroker.conversations.lost" // conversations that lost their sandbox, by arm, reason and whether a checkpoint was restored
	MetricStoreAway   = "execbroker.guard.store.away"
	MetricAlone       = "execbroker.guard.granted_alone" // grants of on_store_failure: local
)

// Observe reports the statistics of the Broker to OpenTelemetry whenever it collects measurements.
// The operations themselves are reported by telemetry.Hooks. stop ends it.
func (b *Broker) Observe(p metric.MeterProvider) (stop func() error, err error) {
	m := p.Meter(telemetry.Scope)
	var errs []error
	gauge := func(name, text string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithDescription(text))
		errs = append(errs, err)
		return g
	}
	counter := func(name, text string) metric.Int64ObservableCounter {
		c, err := m.Int64ObservableCounter(name, metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	held, err := m.Float64ObservableCounter(MetricSandboxTime, metric.WithUnit("s"), metric.WithDescription("Time that sessions were held"))
	errs = append(errs, err)
	current, waiting := gauge(MetricSessions, "Sessions, warm ones included"), gauge(MetricWaiting, "Sessions that wait in the queue of a backend")
	open, warm := gauge(MetricBreaker, "Whether the breaker of a backend is open"), gauge(MetricWarm, "Warm sessions in the pools of a backend")
	requests := counter(MetricHits, "Sessions that were taken from pools or not")
	turns := counter(MetricTurns, "Turns of users, from the request for a session to its result")
	cost := counter(MetricCost, "Cost by the prices of the backends, in millionths")
	lost := counter(MetricLost, "Conversations that lost their sandbox")
	away, alone := gauge(MetricStoreAway, "Whether the store of the guard does not answer"), counter(MetricAlone, "Grants of the guard without its store")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	r, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := b.Stats()
		for _, m := range s.Backends {
			at := metric.WithAttributes(attribute.String(telemetry.Backend, m.Name))
			o.ObserveInt64(current, int64(m.Sessions), at)
			o.ObserveInt64(waiting, int64(m.Waiting), at)
			if m.Breaker != "" {
				o.ObserveInt64(open, flag(m.Breaker != "closed"), at)
			}
			var n, hits, misses int64
			for _, p := range m.Pools {
				n, hits, misses = n+int64(p.Warm), hits+p.Hits, misses+p.Misses+p.Bypasses
			}
			if len(m.Pools) > 0 {
				o.ObserveInt64(warm, n, at)
				o.ObserveInt64(requests, hits, at, metric.WithAttributes(attribute.Bool("execbroker.pool.hit", true)))
				o.ObserveInt64(requests, misses, at, metric.WithAttributes(attribute.Bool("execbroker.pool.hit", false)))
			}
		}
		for _, a := range s.Arms {
			arm := metric.WithAttributes(attribute.String(telemetry.Route, a.Route), attribute.String(telemetry.Assigned, a.Assigned), attribute.String(telemetry.Backend, a.Backend))
			o.ObserveInt64(turns, a.Answered, arm)
			for kind, n := range a.TurnErrors {
				o.ObserveInt64(turns, n, arm, metric.WithAttributes(attribute.String(telemetry.ErrorType, kind)))
			}
			for _, why := range losses {
				o.ObserveInt64(lost, a.Restored[why], arm, metric.WithAttributes(attribute.String("execbroker.loss", why), attribute.Bool("execbroker.restored", true)))
				o.ObserveInt64(lost, a.Anew[why], arm, metric.WithAttributes(attribute.String("execbroker.loss", why), attribute.Bool("execbroker.restored", false)))
			}
			o.ObserveFloat64(held, time.Duration(a.SandboxTime).Seconds(), arm)
			o.ObserveInt64(cost, int64(a.Cost), arm)
		}
		state := b.guard.ledger.State()
		o.ObserveInt64(away, flag(state.Away != nil))
		o.ObserveInt64(alone, state.Alone)
		return nil
	}, current, waiting, open, warm, requests, turns, lost, held, cost, away, alone)
	if err != nil {
		return nil, err
	}
	return r.Unregister, nil
}

// losses are the reasons for which conversations lose their sandbox. All are reported from the
// beginning, because an alarm on a counter needs its zero.
var losses = []string{
	string(sessions.LossGone), string(sessions.LossUnavailable), string(sessions.LossAbandoned), string(sessions.LossEvicted), string(sessions.LossMoved), lossUnknown,
}

// lossUnknown counts losses without a reason: the sandbox ended with its process.
const lossUnknown = "unknown"

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
