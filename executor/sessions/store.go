package sessions

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Store stores entries for several processes at once. All methods are safe for concurrent use.
// Package storetest checks the rules below.
type Store interface {
	// Get returns the entry of key, or the zero Entry and nil if there is none or it has expired.
	Get(ctx context.Context, key string) (Entry, error)
	// Put atomically replaces the entry of key if its revision is still e.Rev ("" means that there
	// must be none), and returns the new revision. Otherwise it fails with ErrConflict. If Put
	// fails in another way, the entry may have been written.
	Put(ctx context.Context, key string, e Entry) (rev string, err error)
	// Delete removes the entry of key if its revision is still rev. Otherwise it fails with
	// ErrConflict. If there is no entry, that is not an error.
	Delete(ctx context.Context, key, rev string) error
	// Keys yields the keys that begin with prefix and have not expired, in any order. An error ends
	// the sequence. Keys that are put or deleted meanwhile may or may not be included.
	Keys(ctx context.Context, prefix string) iter.Seq2[string, error]
}

// Entry is what a Store stores under a key.
type Entry struct {
	Value   []byte    // opaque to the Store; at most MaxValue
	Rev     string    // opaque; never used twice for a key, even after Delete
	Expires time.Time // the entry is not returned after this time; zero: never expires
}

// MaxValue is the size of the largest value that a Store must accept.
const MaxValue = 64 << 10

// ErrConflict says that an entry has changed since it was read.
var ErrConflict = errors.New("sessions: revision conflict")
