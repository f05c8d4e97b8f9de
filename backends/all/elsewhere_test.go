package all_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// TestElsewhere opens every type for another machine: it needs nothing of this one, says what it
// is, and refuses the rest.
func TestElsewhere(t *testing.T) {
	c, err := backends.Parse([]byte(`
backends:
  bubblewrap: {type: bubblewrap, cgroup: /none}
  docker: {type: docker, context: none}
  e2b: {type: e2b, api_key: {env: NONE}}
  flymachines: {type: flymachines, app: a, token: {env: NONE}}
  kubernetes: {type: kubernetes, namespace: a, in_cluster: true}
  modal: {type: modal, app: a, token_id: {env: NONE}, token_secret: {env: NONE}, generation: v1}
  pyodide: {type: pyodide, os_layer: namespaces}
`))
	if err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(c.Backends)); !slices.Equal(names, all.Registry().Types()) {
		t.Fatalf("got the types %q, want all of %q", names, all.Registry().Types())
	}
	b, err := backends.Open(t.Context(), driver.Env{Owner: "o", Elsewhere: true}, all.Registry(), c)
	if err != nil {
		t.Fatal(err)
	}
	for name := range c.Backends {
		x, _ := b.Backend(name)
		caps := x.Info().Capabilities
		if len(caps.MissingFor(executor.Spec{})) > 0 || name == "bubblewrap" && !caps.Has(executor.FeatureLimitProcesses) {
			t.Errorf("%s: got %+v", name, caps)
		}
		h := executor.Handle{Backend: name, Type: name, Session: "s"}
		_, cerr := x.Create(t.Context(), executor.Spec{})
		_, aerr := x.Attach(t.Context(), h)
		errs := map[string]error{"create": cerr, "attach": aerr, "destroy": x.Destroy(t.Context(), h)}
		for _, errs["sessions"] = range x.Sessions(t.Context(), nil) {
		}
		for op, err := range errs {
			if !errors.Is(err, executor.ErrUnavailable) && !(name == "pyodide" && op != "create" && errors.Is(err, executor.ErrUnsupported)) {
				t.Errorf("%s: %s: got %v", name, op, err)
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
