package compat

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxItems bounds what is kept for a subject in number.
const maxItems = 10_000

// shelf keeps files and results in memory, for each subject by itself. The number of keys and
// fronts bounds the number of subjects.
type shelf struct {
	mostBytes int64
	keep      time.Duration

	mu       sync.Mutex
	subjects map[string]*owned
}

// owned is what a subject has on the shelf.
type owned struct {
	items map[string]*item
	bytes int64
}

// item is something that is kept. Its value is not changed; put replaces it.
type item struct {
	id    string
	value any
	cost  int64
	added time.Time
}

// errFull refuses what there is no room for. What is there is not given up for it.
func (s *shelf) errFull() refusal {
	return refusal{http.StatusInsufficientStorage, "the files and results of this key fill its storage; delete some, or wait until they expire"}
}

// put keeps a value under an ID of the subject, in place of the one that is there.
func (s *shelf) put(subject, id string, value any, cost int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subjects == nil {
		s.subjects = map[string]*owned{}
	}
	o := s.subjects[subject]
	if o == nil {
		o = &owned{items: map[string]*item{}}
		s.subjects[subject] = o
	}
	now := time.Now()
	for _, i := range o.items {
		if now.Sub(i.added) >= s.keep {
			o.drop(i)
		}
	}
	before, n := int64(0), len(o.items)
	old := o.items[id]
	if old != nil {
		before, n = old.cost, n-1
	}
	if n >= maxItems || o.bytes-before+cost > s.mostBytes {
		return s.errFull()
	}
	if old != nil {
		o.drop(old)
	}
	o.items[id] = &item{id, value, cost, now}
	o.bytes += cost
	return nil
}

func (o *owned) drop(i *item) {
	delete(o.items, i.id)
	o.bytes -= i.cost
}

// get returns what the subject has under an ID.
func (s *shelf) get(subject, id string) (item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.subjects[subject]; o != nil {
		if i := o.items[id]; i != nil && time.Since(i.added) < s.keep {
			return *i, true
		}
	}
	return item{}, false
}

// below returns what the subject has under IDs that begin with prefix, the oldest first.
func (s *shelf) below(subject, prefix string) (found []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.subjects[subject]; o != nil {
		for id, i := range o.items {
			if strings.HasPrefix(id, prefix) && time.Since(i.added) < s.keep {
				found = append(found, *i)
			}
		}
	}
	slices.SortFunc(found, func(a, b item) int { return cmp.Or(a.added.Compare(b.added), cmp.Compare(a.id, b.id)) })
	return found
}

// remove removes an item, and reports whether it was there.
func (s *shelf) remove(subject, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.subjects[subject]
	if o == nil || o.items[id] == nil {
		return false
	}
	o.drop(o.items[id])
	return true
}

// newID returns an ID that cannot be guessed, in a form that all clients accept: LibreChat wants 21
// of these characters.
func newID() string { return strings.ToLower(rand.Text())[:21] }
