package backends_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/tool"
)

// TestToolConversationsMove: a conversation of package tool in two languages goes on with the
// variables and files of both, whichever way its backend changes, from and to backends that mix
// languages in a sandbox and that do not.
func TestToolConversationsMove(t *testing.T) {
	t.Setenv("CHECKPOINT_KEY", strings.Repeat("k", 32))
	shapes := map[string]executor.Capabilities{
		"mixed": fake.All(),
		"apart": fake.Without(fake.All(), executor.FeatureMixedLanguages),
	}
	const (
		both = "backends: {old: {type: fake, on: a}, new: {type: fake, on: b}}\n"
		keep = "sessions: {%scheckpoint: {every: 1 runs, key: {env: CHECKPOINT_KEY}}}\n"
		to   = "routes: [{name: r, split: [{backend: old, weight: %d}, {backend: new, weight: %d}]}]\n"
	)
	before := both + fmt.Sprintf(keep, "") + fmt.Sprintf(to, 1, 0)
	weights := both + fmt.Sprintf(keep, "") + fmt.Sprintf(to, 0, 1)
	for way, change := range map[string]func(w *world, b *backends.Broker){
		"weights": func(w *world, b *backends.Broker) { w.reload(b, weights) },
		"split":   func(w *world, b *backends.Broker) { w.reload(b, both+fmt.Sprintf(keep, "")+fmt.Sprintf(to, 1, 1)) },
		"evicted": func(w *world, b *backends.Broker) {
			w.reload(b, weights)
			for _, err := range b.Manager().Drain(w.Context(), "old") {
				w.is(err)
			}
		},
		"drain": func(w *world, b *backends.Broker) {
			w.reload(b, both+fmt.Sprintf(keep, "drain: [old], ")+fmt.Sprintf(to, 0, 1))
		},
		"removed": func(w *world, b *backends.Broker) {
			w.reload(b, "backends: {new: {type: fake, on: b}}\n"+fmt.Sprintf(keep, ""))
		},
		"broken": func(w *world, b *backends.Broker) {
			w.reload(b, weights)
			for _, id := range w.at["a"].Sandboxes() {
				w.at["a"].Break(id)
			}
			time.Sleep(5 * time.Minute) // until it is noticed
		},
	} {
		for from, old := range shapes {
			for to, next := range shapes {
				t.Run(way+"/"+from+"-"+to, func(t *testing.T) {
					bubble(t, fake.Options{}, func(w *world) {
						w.at["a"], w.at["b"] = fake.New(fake.Options{Capabilities: old}), fake.New(fake.Options{Capabilities: next})
						b := w.open(before)
						defer w.close(b)
						x, err := tool.New(b, b.Manager(), tool.Options{})
						if err != nil {
							w.Fatal(err)
						}
						c := tool.Conversation{ID: "ann/c1", Subject: "ann"}
						call := func(l executor.Language, code, want string) {
							w.Helper()
							out, err := x.Run(w.Context(), c, tool.Input{Language: l, Code: code}, nil)
							if err != nil || out.Error != "" || out.Stdout != want {
								w.Errorf("%s: %s: got %q, notes %q, %s, %v, want %q", l, code, out.Stdout, out.Stderr, out.Error, err, want)
							}
						}
						all := []executor.Language{executor.Python, executor.JavaScript}
						for _, l := range all {
							call(l, fmt.Sprintf("x = '%s'; write('%[1]s.txt', 'of %[1]s')", l), "")
						}
						change(w, b)
						if way == "drain" && from == "mixed" && to == "apart" { // it stays until a checkpoint can be made
							for range 3 {
								w.at["a"].Fail(fake.OpRun, 3, unavailable)
								call(executor.Python, "print(x)", "python\n")
							}
						}
						for range 2 {
							for _, l := range all {
								call(l, fmt.Sprintf("print(x); print(read('%s.txt'))", l), fmt.Sprintf("%s\nof %[1]s\n", l))
							}
						}
						if n := len(w.at["a"].Sandboxes()); n > 0 && way == "drain" {
							w.Errorf("%d sandboxes are left where none is to be", n)
						}
						if err := x.Reset(w.Context(), c); err != nil {
							w.Error(err)
						}
					})
				})
			}
		}
	}
}

// is fails the test if there is an error.
func (w *world) is(err error) {
	w.Helper()
	if err != nil {
		w.Error(err)
	}
}
