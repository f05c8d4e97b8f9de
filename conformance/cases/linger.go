package cases

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// leaving returns req with no wait for what its code leaves running.
func leaving(req executor.Request) executor.Request {
	req.Linger = new(time.Duration)
	return req
}

// lingerCases are about what code leaves running, and what of that its run waits for.
func lingerCases() []Case {
	const linger = executor.FeatureLinger
	return []Case{
		{
			ID: "linger/waits", Feature: linger, Programs: []string{"linger"},
			Doc: "A run waits for what its code has started, and its output is that of the run.",
			Positive: func(t *T) {
				noneOf(t, "left running", t.says(t.Session(), t.Program("linger", "ms", 400), "left\nlate").LeftRunning)
			},
		},
		{
			ID: "linger/task", PerLanguage: true, Needs: []executor.Feature{linger, executor.FeatureTopLevelAwait}, Programs: []string{"linger-task"},
			Doc:      "A run waits for tasks and promises that its code has not awaited.",
			Positive: saying("left\nlate", "linger-task", "ms", 400),
		},
		{
			ID: "linger/kinds", PerLanguage: true, Needs: []executor.Feature{linger, executor.FeatureSubprocess, executor.FeatureFiles}, Programs: []string{"linger-kinds"},
			Doc: "A run waits for pending input and output, workers, children and the work of executors, and not for what listens, repeats, is idle or a daemon.",
			Positive: func(t *T) {
				res := t.ok(t.Session(), t.Program("linger-kinds", "ms", 300))
				want := []string{"callback", "child", "work"}
				if t.Language() != executor.Python {
					want = []string{"child", "file", "socket", "stdin", "worker", "zlib"}
				}
				equalLists(t, "stdout", slices.Sorted(strings.FieldsSeq(string(res.Stdout))), want)
				if len(res.LeftRunning) < 2 {
					t.Errorf("got %q left running, want what is not waited for", res.LeftRunning)
				}
			},
		},
		{
			ID: "linger/bound", Feature: linger, Programs: []string{"linger", "print"},
			Doc: "Request.Linger bounds the wait, zero is no wait, and no later run waits for what is left; it is named.",
			Positive: fresh(func(t *T, s executor.Session) {
				for _, most := range []time.Duration{0, 100 * time.Millisecond} {
					req := t.Program("linger", "ms", 60_000)
					req.Linger = &most
					if res := t.says(s, req, "left"); len(res.LeftRunning) == 0 {
						t.Errorf("Linger %v: nothing is named", most)
					}
				}
				if !t.Has(executor.FeatureState) {
					return
				}
				if res := t.says(s, limited(t.Program("print", "text", "next"), 20*time.Second), "next"); len(res.LeftRunning) < 2 {
					t.Errorf("got %q in a later run, want what two have left", res.LeftRunning)
				}
			}),
		},
		{
			ID: "linger/wall-time", PerLanguage: true, Needs: []executor.Feature{linger}, Programs: []string{"linger-ticker", "print", "remember", "recall"},
			Doc: "When the wall time ends the wait the run is a timeout, what it waited for is stopped, and the state is kept where interrupts keep it.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.remembers(s)
				var res *executor.Result
				t.inTime(time.Second, func(wall time.Duration) error {
					res = t.timesOut(s, limited(t.Program("linger-ticker", "name", "ticks"), wall))
					if got := string(res.Stdout); got != "left\n" {
						return fmt.Errorf("stdout: got %q, want that the code has ended", got)
					}
					return nil
				})
				if t.Has(executor.FeatureFiles) {
					t.still(s, "ticks")
				}
				if t.Has(executor.FeatureInterrupt) {
					t.keeps(s, res)
				} else {
					t.aftermath(s, res)
				}
				noneOf(t, "left running after that", t.says(s, t.Program("print", "text", "next"), "next").LeftRunning)
			}),
		},
		{
			ID: "linger/endless", PerLanguage: true, Needs: []executor.Feature{linger, executor.FeatureFiles, executor.FeatureThreads},
			Programs: []string{"leave-ticker"},
			Doc:      "A run does not wait for what repeats for ever, or is a daemon; it is named.",
			Positive: func(t *T) {
				if res := t.says(t.Session(), limited(t.Program("leave-ticker", "name", "ticks"), 20*time.Second), "left"); len(res.LeftRunning) != 1 {
					t.Errorf("got %q left running, want one", res.LeftRunning)
				}
			},
		},
		{
			ID: "linger/error", PerLanguage: true, Needs: []executor.Feature{linger}, Programs: []string{"linger-error"},
			Doc: "An error in what a run waits for fails the run where it would end a script, and is on stderr where a script would print it there.",
			Positive: func(t *T) {
				res := t.Run(t.Session(), t.Program("linger-error", "ms", 200))
				said := string(res.Stderr)
				if t.Language() != executor.Python {
					if failed(t, res); res.Exception != nil {
						said = res.Exception.Message
					}
				}
				if string(res.Stdout) != "left\n" || !strings.Contains(said, "late error") {
					t.Errorf("got %s, want the late error", describe(res))
				}
			},
		},
	}
}
