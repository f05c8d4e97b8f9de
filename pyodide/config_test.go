package pyodide

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string // texts in the error; none: the configuration is accepted
	}{
		{"nothing", ``, nil},
		{"all", `{"runtime_dir": "/opt/runtime", "memory": 134217728, "max_memory": 268435456, "disk": 1048576, "max_disk": 2097152, "spares": 2, "no_snapshot": true}`, nil},
		{"more-than-the-default-maximum", `{"memory": 3221225472}`, nil},
		{"less-than-the-default", `{"max_memory": 134217728, "max_disk": 1048576}`, nil},
		{"no-spares", `{"spares": 0}`, nil},
		{"fewer-spares", `{"spares": -1}`, []string{"spares: want 0 to 100, got -1"}},
		{"unknown", `{"memroy": 1}`, []string{`unknown field "memroy"`}},
		{"all-mistakes", `{"runtime_dir": "here", "memory": 1, "max_memory": 8589934592, "disk": 1}`,
			[]string{"runtime_dir: want an absolute path", "memory: want", "max_memory: want", "disk: want"}},
		{"above-the-maximum", `{"memory": 268435456, "max_memory": 134217728}`, []string{"memory: want"}},
		{"type", `{"memory": "512m"}`, []string{"memory: want a whole number"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Factory().Check([]byte(c.in))
			if (err != nil) != (len(c.want) > 0) {
				t.Errorf("got %v", err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("got %v, want %q in it", err, w)
				}
			}
		})
	}
}

// SessionInfo has the rounded limits of a session.
func TestLimitsInForce(t *testing.T) {
	for _, c := range []struct {
		name      string
		cfg       Config
		ask, want executor.Limits
	}{
		{"defaults", Config{}, executor.Limits{}, executor.Limits{MemoryBytes: 512 * mib, DiskBytes: 256 * mib}},
		{"configured", Config{Memory: 128 * mib, Disk: 2 * mib}, executor.Limits{}, executor.Limits{MemoryBytes: 128 * mib, DiskBytes: 2 * mib}},
		{"small", Config{}, executor.Limits{MemoryBytes: 1, DiskBytes: 1}, executor.Limits{MemoryBytes: 64 * mib, DiskBytes: mib}},
		{"odd", Config{}, executor.Limits{MemoryBytes: 100*mib + 1, DiskBytes: 5*mib + 1}, executor.Limits{MemoryBytes: 100*mib + wasmPage, DiskBytes: 5*mib + 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &Driver{cfg: c.cfg.withDefaults()}
			s := newSession(d, nil, "", &driver.Create{ID: "x", Spec: executor.Spec{Languages: []executor.Language{executor.Python}, Limits: c.ask, IdleTTL: executor.DefaultIdleTTL}})
			defer s.idle.Stop()
			if got := s.Info().Limits; got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestRefusedLimits(t *testing.T) {
	x := open(t, Config{MaxMemory: 1024 * mib, MaxDisk: 512 * mib})
	for _, l := range []executor.Limits{{MemoryBytes: 1024*mib + 1}, {DiskBytes: 512*mib + 1}, {CPUs: 1}, {Processes: 5}} {
		if s, err := x.Create(t.Context(), executor.Spec{Limits: l}); err == nil {
			s.Close()
			t.Errorf("%+v: accepted", l)
		} else if !strings.Contains(err.Error(), "not supported") {
			t.Errorf("%+v: got %v", l, err)
		}
	}
}
