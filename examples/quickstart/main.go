// Command quickstart is the shortest program: it runs a line of Python in a sandbox on this
// machine.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/pyodide"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, w io.Writer) error {
	box, err := pyodide.Open(ctx, driver.Env{Owner: "quickstart"}, pyodide.Config{})
	if err != nil {
		return err
	}
	defer box.Close()
	res, err := executor.Run(ctx, box, executor.Spec{}, executor.Request{Language: executor.Python, Code: "print(6*7)"})
	if err != nil {
		return err
	}
	fmt.Fprint(w, res.Stdout)
	return res.Err()
}
