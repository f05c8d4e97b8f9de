package sessions_test

import (
	"bytes"
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
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// keeping makes checkpoints of at most some bytes after some runs.
func keeping(every int, most int64) func(*sessions.Options) {
	return func(o *sessions.Options) {
		o.Checkpoint = sessions.Checkpoints{Every: every, Most: most, Key: bytes.Repeat([]byte{7}, 32), Owner: "app"}
	}
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

// left returns what the store has of checkpoints.
func (w *world) left() []string {
	w.Helper()
	return slices.Concat(w.entries("checkpoint/"), w.entries("piece/"), w.entries("kept/"))
}

// says runs code and returns what it prints.
func says(t testing.TB, l *sessions.Lease, code string) string {
	t.Helper()
	return strings.TrimSuffix(run(t, l, code).Stdout.String(), "\n")
}

// TestConversationGoesOn: a new sandbox has the variables and files of the one before, for the same
// subject only, and the store has neither in clear.
func TestConversationGoesOn(t *testing.T) {
	bubble(t, noAttach(), func(w *world) {
		big := strings.Repeat("0123456789abcdef\x00\xff", 20_000) // several pieces
		p := w.start("one", keeping(1, 0))
		l := p.acquire("k", executor.Spec{Subject: "u"})
		put(w.T, l, "a.txt", "first", 0)
		put(w.T, l, "in/dir/big.bin", big, 0o755)
		run(w, l, `x = [1, "precious"]`)
		release(w, l)
		// The same session goes on.
		l = p.acquire("k", executor.Spec{Subject: "u"})
		if l.Fresh || l.Kept != nil {
			w.Errorf("got %v, %+v of a session that lives", l.Fresh, l.Kept)
		}
		run(w, l, "def f(): pass\nx.append(2)")
		put(w.T, l, "a.txt", "second", 0)
		release(w, l)
		p.stop()

		if n := len(w.entries("piece/")); n < 5 {
			w.Errorf("got %d pieces", n)
		}
		for _, name := range w.left() {
			e, err := w.store.Get(w.Context(), name)
			w.do(err)
			if bytes.Contains(e.Value, []byte("precious")) || bytes.Contains(e.Value, []byte("0123456789abcdef")) || bytes.Contains(e.Value, []byte("a.txt")) {
				w.Errorf("%s has content in clear", name)
			}
		}

		p = w.start("two", keeping(1, 0))
		l = p.acquire("k", executor.Spec{Subject: "u"})
		if want := []string{"a.txt", "in/dir/big.bin"}; !l.Fresh || !l.Lost || l.Kept == nil || !slices.Equal(l.Kept.Files, want) ||
			!slices.Equal(l.Kept.Names, []string{"x"}) || len(l.Kept.Omitted) != 1 || l.Kept.Omitted[0].Name != "f" || l.Kept.Behind != 0 || l.Kept.Refused != "" || l.Kept.Made.IsZero() {
			w.Fatalf("got %v, %v, %+v", l.Fresh, l.Lost, l.Kept)
		}
		if got := says(w, l, "print(x)"); got != `[1,"precious",2]` {
			w.Errorf("got %s", got)
		}
		if content(w.T, l, "a.txt") != "second" || content(w.T, l, "in/dir/big.bin") != big {
			w.Error("a file has changed")
		}
		if i, err := l.Files().Stat(w.Context(), "in/dir/big.bin"); err != nil || i.Mode.Perm() != 0o755 {
			w.Errorf("got %+v, %v", i, err)
		}
		release(w, l)
		p.stop()

		// The key of another subject, whose record is gone, gets nothing.
		p = w.start("three", keeping(1, 0))
		l = p.acquire("k", executor.Spec{Subject: "v"})
		if l.Kept != nil {
			w.Errorf("got %+v of another subject", l.Kept)
		}
		w.do(l.Discard())
		if left := w.left(); len(left) > 0 {
			w.Errorf("left: %q", left)
		}
	})
}

// TestWhatExceedsTheBound is omitted, and told.
func TestWhatExceedsTheBound(t *testing.T) {
	bubble(t, noAttach(), func(w *world) {
		p := w.start("one", keeping(1, 120_000))
		l := p.acquire("k")
		for _, f := range []struct{ name, content string }{
			{"a", strings.Repeat("x", 60_000)}, {"b", strings.Repeat("y", 60_000)}, {"c", strings.Repeat("z", 20_000)},
		} {
			put(w.T, l, f.name, f.content, 0)
		}
		release(w, l)
		p.stop()
		p = w.start("two", keeping(1, 120_000))
		l = p.acquire("k")
		if want := []string{"a", "c"}; l.Kept == nil || !slices.Equal(l.Kept.Files, want) || len(l.Kept.Omitted) != 1 || l.Kept.Omitted[0].Name != "b" {
			w.Errorf("got %+v", l.Kept)
		}
		release(w, l)
		w.do(p.m.Discard(w.Context(), "k"))
		if left := w.left(); len(left) > 0 {
			w.Errorf("left: %q", left)
		}
	})
}

// counting counts the checkpoints.
type counting struct {
	sessions.Store
	puts atomic.Int64
}

func (c *counting) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	if strings.HasPrefix(key, "checkpoint/") {
		c.puts.Add(1)
	}
	return c.Store.Put(ctx, key, e)
}

// TestCheckpointsAreMadeWhenDue: after the number of runs, and before the Store forgets the last
// one. What came after the last one is gone, and told.
func TestCheckpointsAreMadeWhenDue(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		c := &counting{Store: w.store}
		w.store = c
		p := w.start("one", keeping(3, 0))
		spec := executor.Spec{IdleTTL: 200 * time.Hour}
		turn := func(do func(*sessions.Lease)) int64 {
			w.Helper()
			before := c.puts.Load()
			l := p.acquire("k", spec)
			do(l)
			release(w, l)
			return c.puts.Load() - before
		}
		count := func(l *sessions.Lease) { run(w, l, `n = recall("n", 0) + 1`) }
		for i, want := range []int64{0, 0, 1, 0} {
			if got := turn(count); got != want {
				w.Errorf("run %d: got %d checkpoints", i+1, got)
			}
		}
		if got := turn(func(l *sessions.Lease) { put(w.T, l, "a", "1", 0) }); got != 0 {
			w.Errorf("got %d checkpoints of a file", got)
		}
		if got := turn(func(l *sessions.Lease) { count(l); count(l) }); got != 1 {
			w.Errorf("got %d checkpoints of two runs at once", got)
		}
		if got := turn(func(*sessions.Lease) {}); got != 0 {
			w.Errorf("got %d checkpoints of nothing", got)
		}
		time.Sleep(25 * time.Hour)
		if got := turn(func(*sessions.Lease) {}); got != 1 {
			w.Errorf("got %d checkpoints, want that what would be forgotten is written again", got)
		}
		turn(count)
		turn(count)
		for _, id := range w.b.Sandboxes() {
			w.b.Break(id)
		}
		l := p.acquire("k", spec)
		if got := says(w, l, `print(n)`); got != "6" || l.Kept == nil || l.Kept.Behind != 2 || l.Why != sessions.LossGone {
			w.Errorf("got %s runs, %+v", got, l.Kept)
		}
		w.do(l.Discard())
	})
}

