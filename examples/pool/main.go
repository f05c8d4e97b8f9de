// Command pool keeps sessions warm, with slow imports done in advance, and shows how much time that
// saves.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

const config = `
backends:
  code:
    type: pyodide
    broker: {pools: [{size: 2, languages: [python], prelude: [{code: "import json, statistics, datetime"}]}]}
`

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, w io.Writer) error {
	cfg, err := backends.Parse([]byte(config))
	if err != nil {
		return err
	}
	box, err := backends.Open(ctx, driver.Env{Owner: "pool"}, all.Registry(), cfg)
	if err != nil {
		return err
	}
	defer box.Close()

	// The pool fits this Spec, but it is empty at first.
	spec := executor.Spec{Languages: []executor.Language{executor.Python}}
	if err := first(ctx, w, box, "cold", spec); err != nil {
		return err
	}
	for box.Stats().Backends[0].Pools[0].Warm < 2 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := first(ctx, w, box, "warm", spec); err != nil {
		return err
	}
	st := box.Stats().Backends[0].Pools[0]
	fmt.Fprintf(w, "hits: %d, misses: %d\n", st.Hits, st.Misses)
	return nil
}

// first measures the time from Create to the first answer.
func first(ctx context.Context, w io.Writer, box executor.Executor, name string, spec executor.Spec) error {
	began := time.Now()
	res, err := executor.Run(ctx, box, spec, executor.Request{Code: "import statistics\nprint(statistics.mean([40, 44]))"})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s: %s after %v\n", name, res.Stdout[:len(res.Stdout)-1], time.Since(began).Round(time.Millisecond))
	return res.Err()
}
