package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/conformance/corpus"
	"github.com/execbroker/execbroker/conformance/parity"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/router"
)

// parityOptions are the flags of parity.
type parityOptions struct {
	corpus      string
	shadow      string
	plain       string
	environment bool
	parallel    int
	reuse       int
}

// noPlain is the value of --plain that disables plain interpreters.
const noPlain = "none"

func (a *app) parityCommand() *cobra.Command {
	var o parityOptions
	cmd := &cobra.Command{
		Use:   "parity [BACKEND...]",
		Short: "Run the same programs on several backends and as scripts, and report differences",
		Long: `Run programs on backends, and as scripts with the plain interpreter of an image
("python3 cell.py", "node cell.js"), and compare status, exit code, exception,
output, values, artifacts and state, cell by cell. A backend is a name of the
configuration or, without one, a type. Without arguments, all of the configuration.

Programs are the files below a directory that end in .py, .js, .mjs or .ts, or the
lines of a JSON Lines file:

  {"id": "sum", "language": "python", "code": "print(int(input()) + 1)",
   "stdin": "41\n", "stdout": "42\n", "exit_code": 0, "files": {"a.txt": "text"}}

"stdout" and "exit_code" are the expected results, if you know them. Lines in the format of
HumanEval are accepted too. Without --corpus the programs are execbroker's own.

A difference is explained if the backend does not declare a feature that the program
needs, if it is in the list of documented differences, or if the program says so.
Other differences are grouped by cause. A program with an unexplained difference runs
twice, and is called unsteady if its results differ.

With --from-shadow the programs are the conversations that the shadow of a route has
kept, because they differed: see the command shadow.

With --environment the interpreters themselves are compared instead: versions,
settings, missing modules, installed packages.

Exit codes: 0 every difference is explained, 1 one is not, 2 and 3 as
for all commands.`,
		Example: `  execbroker parity pyodide docker
  execbroker parity --config app.yaml --corpus programs.jsonl
  execbroker parity --config app.yaml --from-shadow chat
  execbroker parity --config app.yaml --environment local box`,
		ValidArgsFunction: a.backendNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.parity(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.corpus, "corpus", "", "the `directory or file` of the programs (default execbroker's own)")
	f.StringVar(&o.shadow, "from-shadow", "", "run the examples that the shadow of this `route` has kept")
	f.StringVar(&o.plain, "plain", "", `run scripts in the image of this `+"`backend`"+` (default the first that has commands; "none": do not run scripts)`)
	f.BoolVar(&o.environment, "environment", false, "compare interpreters and packages instead of programs")
	f.IntVar(&o.parallel, "parallel", 2, "run this `number` of programs at a time")
	f.IntVar(&o.reuse, "reuse", 1, "run this `number` of programs in a sandbox, one after the other, each in a new interpreter and an empty working directory")
	must(cmd.MarkFlagFilename("corpus", "jsonl"))
	must(cmd.RegisterFlagCompletionFunc("plain", a.backendNames))
	for _, other := range []string{"corpus", "plain", "reuse", "from-shadow"} {
		cmd.MarkFlagsMutuallyExclusive(other, "environment")
	}
	cmd.MarkFlagsMutuallyExclusive("corpus", "from-shadow")
	return cmd
}

func (a *app) parity(ctx context.Context, o parityOptions, names []string) error {
	if a.backend != "" {
		return usage("--backend: parity takes the backends as arguments")
	}
	cfg, names, err := a.several(names)
	if err != nil {
		return err
	}
	var programs []parity.Program
	if o.shadow != "" {
		programs, err = a.fromShadow(ctx, o.shadow)
	} else if programs, err = load(o.corpus); err != nil {
		err = usage("--corpus: %w", err)
	}
	if err != nil {
		return err
	}
	b, err := a.openBroker(ctx, cfg, backends.WithoutPools())
	if err != nil {
		return err
	}
	p := newProgress(a.err)
	defer a.closing(p, "removing sandboxes", b.Close)
	ctx, end := p.begin(ctx, "parity")
	defer end()
	var executors []executor.Executor
	for _, name := range names {
		x, _ := b.Backend(name)
		executors = append(executors, x)
	}
	if o.environment {
		return a.compareSurroundings(ctx, executors, end)
	}
	options := parity.Options{Backends: executors, Parallel: o.parallel, Reuse: o.reuse}
	if options.Plain, err = scripts(o.plain, names, executors); err != nil {
		return err
	}
	if err := options.Check(); err != nil {
		return usage("%w", err)
	}
	r, err := parity.Run(ctx, options, programs)
	end()
	if r != nil {
		err = errors.Join(err, a.compared(r))
	}
	return err
}

// load reads programs from a directory or a file, or returns those of this program.
func load(from string) ([]parity.Program, error) {
	if from == "" {
		return parity.Load(corpus.FS)
	}
	info, err := os.Stat(from)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return parity.Load(os.DirFS(from))
	}
	f, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	programs, err := parity.ReadLines(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return programs, nil
}

// scripts returns the backend whose image has the plain interpreter, or nil for none.
func scripts(name string, names []string, executors []executor.Executor) (executor.Executor, error) {
	for i, x := range executors {
		switch c := x.Info().Capabilities; {
		case name == "" && c.Has(executor.FeatureCommand) && c.Has(executor.FeatureFiles), name == names[i]:
			return x, nil
		}
	}
	if name != "" && name != noPlain {
		return nil, usage("--plain: %w", driver.Unknown("backend", name, append(names, noPlain)))
	}
	return nil, nil
}

// several returns a configuration with the named backends of the file or, without a file, with
// these types. A valid configuration needs a route, which is not used.
func (a *app) several(names []string) (backends.Config, []string, error) {
	var cfg backends.Config
	if len(names) == 0 {
		if a.config == "" {
			return cfg, nil, usage("parity takes two or more types of backends as arguments, or --config")
		}
		one, err := a.configuration()
		if err != nil {
			return cfg, nil, err
		}
		cfg, names = one, slices.Sorted(maps.Keys(one.Backends))
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return cfg, nil, usage("%s is there twice", plain(name))
		}
		a.backend = name
		one, err := a.configuration()
		a.backend = ""
		if err != nil {
			return cfg, nil, err
		}
		if cfg.Backends == nil {
			cfg = one
			continue
		}
		maps.Copy(cfg.Backends, one.Backends)
	}
	cfg = withoutRoutes(cfg)
	cfg.Routes = []router.Route{{Name: "parity", Split: []router.Share{{Backend: names[0], Weight: 1}}}}
	cfg.Guard = backends.Guard{} // the guard is for users
	return cfg, names, nil
}