// TestSweptSandbox: what came after the checkpoint is told even if the record was removed, because
// the process noticed that the sandbox is gone.
func TestSweptSandbox(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one", keeping(2, 0))
		for range 3 {
			l := p.acquire("k")
			run(w, l, `n = recall("n", 0) + 1`)
			release(w, l)
		}
		for _, id := range w.b.Sandboxes() {
			w.b.Break(id)
		}
		time.Sleep(2 * time.Minute)
		if left := w.entries("session/"); len(left) > 0 {
			w.Fatalf("the record is still there: %q", left)
		}
		l := p.acquire("k")
		if got := says(w, l, `print(n)`); got != "2" || l.Kept == nil || l.Kept.Behind != 1 {
			w.Errorf("got %s runs, %+v", got, l.Kept)
		}
		w.do(l.Discard())
	})
}

// TestLastCheckpoint: a session that ends with its process is kept when that closes, due or not.
func TestLastCheckpoint(t *testing.T) {
	bubble(t, noAttach(), func(w *world) {
		p := w.start("one", keeping(100, 0))
		l := p.acquire("k")
		run(w, l, "x = 1")
		release(w, l)
		p.stop()
		p = w.start("two", keeping(100, 0))
		l = p.acquire("k")
		if l.Kept == nil || !slices.Equal(l.Kept.Names, []string{"x"}) || l.Kept.Behind != 0 {
			w.Errorf("got %+v", l.Kept)
		}
		w.do(l.Discard())
	})
}

// TestCheckpointThatCannotBeMade: the last good one stays, the next attempt comes when as much has
// run again, and nobody's turn fails.
func TestCheckpointThatCannotBeMade(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one", keeping(2, 0))
		turn := func(code string) (took time.Duration) {
			w.Helper()
			l := p.acquire("k")
			run(w, l, code)
			began := time.Now()
			release(w, l)
			return time.Since(began)
		}
		turn("x = 1")
		turn("x = 2")
		turn("x = 3")
		if took := turn("def reduce(): forever()"); took < 5*time.Second || took > 15*time.Second {
			w.Errorf("got %v, want one attempt within its bound", took)
		}
		if took := turn("x = 5"); took > time.Second {
			w.Errorf("got %v, want no attempt", took)
		}
		for _, id := range w.b.Sandboxes() {
			w.b.Break(id)
		}
		l := p.acquire("k")
		if got := says(w, l, "print(x)"); got != "2" || l.Kept.Behind != 3 {
			w.Errorf("got %s, %+v", got, l.Kept)
		}
		w.do(l.Discard())
	})
}

