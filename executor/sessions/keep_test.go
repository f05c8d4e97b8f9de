package sessions_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

func keeping(bytes int64) func(*sessions.Options) {
	return func(o *sessions.Options) { o.KeepFiles = bytes }
}

func put(t *testing.T, s executor.Session, name, content string, mode fs.FileMode) {
	t.Helper()
	if err := s.Files().Write(t.Context(), name, strings.NewReader(content), mode); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, s executor.Session, name string) string {
	t.Helper()
	r, err := s.Files().Read(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (w *world) entries(prefix string) (names []string) {
	w.Helper()
	for k, err := range w.store.Keys(w.Context(), prefix) {
		if err != nil {
			w.Fatal(err)
		}
		names = append(names, k)
	}
	return names
}

func TestFilesAreKept(t *testing.T) {
	bubble(t, noAttach(), func(w *world) {
		big := strings.Repeat("0123456789abcdef\x00\xff", 20_000) // several pieces
		p := w.start("one", keeping(1<<20))
		l := p.acquire("k", executor.Spec{Subject: "u"})
		put(w.T, l, "a.txt", "first", 0)
		put(w.T, l, "in/dir/big.bin", big, 0o755)
		put(w.T, l, "empty", "", 0)
		release(w, l)
		// The same session goes on, with other files.
		l = p.acquire("k", executor.Spec{Subject: "u"})
		if l.Fresh || l.Restored != nil {
			w.Errorf("got %v, %q of a session that lives", l.Fresh, l.Restored)
		}
		put(w.T, l, "a.txt", "second", 0)
		if err := l.Files().Remove(w.Context(), "empty"); err != nil {
			w.Error(err)
		}
		release(w, l)
		p.stop()

		p = w.start("two", keeping(1<<20))
		l = p.acquire("k", executor.Spec{Subject: "u"})
		if want := []string{"a.txt", "in/dir/big.bin"}; !l.Fresh || !slices.Equal(l.Restored, want) || l.Omitted != 0 {
			w.Fatalf("got %v, %q, %d", l.Fresh, l.Restored, l.Omitted)
		}
		if got := content(w.T, l, "a.txt"); got != "second" {
			w.Errorf("got %q", got)
		}
		if content(w.T, l, "in/dir/big.bin") != big {
			w.Error("a large file has changed")
		}
		if i, err := l.Files().Stat(w.Context(), "in/dir/big.bin"); err != nil || i.Mode.Perm() != 0o755 {
			w.Errorf("got %+v, %v", i, err)
		}
		release(w, l)
		p.stop()

		// The key of another subject, whose record is gone, gets no files.
		p = w.start("three", keeping(1<<20))
		l = p.acquire("k", executor.Spec{Subject: "v"})
		if l.Restored != nil {
			w.Errorf("got %q of another subject", l.Restored)
		}
		if err := l.Discard(); err != nil {
			w.Error(err)
		}
		if left := append(w.entries("files/"), w.entries("blob/")...); len(left) > 0 {
			w.Errorf("left: %q", left)
		}
	})
}

func TestFilesAreKeptWithinBounds(t *testing.T) {
	bubble(t, noAttach(), func(w *world) {
		p := w.start("one", keeping(100))
		l := p.acquire("k", executor.Spec{})
		for _, f := range []struct{ name, content string }{
			{"a", strings.Repeat("x", 60)}, {"b", strings.Repeat("y", 60)}, {"c", strings.Repeat("z", 40)},
		} {
			put(w.T, l, f.name, f.content, 0)
		}
		release(w, l)
		p.stop()
		p = w.start("two", keeping(100))
		l = p.acquire("k", executor.Spec{})
		if want := []string{"a", "c"}; !slices.Equal(l.Restored, want) || l.Omitted != 1 {
			w.Errorf("got %q, %d", l.Restored, l.Omitted)
		}
		release(w, l)
		if err := p.m.Discard(w.Context(), "k"); err != nil {
			w.Error(err)
		}
		if left := append(w.entries("files/"), w.entries("blob/")...); len(left) > 0 {
			w.Errorf("left: %q", left)
		}
	})
}

// counting counts the writes.
type counting struct {
	sessions.Store
	puts atomic.Int64
}

func (c *counting) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	if strings.HasPrefix(key, "blob/") || strings.HasPrefix(key, "files/") {
		c.puts.Add(1)
	}
	return c.Store.Put(ctx, key, e)
}

// A file that has not changed is written again only if the Store would otherwise forget it.
func TestKeptFilesAreWrittenOnce(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		c := &counting{Store: w.store}
		w.store = c
		p := w.start("one", keeping(100))
		turn := func(do func(*sessions.Lease)) int64 {
			before := c.puts.Load()
			l := p.acquire("k", executor.Spec{IdleTTL: 200 * time.Hour})
			do(l)
			release(w, l)
			return c.puts.Load() - before
		}
		nothing := func(*sessions.Lease) {}
		if got := turn(func(l *sessions.Lease) { put(w.T, l, "a", "1", 0); put(w.T, l, "b", "2", 0) }); got != 3 {
			w.Errorf("got %d writes of two files", got)
		}
		if got := turn(nothing); got != 0 {
			w.Errorf("got %d writes of nothing new", got)
		}
		time.Sleep(time.Millisecond) // so that a file that is written again has another time
		if got := turn(func(l *sessions.Lease) { put(w.T, l, "b", "3", 0) }); got != 2 {
			w.Errorf("got %d writes of one changed file", got)
		}
		time.Sleep(25 * time.Hour)
		if got := turn(nothing); got != 3 {
			w.Errorf("got %d writes, want that what would be forgotten is written again", got)
		}
		if err := p.m.Discard(w.Context(), "k"); err != nil {
			w.Error(err)
		}
	})
}

