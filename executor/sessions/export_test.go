package sessions

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
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

// Rewrite replaces the archive of the last checkpoint of a conversation, as another version of the
// program might have written it.
func (m *Manager) Rewrite(ctx context.Context, l *Lease, change func(archive []byte) []byte) error {
	e, err := m.load(ctx, l.Key)
	if err != nil {
		return err
	}
	h, _, err := m.loadHead(ctx, l.Key)
	if err != nil {
		return err
	}
	sealed, err := m.getPieces(ctx, l.Key, h)
	if err != nil {
		return err
	}
	archive, err := m.opts.Checkpoint.open(m.binding(&e.Record, l.session()), sealed)
	if err != nil {
		return err
	}
	return m.saveArchive(ctx, &e.Record, l.session(), change(archive))
}

// LaterSeal gives the last checkpoint of a conversation a seal of the next version.
func (m *Manager) LaterSeal(ctx context.Context, l *Lease) error {
	e, err := m.load(ctx, l.Key)
	if err != nil {
		return err
	}
	h, _, err := m.loadHead(ctx, l.Key)
	if err != nil {
		return err
	}
	stored, err := m.store.Get(ctx, piece(l.Key, h.ID, 0))
	if err != nil {
		return err
	}
	c := &m.opts.Checkpoint
	a, err := c.aead(e.Subject)
	if err != nil {
		return err
	}
	sealed, err := a.Open(nil, nil, stored.Value, []byte(e.Key))
	if err != nil {
		return err
	}
	key, err := c.derived("seal", e.Subject)
	if err != nil {
		return err
	}
	content := bytes.Replace(sealed[:len(sealed)-sha256.Size], []byte("seal 1\n"), []byte("seal 2\n"), 1)
	code := hmac.New(sha256.New, key)
	code.Write(content)
	stored.Value = a.Seal(nil, nil, code.Sum(content), []byte(e.Key))
	_, err = m.store.Put(ctx, piece(l.Key, h.ID, 0), stored)
	return err
}