// TestDamagedCheckpoints: whatever the store says is refused or counts as nothing, and the
// conversation begins anew.
func TestDamagedCheckpoints(t *testing.T) {
	edit := func(w *world, prefix string, f func(v []byte) []byte) {
		w.Helper()
		name := w.entries(prefix)[0]
		e, err := w.store.Get(w.Context(), name)
		w.do(err)
		e.Value = f(e.Value)
		_, err = w.store.Put(w.Context(), name, e)
		w.do(err)
	}
	flip := func(v []byte) []byte { v[len(v)/2] ^= 1; return v }
	for name, c := range map[string]struct {
		damage  func(w *world)
		options func(*sessions.Options)
		refused string // a part of the reason; empty: as if there were none
	}{
		"changed":  {damage: func(w *world) { edit(w, "piece/", flip) }, refused: "was changed"},
		"cut":      {damage: func(w *world) { edit(w, "piece/", func([]byte) []byte { return nil }) }, refused: "incomplete"},
		"nonsense": {damage: func(w *world) { edit(w, "checkpoint/", func([]byte) []byte { return []byte("nonsense") }) }},
		"huge": {damage: func(w *world) {
			edit(w, "checkpoint/", func(v []byte) []byte { return bytes.Replace(v, []byte(`"size":`), []byte(`"size":99999`), 1) })
		}},
		"negative": {damage: func(w *world) {
			edit(w, "checkpoint/", func(v []byte) []byte { return bytes.Replace(v, []byte(`"size":`), []byte(`"size":-`), 1) })
		}},
		"other-key":   {options: func(o *sessions.Options) { o.Checkpoint.Key = bytes.Repeat([]byte{8}, 32) }, refused: "another key"},
		"other-owner": {options: func(o *sessions.Options) { o.Checkpoint.Owner = "other" }, refused: "another owner"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, noAttach(), func(w *world) {
				p := w.start("one", keeping(1, 0))
				l := p.acquire("k")
				run(w, l, "x = 1")
				release(w, l)
				p.stop()
				if c.damage != nil {
					c.damage(w)
				}
				options := []func(*sessions.Options){keeping(1, 0)}
				if c.options != nil {
					options = append(options, c.options)
				}
				p = w.start("two", options...)
				l = p.acquire("k")
				if !l.Fresh || !l.Lost || (l.Kept != nil) != (c.refused != "") || l.Kept != nil && !strings.Contains(l.Kept.Refused, c.refused) {
					w.Errorf("got %+v", l.Kept)
				}
				if got := says(w, l, `print(recall("x", "absent"))`); got != "absent" {
					w.Errorf("got %s", got)
				}
				run(w, l, "x = 2")
				release(w, l)
				p.stop()
				p = w.start("three", options...)
				l = p.acquire("k")
				if got := says(w, l, `print(x)`); got != "2" {
					w.Errorf("got %s", got)
				}
				w.do(l.Discard())
			})
		})
	}
}

// TestOthersCheckpoint: what the store has of one conversation is of no use under another name, to
// another subject, in a wider network or in a weaker sandbox.
func TestOthersCheckpoint(t *testing.T) {
	for name, c := range map[string]struct {
		key       string
		spec      executor.Spec
		isolation executor.Isolation
		weaker    bool
		ok        bool
	}{
		"same":         {"k", executor.Spec{Subject: "u"}, executor.IsolationContainer, false, true},
		"stronger":     {"k", executor.Spec{Subject: "u"}, executor.IsolationMicroVM, false, true},
		"conversation": {"other", executor.Spec{Subject: "u"}, executor.IsolationContainer, false, false},
		"subject":      {"k", executor.Spec{Subject: "v"}, executor.IsolationContainer, false, false},
		"network":      {"k", executor.Spec{Subject: "u", Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}, executor.IsolationContainer, false, false},
		"isolation":    {"k", executor.Spec{Subject: "u"}, executor.IsolationProcess, false, false},
		"weaker":       {"k", executor.Spec{Subject: "u"}, executor.IsolationProcess, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := noAttach()
			o.Capabilities.Isolation = executor.IsolationContainer
			bubble(t, o, func(w *world) {
				p := w.start("one", keeping(1, 0))
				l := p.acquire("k", executor.Spec{Subject: "u"})
				run(w, l, "x = 1")
				release(w, l)
				p.stop()
				// A thief who can write to the store calls it his own.
				e, err := w.store.Get(w.Context(), "checkpoint/k")
				w.do(err)
				e.Value = bytes.Replace(e.Value, []byte(`"subject":"u"`), []byte(`"subject":"`+c.spec.Subject+`"`), 1)
				if c.key != "k" {
					e.Rev = ""
				}
				_, err = w.store.Put(w.Context(), "checkpoint/"+c.key, e)
				w.do(err)
				if c.key != "k" {
					for _, name := range w.entries("piece/") {
						part, err := w.store.Get(w.Context(), name)
						w.do(err)
						part.Rev = ""
						_, err = w.store.Put(w.Context(), sessions.PieceOf(c.key, name), part)
						w.do(err)
					}
				}
				o.Capabilities.Isolation = c.isolation
				w.b = fake.New(o)
				p = w.start("two", keeping(1, 0), func(o *sessions.Options) { o.Checkpoint.Weaker = c.weaker })
				l = p.acquire(c.key, c.spec)
				if (l.Kept != nil && l.Kept.Refused == "") != c.ok || l.Kept == nil {
					w.Errorf("got %+v", l.Kept)
				}
				if got := says(w, l, `print(recall("x", "absent"))`); (got == "1") != c.ok {
					w.Errorf("got %s", got)
				}
				w.do(l.Discard())
			})
		})
	}
}

