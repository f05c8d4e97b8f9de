package sessions

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// NewMemoryStore returns a Store for one process.
func NewMemoryStore() Store { return &memory{entries: map[string]Entry{}} }

type memory struct {
	mu      sync.Mutex
	rev     uint64 // revision of the last Put of any key
	entries map[string]Entry
}

// live returns the entry of key and forgets it if it has expired. The caller holds mu.
func (m *memory) live(key string) (Entry, bool) {
	e, ok := m.entries[key]
	if ok && !e.Expires.IsZero() && !time.Now().Before(e.Expires) {
		delete(m.entries, key)
		return Entry{}, false
	}
	return e, ok
}

func (m *memory) Get(ctx context.Context, key string) (Entry, error) {
	if err := ctx.Err(); err != nil {
		return Entry{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, _ := m.live(key)
	e.Value = bytes.Clone(e.Value)
	return e, nil
}

func (m *memory) Put(ctx context.Context, key string, e Entry) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if len(e.Value) > MaxValue {
		return "", fmt.Errorf("sessions: value of %d bytes: %w", len(e.Value), executor.ErrTooLarge)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, _ := m.live(key); old.Rev != e.Rev {
		return "", ErrConflict
	}
	m.rev++
	e.Rev, e.Value = strconv.FormatUint(m.rev, 10), bytes.Clone(e.Value)
	m.entries[key] = e
	return e.Rev, nil
}

func (m *memory) Delete(ctx context.Context, key, rev string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, ok := m.live(key)
	if ok && old.Rev != rev {
		return ErrConflict
	}
	delete(m.entries, key)
	return nil
}

func (m *memory) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		m.mu.Lock()
		var keys []string
		for k := range m.entries {
			if _, ok := m.live(k); ok && strings.HasPrefix(k, prefix) {
				keys = append(keys, k)
			}
		}
		m.mu.Unlock()
		slices.Sort(keys)
		for _, k := range keys {
			if err := ctx.Err(); err != nil {
				yield("", err)
				return
			}
			if !yield(k, nil) {
				return
			}
		}
	}
}
