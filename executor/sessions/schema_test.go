package sessions_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// fields returns the fields of an entry of the store.
func (w *world) fields(name string) map[string]json.RawMessage {
	w.Helper()
	e, err := w.store.Get(w.Context(), name)
	w.do(err)
	var f map[string]json.RawMessage
	w.do(json.Unmarshal(e.Value, &f))
	return f
}

// rewrite changes the fields of an entry of the store, as another version of the program might.
func (w *world) rewrite(name string, change func(f map[string]json.RawMessage)) {
	w.Helper()
	e, err := w.store.Get(w.Context(), name)
	w.do(err)
	f := w.fields(name)
	change(f)
	e.Value, err = json.Marshal(f)
	w.do(err)
	_, err = w.store.Put(w.Context(), name, e)
	w.do(err)
}

// A record of an earlier program has no version, and that of a later one of the same schema has
// fields that this one does not know. Both are used, and the fields stay.
func TestOtherVersionsOfARecord(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one", keeping(1, 0))
		l := p.acquire("chat")
		run(w, l, "x = 1")
		release(w, l)
		for _, name := range []string{"session/chat", "checkpoint/chat"} {
			if v := string(w.fields(name)["v"]); v != fmt.Sprint(sessions.Schema) {
				w.Errorf("%s: got version %q", name, v)
			}
			w.rewrite(name, func(f map[string]json.RawMessage) {
				delete(f, "v")
				f["later"] = json.RawMessage(`{"a": [1]}`)
			})
		}
		l = p.acquire("chat")
		if l.Fresh {
			w.Error("the session of the earlier record was not used")
		}
		run(w, l, "x = 2")
		release(w, l)
		for _, name := range []string{"session/chat", "checkpoint/chat"} {
			f := w.fields(name)
			if string(f["v"]) != fmt.Sprint(sessions.Schema) || string(f["later"]) != `{"a":[1]}` {
				w.Errorf("%s: got v %s, later %s", name, f["v"], f["later"])
			}
		}
		w.do(p.m.Discard(w.Context(), "chat"))
	})
}

// A record of a later schema is refused by every method, and stays with its sandbox.
func TestLaterSchema(t *testing.T) {
	for _, name := range []string{"session/chat", "checkpoint/chat"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				p := w.start("one", keeping(1, 0))
				l := p.acquire("chat", executor.Spec{Subject: "u"})
				run(w, l, "x = 1")
				release(w, l)
				p.stop()
				w.rewrite(name, func(f map[string]json.RawMessage) { f["v"] = json.RawMessage("2") })
				before, err := w.store.Get(w.Context(), name)
				w.do(err)

				p = w.start("two", keeping(1, 0))
				refused := func(what string, err error) {
					w.Helper()
					later := (*sessions.SchemaError)(nil)
					if !errors.As(err, &later) || later.Schema != 2 || !strings.Contains(err.Error(), `"chat"`) ||
						!strings.Contains(err.Error(), "use that version") || !errors.Is(err, executor.ErrUnavailable) {
						w.Errorf("%s: got %v", what, err)
					}
				}
				if name == "session/chat" {
					_, err = p.m.Acquire(w.Context(), "chat", executor.Spec{Subject: "u"})
					refused("acquire", err)
					refused("abandon", p.m.Abandon(w.Context(), "chat"))
					refused("erase", p.m.Erase(w.Context(), "u"))
					refused("discard", p.m.Discard(w.Context(), "chat"))
					time.Sleep(2 * time.Hour)
					alive := len(w.b.Sandboxes())
					for i, err := range p.m.Reap(w.Context(), 0, false) {
						refused("reap "+i.Handle.Session, err)
					}
					if now := len(w.b.Sandboxes()); now != alive {
						w.Errorf("reap: %d of %d sandboxes are left", now, alive)
					}
				} else {
					w.rewrite("session/chat", func(f map[string]json.RawMessage) { f["behind"] = json.RawMessage("9") })
					l := p.acquire("chat", executor.Spec{Subject: "u"})
					run(w, l, "x = 2")
					refused("release", l.Release())
					refused("discard", p.m.Discard(w.Context(), "chat"))
				}
				if after, err := w.store.Get(w.Context(), name); err != nil || after.Rev != before.Rev {
					w.Errorf("the record was changed: %s %v", after.Value, err)
				}
			})
		})
	}
}

type inner struct {
	A int `json:"a,omitempty"`
}

type outer struct {
	inner
	Map  map[string]inner `json:"map"`
	Ptr  *inner           `json:"ptr,omitempty"`
	List []inner          `json:"list"`
	At   time.Time        `json:"at,omitzero"`
	Bare string
}

