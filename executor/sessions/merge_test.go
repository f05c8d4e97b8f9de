package sessions_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

var (
	mergeFrom = map[string]executor.Language{"k/python": executor.Python, "k/javascript": executor.JavaScript}
	mergeInto = executor.Spec{Subject: "ann", Languages: []executor.Language{executor.Python, executor.JavaScript}}
)

// halves makes the two parts of a conversation, that of Python later.
func (p *process) halves() {
	p.w.Helper()
	for _, l := range []executor.Language{executor.JavaScript, executor.Python} {
		time.Sleep(time.Second)
		le := p.acquire("k/"+string(l), executor.Spec{Subject: "ann", Languages: []executor.Language{l}})
		_, err := le.Once(p.w.Context(), "m-"+string(l))
		p.w.do(err)
		_, err = le.Run(p.w.Context(), executor.Request{Language: l, Code: fmt.Sprintf("x = '%s'; write('%[1]s', '%[1]s'); write('both', '%[1]s')", l)}, nil)
		p.w.do(err)
		release(p.w, le)
	}
}

// merged checks that a conversation has become one.
func (p *process) merged(why sessions.Loss) {
	w := p.w
	w.Helper()
	known, err := p.m.Known(w.Context(), "k")
	if w.do(err); !slices.Equal(known, []string{"k"}) {
		w.Errorf("got %q", known)
	}
	l := p.acquire("k", mergeInto)
	if !l.Fresh || !l.Lost || l.Why != why || l.Kept == nil || len(l.Kept.Omitted) != 1 || l.Kept.Omitted[0].Name != "both" || l.Kept.Behind != 0 {
		w.Errorf("got fresh %v, lost %v, why %q, kept %+v", l.Fresh, l.Lost, l.Why, l.Kept)
	}
	for _, lang := range mergeFrom {
		if _, err := l.Once(w.Context(), "m-"+string(lang)); !errors.Is(err, sessions.ErrRepeated) {
			w.Errorf("%s: got %v", lang, err)
		}
		r, err := l.Run(w.Context(), executor.Request{Language: lang, Code: "print(x, read('python'), read('javascript'), read('both'))"}, nil)
		if w.do(err); string(r.Stdout) != string(lang)+" python javascript python\n" {
			w.Errorf("%s: got %q %q", lang, r.Stdout, r.Stderr)
		}
	}
	w.do(l.Discard())
	for key, err := range w.store.Keys(w.Context(), "") {
		// Notes that Erase and Reap go by are harmless, and expire.
		if w.do(err); !strings.HasPrefix(key, "instance/") && !strings.HasPrefix(key, "kept/") && !strings.HasPrefix(key, "abandoned/") {
			w.Errorf("%q is left", key)
		}
	}
}

// movingAll is keeping(1, 0), and lets all sandboxes leave once that is set.
func movingAll(leave *atomic.Bool) func(*sessions.Options) {
	return func(o *sessions.Options) {
		keeping(1, 0)(o)
		o.Move = func(executor.Handle) bool { return leave.Load() }
	}
}

// TestMerge: the whole has the variables of each part, the files of both, of those with one name
// the later ones, and refuses messages that a part has run. Of the parts nothing is left.
func TestMerge(t *testing.T) {
	for way, c := range map[string]struct {
		end func(p *process, leave *atomic.Bool)
		why sessions.Loss
	}{
		"evicted": {func(p *process, _ *atomic.Bool) {
			for _, k := range []string{"k/python", "k/javascript"} { // what was used last does not depend on this order
				p.w.do(p.m.Evict(p.w.Context(), k))
			}
		}, sessions.LossEvicted},
		"broken": {func(p *process, _ *atomic.Bool) {
			for _, id := range p.w.b.Sandboxes() {
				p.w.b.Break(id)
			}
		}, sessions.LossGone},
		"unavailable": {func(p *process, _ *atomic.Bool) {
			p.w.silence(-1)
			for l, lang := range mergeFrom {
				if _, err := p.m.Acquire(p.w.Context(), l, executor.Spec{Subject: "ann", Languages: []executor.Language{lang}}); !errors.Is(err, executor.ErrUnavailable) {
					p.w.Errorf("got %v", err)
				}
			}
			time.Sleep(sessions.DefaultReplace)
		}, sessions.LossUnavailable},
		"one leaves": {func(p *process, leave *atomic.Bool) {
			p.w.do(p.m.Evict(p.w.Context(), "k/javascript"))
			leave.Store(true)
		}, sessions.LossMoved},
		"both leave": {func(_ *process, leave *atomic.Bool) { leave.Store(true) }, sessions.LossMoved},
	} {
		t.Run(way, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				var leave atomic.Bool
				p := w.start("one", movingAll(&leave))
				p.halves()
				c.end(p, &leave)
				ok, err := p.m.Merge(w.Context(), "k", mergeInto, mergeFrom)
				if w.do(err); !ok {
					w.Fatal("not merged")
				}
				w.silence(0)
				leave.Store(false)
				p.merged(c.why)
				for range p.m.Reap(w.Context(), 0, false) { // the sandboxes that could not be reached
				}
			})
		})
	}
}

// TestNotMerged: while one part stays, or cannot be merged, both go on as they were.
func TestNotMerged(t *testing.T) {
	for name, prevent := range map[string]func(w *world, p, other *process, leave *atomic.Bool){
		"one lives": func(w *world, p, _ *process, _ *atomic.Bool) { w.do(p.m.Evict(w.Context(), "k/javascript")) },
		"no checkpoint": func(w *world, p, _ *process, leave *atomic.Bool) {
			leave.Store(true)
			w.b.Fail(fake.OpRun, 1, down)
		},
		"no answer": func(w *world, p, _ *process, leave *atomic.Bool) {
			leave.Store(true)
			w.b.Fail(fake.OpRefresh, 1, down)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				var leave atomic.Bool
				p, other := w.start("one", movingAll(&leave)), w.start("two", movingAll(&leave))
				p.halves()
				prevent(w, p, other, &leave)
				ok, err := p.m.Merge(w.Context(), "k", mergeInto, mergeFrom)
				if w.do(err); ok {
					w.Error("merged")
				}
				leave.Store(false)
				for key, lang := range mergeFrom {
					l := p.acquire(key, executor.Spec{Subject: "ann", Languages: []executor.Language{lang}})
					r, err := l.Run(w.Context(), executor.Request{Code: fmt.Sprintf("print(x, read('%s'))", lang)}, nil)
					if w.do(err); string(r.Stdout) != fmt.Sprintf("%s %[1]s\n", lang) {
						w.Errorf("%s: got %q %q", lang, r.Stdout, r.Stderr)
					}
					w.do(l.Discard())
				}
				if left := w.left(); len(left) > 0 {
					w.Errorf("%q is left", left)
				}
			})
		})
	}
}

// TestMergeOfAnother: a subject cannot have the conversation of another one merged.
func TestMergeOfAnother(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		var leave atomic.Bool
		p := w.start("one", movingAll(&leave))
		p.halves()
		leave.Store(true)
		bob := mergeInto
		bob.Subject = "bob"
		if ok, err := p.m.Merge(w.Context(), "k", bob, mergeFrom); ok {
			w.Errorf("merged, %v", err)
		}
		if _, err := p.m.Acquire(w.Context(), "k/python", executor.Spec{Subject: "bob", Languages: []executor.Language{executor.Python}}); !errors.Is(err, executor.ErrDenied) {
			w.Errorf("got %v", err)
		}
		w.do(p.m.Discard(w.Context(), "k/python"))
		w.do(p.m.Discard(w.Context(), "k/javascript"))
	})
}
