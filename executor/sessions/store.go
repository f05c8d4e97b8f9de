package sessions

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Store remembers entries for several processes at once. All methods are safe for concurrent use.
// Package storetest checks what is said here.
type Store interface {
	// Get returns the entry of key, or the zero Entry and nil if there is none or it has expired.
	Get(ctx context.Context, key string) (Entry, error)
	// Put replaces the entry of key if its revision is still e.Rev ("": there must be none), at
	// once, and returns the new revision. Otherwise it fails with ErrConflict. When Put fails in
	// another way the entry may be there.
	Put(ctx context.Context, key string, e Entry) (rev string, err error)
	// Delete removes the entry of key if its revision is still rev, and otherwise fails with
	// ErrConflict. No entry is not an error.
	Delete(ctx context.Context, key, rev string) error
	// Keys yields the keys that begin with prefix and have not expired, in any order. An error ends
	// it. Keys that are put or deleted meanwhile may or may not be among them.
	Keys(ctx context.Context, prefix string) iter.Seq2[string, error]
}

// Entry is what a Store holds under a key.
type Entry struct {
	Value   []byte    // opaque to the Store; at most MaxValue
	Rev     string    // opaque; never used twice for a key, also not after Delete
	Expires time.Time // the Store forgets the entry some time after; zero: never
}

// MaxValue is the size of the largest value that a Store has to take.
const MaxValue = 64 << 10

// ErrConflict says that an entry is no longer as it was read.
var ErrConflict = errors.New("sessions: revision conflict")
