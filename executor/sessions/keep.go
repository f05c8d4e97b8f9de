package sessions

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
)

// Where kept files are in the Store: a list for each key, and their contents in pieces.
const (
	filesPrefix = "files/"
	blobPrefix  = "blob/"
)

// maxListed is another bound than the number of bytes: a list must fit into an entry.
const maxListed = MaxValue - 4<<10

// kept is the list of the files of a key.
type kept struct {
	Subject string     `json:"subject,omitempty"` // the owner of the files
	Files   []keptFile `json:"files"`
	Omitted int        `json:"omitted,omitempty"` // number of files that exceed the bounds
	Token   int64      `json:"token,omitempty"`   // of the lease that wrote the list; a lease with a lower token can no longer write
}

type keptFile struct {
	Name    string      `json:"name"` // relative to Workdir
	Size    int64       `json:"size"`
	Mode    fs.FileMode `json:"mode"`
	ModTime time.Time   `json:"mod_time"`
	Sum     string      `json:"sum"`   // SHA-256 of the content; part of the keys of its pieces
	Until   time.Time   `json:"until"` // expiry of the pieces in the Store
}

// same reports whether a file is unchanged since it was kept, as far as can be told without reading
// it.
func (f keptFile) same(g keptFile) bool {
	return f.Name == g.Name && f.Size == g.Size && f.Mode == g.Mode && f.ModTime.Equal(g.ModTime)
}

func blobDir(key string) string {
	h := sha256.Sum256([]byte(key))
	return blobPrefix + hex.EncodeToString(h[:16]) + "/"
}

func blob(key, sum string, piece int) string { return fmt.Sprintf("%s%s/%d", blobDir(key), sum, piece) }

// pieces returns the number of entries that hold size bytes.
func pieces(size int64) int { return int((size + MaxValue - 1) / MaxValue) }

// loadKept reads the list of a key.
func (m *Manager) loadKept(ctx context.Context, key string) (l kept, rev string, err error) {
	e, err := m.store.Get(ctx, filesPrefix+key)
	if err != nil || e.Rev == "" {
		return l, "", err
	}
	if err := json.Unmarshal(e.Value, &l); err != nil {
		return kept{}, e.Rev, fmt.Errorf("the list of kept files cannot be read: %w", err)
	}
	return l, e.Rev, nil
}

// keep saves the files of a session under its key. It writes contents before the list and removes
// old ones after it, so that the list is correct even after a crash in between.
func (m *Manager) keep(ctx context.Context, key, subject string, token int64, s executor.Session) error {
	if m.opts.KeepFiles == 0 || !s.Info().Capabilities.Has(executor.FeatureFiles) {
		return nil
	}
	old, rev, err := m.loadKept(ctx, key)
	if err != nil && rev == "" {
		return err
	}
	if old.Token > token {
		return errLost
	}
	found, omitted, err := regular(ctx, filesOf(s))
	if err != nil {
		return err
	}
	idle := cmp.Or(s.Info().Handle.IdleTTL, executor.DefaultIdleTTL)
	now := time.Now()
	until := now.Add(idle + 2*forget)
	next := kept{Subject: subject, Omitted: omitted, Token: token}
	left, listed := m.opts.KeepFiles, 0
	changed := old.Subject != subject
	for _, f := range found {
		was := slices.IndexFunc(old.Files, f.same)
		if listed += len(f.Name) + 250; f.Size > left || listed > maxListed {
			next.Omitted++
			continue
		}
		left -= f.Size
		if was >= 0 && old.Files[was].Until.After(now.Add(idle+forget)) {
			next.Files = append(next.Files, old.Files[was])
			continue
		}
		changed = true
		f.Until = until
		if f.Sum, err = m.put(ctx, key, f, filesOf(s)); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		next.Files = append(next.Files, f)
	}
	if !changed && len(next.Files) == len(old.Files) && next.Omitted == old.Omitted {
		return nil
	}
	raw, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if _, err := m.store.Put(ctx, filesPrefix+key, Entry{Value: raw, Rev: rev, Expires: until}); err != nil {
		return err
	}
	return m.dropBlobs(ctx, key, old, next)
}

// put saves the content of one file.
func (m *Manager) put(ctx context.Context, key string, f keptFile, files executor.Files) (sum string, err error) {
	r, err := files.Read(ctx, f.Name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(r, f.Size+1))
	if err != nil {
		return "", err
	}
	if int64(len(content)) != f.Size {
		return "", errors.New("the file changed while it was being saved")
	}
	h := sha256.Sum256(content)
	sum = hex.EncodeToString(h[:])
	for i := range pieces(f.Size) {
		piece := content[i*MaxValue : min((i+1)*MaxValue, len(content))]
		name := blob(key, sum, i)
		have, err := m.store.Get(ctx, name)
		if err != nil {
			return "", err
		}
		if _, err := m.store.Put(ctx, name, Entry{Value: piece, Rev: have.Rev, Expires: f.Until}); err != nil && !errors.Is(err, ErrConflict) {
			return "", err
		}
	}
	return sum, nil
}

