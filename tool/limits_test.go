package tool_test

import (
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/tool"
)

// A call has no more time than the Spec of the program says, unless its Options say so.
func TestTimeOfCalls(t *testing.T) {
	for name, c := range map[string]struct {
		run, most, timeout, longest time.Duration
		want, wantMost              float64
	}{
		"nothing":   {0, 0, 0, 0, 30, 120},
		"ceiling":   {0, 10 * time.Second, 0, 0, 10, 10},
		"default":   {5 * time.Second, 0, 0, 0, 5, 5},
		"both":      {5 * time.Second, 10 * time.Second, 0, 0, 5, 10},
		"long":      {time.Hour, 2 * time.Hour, 0, 0, 120, 120},
		"unlimited": {executor.NoLimit, executor.NoLimit, 0, 0, 30, 120},
		"raised":    {0, 10 * time.Second, 0, time.Minute, 30, 60},
		"timeout":   {0, 10 * time.Second, 20 * time.Second, 0, 20, 20},
	} {
		spec := executor.Spec{Run: executor.RunLimits{WallTime: c.run}, MaxRun: executor.RunLimits{WallTime: c.most}}
		d := tool.Define(fake.All(), tool.Options{Spec: spec, Timeout: c.timeout, MaxTimeout: c.longest})
		p := d.Input.Properties["timeout"]
		if p.Default != c.want || p.Maximum != c.wantMost {
			t.Errorf("%s: got %v and at most %v seconds, want %v and %v", name, p.Default, p.Maximum, c.want, c.wantMost)
		}
	}
}
