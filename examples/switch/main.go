// Command switch does what a chat backend does with a code interpreter. It does not depend on where
// the code runs, which is in the file that -config names. There is such a file for each backend in
// this directory, and the output is the same with all of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func main() {
	file := flag.String("config", "examples/switch/pyodide.yaml", "the `file` that says where code runs")
	flag.Parse()
	data, err := os.ReadFile(*file)
	if err != nil {
		log.Fatal(err)
	}
	cfg, err := backends.Parse(data)
	if err != nil {
		log.Fatal(err)
	}
	if err := run(context.Background(), os.Stdout, cfg); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, w io.Writer, cfg backends.Config) error {
	box, err := backends.Open(ctx, driver.Env{Owner: "switch"}, all.Registry(), cfg)
	if err != nil {
		return err
	}
	defer box.Close()
	if err := python(ctx, w, box); err != nil {
		return err
	}
	return javascript(ctx, w, box)
}

// python is a conversation: it uploads a file, and each message uses the results of the earlier
// ones.
func python(ctx context.Context, w io.Writer, box executor.Executor) error {
	s, err := box.Create(ctx, executor.Spec{Languages: []executor.Language{executor.Python}})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Files().Write(ctx, "sales.csv", strings.NewReader("month,amount\njan,120\nfeb,80\nmar,160\n"), 0); err != nil {
		return err
	}
	input, err := typed(ctx, box, s, "world\n")
	if err != nil {
		return err
	}
	for _, step := range []struct {
		says string
		req  executor.Request
	}{
		{"state", executor.Request{Code: "import csv\nrows = list(csv.DictReader(open('sales.csv')))\nprint(len(rows), 'rows')"}},
		{"value", executor.Request{Code: "amounts = [int(r['amount']) for r in rows]\n{'sum': sum(amounts), 'best': max(rows, key=lambda r: int(r['amount']))['month']}"}},
		{"artifact", executor.Request{
			Code:      "import pathlib\nn = pathlib.Path('report.md').write_text('# Sales\\n\\n' + '\\n'.join(f'- {r[\"month\"]}: {r[\"amount\"]}' for r in rows))",
			Artifacts: &executor.ArtifactRequest{Contents: true},
		}},
		{"exception", executor.Request{Code: "def share(part):\n    return part / 0\n\nshare(1)"}},
		{"input", input},
		{"timeout", executor.Request{
			Code:   "print('one of two', flush=True)\nwhile True: pass",
			Limits: executor.RunLimits{WallTime: time.Second},
		}},
		{"state after the timeout", executor.Request{Code: "print(sum(amounts))"}},
		{"exit code", executor.Request{Code: "import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(3)"}},
	} {
		res, err := s.Run(ctx, step.req, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", step.says, err)
		}
		show(w, "python, "+step.says, res)
	}
	return nil
}

// typed greets with text that a user has typed. Not every backend has standard input. The program
// checks the declared features, so it need not know which backend it is.
func typed(ctx context.Context, box executor.Executor, s executor.Session, text string) (executor.Request, error) {
	if box.Info().Capabilities.HasFor(executor.Python, executor.FeatureStdin) {
		return executor.Request{Code: "print('hello', input())", Stdin: strings.NewReader(text)}, nil
	}
	err := s.Files().Write(ctx, "typed.txt", strings.NewReader(text), 0)
	return executor.Request{Code: "print('hello', open('typed.txt').readline().rstrip())"}, err
}

// javascript uses a separate session, because not every backend can mix languages in one.
func javascript(ctx context.Context, w io.Writer, box executor.Executor) error {
	s, err := box.Create(ctx, executor.Spec{Languages: []executor.Language{executor.JavaScript}})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, code := range []string{
		"const primes = [2, 3, 5, 7]; console.log('defined', primes.length)",
		"await Promise.all(primes.map(async p => p * p))",
		"console.error('careful'); null.x",
	} {
		res, err := s.Run(ctx, executor.Request{Code: code}, nil)
		if err != nil {
			return err
		}
		show(w, "javascript", res)
	}
	return nil
}

// show prints the parts of a result that a chat would use. It leaves out what differs between
// backends: times, the backend's name, the line at which code was stopped, which not every backend
// knows, and the exit code of an exception.
func show(w io.Writer, title string, res *executor.Result) {
	fmt.Fprintf(w, "== %s: %s", title, res.Status)
	if res.Reason != "" {
		fmt.Fprintf(w, ", %s", res.Reason)
	}
	if res.ExitCode > 0 && res.Exception == nil {
		fmt.Fprintf(w, ", exit code %d", res.ExitCode)
	}
	fmt.Fprintln(w)
	for _, o := range []struct {
		name string
		text executor.Bytes
	}{{"stdout", res.Stdout}, {"stderr", res.Stderr}} {
		for line := range strings.Lines(string(o.text)) {
			fmt.Fprintf(w, "%s | %s\n", o.name, strings.TrimRight(line, "\n"))
		}
	}
	for _, o := range res.Outputs {
		if o.Main {
			fmt.Fprintf(w, "value  | %s\n", o.Data["text/plain"])
		}
	}
	for _, a := range res.Artifacts {
		fmt.Fprintf(w, "file   | %s, %s, %d bytes\n", a.Name, a.MIME, len(a.Data))
	}
	if e := res.Exception; e != nil && res.Status == executor.StatusFailed {
		fmt.Fprintf(w, "error  | %s: %s in line %d\n", e.Type, e.Message, e.Line)
	}
	if res.StateLost {
		fmt.Fprintln(w, "state  | lost")
	}
}
