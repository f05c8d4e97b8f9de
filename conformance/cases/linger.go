package cases

import (
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// without is the Request.Linger of a run that does not wait.
func without() *time.Duration { return new(time.Duration) }

// lingerCases are about what code leaves running, and what of that its run waits for.
func lingerCases() []Case {
	const linger = executor.FeatureLinger
	return []Case{
		{
			ID: "linger/waits", Feature: linger, Programs: []string{"linger"},
			Doc: "A run waits for what its code has started, and its output is that of the run.",
			Positive: func(t *T) {
				if res := t.says(t.Shared(), t.Program("linger", "ms", 400), "left\nlate"); len(res.LeftRunning) > 0 {
					t.Errorf("got %q left running, want nothing", res.LeftRunning)
				}
			},
		},
		{
			ID: "linger/task", PerLanguage: true, Needs: []executor.Feature{linger, executor.FeatureTopLevelAwait}, Programs: []string{"linger-task"},
			Doc:      "A run waits for tasks and promises that its code has not awaited.",
			Positive: func(t *T) { t.says(t.Shared(), t.Program("linger-task", "ms", 400), "left\nlate") },
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
				if got := strings.Fields(string(res.Stdout)); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
					t.Errorf("got %q, want each of %q", got, want)
				}
				if len(res.LeftRunning) < 2 {
					t.Errorf("got %q left running, want what is not waited for", res.LeftRunning)
				}
			},
		},
		{
			ID: "linger/bound", Feature: linger, Programs: []string{"linger", "print"},
			Doc: "Request.Linger bounds the wait, zero is no wait, and no later run waits for what is left; it is named.",
			Positive: func(t *T) {
				s := t.Session()
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
			},
		},
		{
			ID: "linger/wall-time", PerLanguage: true, Needs: []executor.Feature{linger}, Programs: []string{"linger-ticker", "print", "remember", "recall"},
			Doc: "When the wall time ends the wait the run is a timeout, what it waited for is stopped, and the state is kept where interrupts keep it.",
			Positive: func(t *T) {
				s := t.Session()
				t.remembers(s)
				res := t.Run(s, limited(t.Program("linger-ticker", "name", "ticks"), 2*time.Second))
				t.ended(res, executor.StatusTimedOut, executor.ReasonWallTime)
				if string(res.Stdout) != "left\n" {
					t.Errorf("stdout: got %q", res.Stdout)
				}
				if t.Has(executor.FeatureFiles) {
					t.still(s, "ticks")
				}
				if t.Has(executor.FeatureInterrupt) {
					t.keeps(s, res)
				} else {
					t.aftermath(s, res)
				}
				if after := t.says(s, t.Program("print", "text", "next"), "next"); len(after.LeftRunning) > 0 {
					t.Errorf("got %q left running after that, want nothing", after.LeftRunning)
				}
			},
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
					if failed(t, res, 1); res.Exception != nil {
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
