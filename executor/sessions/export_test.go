package sessions

import (
	"errors"
	"strings"
)

// PieceOf returns the name of a piece in the Store as that of another key.
func PieceOf(key, name string) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(name, piecePrefix), "/")
	return piecePrefix + hashed(key) + "/" + rest
}

// Crash ends all background work of m without telling the Store or the backend, as the death of its
// process would.
func (m *Manager) Crash() {
	m.mu.Lock()
	m.closed = true
	var leases []*Lease
	for _, l := range m.keys {
		if l.lease != nil {
			leases = append(leases, l.lease)
		}
	}
	m.mu.Unlock()
	m.cancel()
	m.work.Wait()
	for _, le := range leases {
		le.cancel(errors.New("crashed"))
		le.renewal.Wait()
	}
}
