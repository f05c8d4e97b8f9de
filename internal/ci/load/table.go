package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// column is what was measured on one backend. Memory is in bytes: when all were there, in the
// middle and at the end; zero if not known.
type column struct {
	name string
	*measured
	server  [3]int64 // of the process of the server
	machine [3]int64 // of everything on the machine
	busy    float64  // processors of the machine, on average while all were there
}

// table puts columns side by side.
func table(columns []column) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name string, cell func(column) string) {
		fmt.Fprint(w, name)
		for _, c := range columns {
			fmt.Fprint(w, "\t", cell(c))
		}
		fmt.Fprintln(w)
	}
	row("", func(c column) string { return c.name })
	for _, kind := range []struct {
		name string
		of   func(column) *series
	}{
		{"warm runs, all there", func(c column) *series { return &c.warm }},
		{"warm runs, while others arrive", func(c column) *series { return &c.during }},
		{"session and first run", func(c column) *series { return &c.cold }},
	} {
		row(kind.name+": number, failed", func(c column) string {
			s := kind.of(c)
			return fmt.Sprintf("%d, %d", len(s.took)+s.failed, s.failed)
		})
		row("  p50, p95, p99, longest", func(c column) string {
			s := kind.of(c)
			return strings.Join([]string{at(s.took, 50), at(s.took, 95), at(s.took, 99), at(s.took, 100)}, ", ")
		})
	}
	row("until all were there", func(c column) string { return c.arrived.Round(time.Second).String() })
	row("memory of the server: begin, middle, end", func(c column) string { return sizes(c.server) })
	row("memory of the machine in use", func(c column) string { return sizes(c.machine) })
	row("busy processors, whoever keeps them so", func(c column) string { return fmt.Sprintf("%.1f", c.busy) })
	w.Flush() //nolint:errcheck // a Builder takes everything
	return b.String()
}

// at is a percentile.
func at(took []time.Duration, percent int) string {
	if len(took) == 0 {
		return "-"
	}
	took = slices.Sorted(slices.Values(took))
	return fmt.Sprintf("%d ms", took[min(len(took)*percent/100, len(took)-1)].Milliseconds())
}

func sizes(bytes [3]int64) string {
	var all []string
	for _, n := range bytes {
		all = append(all, fmt.Sprintf("%d MB", n/1e6))
	}
	return strings.Join(all, ", ")
}

// verdict is an error if a request failed or none was made.
func verdict(columns []column) error {
	var errs []error
	for _, c := range columns {
		for _, s := range []*series{&c.cold, &c.during, &c.warm} {
			if s.failed > 0 {
				errs = append(errs, fmt.Errorf("%s: %w: %d, the first: %w", c.name, errFailed, s.failed, s.first))
			}
		}
		if len(c.warm.took) == 0 {
			errs = append(errs, fmt.Errorf("%s: %w: no warm run", c.name, errFailed))
		}
	}
	return errors.Join(errs...)
}
