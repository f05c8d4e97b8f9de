// Package storetest checks that a sessions.Store keeps its contract. The author of a store runs
// [Test] on it.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// Test runs every check. Within one test, each call of the function that open returns yields a
// Store over the same entries, as another process would see them. In another test the entries are
// new.
func Test(t *testing.T, open func(t *testing.T) func() sessions.Store) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s, other sessions.Store)
	}{
		{"absent", absent},
		{"put-get-delete", putGetDelete},
		{"revision", revision},
		{"revisions-are-never-used-twice", neverTwice},
		{"expiry", expiry},
		{"keys", keys},
		{"sizes", sizes},
		{"values-are-copies", copies},
		{"context", contexts},
		{"one-of-many-wins", oneWins},
		{"no-update-is-lost", noneLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := open(t)
			c.test(t, next(), next())
		})
	}
}

func put(t *testing.T, s sessions.Store, key string, e sessions.Entry) string {
	t.Helper()
	rev, err := s.Put(t.Context(), key, e)
	if err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
	if rev == "" {
		t.Fatalf("put %q: an empty revision", key)
	}
	return rev
}

func get(t *testing.T, s sessions.Store, key string) sessions.Entry {
	t.Helper()
	e, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	return e
}

func absent(t *testing.T, s, _ sessions.Store) {
	if e := get(t, s, "k"); e.Rev != "" || e.Value != nil || !e.Expires.IsZero() {
		t.Errorf("got %+v, want the zero Entry", e)
	}
	if err := s.Delete(t.Context(), "k", "1"); err != nil {
		t.Errorf("delete: got %v, want nil", err)
	}
}

func putGetDelete(t *testing.T, s, other sessions.Store) {
	for _, key := range []string{"k", "with/slash", "with space", "ünïcode 😀", "%_'\";--", strings.Repeat("long", 100)} {
		rev := put(t, s, key, sessions.Entry{Value: []byte("one\x00\xff" + key)})
		for _, r := range []sessions.Store{s, other} {
			if e := get(t, r, key); e.Rev != rev || string(e.Value) != "one\x00\xff"+key {
				t.Errorf("%q: got %+v, want revision %s", key, e, rev)
			}
		}
		if err := other.Delete(t.Context(), key, rev); err != nil {
			t.Errorf("delete %q: %v", key, err)
		}
		if e := get(t, s, key); e.Rev != "" {
			t.Errorf("%q after delete: got %+v", key, e)
		}
	}
}

func revision(t *testing.T, s, other sessions.Store) {
	first := put(t, s, "k", sessions.Entry{Value: []byte("1")})
	if _, err := other.Put(t.Context(), "k", sessions.Entry{Value: []byte("x")}); !errors.Is(err, sessions.ErrConflict) {
		t.Errorf("put over an entry: got %v, want %v", err, sessions.ErrConflict)
	}
	second := put(t, other, "k", sessions.Entry{Value: []byte("2"), Rev: first})
	if _, err := s.Put(t.Context(), "k", sessions.Entry{Value: []byte("x"), Rev: first}); !errors.Is(err, sessions.ErrConflict) {
		t.Errorf("put with an old revision: got %v, want %v", err, sessions.ErrConflict)
	}
	if err := s.Delete(t.Context(), "k", first); !errors.Is(err, sessions.ErrConflict) {
		t.Errorf("delete with an old revision: got %v, want %v", err, sessions.ErrConflict)
	}
	if _, err := s.Put(t.Context(), "absent", sessions.Entry{Rev: second}); !errors.Is(err, sessions.ErrConflict) {
		t.Errorf("put with a revision where there is none: got %v, want %v", err, sessions.ErrConflict)
	}
	if e := get(t, s, "k"); string(e.Value) != "2" || e.Rev != second {
		t.Errorf("got %+v, want what was put last", e)
	}
}

func neverTwice(t *testing.T, s, other sessions.Store) {
	seen := map[string]bool{}
	for i := range 20 {
		rev := put(t, []sessions.Store{s, other}[i%2], "k", sessions.Entry{Value: []byte("same")})
		if seen[rev] {
			t.Fatalf("revision %s came back after a delete", rev)
		}
		seen[rev] = true
		if err := s.Delete(t.Context(), "k", rev); err != nil {
			t.Fatal(err)
		}
	}
}

func expiry(t *testing.T, s, other sessions.Store) {
	past := put(t, s, "past", sessions.Entry{Value: []byte("x"), Expires: time.Now().Add(-time.Second)})
	later := time.Now().Add(time.Hour)
	put(t, s, "later", sessions.Entry{Value: []byte("x"), Expires: later})
	if e := get(t, other, "past"); e.Rev != "" {
		t.Errorf("expired: got %+v", e)
	}
	if e := get(t, other, "later"); e.Expires.Sub(later).Abs() > time.Millisecond {
		t.Errorf("got expiry %v, want %v", e.Expires, later)
	}
	for k, err := range s.Keys(t.Context(), "") {
		if err != nil || k == "past" {
			t.Errorf("got key %q %v", k, err)
		}
	}
	if rev := put(t, other, "past", sessions.Entry{Value: []byte("y")}); rev == past {
		t.Errorf("revision %s came back after expiry", rev)
	}
}

