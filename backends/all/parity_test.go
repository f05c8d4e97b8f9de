package all_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/conformance/corpus"
	"github.com/execbroker/execbroker/conformance/parity"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// TestParity runs the corpus on the backends. Each program does the same on all of them, or says why not.
func TestParity(t *testing.T) { compare(t, 1) }

// TestParityOfSample does it with every twentieth program.
func TestParityOfSample(t *testing.T) { compare(t, 20) }

// compare runs every nth program of the corpus on the backends, and compares each with every other.
func compare(t *testing.T, nth int) {
	t.Parallel()
	programs, err := parity.Load(corpus.FS)
	if err != nil {
		t.Fatal(err)
	}
	if len(programs) < 150 {
		t.Errorf("got %d programs, want at least 150", len(programs))
	}
	for i := range len(programs) / nth {
		programs[i] = programs[i*nth]
	}
	programs = programs[:len(programs)/nth]
	f := newFour(t)
	names := []string{local, box, cloud, machines}
	var file strings.Builder
	for _, name := range names {
		languages := ", languages: [python, javascript]"
		if name == local {
			languages = "" // it has both, in sessions of their own
		}
		fmt.Fprintf(&file, "  %s: {%s%s}\n", name, f.settings[name], languages)
	}
	cfg, err := backends.Parse(fmt.Appendf(nil, "backends:\n%sroutes:\n  - {name: all, split: [{backend: local, weight: 1}]}\n", &file))
	if err != nil {
		t.Fatal(err)
	}
	b, err := backends.Open(t.Context(), driver.Env{Owner: f.owner}, all.Registry(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var executors []executor.Executor
	for _, name := range names {
		x, ok := b.Backend(name)
		if !ok {
			t.Fatalf("no backend %s", name)
		}
		executors = append(executors, x)
	}
	checkSurroundings(t, executors)
	var seen []*parity.Observation
	for _, x := range executors {
		o, err := parity.Observe(t.Context(), x, programs, 2)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, o)
	}
	for i, from := range seen {
		for _, to := range seen[i+1:] {
			r := parity.Compare(from, to, programs)
			t.Logf("%s and %s: %v", r.From, r.To, r.Totals)
			for _, l := range r.Programs {
				if l.Outcome != parity.Same && l.Outcome != parity.Explained {
					t.Errorf("%s: %s: %+v", l.Name, l.Outcome, l.Differences)
				}
			}
		}
	}
}

// checkSurroundings checks that every backend describes its interpreters, and that these are not all the same.
func checkSurroundings(t *testing.T, executors []executor.Executor) {
	t.Helper()
	var first parity.Fields
	for _, x := range executors {
		f, err := parity.Surroundings(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"python.version", "python.time-zone", "javascript.globals"} {
			if f[name] == "" {
				t.Errorf("%s does not say %s", x.Info().Name, name)
			}
		}
		if first == nil {
			first = f
			continue
		}
		found := parity.CompareSurroundings(first, f)
		t.Logf("%s: %d differences of surroundings", x.Info().Name, len(found))
		if len(found) == 0 {
			t.Errorf("nothing differs on %s", x.Info().Name)
		}
	}
}
