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

// chooseLayer returns the layer that Config.OSLayer means on this machine. It tries the layer once
// in the life of the program. skipped says why stronger layers cannot be used. With elsewhere it is
// what the configuration means at best on another machine, and nothing is tried.
func chooseLayer(ctx context.Context, want string, elsewhere bool) (m confine.Method, skipped []error, err error) {
	if elsewhere {
		if want == autoLayer {
			want = string(confine.Bubblewrap)
		}
		return confine.Method(want), nil, nil
	}
	if want != autoLayer {
		m = confine.Method(want)
		if err := confine.Probe(ctx, m); err != nil {
			return "", nil, driver.Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("os_layer: %w; use \"auto\" to choose the strongest that works", err))
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

// isolation returns the isolation of WebAssembly with a layer.
func isolation(m confine.Method) executor.Isolation {
	if confine.Of(m).Complete() {
		return executor.IsolationWasmOS
	}
	return executor.IsolationWasm
}

// scriptIsolation returns the isolation of JavaScript with a layer, if it is weaker. The engine
// evaluates JavaScript directly, so without a layer there are only the engine and its permissions.
func scriptIsolation(m confine.Method) executor.Isolation {
	if confine.Of(m).Complete() {
		return ""
	}
	return executor.IsolationProcess
}
