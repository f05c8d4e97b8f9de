// Command chatbackend is a small chat server whose model runs code. Each conversation has a
// sandbox, with variables and files that stay, charts, and further attempts when code fails. The
// answers are streamed to one plain page. The model is any endpoint that is compatible with
// OpenAI's chat completions. The file that -config names says where the code runs.
//
//	go run ./examples/chatbackend -model-url http://127.0.0.1:11434/v1 -model qwen2.5-coder
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/tool"
)

func main() {
	config := flag.String("config", "examples/chatbackend/pyodide.yaml", "the `file` that says where code runs")
	listen := flag.String("listen", "127.0.0.1:8080", "`address` and port")
	url := flag.String("model-url", "", "the base `URL` of an OpenAI-compatible API, such as http://127.0.0.1:11434/v1; its key is $MODEL_API_KEY")
	name := flag.String("model", "", "the `name` of the model")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *url == "" || *name == "" {
		log.Fatal("-model-url and -model: say which model to talk to")
	}
	data, err := os.ReadFile(*config)
	if err != nil {
		log.Fatal(err)
	}
	cfg, err := backends.Parse(data)
	if err != nil {
		log.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("chat at http://%s\n", l.Addr())
	if err := run(ctx, l, cfg, &openAI{url: *url, name: *name, key: os.Getenv("MODEL_API_KEY")}); err != nil {
		log.Fatal(err)
	}
}

// run serves the chat until ctx ends.
func run(ctx context.Context, l net.Listener, cfg backends.Config, m model) (err error) {
	box, err := backends.Open(ctx, driver.Env{Owner: "chatbackend"}, all.Registry(), cfg)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	t, err := tool.New(box, box.Manager(), tool.Options{})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	learned := make(chan struct{})
	go func() {
		defer close(learned)
		if err := t.Learn(ctx); err != nil && ctx.Err() == nil {
			log.Printf("the model is not told what is installed: %v", err)
		}
	}()
	defer func() { <-learned }()
	srv := &http.Server{Handler: newChat(t, m), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err = <-served:
	case <-ctx.Done(): // also stops runs, so that requests end
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = srv.Shutdown(last)
		<-served
	}
	return err
}