// compareSurroundings compares the interpreters of the first backend with those of each other.
func (a *app) compareSurroundings(ctx context.Context, executors []executor.Executor, end func()) error {
	if len(executors) < 2 {
		return usage("nothing to compare: want two backends")
	}
	found := map[string][]parity.Difference{}
	var first parity.Fields
	differ := false
	for i, x := range executors {
		seen, err := parity.Surroundings(ctx, x)
		if err != nil {
			return err
		}
		if i == 0 {
			first = seen
			continue
		}
		list := append([]parity.Difference{}, parity.CompareSurroundings(first, seen)...)
		found[x.Info().Name] = list
		differ = differ || len(list) > 0
	}
	end()
	return a.answer(found, !differ, func(w io.Writer) {
		for _, x := range executors[1:] {
			list := found[x.Info().Name]
			fmt.Fprintf(w, "%s and %s: %d differences\n", plain(executors[0].Info().Name), plain(x.Info().Name), len(list))
			printDifferences(w, "    ", list)
		}
	})
}

// maxExamples is how many programs are printed for each cause; --json has all.
const maxExamples = 3

// compared prints the result. Only an unexplained difference is a failure.
func (a *app) compared(r *parity.Report) error {
	return a.answer(r, r.Total(parity.Different) == 0, func(w io.Writer) { printReport(w, r) })
}

func printReport(out io.Writer, r *parity.Report) {
	for _, c := range r.Causes {
		var where []string
		for _, name := range r.Backends {
			if n := c.Programs[name]; n > 0 {
				where = append(where, fmt.Sprintf("%s %d", plain(name), n))
			}
		}
		fmt.Fprintf(out, "%s: %s (%s)\n", c.Outcome, plain(c.Cause), strings.Join(where, ", "))
		if c.Outcome == parity.Explained {
			continue
		}
		for _, name := range c.Names[:min(len(c.Names), maxExamples)] {
			fmt.Fprintf(out, "    %s\n", plain(name))
			i := slices.IndexFunc(r.Programs, func(l parity.Line) bool { return l.Name == name })
			f := slices.IndexFunc(r.Programs[i].Findings, func(f parity.Finding) bool { return f.Outcome == c.Outcome && f.Cause == c.Cause })
			printDifferences(out, "        ", r.Programs[i].Findings[f].Differences)
		}
		if more := len(c.Names) - maxExamples; more > 0 {
			fmt.Fprintf(out, "    and %d more\n", more)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "backend")
	for _, o := range parity.Outcomes() {
		fmt.Fprintf(w, "\t%s", o)
	}
	for _, name := range r.Backends {
		fmt.Fprintf(w, "\n%s", plain(name))
		for _, o := range parity.Outcomes() {
			fmt.Fprintf(w, "\t%d", r.Totals[name][o])
		}
	}
	fmt.Fprintln(w)
	w.Flush()
}

// maxShown bounds a field on the terminal; --json has all that was kept.
const maxShown = 300

func printDifferences(w io.Writer, indent string, found []parity.Difference) {
	for _, d := range found {
		where := plain(d.Field)
		if d.Cell > 0 {
			where = fmt.Sprintf("cell %d, %s", d.Cell, where)
		}
		fmt.Fprintf(w, "%s%s: %s -> %s\n", indent, where, shown(d.Want), shown(d.Got))
	}
}

// shown formats a field on one line.
func shown(s string) string {
	if s == "" {
		return "none"
	}
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "..."
	}
	if strings.ContainsAny(s, "\n\t\"") {
		return fmt.Sprintf("%q", s)
	}
	return plain(s)
}
