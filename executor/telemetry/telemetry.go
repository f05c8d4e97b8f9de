// Package telemetry reports what the library does to OpenTelemetry: a span and a measurement for
// each operation of each layer.
//
//	env := driver.Env{Owner: "shop-prod", Hooks: telemetry.Hooks(telemetry.Options{})}
//
// Spans nest as layers do: sessions, router, pool, backend. They have no code, output, environment
// or names of files, because hooks never see them, and no subject, because operations do not carry
// one. Names of attributes are those of the semantic conventions where there are some: error.type,
// session.id. All others begin with "execbroker.".
package telemetry

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/execbroker/execbroker/executor"
)

// Scope is the name of the instrumentation.
const Scope = "github.com/execbroker/execbroker"

// The measurements of Hooks, histograms in seconds.
const (
	Duration = "execbroker.operation.duration" // of each operation
	Queued   = "execbroker.run.queued"         // of each run, from the call to the start of the code
)

// The attributes of spans and, but for those of sessions and runs, of measurements.
const (
	Operation   = "execbroker.operation" // as in executor.Op: "create", "run"
	Layer       = "execbroker.layer"     // "sessions", "router", "pool", "backend"
	Backend     = "execbroker.backend.name"
	BackendType = "execbroker.backend.type"
	Language    = "execbroker.language"
	Status      = "execbroker.run.status" // executor.Status
	Route       = "execbroker.route"
	Assigned    = "execbroker.assigned" // the backend that a split selected
	ErrorType   = "error.type"          // executor.KindName
	Ran         = "execbroker.ran"      // of an error: whether code may have run
	SessionID   = "session.id"
	RunID       = "execbroker.run.id"
	Rule        = "execbroker.rule" // executor.Rule
)

// The events of spans.
const (
	Fallback = "execbroker.fallback" // another backend than the assigned one has made the session
	Denied   = "execbroker.denied"   // a rule has refused the operation: attribute Rule
	// Evaluation says that a router has assigned a session to one of several arms: attributes
	// FlagKey, FlagVariant and FlagReason. The subject is not known here.
	Evaluation  = "feature_flag.evaluation"
	FlagKey     = "feature_flag.key"            // the route
	FlagVariant = "feature_flag.result.variant" // the assigned backend
	FlagReason  = "feature_flag.result.reason"  // executor.Outcome.Assignment
)

// Options are where Hooks report to. Nil providers are those of package otel.
type Options struct {
	Traces  trace.TracerProvider
	Metrics metric.MeterProvider
	// Then are further hooks, which are called within those of this package.
	Then executor.Hooks
}

// buckets are the bounds of the histograms: from a warm run to a slow installation.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// Hooks returns hooks for driver.Env.
func Hooks(o Options) executor.Hooks {
	if o.Traces == nil {
		o.Traces = otel.GetTracerProvider()
	}
	if o.Metrics == nil {
		o.Metrics = otel.GetMeterProvider()
	}
	tracer, meter := o.Traces.Tracer(Scope), o.Metrics.Meter(Scope)
	histogram := func(name, text string) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(buckets...))
		if err != nil {
			otel.Handle(err) // h does nothing then
		}
		return h
	}
	duration := histogram(Duration, "Duration of operations")
	queued := histogram(Queued, "Time from the call of a run to the start of its code")
	return executor.Hooks{Begin: func(ctx context.Context, op executor.Op) (context.Context, func(executor.Outcome)) {
		began := time.Now()
		about := nonempty(Operation, op.Name, Layer, op.Layer, Backend, op.Backend, BackendType, op.Type, Language, string(op.Language))
		kind := trace.SpanKindInternal
		if op.Layer == "backend" {
			kind = trace.SpanKindClient
		}
		name := strings.TrimSpace(op.Name + " " + op.Backend)
		ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(about...), trace.WithAttributes(nonempty(SessionID, op.Session, RunID, op.Run)...))
		ctx, then := o.Then.Start(ctx, op)
		return ctx, func(out executor.Outcome) {
			then(out)
			if op.Backend == "" && out.Origin.Backend != "" {
				about = append(about, attribute.String(Backend, out.Origin.Backend))
			}
			about = append(about, nonempty(Status, string(out.Status), Route, out.Origin.Route, Assigned, out.Origin.Assigned)...)
			if o := out.Origin; o.Assigned != "" && o.Backend != "" && o.Backend != o.Assigned && op.Name == "create" {
				span.AddEvent(Fallback)
			}
			if out.Assignment != "" {
				span.AddEvent(Evaluation, trace.WithAttributes(nonempty(FlagKey, out.Origin.Route, FlagVariant, out.Origin.Assigned, FlagReason, out.Assignment)...))
			}
			if out.Err != nil {
				about = append(about, attribute.String(ErrorType, executor.KindName(out.Err)))
				failed(span, out.Err)
			}
			span.SetAttributes(about...)
			span.SetAttributes(nonempty(SessionID, out.Session)...)
			span.End()
			with := metric.WithAttributes(about...)
			duration.Record(ctx, time.Since(began).Seconds(), with)
			if out.Status != "" {
				queued.Record(ctx, out.Queued.Seconds(), with)
			}
		}
	}}
}

// failed marks a span. The text of an error may come from a provider, but contains no secret.
func failed(span trace.Span, err error) {
	span.SetStatus(codes.Error, executor.KindName(err))
	ran := executor.RanMaybe
	if e := (*executor.Error)(nil); errors.As(err, &e) {
		ran = e.Ran
		if e.Kind == executor.ErrDenied {
			span.AddEvent(Denied, trace.WithAttributes(nonempty(Rule, string(e.Denied.Rule))...))
		}
	}
	span.SetAttributes(attribute.String(Ran, ran.String()), attribute.String("error.message", err.Error()))
}

// nonempty returns the attributes of pairs of names and values, without those that are empty.
func nonempty(pairs ...string) (out []attribute.KeyValue) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, attribute.String(pairs[i], pairs[i+1]))
		}
	}
	return out
}