// filesToken returns the token of the lease that wrote the kept files of a key. It is used if the
// record is gone.
func (m *Manager) filesToken(ctx context.Context, key string) (int64, error) {
	if m.opts.KeepFiles == 0 {
		return 0, nil
	}
	l, rev, err := m.loadKept(ctx, key)
	if err != nil && rev == "" {
		return 0, m.storeError(ctx, "acquire", err)
	}
	return l.Token, nil
}

// fenceFiles makes sure that no lease with a lower token writes kept files of a key any more. The
// holder of an abandoned sandbox may be alive and find out later that it has lost its lease.
func (m *Manager) fenceFiles(ctx context.Context, key, subject string, token int64) error {
	if m.opts.KeepFiles == 0 {
		return nil
	}
	for {
		l, rev, err := m.loadKept(ctx, key)
		if err != nil && rev == "" {
			return err
		}
		if l.Token >= token {
			return nil
		}
		if l.Subject != subject {
			l = kept{Subject: subject} // as in restore
		}
		l.Token = token
		raw, err := json.Marshal(l)
		if err != nil {
			return err
		}
		_, err = m.store.Put(ctx, filesPrefix+key, Entry{Value: raw, Rev: rev, Expires: time.Now().Add(executor.DefaultIdleTTL + 2*forget)})
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// restore writes the kept files of a key into a new sandbox, which replaces an older one if the
// record names one. Files that the Store no longer has are left out and counted. Files of another
// subject, whose record was forgotten, are not restored.
func (m *Manager) restore(ctx context.Context, e *entry, s executor.Session) (names []string, omitted int, err error) {
	if m.opts.KeepFiles == 0 || !s.Info().Capabilities.Has(executor.FeatureFiles) {
		return nil, 0, nil
	}
	key := e.Key
	if e.Handle.Session != "" {
		if err := m.fenceFiles(ctx, key, e.Subject, e.Token); err != nil {
			return nil, 0, m.storeError(ctx, "acquire", err)
		}
	}
	l, rev, err := m.loadKept(ctx, key)
	if err != nil && rev == "" {
		return nil, 0, m.storeError(ctx, "acquire", err)
	}
	if l.Subject != e.Subject {
		return nil, 0, nil
	}
	omitted = l.Omitted
	for _, f := range l.Files {
		content, err := m.get(ctx, key, f)
		if err != nil {
			return nil, 0, m.storeError(ctx, "acquire", err)
		}
		if content == nil {
			omitted++
			continue
		}
		if err := filesOf(s).Write(ctx, f.Name, bytes.NewReader(content), f.Mode.Perm()); err != nil {
			return nil, 0, err
		}
		names = append(names, f.Name)
	}
	return names, omitted, nil
}

// get reads the content of one file. Nil means that it is gone or has changed.
func (m *Manager) get(ctx context.Context, key string, f keptFile) ([]byte, error) {
	if f.Size < 0 || f.Size > m.opts.KeepFiles || !fs.ValidPath(f.Name) {
		return nil, nil // keep does not write such an entry
	}
	content := make([]byte, 0, f.Size)
	for i := range pieces(f.Size) {
		e, err := m.store.Get(ctx, blob(key, f.Sum, i))
		if err != nil {
			return nil, err
		}
		content = append(content, e.Value...)
	}
	if h := sha256.Sum256(content); hex.EncodeToString(h[:]) != f.Sum {
		return nil, nil
	}
	return content, nil
}

// forgetFiles removes the kept files of a key, and the note that the key lost a sandbox.
func (m *Manager) forgetFiles(ctx context.Context, key string) error {
	if err := m.unnoteLost(ctx, key); err != nil {
		return err
	}
	l, rev, err := m.loadKept(ctx, key)
	if rev == "" {
		return err
	}
	if err := unlessConflict(m.store.Delete(ctx, filesPrefix+key, rev)); err != nil {
		return err
	}
	return m.dropBlobs(ctx, key, l, kept{})
}

// dropBlobs removes the contents that are in old but not in next.
func (m *Manager) dropBlobs(ctx context.Context, key string, old, next kept) error {
	for _, f := range old.Files {
		if slices.ContainsFunc(next.Files, func(g keptFile) bool { return g.Sum == f.Sum }) {
			continue
		}
		for i := range pieces(f.Size) {
			if err := m.unmark(ctx, blob(key, f.Sum, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// regular returns the regular files below Workdir in order of their names, without their sums.
func regular(ctx context.Context, files executor.Files) (found []keptFile, omitted int, err error) {
	all, omitted, err := checkpoint.Walk(ctx, files)
	for _, f := range all {
		switch {
		case f.Info.Mode.IsRegular():
			found = append(found, keptFile{Name: f.Name, Size: f.Info.Size, Mode: f.Info.Mode.Perm(), ModTime: f.Info.ModTime})
		case !f.Info.Mode.IsDir():
			omitted++
		}
	}
	return found, omitted, err
}
