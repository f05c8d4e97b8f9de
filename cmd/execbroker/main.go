// Command execbroker runs untrusted code in sandboxes.
//
//	execbroker run -c 'print(6*7)'
//
// runs Python on this machine, in WebAssembly. A configuration file can add other backends and say
// which one to use. Every command explains itself with --help.
//
// The exit codes are 0 for success, 1 if the code failed, 124 if it was stopped at its time limit,
// 2 for wrong usage or configuration, 3 if the infrastructure failed, and 128 plus the number of
// the signal that ended the program.
package main

import (
	"context"
	"os"

	"github.com/execbroker/execbroker/backends/all"
)

func main() {
	os.Exit(newApp(all.Registry()).main(context.Background(), os.Args[1:]))
}
