package pyodide_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/pyodide"
)

// Run one piece of code, in a sandbox that is removed afterwards.
func Example() {
	ctx := context.Background()
	box, err := pyodide.Open(ctx, driver.Env{Owner: "example"}, pyodide.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close()
	res, err := executor.Run(ctx, box, executor.Spec{}, executor.Request{Language: executor.Python, Code: "print(6 * 7)"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %s", res.Status, res.Stdout)
	// Output: ok: 42
}

// A session keeps variables and files from run to run. An error in the code is a result, not an
// error of Run.
func Example_session() {
	ctx := context.Background()
	box, err := pyodide.Open(ctx, driver.Env{Owner: "example"}, pyodide.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close()
	s, err := box.Create(ctx, executor.Spec{Languages: []executor.Language{executor.Python}, Limits: executor.Limits{MemoryBytes: 256 << 20}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	if err := s.Files().Write(ctx, "prices.csv", strings.NewReader("tea,3\ncoffee,4\n"), 0); err != nil {
		fmt.Println(err)
		return
	}
	for _, code := range []string{
		"import csv; prices = dict(csv.reader(open('prices.csv')))",
		"prices['tea']",
		"prices['cake']",
		"while True: pass",
		"len(prices)",
	} {
		res, err := s.Run(ctx, executor.Request{Code: code, Limits: executor.RunLimits{WallTime: time.Second}}, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(res.Status)
		for _, out := range res.Outputs {
			fmt.Printf(" %s", out.Data["text/plain"])
		}
		if e := res.Exception; e != nil && res.Status == executor.StatusFailed {
			fmt.Printf(" %s in line %d", e.Type, e.Line)
		}
		fmt.Println()
	}
	// Output:
	// ok
	// ok '3'
	// failed KeyError in line 1
	// timed_out
	// ok 2
}

// A program that requires a boundary of the operating system can set it, and gets an error on a
// machine that has none.
func ExampleConfig() {
	ctx := context.Background()
	box, err := pyodide.Open(ctx, driver.Env{Owner: "example"}, pyodide.Config{Memory: 256 << 20, OSLayer: "none"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close()
	_, err = box.Create(ctx, executor.Spec{MinIsolation: executor.IsolationWasmOS})
	fmt.Println(err)
	// Output: pyodide: create: not supported by this backend: unsupported operation: needs isolation>=wasm-os
}
