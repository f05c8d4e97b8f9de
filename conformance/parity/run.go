package parity

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/compare"
)

// Options say how programs are run.
type Options struct {
	Backends []executor.Executor // that are compared; at least one
	// Plain is the backend whose commands run the plain interpreter, with executor.FeatureCommand
	// and FeatureFiles. Nil: programs are compared among the backends, and with what is expected of
	// them.
	Plain executor.Executor
	// Parallel is how many programs run at a time; less than 1 is one. Each has one sandbox at a
	// time.
	Parallel int
	// Reuse is how many programs of a language a sandbox runs, one after the other, each with a new
	// interpreter and an empty working directory; less than 2: each program has a sandbox of its
	// own.
	Reuse int
}

// Check returns an error for options that cannot be.
func (o Options) Check() error {
	if len(o.Backends) == 0 || len(o.Backends) == 1 && o.Plain == nil {
		return errors.New("nothing to compare: want two backends, or one that has commands")
	}
	if c := o.Plain; c != nil && !(c.Info().Capabilities.Has(executor.FeatureCommand) && c.Info().Capabilities.Has(executor.FeatureFiles)) {
		return errors.New(c.Info().Name + ": a plain interpreter needs a backend with the features command and files")
	}
	return nil
}

// Run runs every program on all backends and compares. Programs that differ without an explanation
// run a second time, in sandboxes of their own, to tell what differs from what changes from run to
// run. What a backend refuses or fails to do is in the report. An error is of ctx, of the options
// or, together with a report, of removing sandboxes.
func Run(ctx context.Context, o Options, programs []Program) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	var subjects []subject
	if o.Plain != nil {
		subjects = append(subjects, subject{TypePlain, TypePlain, true, o.Plain})
	}
	for _, x := range o.Backends {
		subjects = append(subjects, subject{name: x.Info().Name, typ: x.Info().Type, Executor: x})
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lines, work := make([]Line, len(programs)), make(chan int)
	var mu sync.Mutex
	var done int64
	var closing []error
	var wg sync.WaitGroup
	for range max(o.Parallel, 1) {
		wg.Go(func() {
			w := &worker{subjects: subjects, reuse: o.Reuse, held: map[key]*sandbox{}}
			for i := range work {
				line, err := w.line(ctx, programs[i])
				if err != nil {
					cancel(err)
				}
				mu.Lock()
				lines[i] = line
				done++
				executor.ReportProgress(ctx, executor.Progress{What: "parity", Done: done, Total: int64(len(programs))})
				mu.Unlock()
			}
			err := w.close()
			mu.Lock()
			defer mu.Unlock()
			closing = append(closing, err)
		})
	}
	for i := range programs {
		work <- i // after the end of ctx each fails at once
	}
	close(work)
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return newReport(subjects, lines), errors.Join(closing...)
}

// line runs a program on all subjects, and says what was found.
func (w *worker) line(ctx context.Context, p Program) (Line, error) {
	first, err := w.look(ctx, p)
	if err != nil {
		return Line{}, err
	}
	l := Line{Name: p.Name, Doc: p.Doc, Findings: judge(w.subjects, p, first)}
	if !slices.ContainsFunc(l.Findings, func(f Finding) bool { return f.Outcome == Different }) {
		return l, nil
	}
	for k := range w.held {
		w.drop(k)
	}
	second, err := w.look(ctx, p)
	if err != nil {
		return Line{}, err
	}
	again := judge(w.subjects, p, second)
	moved := compare.Differences(reference(w.subjects, p, first).fields, reference(w.subjects, p, second).fields)
	for i := range l.Findings {
		if f := &l.Findings[i]; f.Outcome == Different && (again[i].Outcome != Different || slices.ContainsFunc(f.Differences, among(moved))) {
			f.Outcome, f.Cause = Unsteady, "it changes from run to run"
		}
	}
	return l, nil
}

// among reports for a difference whether its field is in others.
func among(others []Difference) func(Difference) bool {
	return func(d Difference) bool {
		return slices.ContainsFunc(others, func(o Difference) bool { return o.Cell == d.Cell && o.Field == d.Field })
	}
}

// look runs a program on every subject.
func (w *worker) look(ctx context.Context, p Program) ([][]Fields, error) {
	seen := make([][]Fields, len(w.subjects))
	for i := range w.subjects {
		var err error
		if seen[i], err = w.observe(ctx, i, p); err != nil {
			return nil, err
		}
		if w.reuse < 2 {
			w.drop(key{i, p.Language})
		}
	}
	return seen, nil
}
