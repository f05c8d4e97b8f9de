package cases

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// errStop is what emit returns where a case stops a run by it.
var errStop = errors.New("conformance: stop the run")

// eventCases are about the events of a run.
func eventCases() []Case {
	return []Case{
		{
			ID: "events/order", PerLanguage: true, Programs: []string{"alternate"},
			Doc: "Events are numbered from 0 without gaps, begin with one started event, and their times do not go back.",
			Positive: func(t *T) {
				before := time.Now()
				_, events := t.events(t.Shared(), t.Program("alternate"))
				if len(events) < 3 {
					t.Fatalf("got %d events, want started, stdout and stderr at least", len(events))
				}
				for i, ev := range events {
					if ev.Seq != i {
						t.Errorf("event %d has Seq %d", i, ev.Seq)
					}
					if (ev.Kind == executor.EventStarted) != (i == 0) {
						t.Errorf("event %d is %s: started comes once, first", i, ev.Kind)
					}
					if ev.Kind != executor.EventStarted && ev.Kind != executor.EventStdout && ev.Kind != executor.EventStderr {
						t.Errorf("event %d has the kind %q", i, ev.Kind)
					}
					if ev.Time.Before(before) || ev.Time.After(time.Now()) {
						t.Errorf("the time of event %d, %v, is not after that of the one before it, %v", i, ev.Time, before)
					}
					before = ev.Time
				}
			},
		},
		{
			ID: "events/goroutine", PerLanguage: true, Programs: []string{"alternate", "print"},
			Doc: "Emit is called on the goroutine that called Run, one call at a time, and never after Run has returned.",
			Positive: shared(func(t *T, s executor.Session) {
				mine, returned, inside := goroutine(), false, false
				_, err := s.Run(t.Context(), t.Program("alternate"), func(executor.Event) error {
					if g := goroutine(); g != mine {
						t.Errorf("emit was called on goroutine %s, Run on %s", g, mine)
						return nil
					}
					if returned || inside {
						t.Errorf("emit was called within emit or after Run")
					}
					inside = true
					runtime.Gosched()
					inside = false
					return nil
				})
				returned = true
				t.noError(err, "run")
				t.ok(s, t.Program("print", "text", "time for an event of the first run to come late"))
			}),
		},
		{
			ID: "events/cells", PerLanguage: true, Feature: executor.FeatureState, Programs: []string{"print", "raise"},
			Doc: "Cells are counted from 1 for each interpreter, failed ones too, and the started event has the number of the Result.",
			Positive: fresh(func(t *T, s executor.Session) {
				for i := 1; i <= 3; i++ {
					req := t.Program("print", "text", "x")
					if i == 2 {
						req = t.Program("raise", "message", "x")
					}
					res, events := t.events(s, req)
					if res.Cell != i || events[0].Cell != i {
						t.Errorf("run %d: got cell %d in the result and %d in the started event", i, res.Cell, events[0].Cell)
					}
				}
			}),
			Negative: fresh(func(t *T, s executor.Session) {
				for range 2 {
					if res := t.ok(s, t.Program("print", "text", "x")); res.Cell > 1 {
						t.Errorf("got cell %d of an interpreter that keeps no state, want 1, or 0 for unknown", res.Cell)
					}
				}
			}),
		},
		{
			ID: "events/emit-error", PerLanguage: true, Programs: []string{"spin", "remember", "recall"},
			Doc:      "An error of emit stops the code, comes back as it was, and ends the calls of emit.",
			Positive: emitFails(executor.EventStdout),
		},
		{
			ID: "events/emit-error-at-start", PerLanguage: true, Programs: []string{"spin", "remember", "recall"},
			Doc:      "An error of emit at the first event stops the code too.",
			Positive: emitFails(executor.EventStarted),
		},
		{
			ID: "events/emit-panic", PerLanguage: true, Programs: []string{"spin", "recall"},
			Doc: "A panic of emit leaves nothing of the run behind.",
			Positive: shared(func(t *T, s executor.Session) {
				func() {
					defer func() {
						if v := recover(); v != errStop {
							t.Errorf("recovered %v, want what emit panicked with", v)
						}
					}()
					_, err := s.Run(t.Context(), limited(t.Program("spin", "text", "ready"), 5*time.Second), func(executor.Event) error {
						panic(errStop)
					})
					t.Errorf("Run returned with the error %v, although emit panicked", err)
				}()
				t.ok(s, t.Program("recall"))
			}),
		},
		{
			ID: "events/stream", PerLanguage: true, Programs: []string{"alternate"},
			Doc: "Stream yields the events of the run and then one done event with the Result.",
			Positive: func(t *T) {
				var events []executor.Event
				for ev, err := range executor.Stream(t.Context(), t.Shared(), t.Program("alternate")) {
					t.must(err, "stream")
					events = append(events, ev)
				}
				for i, ev := range events {
					if ev.Seq != i || (ev.Kind == executor.EventDone) != (i == len(events)-1) {
						t.Errorf("event %d has Seq %d and kind %s", i, ev.Seq, ev.Kind)
					}
				}
				if len(events) == 0 || events[len(events)-1].Result == nil {
					t.Fatalf("got %d events, want a result at their end", len(events))
				}
				if got := string(events[len(events)-1].Result.Stdout); got != text(events, executor.EventStdout) {
					t.Errorf("the result has the stdout %q, the events have %q", got, text(events, executor.EventStdout))
				}
			},
		},
		{
			ID: "events/stream-left", PerLanguage: true, Programs: []string{"spin", "remember", "recall"},
			Doc: "Leaving the loop over Stream stops the code.",
			Positive: remembering(func(t *T, s executor.Session) {
				start := time.Now()
				for ev, err := range executor.Stream(t.Context(), s, limited(t.Program("spin", "text", "ready"), 20*time.Second)) {
					t.must(err, "stream")
					if ev.Kind == executor.EventStdout || !t.Has(executor.FeatureStreaming) {
						break
					}
				}
				t.prompt("stopping the code", start, 10*time.Second)
				t.ok(s, t.Program("recall"))
			}),
		},
		{
			ID: "streaming/live", Feature: executor.FeatureStreaming, Programs: []string{"spin"},
			Doc: "Events arrive while the code runs.",
			Positive: func(t *T) {
				s, start := t.Session(), time.Now()
				_, err := s.Run(t.Context(), limited(t.Program("spin", "text", "ready"), 25*time.Second), func(ev executor.Event) error {
					if strings.Contains(string(ev.Data), "ready") {
						return errStop
					}
					return nil
				})
				t.stopped(err)
				t.prompt("the first event of code that goes on, and stopping it", start, 5*time.Second)
			},
		},
		{
			ID: "streaming/last-line", Feature: executor.FeatureStreaming, Programs: []string{"lines-spin"},
			Doc: "The last of many lines arrives while the code goes on.",
			Positive: func(t *T) {
				want := numbered(1000)
				var got strings.Builder
				s, start := t.Session(), time.Now()
				_, err := s.Run(t.Context(), limited(t.Program("lines-spin", "count", 1000), 25*time.Second), func(ev executor.Event) error {
					if ev.Kind == executor.EventStdout {
						got.Write(ev.Data)
					}
					if got.Len() >= len(want) {
						return errStop
					}
					return nil
				})
				if got.String() != want {
					t.Errorf("got %s, want a thousand lines", excerpt(got.String()))
				}
				t.stopped(err)
				t.prompt("the last line of code that goes on, and stopping it", start, 5*time.Second)
			},
		},
		{
			ID: "streaming/steps", Feature: executor.FeatureStreaming, Programs: []string{"nap"},
			Doc: "What code has written arrives before it goes on to wait.",
			Positive: func(t *T) {
				t.inTime(time.Second, func(wait time.Duration) error {
					var begin, end time.Time
					_, err := t.Shared().Run(t.Context(), t.Program("nap", "ms", wait.Milliseconds()), func(ev executor.Event) error {
						switch {
						case strings.Contains(string(ev.Data), "begin"):
							begin = time.Now()
						case strings.Contains(string(ev.Data), "end"):
							end = time.Now()
						}
						return nil
					})
					t.must(err, "run")
					if gap := end.Sub(begin); begin.IsZero() || gap < wait/2 {
						return fmt.Errorf("the line before a wait of %v arrived %v before the one after it", wait, gap)
					}
					return nil
				})
			},
		},
	}
}