func TestEncode(t *testing.T) {
	for _, c := range []struct {
		name, old, want string
		next            outer
	}{
		{name: "new", want: `{"v":1,"map":null,"list":null,"Bare":""}`},
		{
			name: "unknown fields", old: `{"a":7,"x":1,"map":{"k":{"y":2},"gone":{"y":3}},"ptr":{"z":3},"list":[{"a":1,"y":4}],"at":"2026-11-01T00:00:00Z","bare":"was","v":1}`,
			next: outer{Map: map[string]inner{"k": {A: 1}}, Ptr: &inner{}, List: []inner{{}}},
			want: `{"v":1,"Bare":"","list":[{}],"map":{"k":{"a":1,"y":2}},"ptr":{"z":3},"x":1}`,
		},
		{
			name: "elements of lists", old: `{"list":[{"a":1,"y":4},{"a":2,"y":5},{"a":3,"y":6}]}`,
			next: outer{List: []inner{{A: 3}, {A: 7}, {A: 1}}},
			want: `{"v":1,"Bare":"","list":[{"a":3,"y":6},{"a":7},{"a":1,"y":4}],"map":null}`,
		},
		{name: "what is removed", old: `{"map":{"k":{"y":2}},"ptr":{"z":3}}`, want: `{"v":1,"Bare":"","list":null,"map":null}`},
		{name: "no record", old: `[1]`, want: `{"v":1,"Bare":"","list":null,"map":null}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := sessions.Entry{Value: []byte(c.old)}
			if err := e.Encode(c.next); err != nil || string(e.Value) != c.want {
				t.Errorf("got  %s %v\nwant %s", e.Value, err, c.want)
			}
		})
	}
	if err := (sessions.Entry{Value: []byte(`{"v": 2, "map": 1}`)}).Decode(&outer{}); !errors.As(err, new(*sessions.SchemaError)) {
		t.Errorf("got %v", err)
	}
}

// TestDecodeForUpdate: an entry keeps its value if there are fields in it which the struct does not
// know, and is read in the same way otherwise.
func TestDecodeForUpdate(t *testing.T) {
	for _, c := range []struct {
		name, old string
		want      string // after an update that sets Bare
	}{
		{"nothing", `{"v":1}`, `{"v":1,"Bare":"new","list":null,"map":null}`},
		{"all known", `{"v":1,"map":{"k":{"a":1}},"list":[{"a":2}],"bare":"was"}`, `{"v":1,"map":{"k":{"a":1}},"list":[{"a":2}],"Bare":"new"}`},
		{"unknown", `{"v":1,"x":1}`, `{"v":1,"Bare":"new","list":null,"map":null,"x":1}`},
		{"unknown within", `{"v":1,"ptr":{"z":3}}`, `{"v":1,"Bare":"new","list":null,"map":null,"ptr":{"z":3}}`},
		{"unknown element", `{"v":1,"list":[{"y":4}]}`, `{"v":1,"Bare":"new","list":[{"y":4}],"map":null}`},
		{"another order", `{"Bare":"was","list":[{"a":2}],"map":null,"v":1}`, `{"v":1,"Bare":"new","list":[{"a":2}],"map":null}`},
		{"no version", `{"list":[{"a":2}]}`, `{"v":1,"Bare":"new","list":[{"a":2}],"map":null}`},
		{"spaces", ` {"v":1, "list":[{"a":2}] } `, `{"v":1,"Bare":"new","list":[{"a":2}],"map":null}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, plain, read := sessions.Entry{Value: []byte(c.old)}, outer{}, outer{}
			if err := e.Decode(&plain); err != nil || string(e.Value) != c.old {
				t.Fatalf("got %v, and the value is %s", err, e.Value)
			}
			if err := e.DecodeForUpdate(&read); err != nil || !reflect.DeepEqual(read, plain) {
				t.Fatalf("got %+v, %v, want %+v", read, err, plain)
			}
			read.Bare = "new"
			if err := e.Encode(read); err != nil || string(e.Value) != c.want {
				t.Errorf("got  %s %v\nwant %s", e.Value, err, c.want)
			}
		})
	}
	for _, text := range []string{"", "{", `{"v":1`, `{"v":1,`, `{"v":1,}`, `{"v":1}{}`, `{"v":1,"list":1}`, `{"v":1,"x":1,"list":1}`, `{"v":1,"list":[]}}`, `{"v":10}`, `{"v":1,"v":2}`, "[1]"} {
		e := sessions.Entry{Value: []byte(text)}
		if err := e.DecodeForUpdate(&outer{}); err == nil || string(e.Value) != text {
			t.Errorf("%s: got %v, and the value is %s", text, err, e.Value)
		}
	}
	e := sessions.Entry{}
	if err := e.Encode([]int{1}); err == nil {
		t.Errorf("a list became the record %s", e.Value)
	}
}
