package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
)

// conformanceOptions are the flags of conformance.
type conformanceOptions struct {
	reports  []string
	format   string
	only     []string
	mode     string
	parallel int
}

func (a *app) conformanceCommand() *cobra.Command {
	var o conformanceOptions
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Check that a backend keeps the contract",
		Long: `Run the conformance suite against a backend, with its settings in the configuration,
and write a report.

What a backend declares must work, and what it does not declare must be refused. For
each type of backend there is a list of what it must declare.

A report has a line for every case. "conformance diff" compares two reports and says
what changes for a program that moves from one backend to the other.

The file extension sets the format of a report: .json, .md, .xml for JUnit.

Exit codes: 0 every selected case passed, 1 one did not, 2 and 3 as for
all commands.`,
		Example: `  execbroker conformance --backend pyodide --report pyodide.json
  execbroker conformance --config app.yaml --backend box --only 'python/state/*'
  execbroker conformance diff pyodide.json docker.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.conformance(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.reports, "report", nil, "write a report to this `file`; may be repeated")
	f.StringVar(&o.format, "format", "", "the `format` of the report: json, markdown or junit (default from the file extension)")
	f.StringArrayVar(&o.only, "only", nil, "run the cases whose ID matches this `pattern`, such as 'python/*'; may be repeated")
	f.StringVar(&o.mode, "mode", string(conformance.Live), "what the adapter talks to: live, emulated or fake")
	f.IntVar(&o.parallel, "parallel", 1, "run this `number` of cases at a time")
	must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("report", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)))
	must(cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions(modes, cobra.ShellCompDirectiveNoFileComp)))
	cmd.AddCommand(a.conformanceLiveCommand(), a.conformanceDiffCommand(), a.conformanceRenderCommand())
	return cmd
}

var modes = []string{string(conformance.Live), string(conformance.Emulated), string(conformance.Fake)}

// reportFormats are the formats of a report, with their file extensions.
var reportFormats = []struct {
	name    string
	endings []string
	write   func(*conformance.Report, io.Writer) error
}{
	{"json", []string{".json"}, (*conformance.Report).JSON},
	{"markdown", []string{".md", ".markdown"}, (*conformance.Report).Markdown},
	{"junit", []string{".xml"}, (*conformance.Report).JUnit},
}

func formats() (names []string) {
	for _, f := range reportFormats {
		names = append(names, f.name)
	}
	return names
}

// reportWriter returns the function that writes a report in the given format or, if that is empty,
// in the format of the file's extension.
func reportWriter(format, file string) (func(*conformance.Report, io.Writer) error, error) {
	for _, f := range reportFormats {
		if format == f.name || format == "" && slices.Contains(f.endings, strings.ToLower(filepath.Ext(file))) {
			return f.write, nil
		}
	}
	if format != "" {
		return nil, usage("--format %s: there are %s", plain(format), strings.Join(formats(), ", "))
	}
	return nil, usage("%s: unknown file extension; set the format with --format: %s", plain(file), strings.Join(formats(), ", "))
}

func (a *app) conformance(ctx context.Context, o conformanceOptions) error {
	if !slices.Contains(modes, o.mode) {
		return usage("--mode %s: there are %s", plain(o.mode), strings.Join(modes, ", "))
	}
	for _, file := range o.reports {
		if _, err := reportWriter(o.format, file); err != nil {
			return err
		}
	}
	target, err := a.target(ctx, o)
	if err != nil {
		return err
	}
	if was, err := conformance.RunChild(ctx, target); was {
		return err
	}
	ctx, end := a.watchCases(ctx, "conformance", &target)
	report, err := conformance.Run(ctx, target)
	end()
	for _, file := range o.reports { // the report also says why nothing was found
		err = errors.Join(err, writeReport(report, o.format, file))
	}
	if err != nil {
		return err
	}
	return a.conformed(report, len(o.only) > 0)
}

// watchCases shows how far the suite is, and prints each case that does not hold.
func (a *app) watchCases(ctx context.Context, what string, t *conformance.Target) (_ context.Context, end func()) {
	var languages []executor.Language
	for _, p := range t.Programs {
		languages = append(languages, p.Language)
	}
	p := newProgress(a.err)
	ctx, end = p.begin(ctx, what)
	total, done := len(conformance.Cases(languages...)), 0
	t.Progress = func(l conformance.Line) {
		done++
		if !holds(l) && !a.json {
			p.pause()
			fmt.Fprintf(a.err, "%s %s: %s\n", l.Outcome, plain(l.ID), strings.ReplaceAll(plainText(l.Reason), "\n", "\n    "))
		}
		executor.ReportProgress(ctx, executor.Progress{What: what, Done: int64(done), Total: int64(total)})
	}
	return ctx, end
}

// target describes the backend that the flags select.
func (a *app) target(ctx context.Context, o conformanceOptions) (conformance.Target, error) {
	cfg, err := a.configuration()
	if err != nil {
		return conformance.Target{}, err
	}
	b, err := a.open(ctx, backends.WithoutPools())
	if err != nil {
		return conformance.Target{}, err
	}
	info := b.Info()
	if err := b.Close(); err != nil {
		return conformance.Target{}, err
	}
	exe, err := os.Executable()
	if err != nil {
		return conformance.Target{}, err
	}
	t := conformance.Target{
		Implementation: conformance.Implementation{Name: info.Type, Version: version()},
		Mode:           conformance.Mode(o.mode),
		Child:          append([]string{exe}, os.Args[1:]...),
		Only:           o.only,
		Parallel:       o.parallel,
		Open: func(ctx context.Context, params map[string]string) (executor.Executor, error) {
			env := a.env()
			env.Owner += ".conformance" // so that the suite does not see or leave sandboxes of the user
			if owner := params[conformance.ParamOwner]; owner != "" {
				env.Owner = owner
			}
			return backends.Open(ctx, env, a.reg, cfg)
		},
	}
	known := false
	if t.Must, known = conformance.MustDeclare(info.Type); !known {
		fmt.Fprintf(a.err, "there is no list of what a backend of type %s must declare: only what it declares is checked\n", plain(info.Type))
	}
	for _, r := range info.Capabilities.Languages {
		if i := slices.IndexFunc(a.programs, func(p conformance.Programs) bool { return p.Language == r.Language }); i >= 0 {
			t.Programs = append(t.Programs, a.programs[i])
		}
	}
	return t, nil
}

// holds reports whether a line of the report is fine. A case that was not selected is fine.
func holds(l conformance.Line) bool {
	return l.Outcome == conformance.Passed || l.Outcome == conformance.Refused || l.Skipped()
}

func writeReport(r *conformance.Report, format, file string) error {
	write, err := reportWriter(format, file)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := write(r, &b); err != nil {
		return err
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		return usage("--report: %w", err)
	}
	return nil
}

// conformed prints the result. For a part of the suite there is no verdict.
func (a *app) conformed(r *conformance.Report, part bool) error {
	good := !slices.ContainsFunc(r.Cases, func(l conformance.Line) bool { return !holds(l) })
	return a.answer(r, good, func(w io.Writer) {
		var counts []string
		for _, o := range []conformance.Outcome{
			conformance.Passed, conformance.Refused, conformance.Failed, conformance.Errored, conformance.Known, conformance.Stale, conformance.Unchecked,
		} {
			if n := r.Totals[o]; n > 0 {
				counts = append(counts, fmt.Sprintf("%d %s", n, o))
			}
		}
		verdict := "not conformant"
		switch {
		case r.Conformant:
			verdict = "conformant"
		case part:
			verdict = "checked in part"
		}
		fmt.Fprintf(w, "%s %s: %s (%s)\n", plain(r.Implementation.Name), plain(r.Implementation.Version), verdict, strings.Join(counts, ", "))
	})
}

func (a *app) conformanceDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff A.json B.json",
		Short: "Say what changes for a program that moves from one backend to another",
		Long: `Compare two reports of the conformance suite, and say what changes for a program
that moves from the backend of the first to that of the second.

Exit codes: 0 nothing changes, 1 something does.`,
		Example: "  execbroker conformance diff pyodide.json docker.json",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			from, err := readReport(args[0])
			if err != nil {
				return err
			}
			to, err := readReport(args[1])
			if err != nil {
				return err
			}
			changes, err := conformance.Diff(from, to)
			if err != nil {
				return &usageError{err: err}
			}
			return a.differ(changes)
		},
		ValidArgsFunction: reportFiles,
	}
}

func (a *app) differ(changes []conformance.Change) error {
	return a.answer(append([]conformance.Change{}, changes...), len(changes) == 0, func(w io.Writer) {
		if len(changes) == 0 {
			fmt.Fprintln(w, "nothing changes")
		}
		for _, c := range changes {
			fmt.Fprintf(w, "%s: %s -> %s\n    %s\n", plain(c.What), cmp.Or(plain(c.From), "none"), cmp.Or(plain(c.To), "none"), plain(c.Doc))
		}
	})
}

func (a *app) conformanceRenderCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "render REPORT.json",
		Short:   "Print a report in another format",
		Example: "  execbroker conformance render pyodide.json --format markdown > pyodide.md",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			write, err := reportWriter(format, "")
			if err != nil {
				return err
			}
			r, err := readReport(args[0])
			if err != nil {
				return err
			}
			return write(r, a.out)
		},
		ValidArgsFunction: reportFiles,
	}
	cmd.Flags().StringVar(&format, "format", "markdown", "json, markdown or junit")
	must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

func reportFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{"json"}, cobra.ShellCompDirectiveFilterFileExt
}

// maxReport is the largest report that is read, in bytes.
const maxReport = 64 << 20

func readReport(file string) (*conformance.Report, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, usage("%w", err)
	}
	defer f.Close()
	r, err := conformance.ParseReport(io.LimitReader(f, maxReport))
	if err != nil {
		return nil, usage("%s: %w", plain(file), err)
	}
	return r, nil
}