// stopped checks that a run returned the error of emit as it was.
func (t *T) stopped(err error) {
	if err != errStop {
		t.Errorf("got the error %v, want just that of emit", err)
	}
}

// emitFails stops a run by an error at the first event of a kind.
func emitFails(kind executor.EventKind) func(*T) {
	return remembering(func(t *T, s executor.Session) {
		failed := false
		start := time.Now()
		res, err := s.Run(t.Context(), limited(t.Program("spin", "text", "ready"), 20*time.Second), func(ev executor.Event) error {
			if failed {
				t.Errorf("emit was called with %s after it had failed", ev.Kind)
			}
			if ev.Kind != kind {
				return nil
			}
			failed = true
			return errStop
		})
		if t.Has(executor.FeatureStreaming) { // without it the events may come when the wall time has ended the code
			t.prompt("stopping the code", start, 5*time.Second)
		}
		t.stopped(err)
		if res == nil {
			t.Fatalf("no result, although the code had started")
		}
		if t.Has(executor.FeatureStreaming) {
			t.ended(res, executor.StatusCanceled, "")
		}
		t.aftermath(s, res)
	})
}

// goroutine returns the number of the calling goroutine.
func goroutine() string {
	buf := make([]byte, 64)
	head, _, _ := bytes.Cut(bytes.TrimPrefix(buf[:runtime.Stack(buf, false)], []byte("goroutine ")), []byte(" "))
	return string(head)
}