func keys(t *testing.T, s, other sessions.Store) {
	var want []string
	for i := range 30 {
		k := fmt.Sprintf("a%%_/%d", i)
		put(t, s, k, sessions.Entry{})
		want = append(want, k)
	}
	put(t, s, "aXX/1", sessions.Entry{}) // would match if the prefix were a pattern
	put(t, s, "b", sessions.Entry{})
	var got []string
	for k, err := range other.Keys(t.Context(), "a%_/") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, k)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for range s.Keys(t.Context(), "") {
		break
	}
	put(t, s, "after", sessions.Entry{}) // leaving a loop does not block the store
	for k, err := range s.Keys(t.Context(), "b") {
		if err != nil {
			t.Fatal(err)
		}
		put(t, other, "within-"+k, sessions.Entry{}) // nor does a loop
	}
}

func sizes(t *testing.T, s, _ sessions.Store) {
	big := bytes.Repeat([]byte{0, 1, 254, 255}, sessions.MaxValue/4)
	put(t, s, "big", sessions.Entry{Value: big})
	if e := get(t, s, "big"); !bytes.Equal(e.Value, big) {
		t.Errorf("got %d bytes, want %d", len(e.Value), len(big))
	}
	if _, err := s.Put(t.Context(), "bigger", sessions.Entry{Value: append(big, 0)}); !errors.Is(err, executor.ErrTooLarge) {
		t.Errorf("got %v, want %v", err, executor.ErrTooLarge)
	}
}

// TestOversized is a test that a Store reads no value that is bigger than a Store writes, such as
// that of somebody else who can write to the database. enlarge gives a key a value of 1 MiB there.
func TestOversized(t *testing.T, s sessions.Store, enlarge func(key string)) {
	put(t, s, "other", sessions.Entry{Value: []byte("x")})
	rev := put(t, s, "big", sessions.Entry{Value: bytes.Repeat([]byte("x"), sessions.MaxValue)})
	get(t, s, "big")
	enlarge("big")
	if e, err := s.Get(t.Context(), "big"); !errors.Is(err, executor.ErrTooLarge) || !strings.Contains(err.Error(), "big") || e.Value != nil {
		t.Errorf("got %d bytes, %v", len(e.Value), err)
	}
	get(t, s, "other")
	if err := s.Delete(t.Context(), "big", rev); err != nil {
		t.Errorf("it cannot be removed: %v", err)
	}
}

func copies(t *testing.T, s, _ sessions.Store) {
	put(t, s, "nothing", sessions.Entry{})
	if e := get(t, s, "nothing"); len(e.Value) != 0 {
		t.Errorf("got %q, want nothing", e.Value)
	}
	v := []byte("mine")
	put(t, s, "k", sessions.Entry{Value: v})
	v[0] = 'X'
	got := get(t, s, "k").Value
	got[1] = 'X'
	if e := get(t, s, "k"); string(e.Value) != "mine" {
		t.Errorf("got %q, want mine", e.Value)
	}
}

func contexts(t *testing.T, s, _ sessions.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("get: got %v, want %v", err, context.Canceled)
	}
	if _, err := s.Put(ctx, "k", sessions.Entry{}); !errors.Is(err, context.Canceled) {
		t.Errorf("put: got %v, want %v", err, context.Canceled)
	}
	if err := s.Delete(ctx, "k", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("delete: got %v, want %v", err, context.Canceled)
	}
}

func oneWins(t *testing.T, s, other sessions.Store) {
	for round := range 10 {
		key := fmt.Sprint("k", round)
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for i := range 8 {
			wg.Go(func() {
				_, err := []sessions.Store{s, other}[i%2].Put(t.Context(), key, sessions.Entry{Value: []byte{byte(i)}})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if !errors.Is(err, sessions.ErrConflict) {
					t.Errorf("got %v, want nil or %v", err, sessions.ErrConflict)
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Errorf("%d of 8 won, want 1", won)
		}
	}
}

func noneLost(t *testing.T, s, other sessions.Store) {
	const writers, each = 4, 25
	put(t, s, "n", sessions.Entry{Value: []byte("0")})
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			st := []sessions.Store{s, other}[i%2]
			for done := 0; done < each; {
				e, err := st.Get(t.Context(), "n")
				if err != nil {
					t.Error(err)
					return
				}
				var n int
				fmt.Sscan(string(e.Value), &n)
				e.Value = fmt.Append(nil, n+1)
				switch _, err := st.Put(t.Context(), "n", e); {
				case err == nil:
					done++
				case !errors.Is(err, sessions.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if e := get(t, s, "n"); string(e.Value) != fmt.Sprint(writers*each) {
		t.Errorf("got %s, want %d", e.Value, writers*each)
	}
}