// TestErase leaves nothing of a subject, whether its sandboxes live or not, and all of others.
func TestErase(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one", keeping(1, 0))
		for _, key := range []string{"a", "b", "c"} {
			subject := map[string]string{"a": "u", "b": "u", "c": "v"}[key]
			l := p.acquire(key, executor.Spec{Subject: subject})
			run(w, l, "x = 1")
			release(w, l)
		}
		e, err := w.store.Get(w.Context(), "session/b") // whose record was forgotten
		w.do(err)
		w.do(w.store.Delete(w.Context(), "session/b", e.Rev))
		w.do(p.m.Erase(w.Context(), "u"))
		if got := slices.Concat(w.entries("session/"), w.entries("checkpoint/"), w.entries("kept/")); len(got) != 3 {
			w.Errorf("left: %q", got)
		}
		if got := w.entries("piece/"); len(got) != 1 {
			w.Errorf("left: %q", got)
		}
		l := p.acquire("c", executor.Spec{Subject: "v"})
		if got := says(w, l, "print(x)"); got != "1" {
			w.Errorf("got %s", got)
		}
		w.do(l.Discard())
	})
}

func TestCheckpointsNeedAKey(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		for name, c := range map[string]sessions.Checkpoints{
			"no-key":   {Every: 1},
			"short":    {Every: 1, Key: make([]byte, 31)},
			"negative": {Every: -1, Key: make([]byte, 32)},
			"most":     {Every: 1, Most: sessions.MaxCheckpoint + 1, Key: make([]byte, 32)},
		} {
			if _, err := sessions.New(unused(w), w.store, sessions.Options{Instance: "one", Checkpoint: c}); !errors.Is(err, executor.ErrInvalid) {
				w.Errorf("%s: got %v", name, err)
			}
		}
	})
}

// unused returns an Executor that is not used.
func unused(w *world) executor.Executor {
	x, err := w.b.Open(driver.Env{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { x.Close() })
	return x
}

var errFull = errors.New("the store is full")

// full is a store that refuses pieces.
type full struct{ sessions.Store }

func (f full) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	if strings.HasPrefix(key, "piece/") {
		return "", errFull
	}
	return f.Store.Put(ctx, key, e)
}

func TestCheckpointThatCannotBeSaved(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		w.store = full{w.store}
		p := w.start("one", keeping(1, 0))
		l := p.acquire("k")
		put(w.T, l, "a", "1", 0)
		if err := l.Release(); !errors.Is(err, errFull) {
			w.Errorf("got %v", err)
		}
		// The next caller does not wait.
		w.do(p.acquire("k").Discard())
	})
}

// TestRestoreThatFails: a failure of the backend while a checkpoint is restored is one of Acquire,
// and the checkpoint stays for the next.
func TestRestoreThatFails(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one", keeping(1, 0))
		l := p.acquire("k")
		run(w, l, "x = 1")
		release(w, l)
		for _, id := range w.b.Sandboxes() {
			w.b.Break(id)
		}
		w.b.Fail(fake.OpRun, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("down")))
		if _, err := p.m.Acquire(w.Context(), "k", executor.Spec{}); !errors.Is(err, executor.ErrUnavailable) {
			w.Fatalf("got %v", err)
		}
		if n := len(w.b.Sandboxes()); n != 0 {
			w.Errorf("%d sandboxes are left", n)
		}
		l = p.acquire("k")
		if got := says(w, l, "print(x)"); got != "1" || !l.Lost {
			w.Errorf("got %s, %+v", got, l)
		}
		w.do(l.Discard())
	})
}
