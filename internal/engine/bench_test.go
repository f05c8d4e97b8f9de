package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// trivial is the smallest backend: it starts, prints a line, shows a value and ends.
type trivial struct{ output *executor.Output }

var line = []byte("2\n")

func (d *trivial) Capabilities() executor.Capabilities {
	return executor.Capabilities{
		Features:  []executor.Feature{executor.FeatureCode, executor.FeatureNetworkNone},
		Languages: []executor.Runtime{{Language: executor.Python, Features: []executor.Feature{executor.FeatureRichOutput}}},
	}
}
func (d *trivial) Create(context.Context, *driver.Create) (driver.Session, error) { return d, nil }
func (d *trivial) Close() error                                                   { return nil }
func (d *trivial) Destroy(context.Context) error                                  { return nil }
func (d *trivial) Info() executor.SessionInfo {
	return executor.SessionInfo{Handle: executor.Handle{Session: "s"}}
}

func (d *trivial) Run(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	for _, ev := range [...]executor.Event{
		{Kind: executor.EventStarted, Cell: 1},
		{Kind: executor.EventStdout, Data: line},
		{Kind: executor.EventOutput, Output: d.output},
	} {
		if err := emit(ev); err != nil {
			return driver.Exit{}, err
		}
	}
	return driver.Exit{}, nil
}

func newTrivial() *trivial {
	return &trivial{output: &executor.Output{Main: true, Data: executor.MIMEBundle{"text/plain": executor.Bytes("2")}}}
}

func ignore(executor.Event) error { return nil }

// runBoth returns a run of the trivial backend directly, and one through New.
func runBoth(tb testing.TB) (direct, through func()) {
	d := newTrivial()
	x, err := driver.New(d, driver.Env{Owner: "bench"}, driver.Options{Type: "trivial"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := x.Close(); err != nil {
			tb.Error(err)
		}
	})
	s, err := x.Create(tb.Context(), executor.Spec{})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	tb.Cleanup(cancel)
	req := executor.Request{Language: executor.Python, Code: "1+1"}
	direct = func() {
		if _, err := d.Run(ctx, &req, ignore); err != nil {
			tb.Fatal(err)
		}
	}
	through = func() {
		if r, err := s.Run(ctx, req, ignore); err != nil || r.Status != executor.StatusOK {
			tb.Fatalf("got %+v %v", r, err)
		}
	}
	return direct, through
}

// BenchmarkRunOverhead prints what New adds to a run of a backend that does nothing: the median,
// since others use the machine too. The aim is 10 µs.
func BenchmarkRunOverhead(b *testing.B) {
	direct, through := runBoth(b)
	var added []time.Duration
	for b.Loop() {
		t0 := time.Now()
		direct()
		t1 := time.Now()
		through()
		added = append(added, time.Since(t1)-t1.Sub(t0))
	}
	slices.Sort(added)
	b.ReportMetric(float64(added[len(added)/2].Nanoseconds()), "added-ns/op")
	b.ReportMetric(testing.AllocsPerRun(100, through)-testing.AllocsPerRun(100, direct), "added-allocs/op")
}

// TestRunAllocations bounds what New adds to a run.
func TestRunAllocations(t *testing.T) {
	direct, through := runBoth(t)
	added := testing.AllocsPerRun(1000, through) - testing.AllocsPerRun(1000, direct)
	if added > 20 {
		t.Errorf("got %v allocations added, want at most 20", added)
	}
}
