package sessions_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
	"github.com/execbroker/execbroker/executor/sessions"
)

// A checkpoint whose archive a later program has made is refused, whether its format or its seal is
// of a later version, and stays: the conversation would begin anew otherwise, and its next
// checkpoint would replace this one.
func TestLaterArchive(t *testing.T) {
	for name, later := range map[string]func(w *world, p *process, l *sessions.Lease) error{
		"manifest": func(w *world, p *process, l *sessions.Lease) error {
			return p.m.Rewrite(w.Context(), l, func(archive []byte) []byte {
				changed := bytes.Replace(archive, []byte(`"version":1,`), []byte(`"version":2,`), 1)
				if bytes.Equal(changed, archive) {
					w.Errorf("no version is in %.2000q", archive)
				}
				return changed
			})
		},
		"seal": func(w *world, p *process, l *sessions.Lease) error { return p.m.LaterSeal(w.Context(), l) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, noAttach(), func(w *world) {
				p := w.start("one", keeping(1, 0))
				l := p.acquire("k", executor.Spec{Subject: "u"})
				run(w, l, "x = 1")
				release(w, l)
				l = p.acquire("k", executor.Spec{Subject: "u"})
				w.do(later(w, p, l))
				release(w, l)
				p.stop()
				kept := func() (all []string) {
					for _, n := range slices.Concat(w.entries("checkpoint/"), w.entries("piece/")) {
						e, err := w.store.Get(w.Context(), n)
						w.do(err)
						all = append(all, n+string(e.Value))
					}
					return all
				}
				before := kept()
				p = w.start("two", keeping(1, 0))
				for range 2 {
					_, err := p.m.Acquire(w.Context(), "k", executor.Spec{Subject: "u"})
					version := (*checkpoint.VersionError)(nil)
					if !errors.Is(err, executor.ErrUnavailable) || !errors.As(err, &version) || version.Version != 2 ||
						!strings.Contains(err.Error(), `the checkpoint of key "k"`) || !strings.Contains(err.Error(), "update this program") {
						w.Fatalf("got %v", err)
					}
				}
				if n := len(w.b.Sandboxes()); n != 0 {
					w.Errorf("%d sandboxes are left", n)
				}
				if after := kept(); !slices.Equal(before, after) || len(after) < 2 {
					w.Errorf("the checkpoint was changed: got %d entries of %d", len(after), len(before))
				}
				w.do(p.m.Discard(w.Context(), "k"))
				if after := kept(); len(after) != 0 {
					w.Errorf("discard leaves %d entries", len(after))
				}
			})
		})
	}
}
