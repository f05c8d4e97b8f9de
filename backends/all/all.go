// Package all lists every adapter of this module. It is the only package that imports them all.
package all

import (
	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/bubblewrap"
	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/e2b"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/flymachines"
	"github.com/execbroker/execbroker/kubernetes"
	"github.com/execbroker/execbroker/modal"
	"github.com/execbroker/execbroker/pyodide"
)

// Registry returns a registry with the types bubblewrap, docker, e2b, flymachines, kubernetes,
// modal and pyodide.
func Registry() *backends.Registry {
	return backends.NewRegistry(
		bubblewrap.Factory(), docker.Factory(), e2b.Factory(), flymachines.Factory(), kubernetes.Factory(),
		modal.Factory(),
		driver.WithSetup(pyodide.Factory(), pyodide.Prepare),
	)
}
