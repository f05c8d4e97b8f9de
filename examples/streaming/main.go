// Command streaming runs a program that never ends, shows its output while it runs, stops it after
// ten lines, and shows that its variables are kept.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/pyodide"
)

const primes = `
primes = []
n = 2
while True:
    if all(n % p for p in primes):
        primes.append(n)
        print(n)
    n += 1
`

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, w io.Writer) error {
	box, err := pyodide.Open(ctx, driver.Env{Owner: "streaming"}, pyodide.Config{})
	if err != nil {
		return err
	}
	defer box.Close()
	s, err := box.Create(ctx, executor.Spec{Languages: []executor.Language{executor.Python}})
	if err != nil {
		return err
	}
	defer s.Close()

	if err := firstLines(ctx, s, primes, 10, w); err != nil {
		return err
	}
	res, err := s.Run(ctx, executor.Request{Code: "print('the first is', primes[0])"}, nil)
	if err != nil {
		return err
	}
	fmt.Fprint(w, res.Stdout)
	return res.Err()
}

// firstLines copies the first n lines of what code prints to w. Leaving the loop stops the code.
func firstLines(ctx context.Context, s executor.Session, code string, n int, w io.Writer) error {
	var pending []byte // an event may contain many lines and end in the middle of one
	for e, err := range executor.Stream(ctx, s, executor.Request{Code: code}) {
		if err != nil {
			return err
		}
		if e.Kind != executor.EventStdout {
			continue
		}
		pending = append(pending, e.Data...)
		for n > 0 {
			line, rest, ok := bytes.Cut(pending, []byte("\n"))
			if !ok {
				break
			}
			fmt.Fprintf(w, "%s\n", line)
			pending = rest
			n--
		}
		if n == 0 {
			return nil
		}
	}
	return nil
}
