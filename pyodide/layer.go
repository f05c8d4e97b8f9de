package pyodide

import (
	"context"
	"fmt"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

const autoLayer = "auto"

// layers are the values of Config.OSLayer.
var layers = []string{autoLayer, string(confine.Bubblewrap), string(confine.Namespaces), string(confine.None)}

// chooseLayer returns the layer that Config.OSLayer means on this machine. It finds out by using
// it, once in the life of the program. Why one cannot be used is in skipped.
func chooseLayer(ctx context.Context, want string) (m confine.Method, skipped []error, err error) {
	if want != autoLayer {
		m = confine.Method(want)
		if err := confine.Probe(ctx, m); err != nil {
			return "", nil, driver.Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("os_layer: %w; with \"auto\" the next weaker one is taken", err))
		}
		return m, nil, nil
	}
	for _, m := range []confine.Method{confine.Bubblewrap, confine.Namespaces} {
		err := confine.Probe(ctx, m)
		if err == nil {
			return m, skipped, nil
		}
		skipped = append(skipped, err)
	}
	return confine.None, skipped, nil
}

// isolation is what a layer makes of WebAssembly.
func isolation(m confine.Method) executor.Isolation {
	if confine.Of(m).Complete() {
		return executor.IsolationWasmOS
	}
	return executor.IsolationWasm
}

// scriptIsolation is what a layer makes of JavaScript, if it is weaker: the engine evaluates it, so
// that without the layer there is nothing but that engine and the permissions that it keeps.
func scriptIsolation(m confine.Method) executor.Isolation {
	if confine.Of(m).Complete() {
		return ""
	}
	return executor.IsolationProcess
}
