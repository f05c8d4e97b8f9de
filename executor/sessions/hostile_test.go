package sessions_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// hostileRecords are what a replica that an attacker controls may write in place of a record.
var hostileRecords = map[string]func(record []byte) []byte{
	"nothing": func([]byte) []byte { return nil },
	"no-text": func([]byte) []byte { return []byte("\xff\xfe\x00{") },
	"null":    func([]byte) []byte { return []byte("null") },
	"a-list":  func([]byte) []byte { return []byte("[]") },
	"half":    func(record []byte) []byte { return record[:len(record)/2] },
	"deep":    func([]byte) []byte { return []byte(strings.Repeat(`{"a":`, 12<<10)) },
	"big": func(record []byte) []byte {
		return append(record[:len(record)-1], `,"x":"`+strings.Repeat("x", sessions.MaxValue-len(record)-7)+`"}`...)
	},
	"many-fields": func(record []byte) []byte {
		return append(record[:len(record)-1], strings.Repeat(`,"x":1`, 8<<10)+"}"...)
	},
	"wrong-kinds":   func(record []byte) []byte { return kinds(record, `[{"a": true}]`) },
	"numbers":       func(record []byte) []byte { return kinds(record, `-1e300`) },
	"later-version": func(record []byte) []byte { return kinds(record, `9`, "v") },
}

// kinds gives fields of a record, or all but its version, another value.
func kinds(record []byte, value string, names ...string) []byte {
	var f map[string]json.RawMessage
	if err := json.Unmarshal(record, &f); err != nil {
		panic(err)
	}
	if len(names) == 0 {
		for name := range f {
			if name != "v" {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		f[name] = json.RawMessage(value)
	}
	out, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return out
}

// A record that a hostile replica has written is an error or a new session for its own
// conversation, with its name. Other conversations, their sandboxes and the sweep go on.
func TestHostileRecords(t *testing.T) {
	for name, change := range hostileRecords {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				p := w.start("one", keeping(1, 0))
				for _, id := range []string{"chat", "other"} {
					l := p.acquire(id, executor.Spec{Subject: "u"})
					run(w, l, "x = 1")
					release(w, l)
				}
				e, err := w.store.Get(w.Context(), "session/chat")
				w.do(err)
				e.Value = change(e.Value)
				_, err = w.store.Put(w.Context(), "session/chat", e)
				w.do(err)

				for range 3 {
					l, err := p.m.Acquire(w.Context(), "chat", executor.Spec{Subject: "u"})
					switch {
					case err == nil:
						run(w, l, "y = 1")
						release(w, l)
					case !strings.Contains(err.Error(), `"chat"`):
						w.Errorf("the error does not name the conversation: %v", err)
					case len(err.Error()) > 1000:
						w.Errorf("an error of %d bytes", len(err.Error()))
					}
					time.Sleep(time.Minute) // the sweep comes by
					l = p.acquire("other", executor.Spec{Subject: "u"})
					if l.Fresh {
						w.Error("another conversation has lost its session")
					}
					run(w, l, "x")
					release(w, l)
				}
				for range p.m.Reap(w.Context(), 0, false) {
				}
				if l := p.acquire("other", executor.Spec{Subject: "u"}); l.Fresh {
					w.Error("reaping has ended the sandbox of another conversation")
				} else {
					release(w, l)
				}
			})
		})
	}
}
