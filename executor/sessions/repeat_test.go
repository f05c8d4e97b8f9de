package sessions_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// scarce runs out of memory on a backend without rich output, after it has changed a variable.
const scarce = `
def f():
    x.append(6)
    print(x)
    if attempt(notebook):
        throw("MemoryError", "full")
f()`

// TestRepeatable: only a run that may be repeated is, once, from the state before it, and its
// events are those of one run.
func TestRepeatable(t *testing.T) {
	small := fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureRichOutput)}
	for name, c := range map[string]struct {
		edit  func(*executor.Request)
		spoil func(*bigger)
		said  string
		moved bool
	}{
		"repeatable":  {func(r *executor.Request) { r.Repeatable = true }, nil, "repeated on box: needs memory", true},
		"not":         {func(*executor.Request) {}, nil, "is not repeated", false},
		"input":       {func(r *executor.Request) { r.Repeatable, r.Stdin = true, strings.NewReader("") }, nil, "is not repeated", false},
		"unavailable": {func(r *executor.Request) { r.Repeatable = true }, func(b *bigger) { b.Fail(fake.OpCreate, 1, executor.ErrUnavailable) }, "is not repeated", false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, small, func(w *world) {
				p, box := w.escalating("one", fake.Options{}, sessions.NeedMemory)
				l := p.acquire("k")
				run(w, l, "x = [5]")
				if c.spoil != nil {
					c.spoil(box)
				}
				req := executor.Request{Code: scarce}
				c.edit(&req)
				var events []executor.Event
				r, err := l.Run(w.Context(), req, func(ev executor.Event) error { events = append(events, ev); return nil })
				w.do(err)
				if len(r.Notices) != 1 || !strings.Contains(r.Notices[0], c.said) || c.moved != (r.Status == executor.StatusOK) {
					w.Errorf("got %s, %q", r.Status, r.Notices)
				}
				begun, text := 0, ""
				for i, ev := range events {
					if ev.Seq != i {
						w.Errorf("event %d: got number %d", i, ev.Seq)
					}
					if ev.Kind == executor.EventStarted {
						begun++
					}
					text += string(ev.Data)
				}
				said := "[5,6]\n"
				if c.moved {
					said += said
				}
				if begun != 1 || text != said || r.Stdout.String() != "[5,6]\n" {
					w.Errorf("%d began; events: %q; result: %q", begun, text, r.Stdout)
				}
				synctest.Wait()
				if n := len(box.Sandboxes()); n == 1 != c.moved {
					w.Errorf("%d sandboxes at the target", n)
				}
				if got := says(w, l, "print(x)"); got != "[5,6]" {
					w.Errorf("got %s", got)
				}
				w.do(l.Discard())
			})
		})
	}
}
