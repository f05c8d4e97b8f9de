package parity

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/execbroker/execbroker/executor"
)

// Observation is what programs did on one backend.
type Observation struct {
	Backend  string              `json:"backend"` // the name in the configuration
	Type     string              `json:"type"`
	Programs map[string][]Fields `json:"programs"` // by Program.Name, a Fields for each cell that was reached
}

// Observe runs every program in a sandbox of its own, so many of them at a time; less than 1 is one. It fails only if ctx ends: what a
// backend refuses or fails to do is observed.
func Observe(ctx context.Context, x executor.Executor, programs []Program, parallel int) (*Observation, error) {
	info := x.Info()
	o := &Observation{Backend: info.Name, Type: info.Type, Programs: map[string][]Fields{}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan Program)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range max(parallel, 1) {
		wg.Go(func() {
			for p := range work {
				f, err := observe(ctx, x, p)
				if err != nil {
					cancel(err)
				}
				mu.Lock()
				o.Programs[p.Name] = f
				done := len(o.Programs)
				mu.Unlock()
				executor.ReportProgress(ctx, executor.Progress{What: "parity " + info.Name, Done: int64(done), Total: int64(len(programs))})
			}
		})
	}
	for _, p := range programs {
		work <- p // after the end of ctx each fails at once
	}
	close(work)
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return o, nil
}

// Outcome says what was found about a program.
type Outcome string

// The outcomes.
const (
	Same      Outcome = "same"
	Explained Outcome = "explained" // differs, and Program.Differs says why
	Different Outcome = "different"
	Stale     Outcome = "stale" // is said to differ, and does not
)

// Line is what was found about a program.
type Line struct {
	Name        string       `json:"name"`
	Doc         string       `json:"doc,omitempty"`
	Outcome     Outcome      `json:"outcome"`
	Why         string       `json:"why,omitempty"`
	Differences []Difference `json:"differences,omitempty"`
}

// Report compares two backends.
type Report struct {
	From     string            `json:"from"`
	To       string            `json:"to"`
	Programs []Line            `json:"programs"` // in the order of the programs
	Totals   map[Outcome]int64 `json:"totals"`
}

// Compare says in which of the programs two observations differ.
func Compare(from, to *Observation, programs []Program) *Report {
	r := &Report{From: from.Backend, To: to.Backend, Totals: map[Outcome]int64{}}
	for _, p := range programs {
		l := Line{Name: p.Name, Doc: p.Doc, Outcome: Same, Differences: compare(from.Programs[p.Name], to.Programs[p.Name])}
		if from.Type != to.Type {
			for _, typ := range slices.Sorted(maps.Keys(p.Differs)) {
				if typ == from.Type || typ == to.Type {
					l.Why = typ + ": " + p.Differs[typ]
				}
			}
		}
		switch explained := l.Why != ""; {
		case len(l.Differences) > 0 && explained:
			l.Outcome = Explained
		case len(l.Differences) > 0:
			l.Outcome = Different
		case explained:
			l.Outcome = Stale
		}
		r.Totals[l.Outcome]++
		r.Programs = append(r.Programs, l)
	}
	return r
}
