package sessions_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// hooked is a Store that calls a function before it gets an entry, and for each that was put or
// deleted.
type hooked struct {
	sessions.Store
	got          func(key string) error
	put, deleted func(key string)
}

func (h *hooked) Get(ctx context.Context, key string) (sessions.Entry, error) {
	if h.got != nil {
		if err := h.got(key); err != nil {
			return sessions.Entry{}, err
		}
	}
	return h.Store.Get(ctx, key)
}

func (h *hooked) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	rev, err := h.Store.Put(ctx, key, e)
	if h.put != nil {
		h.put(key)
	}
	return rev, err
}

func (h *hooked) Delete(ctx context.Context, key, rev string) error {
	err := h.Store.Delete(ctx, key, rev)
	if h.deleted != nil {
		h.deleted(key)
	}
	return err
}

// TestNoteOfSubject: the note that a subject has a conversation lasts as long as the record, and is
// not written with every message.
func TestNoteOfSubject(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		writes := 0
		w.store = &hooked{Store: w.store, put: func(key string) {
			if strings.HasPrefix(key, "subject/") {
				writes++
			}
		}}
		p, spec := w.start("one"), executor.Spec{Subject: "u", IdleTTL: 10 * time.Minute}
		for range 600 { // fifty hours
			l := p.acquire("k", spec)
			run(w, l, "x = 1")
			release(w, l)
			time.Sleep(5 * time.Minute)
		}
		if writes > 4 {
			w.Errorf("the note was written %d times in fifty hours", writes)
		}
		p.kill() // nothing tidies up
		for len(w.entries("session/")) > 0 {
			if len(w.entries("subject/")) == 0 {
				w.Fatal("the note ended before the record")
			}
			time.Sleep(time.Minute)
		}
		time.Sleep(25 * time.Hour)
		if left := w.entries("subject/"); len(left) > 0 {
			w.Errorf("%q is left", left)
		}
	})
}

// TestNoteOfNewRecord: a process that removes a record spares the note of the next record of the
// key, which another process makes at that moment.
func TestNoteOfNewRecord(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		store := &hooked{Store: w.store}
		w.store = store
		one, two, spec := w.start("one"), w.start("two"), executor.Spec{Subject: "u"}
		release(w, one.acquire("k", spec))
		store.deleted = func(key string) {
			if key == "session/k" {
				store.deleted = nil
				release(w, two.acquire("k", spec))
			}
		}
		if err := one.m.Discard(w.Context(), "k"); err != nil {
			w.Fatal(err)
		}
		if records, notes := w.entries("session/"), w.entries("subject/"); len(records) != 1 || len(notes) != 1 {
			w.Errorf("got the records %q and the notes %q", records, notes)
		}
	})
}
