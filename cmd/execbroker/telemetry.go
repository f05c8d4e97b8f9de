package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor/telemetry"
)

// reporting is what a server tells OpenTelemetry and Prometheus.
type reporting struct {
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
	scrape  http.Handler // nil: nobody asks
}

// otlpTime bounds the last export at the end of the program.
const otlpTime = 5 * time.Second

// report sets up what the environment and the flags ask for; nil: nothing. The exporters read their
// settings from the variables that OpenTelemetry has for them.
func (a *app) report(ctx context.Context, metrics string) (*reporting, error) {
	set := func(names ...string) bool {
		for _, n := range names {
			if a.getenv(n) != "" {
				return a.getenv("OTEL_SDK_DISABLED") != "true"
			}
		}
		return false
	}
	traced := set("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	measured := set("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
	if !traced && !measured && metrics == "" {
		return nil, nil
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "execbroker"), attribute.String("service.version", version())), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, usage("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	r := &reporting{}
	tracing, measuring := []sdktrace.TracerProviderOption{sdktrace.WithResource(about)}, []sdkmetric.Option{sdkmetric.WithResource(about)}
	if traced {
		x, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, usage("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
		}
		tracing = append(tracing, sdktrace.WithBatcher(x))
	}
	if measured {
		x, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, usage("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
		}
		measuring = append(measuring, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(x)))
	}
	if metrics != "" {
		reg := prometheus.NewRegistry()
		x, err := otelprometheus.New(otelprometheus.WithRegisterer(reg), otelprometheus.WithoutScopeInfo())
		if err != nil {
			return nil, err
		}
		measuring = append(measuring, sdkmetric.WithReader(x))
		r.scrape = promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	}
	r.traces, r.metrics = sdktrace.NewTracerProvider(tracing...), sdkmetric.NewMeterProvider(measuring...)
	a.hooks = telemetry.Hooks(telemetry.Options{Traces: r.traces, Metrics: r.metrics})
	return r, nil
}

// observe reports the statistics of b, and answers Prometheus at address, until stop is called.
func (a *app) observe(r *reporting, b *backends.Broker, address string) (stop func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	end, err := b.Observe(r.metrics)
	if err != nil {
		return nil, err
	}
	s := &http.Server{ReadHeaderTimeout: otlpTime}
	if r.scrape != nil {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, errors.Join(usage("--metrics: %w", err), end())
		}
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", r.scrape)
		s.Handler = mux
		a.scraped = "http://" + l.Addr().String() + "/metrics"
		go func() { _ = s.Serve(l) }() // stop ends it
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), otlpTime)
		defer cancel()
		_ = errors.Join(r.metrics.ForceFlush(ctx), s.Close(), end()) // close says what could not be sent
	}, nil
}

// close exports what is left.
func (r *reporting) close() error {
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), otlpTime)
	defer cancel()
	return errors.Join(r.traces.Shutdown(ctx), r.metrics.Shutdown(ctx))
}
