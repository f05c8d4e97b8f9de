package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/router"
	"github.com/execbroker/execbroker/executor/telemetry"
	"github.com/execbroker/execbroker/internal/fake"
)

// TestHooks: what OpenTelemetry hears of a session on a backend.
func TestHooks(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	reader := sdkmetric.NewManualReader()
	var also []string
	hooks := telemetry.Hooks(telemetry.Options{
		Traces:  sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
		Metrics: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		Then: executor.Hooks{Begin: func(ctx context.Context, op executor.Op) (context.Context, func(executor.Outcome)) {
			also = append(also, op.Name)
			return ctx, nil
		}},
	})
	b := fake.New(fake.Options{})
	x, err := b.Open(driver.Env{Name: "box", Owner: "me", Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	s, err := x.Create(t.Context(), executor.Spec{Subject: "alice", Env: map[string]string{"TOKEN": "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), executor.Request{ID: "run-1", Code: `print("hello")`}, nil); err != nil {
		t.Error(err)
	}
	b.Fail(fake.OpCreate, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("the engine is down")))
	if _, err := x.Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	var got []string
	for _, span := range spans.Ended() {
		all := attribute.NewSet(span.Attributes()...)
		value := func(k attribute.Key) string { v, _ := all.Value(k); return v.AsString() }
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", span.Name(), value(telemetry.Status), value(telemetry.ErrorType), value(telemetry.Ran))))
		if value(telemetry.Backend) != "box" || value(telemetry.BackendType) != fake.Type || value(telemetry.Layer) != "backend" {
			t.Errorf("%s: got %v", span.Name(), span.Attributes())
		}
		if want := value(telemetry.ErrorType) != ""; (span.Status().Code == codes.Error) != want {
			t.Errorf("%s: got %+v", span.Name(), span.Status())
		}
		if span.Name() != "create box" && value(telemetry.SessionID) != s.Info().Handle.Session {
			t.Errorf("%s: got %v", span.Name(), span.Attributes())
		}
		for _, kv := range span.Attributes() {
			for _, hidden := range []string{"alice", "secret", "hello"} {
				if strings.Contains(kv.Value.String(), hidden) {
					t.Errorf("%s: %v", span.Name(), kv)
				}
			}
		}
	}
	want := []string{"create box", "run box ok", "create box  unavailable no", "close box"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(also) != len(want) {
		t.Errorf("the other hooks saw %q", also)
	}

	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, m := range data.ScopeMetrics[0].Metrics {
		for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
			counts[m.Name] += p.Count
			if _, found := p.Attributes.Value(telemetry.SessionID); found {
				t.Errorf("%s has an attribute of unlimited values: %v", m.Name, p.Attributes)
			}
		}
	}
	if counts[telemetry.Duration] != 4 || counts[telemetry.Queued] != 1 {
		t.Errorf("got %v", counts)
	}
}

// TestEvents: a span says when a session has gone to another backend than the assigned one, which
// rule has refused it, and to which of several arms it was assigned.
func TestEvents(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	hooks := telemetry.Hooks(telemetry.Options{Traces: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
	backends := map[string]executor.Executor{}
	var first *fake.Backend
	for _, name := range []string{"b", "a"} {
		first = fake.New(fake.Options{})
		x, err := first.Open(driver.Env{Name: name, Owner: "me"})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		backends[name] = x
	}
	r, err := router.New("front", backends, router.Config{Routes: []router.Route{
		{Name: "q", Match: router.Match{Labels: map[string]string{"two": "*"}}, Split: []router.Share{{Backend: "a", Weight: 1}, {Backend: "b", Weight: 1}}, Salt: "1"},
		{Name: "r", Split: []router.Share{{Backend: "a", Weight: 1}}, Fallback: []string{"b"}},
	}}, hooks)
	if err != nil {
		t.Fatal(err)
	}
	first.Fail(fake.OpCreate, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, nil))
	for range 2 {
		s, err := r.Create(t.Context(), executor.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	first.Fail(fake.OpCreate, 1, &executor.Error{Kind: executor.ErrDenied, Ran: executor.RanNo, Denied: executor.Denial{Rule: executor.RuleRate}})
	if _, err := r.Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrDenied) {
		t.Errorf("got %v", err)
	}
	s, err := r.Create(t.Context(), executor.Spec{Subject: "alice", Labels: map[string]string{"two": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	evaluation := fmt.Sprintf("create front feature_flag.evaluation [{feature_flag.key q} {feature_flag.result.variant %s} {feature_flag.result.reason split}]", s.Info().Handle.Backend)
	var got []string
	for _, span := range spans.Ended() {
		for _, e := range span.Events() {
			got = append(got, fmt.Sprint(span.Name(), " ", e.Name, " ", e.Attributes))
		}
	}
	if want := []string{"create front execbroker.fallback []", "create front execbroker.denied [{execbroker.rule rate}]", evaluation}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
