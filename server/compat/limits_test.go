package compat

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
)

// specs keeps what sandboxes were made from.
type specs struct {
	executor.Executor
	all []executor.Spec
}

func (s *specs) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s.all = append(s.all, spec)
	return s.Executor.Create(ctx, spec)
}

// seeing makes w keep the Specs of its sandboxes.
func (w *world) seeing() *specs {
	s := &specs{Executor: w.s.x}
	w.s.x = s
	return s
}

// A field of a request lowers the memory that the operator has configured or the backend gives by
// default, and never raises it. Where neither is known it is refused.
func TestMemoryOfClients(t *testing.T) {
	const given = 64 << 20
	limits := executor.Limits{MemoryBytes: given}
	declares := fake.All()
	declares.DefaultLimits = limits
	generous := fake.All()
	generous.DefaultLimits = executor.Limits{MemoryBytes: 1 << 40}
	for name, c := range map[string]struct {
		caps  executor.Capabilities
		spec  executor.Limits
		known bool
	}{"configured": {spec: limits, known: true}, "backend": {caps: declares, known: true}, "both": {generous, limits, true}, "unknown": {}} {
		for ask, bytes := range map[string]int64{"absent": 0, "less": given / 2, "as-much": given, "more": 10 * given, "huge": 1 << 62} {
			for front, request := range map[string]struct{ path, body, says string }{
				"piston": {"/piston/api/v2/execute", fmt.Sprintf(`{"language": "python", "version": "*", "files": [{"content": "print(1)"}], "run_memory_limit": %d}`, cmp.Or(bytes, -1)), "run_memory_limit"},
				"judge0": {"/judge0/submissions?wait=true", fmt.Sprintf(`{"language_id": 71, "source_code": "print(1)", "memory_limit": %d}`, bytes>>10), "memory_limit"},
			} {
				if bytes == 0 {
					request.body = strings.Replace(request.body, `"memory_limit": 0`, `"memory_limit": null`, 1)
				}
				t.Run(name+"/"+ask+"/"+front, func(t *testing.T) {
					w := newWorld(t, fake.Options{Capabilities: c.caps}, Config{Spec: executor.Spec{Limits: c.spec}})
					seen := w.seeing()
					rec := w.do("POST", request.path, request.body)
					fits := bytes == 0 || c.known && bytes <= given
					if fits != (rec.Code < 300) || !fits && (rec.Code >= 500 || !strings.Contains(rec.Body.String(), request.says)) {
						t.Fatalf("got %d %s, want success: %v", rec.Code, rec.Body, fits)
					}
					if !fits {
						if len(seen.all) > 0 {
							t.Errorf("got a sandbox with %+v after a refusal", seen.all[0].Limits)
						}
						return
					}
					if got, want := seen.all[0].Limits.MemoryBytes, cmp.Or(bytes, c.spec.MemoryBytes); got != want {
						t.Errorf("the sandbox has %d bytes of memory, want %d", got, want)
					}
				})
			}
		}
	}
}

// Runs are not longer than the Spec of the operator says, unless MaxTimeout says so.
func TestTimeOfClients(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{Spec: executor.Spec{MaxRun: executor.RunLimits{WallTime: 10 * time.Second}}})
	seen := w.seeing()
	for _, r := range []struct{ path, body string }{
		{"/piston/api/v2/execute", `{"language": "python", "version": "*", "files": [{"content": "print(1)"}], "run_timeout": %d000}`},
		{"/judge0/submissions?wait=true", `{"language_id": 71, "source_code": "print(1)", "wall_time_limit": %d}`},
		{"/onyx/v1/execute", `{"code": "print(1)", "timeout_ms": %d000}`},
		{"/librechat/exec", `{"lang": "py", "code": "print(1)", "timeout": %d000}`},
	} {
		if rec := w.do("POST", r.path, fmt.Sprintf(r.body, 10)); rec.Code >= 300 {
			t.Errorf("%s: got %d %s for as much as is allowed", r.path, rec.Code, rec.Body)
		}
		if rec := w.do("POST", r.path, fmt.Sprintf(r.body, 11)); rec.Code < 400 || rec.Code >= 500 {
			t.Errorf("%s: got %d %s for more than is allowed", r.path, rec.Code, rec.Body)
		}
	}
	for _, s := range seen.all {
		if got := s.MaxRun.WallTime; got != 10*time.Second {
			t.Errorf("a sandbox allows runs of %v, want 10s", got)
		}
	}
}
