package pyodide

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// layersHere returns the layers that exist for this system.
func layersHere() []confine.Method {
	if runtime.GOOS != "linux" {
		return []confine.Method{confine.None}
	}
	return []confine.Method{confine.None, confine.Namespaces, confine.Bubblewrap}
}

// TestLayers runs code behind each layer, and compares the declared isolation with the requested
// one.
func TestLayers(t *testing.T) {
	t.Parallel()
	for _, m := range layersHere() {
		t.Run(string(m), func(t *testing.T) {
			x := open(t, Config{OSLayer: string(m)})
			declared := x.Info().Capabilities.Isolation
			if want := isolation(m); declared != want {
				t.Errorf("got %s declared, want %s", declared, want)
			}
			s := create(t, x, executor.Spec{MinIsolation: declared})
			if got := output(t, s, "print(6 * 7)"); got != "42\n" {
				t.Errorf("got %q", got)
			}
			if r := runCode(t, s, "while True: pass", within(time.Second)); r.Status != executor.StatusTimedOut || r.StateLost {
				t.Errorf("got %s, want it interrupted", describeResult(r))
			}
			_, err := x.Create(t.Context(), executor.Spec{MinIsolation: executor.IsolationMicroVM})
			if !errors.Is(err, executor.ErrUnsupported) {
				t.Errorf("got %v, want a stronger boundary refused", err)
			}
			if declared == executor.IsolationWasm {
				if _, err := x.Create(t.Context(), executor.Spec{MinIsolation: executor.IsolationWasmOS}); !errors.Is(err, executor.ErrUnsupported) {
					t.Errorf("got %v, want a confined process refused", err)
				}
			}
		})
	}
}

// TestScriptIsolation: code that an engine evaluates is not WebAssembly. The declared isolation is
// only that of the layer.
func TestScriptIsolation(t *testing.T) {
	t.Parallel()
	if !javascriptHere {
		return // see TestOtherSystems
	}
	for m, want := range map[confine.Method]executor.Isolation{
		confine.None: executor.IsolationProcess, confine.Namespaces: executor.IsolationWasmOS, confine.Bubblewrap: executor.IsolationWasmOS,
	} {
		x := open(t, Config{OSLayer: string(m)})
		spec := executor.Spec{Languages: []executor.Language{executor.JavaScript}, MinIsolation: want}
		if got := create(t, x, spec).Info().Capabilities.Isolation; got != want {
			t.Errorf("%s: got %s, want %s", m, got, want)
		}
		for _, more := range []executor.Isolation{executor.IsolationWasm, executor.IsolationContainer, executor.IsolationWasmOS, executor.IsolationMicroVM} {
			spec.MinIsolation = more
			if want.AtLeast(more) {
				continue
			}
			if _, err := x.Create(t.Context(), spec); !errors.Is(err, executor.ErrUnsupported) {
				t.Errorf("%s: got %v, want %s refused", m, err, more)
			}
		}
	}
}

// TestOtherSystems: on systems where the memory of JavaScript cannot be limited, the language does
// not exist, and the error for a session with it names it.
func TestOtherSystems(t *testing.T) {
	spec := executor.Spec{Languages: []executor.Language{executor.JavaScript}}
	for goos, want := range map[string][]string{"linux": nil, "darwin": {"language:javascript"}, "windows": {"language:javascript"}} {
		caps := capabilities(goos, Config{}.withDefaults(), confine.None)
		if got := caps.MissingFor(spec); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", goos, got, want)
		}
		if got := caps.MissingFor(executor.Spec{}); got != nil {
			t.Errorf("%s: Python lacks %v", goos, got)
		}
	}
}

// TestAutoIsTheStrongest: bwrap is installed on a prepared machine, so "auto" uses it.
func TestAutoIsTheStrongest(t *testing.T) {
	m, _, err := chooseLayer(t.Context(), autoLayer, false)
	if err != nil || runtime.GOOS == "linux" && m != confine.Bubblewrap {
		t.Errorf("got %s %v", m, err)
	}
}

func TestUnknownLayer(t *testing.T) {
	_, err := Open(t.Context(), driver.Env{Owner: "test"}, Config{OSLayer: "bublewrap"})
	var f *executor.FieldError
	if !errors.As(err, &f) || f.Path != "os_layer" {
		t.Errorf("got %v, want os_layer named", err)
	}
}
