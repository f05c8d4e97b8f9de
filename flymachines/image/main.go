// Command image writes the runner that an image for Fly Machines has at flymachines.RunnerPath. The
// Dockerfile beside it says how.
package main

import (
	"fmt"
	"os"

	"github.com/execbroker/execbroker/runner"
)

func main() {
	if _, err := os.Stdout.Write(runner.GuestProgram()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}
