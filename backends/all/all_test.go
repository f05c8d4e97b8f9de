package all_test

import (
	"slices"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor/driver"
)

// TestTypes opens every type that works without settings. That does no I/O, and each type reports
// its own name.
func TestTypes(t *testing.T) {
	reg := all.Registry()
	types := reg.Types()
	if !slices.Contains(types, "pyodide") {
		t.Errorf("got %q", types)
	}
	for _, typ := range types {
		c := backends.Config{Backends: map[string]backends.Backend{"x": {Type: typ}}}
		if c.Check(reg) != nil {
			continue // it needs settings
		}
		b, err := backends.Open(t.Context(), driver.Env{Owner: "test", CacheDir: t.TempDir()}, reg, c)
		if err != nil {
			t.Errorf("%s: %v", typ, err)
			continue
		}
		if got := b.Info(); got.Type != typ || got.Name != "x" {
			t.Errorf("%s: got %+v", typ, got)
		}
		if err := b.Close(); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
	}
}
