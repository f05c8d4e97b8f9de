package backends

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/execbroker/execbroker/executor/sessions"
)

// keptFor is how long a record is kept that nobody changes.
const keptFor = 400 * 24 * time.Hour

// read returns a record of the store, which is written as JSON, with its entry, for Encode. The
// entry of one that is not there has no Rev.
func read[S any](ctx context.Context, store sessions.Store, key string) (s S, e sessions.Entry, err error) {
	e, err = store.Get(ctx, key)
	if err == nil && e.Rev != "" {
		err = e.DecodeForUpdate(&s)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", key, err)
	}
	return s, e, err
}

// update changes a record that several processes write. do gets what is there, or fresh if there is
// nothing, and reports whether it has changed it; it may be called again.
func update[S any](ctx context.Context, store sessions.Store, key string, do func(s *S, fresh bool) bool) (s S, err error) {
	for {
		s, e, err := read[S](ctx, store, key)
		if err != nil || !do(&s, e.Rev == "") {
			return s, err
		}
		if err := e.Encode(s); err != nil {
			return s, err
		}
		e.Expires = time.Now().Add(keptFor)
		if _, err := store.Put(ctx, key, e); !errors.Is(err, sessions.ErrConflict) { // otherwise another replica was faster
			return s, err
		}
	}
}

// hashOf names something that has only plain fields, for a key.
func hashOf(what any) string {
	text, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
