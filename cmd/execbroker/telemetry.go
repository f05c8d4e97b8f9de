package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/log/global"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor/telemetry"
	"github.com/execbroker/execbroker/internal/front"
)

// reporting is what a server tells OpenTelemetry and Prometheus.
type reporting struct {
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
	logs    *sdklog.LoggerProvider // nil: nobody asks
	scrape  http.Handler           // nil: nobody asks
}

// otlpTime bounds the last export at the end of the program.
const otlpTime = 5 * time.Second

// otlp reports whether the environment names a receiver of a signal.
func (a *app) otlp(signal string) bool {
	return cmp.Or(a.getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), a.getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT")) != "" && a.getenv("OTEL_SDK_DISABLED") != "true"
}

// exported is the handler of a server's log for OpenTelemetry. It writes to what report has set up,
// or will set up.
type exported struct {
	slog.Handler
	level slog.Leveler
}

// Enabled implements slog.Handler.
func (h exported) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.level.Level() && h.Handler.Enabled(ctx, l)
}

// report sets up what the environment and the flags ask for; nil: nothing. The exporters read their
// settings from the variables that OpenTelemetry has for them.
func (a *app) report(ctx context.Context, metrics string) (*reporting, error) {
	traced, measured, logged := a.otlp("TRACES"), a.otlp("METRICS"), a.otlp("LOGS")
	if !traced && !measured && !logged && metrics == "" {
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
	if logged {
		x, err := otlploghttp.New(ctx)
		if err != nil {
			return nil, usage("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
		}
		r.logs = sdklog.NewLoggerProvider(sdklog.WithResource(about), sdklog.WithProcessor(sdklog.NewBatchProcessor(x)))
		global.SetLoggerProvider(r.logs)
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
	s := &http.Server{ReadHeaderTimeout: otlpTime, ReadTimeout: front.DefaultBodyTime, WriteTimeout: front.WriteTime, IdleTimeout: front.IdleTime}
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
	err := errors.Join(r.traces.Shutdown(ctx), r.metrics.Shutdown(ctx))
	if r.logs != nil {
		err = errors.Join(err, r.logs.Shutdown(ctx))
	}
	return err
}
