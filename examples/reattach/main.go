// Command reattach has one session for each conversation. The session survives the program if the
// backend supports that. Each call is one message:
//
//	go run ./examples/reattach chat-1 'x = 41'
//	go run ./examples/reattach chat-1 'print(x + 1)'
//
// On Docker the second call finds x. On Pyodide, whose sandboxes end with the program, it is told
// that the session is new.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func main() {
	file := flag.String("config", "examples/reattach/pyodide.yaml", "the `file` that says where code runs")
	flag.Parse()
	data, err := os.ReadFile(*file)
	if err != nil {
		log.Fatal(err)
	}
	if flag.NArg() != 2 {
		log.Fatal("usage: reattach [-config FILE] CONVERSATION CODE")
	}
	cfg, err := backends.Parse(data)
	if err != nil {
		log.Fatal(err)
	}
	if err := run(context.Background(), os.Stdout, cfg, flag.Arg(0), flag.Arg(1)); err != nil {
		log.Fatal(err)
	}
}

// run does what a chat backend does with a message that contains code.
func run(ctx context.Context, w io.Writer, cfg backends.Config, conversation, code string) error {
	box, err := backends.Open(ctx, driver.Env{Owner: "reattach"}, all.Registry(), cfg)
	if err != nil {
		return err
	}
	defer box.Close()
	lease, err := box.Manager().Acquire(ctx, conversation, executor.Spec{Languages: []executor.Language{executor.Python}})
	if err != nil {
		return err
	}
	defer lease.Release() // the session stays for the next message
	if lease.Fresh {
		fmt.Fprintln(w, "a new session: what was there before is gone")
	} else {
		fmt.Fprintln(w, "the session of before")
	}
	res, err := lease.Run(ctx, executor.Request{Code: code}, nil)
	if err != nil {
		return err
	}
	fmt.Fprint(w, res.Stdout)
	if e := res.Exception; e != nil {
		fmt.Fprintf(w, "%s: %s\n", e.Type, e.Message)
	}
	return nil
}
