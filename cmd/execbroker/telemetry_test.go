//go:build unix

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	collectlogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestTelemetry: a collector and Prometheus hear of a run over HTTP, by the variables that
// OpenTelemetry has and one flag.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var spans, measured, logged []string
	services := map[string]bool{}
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.Path {
		case "/v1/traces":
			var got collecttraces.ExportTraceServiceRequest
			if err := proto.Unmarshal(body, &got); err != nil {
				t.Error(err)
			}
			for _, rs := range got.ResourceSpans {
				for _, a := range rs.Resource.Attributes {
					services[a.Key+"="+a.Value.GetStringValue()] = true
				}
				for _, ss := range rs.ScopeSpans {
					for _, s := range ss.Spans {
						spans = append(spans, s.Name)
					}
				}
			}
		case "/v1/metrics":
			var got collectmetrics.ExportMetricsServiceRequest
			if err := proto.Unmarshal(body, &got); err != nil {
				t.Error(err)
			}
			for _, rm := range got.ResourceMetrics {
				for _, sm := range rm.ScopeMetrics {
					for _, m := range sm.Metrics {
						measured = append(measured, m.Name)
					}
				}
			}
		case "/v1/logs":
			var got collectlogs.ExportLogsServiceRequest
			if err := proto.Unmarshal(body, &got); err != nil {
				t.Error(err)
			}
			for _, rl := range got.ResourceLogs {
				for _, sl := range rl.ScopeLogs {
					for _, l := range sl.LogRecords {
						logged = append(logged, l.SeverityText+" "+l.Body.GetStringValue())
					}
				}
			}
		default:
			t.Errorf("got %s", r.URL.Path)
		}
	}))
	defer collector.Close()
	config := write(t, t.TempDir(), "app.yaml", "backends: {box: {type: fake, broker: {prices: {run: 0.5}, pools: [{size: 1}], breaker: {failures: 3}}}}\n")
	p := command(t, "serve", "--config", config, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--json")
	p.Env = append(p.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test")
	s := announced[serving](t, p)
	ask(t, 200, "POST", s.URL+"/v1/run", `{"code": "print(6 * 7)"}`, "Authorization", "Bearer "+s.Key)
	scraped := ask(t, 200, "GET", s.Metrics, "")
	for _, want := range []string{
		`execbroker_operation_duration_seconds_count{execbroker_backend_name="box",execbroker_backend_type="fake",execbroker_language="python",execbroker_layer="backend",execbroker_operation="run",execbroker_run_status="ok"} 1`,
		`execbroker_turns_total{execbroker_assigned="box",execbroker_backend_name="box",execbroker_route="default"} 1`,
		`execbroker_cost_total{execbroker_assigned="box",execbroker_backend_name="box",execbroker_route="default"} 500000`,
		`execbroker_breaker_open{execbroker_backend_name="box"} 0`, `execbroker_pool_warm{execbroker_backend_name="box"} `,
	} {
		if !strings.Contains(scraped, want) {
			t.Errorf("Prometheus does not get %s", want)
		}
	}
	dashboard := read(t, "../../docs/grafana/execbroker.json")
	asked := regexp.MustCompile(`execbroker_\w+?(?:_total|_bucket|_count|_away|_open|_warm|_length)\b`).FindAllString(dashboard, -1)
	asked = append(asked, "execbroker_sessions")
	for _, name := range slices.Compact(slices.Sorted(slices.Values(asked))) {
		if !strings.Contains(scraped, name+"{") && !strings.Contains(scraped, name+" ") {
			t.Errorf("the dashboard asks for %s, which Prometheus does not get", name)
		}
	}
	if len(asked) < 15 {
		t.Errorf("the dashboard asks for %q", asked)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	p.clean(t)
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"create box", "run box", "close box"} {
		if !slices.Contains(spans, want) {
			t.Errorf("no span %q among %q: %s", want, spans, p.err.String())
		}
	}
	for _, want := range []string{"execbroker.operation.duration", "execbroker.sessions", "execbroker.cost"} {
		if !slices.Contains(measured, want) {
			t.Errorf("no measurement %q among %q", want, measured)
		}
	}
	if !slices.Contains(logged, "INFO the server has ended") {
		t.Errorf("got the log %q", logged)
	}
	contains(t, p.err.String(), "the server has ended")
	if !services["service.name=execbroker"] || !services["deployment.environment.name=test"] {
		t.Errorf("got %v", services)
	}
	for want, args := range map[string][]string{"--metrics": {"serve", "--metrics", "127.0.0.1:99999"}} {
		if got := run(t, exitUsage, args...).err.String(); !strings.Contains(got, want) {
			t.Errorf("got %s", got)
		}
	}
}
