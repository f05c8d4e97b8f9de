package sessions_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// TestSplit: each part has the files and its own variables, and refuses messages that the whole has
// run. Of the whole nothing is left.
func TestSplit(t *testing.T) {
	both := []executor.Language{executor.Python, executor.JavaScript}
	into := map[string]executor.Language{"k/python": executor.Python, "k/javascript": executor.JavaScript}
	for name, damage := range map[string]bool{"whole": false, "damaged": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				p := w.start("one", keeping(1, 0))
				spec := executor.Spec{Subject: "ann", Languages: both}
				l := p.acquire("k", spec)
				_, err := l.Once(w.Context(), "m")
				w.do(err)
				for _, lang := range both {
					_, err := l.Run(w.Context(), executor.Request{Language: lang, Code: "x_" + string(lang) + " = [5]; write('a', 'b')"}, nil)
					w.do(err)
				}
				other := w.start("two", keeping(1, 0))
				if err := other.m.Split(w.Context(), "k", spec, into); !errors.Is(err, executor.ErrBusy) {
					w.Errorf("with a lease: got %v", err)
				}
				release(w, l)
				w.do(p.m.Evict(w.Context(), "k"))
				if err := p.m.Split(w.Context(), "k", executor.Spec{Subject: "bob"}, into); !errors.Is(err, executor.ErrDenied) {
					w.Errorf("another subject: got %v", err)
				}
				for key, err := range w.store.Keys(w.Context(), "piece/") {
					if w.do(err); damage {
						e, err := w.store.Get(w.Context(), key)
						w.do(err)
						w.do(w.store.Delete(w.Context(), key, e.Rev))
					}
				}
				w.do(p.m.Split(w.Context(), "k", spec, into))
				known, err := p.m.Known(w.Context(), "k")
				if w.do(err); !slices.Equal(known, []string{"k/javascript", "k/python"}) {
					w.Errorf("got %q", known)
				}
				for key, lang := range into {
					l := p.acquire(key, executor.Spec{Subject: "ann", Languages: []executor.Language{lang}})
					if !l.Fresh || !l.Lost || l.Why != sessions.LossMoved || damage != (l.Kept == nil) {
						w.Errorf("%s: got fresh %v, lost %v, why %q, kept %+v", key, l.Fresh, l.Lost, l.Why, l.Kept)
					}
					if _, err := l.Once(w.Context(), "m"); !errors.Is(err, sessions.ErrRepeated) {
						w.Errorf("%s: got %v", key, err)
					}
					r, err := l.Run(w.Context(), executor.Request{Language: lang, Code: "print(x_" + string(lang) + ", read('a'))"}, nil)
					if w.do(err); !damage && string(r.Stdout) != "[5] b\n" {
						w.Errorf("%s: got %q %q", key, r.Stdout, r.Stderr)
					}
					w.do(l.Discard())
				}
				for key, err := range w.store.Keys(w.Context(), "") {
					// A note that Erase goes by is harmless, and expires.
					if w.do(err); !strings.HasPrefix(key, "instance/") && !strings.HasPrefix(key, "kept/") {
						w.Errorf("%q is left", key)
					}
				}
			})
		})
	}
}
