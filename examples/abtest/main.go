// Command abtest splits users between two ways to run code and prints the statistics of each, so
// that they can be compared. abtest.yaml defines the two ways and the split.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

//go:embed abtest.yaml
var config []byte

func main() {
	stats, err := run(context.Background(), os.Stdout, 12)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print("\n", stats)
}

// run lets some users compute, each in a separate session, and returns the statistics.
func run(ctx context.Context, w io.Writer, users int) (backends.Stats, error) {
	cfg, err := backends.Parse(config)
	if err != nil {
		return backends.Stats{}, err
	}
	box, err := backends.Open(ctx, driver.Env{Owner: "abtest"}, all.Registry(), cfg)
	if err != nil {
		return backends.Stats{}, err
	}
	defer box.Close()
	for i := range users {
		spec := executor.Spec{Subject: fmt.Sprintf("user-%d", i), Languages: []executor.Language{executor.Python}}
		res, err := executor.Run(ctx, box, spec, executor.Request{Code: "print(sum(range(10_000)))"})
		if err != nil {
			return box.Stats(), err
		}
		fmt.Fprintf(w, "%s on %s: %s", spec.Subject, res.Origin.Backend, res.Stdout)
	}
	return box.Stats(), nil
}