// If the store has lost a piece, or contains garbage, only that file is lost.
func TestDamagedKeptFiles(t *testing.T) {
	bubble(t, noAttach(), func(w *world) {
		p := w.start("one", keeping(100))
		l := p.acquire("k", executor.Spec{})
		put(w.T, l, "a", "1", 0)
		put(w.T, l, "b", "2", 0)
		release(w, l)
		p.stop()
		blobs := w.entries("blob/")
		e, err := w.store.Get(w.Context(), blobs[0])
		if err != nil {
			w.Fatal(err)
		}
		e.Value = []byte("?")
		if _, err := w.store.Put(w.Context(), blobs[0], e); err != nil {
			w.Fatal(err)
		}
		p = w.start("two", keeping(100))
		l = p.acquire("k", executor.Spec{})
		if len(l.Restored) != 1 || l.Omitted != 1 {
			w.Errorf("got %q, %d", l.Restored, l.Omitted)
		}
		release(w, l)
		p.stop()
		e, err = w.store.Get(w.Context(), "files/k")
		if err != nil {
			w.Fatal(err)
		}
		e.Value = []byte("nonsense")
		if _, err := w.store.Put(w.Context(), "files/k", e); err != nil {
			w.Fatal(err)
		}
		p = w.start("three", keeping(100))
		l = p.acquire("k", executor.Spec{})
		if !l.Fresh || l.Restored != nil {
			w.Errorf("got %q", l.Restored)
		}
		put(w.T, l, "c", "3", 0)
		release(w, l)
		if got := w.entries("files/"); len(got) != 1 {
			w.Errorf("got %q", got)
		}
		if err := p.m.Discard(w.Context(), "k"); err != nil {
			w.Error(err)
		}
	})
}

var errFull = errors.New("the store is full")

// full is a store that refuses contents.
type full struct{ sessions.Store }

func (f full) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	if strings.HasPrefix(key, "blob/") {
		return "", errFull
	}
	return f.Store.Put(ctx, key, e)
}

func TestFilesThatCannotBeKept(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		w.store = full{w.store}
		p := w.start("one", keeping(100))
		l := p.acquire("k", executor.Spec{})
		put(w.T, l, "a", "1", 0)
		if err := l.Release(); !errors.Is(err, errFull) {
			w.Errorf("got %v", err)
		}
		// The next caller does not wait.
		l = p.acquire("k", executor.Spec{})
		if err := l.Discard(); err != nil {
			w.Error(err)
		}
	})
}
