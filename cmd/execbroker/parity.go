package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/conformance/corpus"
	"github.com/execbroker/execbroker/conformance/parity"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/router"
)

// parityOptions are the flags of parity.
type parityOptions struct {
	from, to    string
	programs    string
	environment bool
	parallel    int
}

func (a *app) parityCommand() *cobra.Command {
	var o parityOptions
	cmd := &cobra.Command{
		Use:   "parity",
		Short: "Run the same programs on two backends, and say where they differ",
		Long: `Run programs on two backends and compare status, exit code, exception, output,
values, artifacts and state, cell by cell. Each program has a sandbox of its own.

Programs are the files below a directory that end in .py, .js or .mjs. A line
"# %%" begins a new cell, and "# stdin: TEXT" as its first line is its input, a
JSON string. In the comment at the beginning, "# differs on TYPE: why" says that a
difference is known for that type of backend. In JavaScript it is "//". Without
--programs it is execbroker's own collection of small programs.

With --environment the interpreters themselves are compared instead: versions,
settings, modules that are missing, installed packages.

Exit codes: 0 nothing differs that is not explained, 1 something does, 2 and 3 as
everywhere.`,
		Example: `  execbroker parity --from pyodide --to docker
  execbroker parity --config app.yaml --from local --to box --programs ./programs
  execbroker parity --config app.yaml --from local --to box --environment`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.parity(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "the `backend` that programs run on now: a name of the configuration or, without one, a type")
	f.StringVar(&o.to, "to", "", "the `backend` to compare with")
	f.StringVar(&o.programs, "programs", "", "the `directory` of the programs (default execbroker's own)")
	f.BoolVar(&o.environment, "environment", false, "compare interpreters and packages instead of programs")
	f.IntVar(&o.parallel, "parallel", 2, "run this `number` of programs at a time on each")
	must(cmd.MarkFlagDirname("programs"))
	cmd.MarkFlagsMutuallyExclusive("programs", "environment")
	for _, name := range []string{"from", "to"} {
		must(cmd.RegisterFlagCompletionFunc(name, a.backendNames))
	}
	return cmd
}

func (a *app) parity(ctx context.Context, o parityOptions) error {
	if a.backend != "" {
		return usage("--backend: parity takes two, --from and --to")
	}
	if o.from == "" || o.to == "" {
		return usage("parity takes two backends, --from and --to")
	}
	cfg, err := a.pair(o.from, o.to)
	if err != nil {
		return err
	}
	var fsys fs.FS = corpus.FS
	if o.programs != "" {
		fsys = os.DirFS(o.programs)
	}
	programs, err := parity.Load(fsys)
	if err != nil {
		return usage("--programs: %w", err)
	}
	b, err := a.openBroker(ctx, cfg, backends.WithoutPools())
	if err != nil {
		return err
	}
	p := newProgress(a.err)
	defer a.closing(p, "removing sandboxes", b.Close)
	ctx, end := p.begin(ctx, "parity")
	defer end()
	from, _ := b.Backend(o.from)
	to, _ := b.Backend(o.to)
	if o.environment {
		return a.compareSurroundings(ctx, from, to, end)
	}
	seen := make([]*parity.Observation, 2)
	for i, x := range []executor.Executor{from, to} {
		if seen[i], err = parity.Observe(ctx, x, programs, o.parallel); err != nil {
			return err
		}
	}
	end()
	return a.compared(parity.Compare(seen[0], seen[1], programs))
}

// pair returns a configuration with the two backends: those of the file or, without one, of these types. It needs a route to be one,
// which is not used.
func (a *app) pair(from, to string) (backends.Config, error) {
	var cfg backends.Config
	for _, name := range []string{from, to} {
		a.backend = name
		one, err := a.configuration()
		a.backend = ""
		if err != nil {
			return cfg, err
		}
		if cfg.Backends == nil {
			cfg = one
			continue
		}
		maps.Copy(cfg.Backends, one.Backends)
	}
	cfg.Routes = []router.Route{{Name: "parity", Split: []router.Share{{Backend: from, Weight: 1}}}}
	cfg.Guard = backends.Guard{} // it is for users
	if len(cfg.Backends) == 1 {
		return cfg, usage("--from and --to are both %s", plain(from))
	}
	return cfg, nil
}

func (a *app) compareSurroundings(ctx context.Context, from, to executor.Executor, end func()) error {
	var seen [2]parity.Fields
	for i, x := range []executor.Executor{from, to} {
		var err error
		if seen[i], err = parity.Surroundings(ctx, x); err != nil {
			return err
		}
	}
	end()
	found := parity.CompareSurroundings(seen[0], seen[1])
	switch {
	case a.json:
		if err := a.printJSON(append([]parity.Difference{}, found...)); err != nil {
			return err
		}
	case len(found) == 0:
		if _, err := fmt.Fprintln(a.out, "nothing differs"); err != nil {
			return err
		}
	default:
		if err := printDifferences(a.out, "", found); err != nil {
			return err
		}
	}
	if len(found) > 0 {
		return exitCode(exitFailed)
	}
	return nil
}

// compared says what was found. Only what differs without an explanation is a failure.
func (a *app) compared(r *parity.Report) error {
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		for _, l := range r.Programs {
			if l.Outcome == parity.Same {
				continue
			}
			why := ""
			if l.Why != "" {
				why = " (" + plain(l.Why) + ")"
			}
			_, err := fmt.Fprintf(a.out, "%s: %s%s\n", plain(l.Name), l.Outcome, why)
			if l.Outcome == parity.Different {
				err = errors.Join(err, printDifferences(a.out, "    ", l.Differences))
			}
			if err != nil {
				return err
			}
		}
		var counts []string
		for _, o := range slices.Sorted(maps.Keys(r.Totals)) {
			counts = append(counts, fmt.Sprintf("%d %s", r.Totals[o], o))
		}
		if _, err := fmt.Fprintf(a.out, "%s and %s: %s\n", plain(r.From), plain(r.To), strings.Join(counts, ", ")); err != nil {
			return err
		}
	}
	if r.Totals[parity.Different] > 0 {
		return exitCode(exitFailed)
	}
	return nil
}

// maxShown bounds a field on the terminal; --json has all that was kept.
const maxShown = 300

func printDifferences(w io.Writer, indent string, found []parity.Difference) (err error) {
	for _, d := range found {
		where := plain(d.Field)
		if d.Cell > 0 {
			where = fmt.Sprintf("cell %d, %s", d.Cell, where)
		}
		_, e := fmt.Fprintf(w, "%s%s: %s -> %s\n", indent, where, shown(d.From), shown(d.To))
		err = errors.Join(err, e)
	}
	return err
}

// shown is a field on one line.
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
