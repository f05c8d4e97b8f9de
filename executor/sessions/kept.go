package sessions

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
)

// Checkpoints says which conversations go on after their sandbox has ended, and from where.
type Checkpoints struct {
	// Every is after how many runs of a key a checkpoint is made, when a lease is released. A
	// change of files counts as a run. Zero: none are made, and none are restored.
	Every int
	// Most bounds an archive, in bytes. What exceeds it is left out, and listed. Zero:
	// DefaultCheckpoint; at most MaxCheckpoint.
	Most int64
	// Key is what archives are sealed and encrypted with, differently for each subject. Required
	// with Every; at least MinKey random bytes. Archives of another Key are not restored.
	Key []byte
	// Weaker lets a conversation go on in a session with a weaker isolation than it had, for
	// example in a container after WebAssembly. MinIsolation of the Spec holds in any case.
	Weaker bool
	// Owner is driver.Env.Owner of the backends. Archives of another Owner are not restored.
	Owner string
}

// Bounds of Checkpoints.Most. A Store is made for small records, and a checkpoint is written as a
// whole.
const (
	DefaultCheckpoint = 10 << 20
	MaxCheckpoint     = 64 << 20
)

// MinKey is the smallest number of bytes of Checkpoints.Key.
const MinKey = checkpoint.MinKey

// checkpointTime bounds the run that makes or restores a checkpoint. A caller waits for it.
const checkpointTime = 10 * time.Second

func (c *Checkpoints) check() error {
	var errs []error
	if c.Every < 0 {
		errs = append(errs, errors.New("checkpoint every: negative"))
	}
	if c.Most < 0 || c.Most > MaxCheckpoint {
		errs = append(errs, fmt.Errorf("checkpoint most: want 0 to %d bytes", int64(MaxCheckpoint)))
	}
	if c.Every > 0 && len(c.Key) < MinKey {
		errs = append(errs, fmt.Errorf("checkpoint key: want at least %d random bytes; without a key nothing is kept", MinKey))
	}
	c.Most = cmp.Or(c.Most, DefaultCheckpoint)
	return errors.Join(errs...)
}

// Kept says what a new sandbox got back from the last checkpoint of its key, and what it did not.
type Kept struct {
	Made  time.Time // when the checkpoint was made
	Files []string  // regular files and links, relative to executor.Workdir
	Names []string  // variables, functions, classes and imports
	// Omitted is what the sandbox did not get back, with reasons. Its texts come from sandboxes.
	Omitted []checkpoint.Omission
	// Behind is how many runs came after the checkpoint, of which nothing was kept. If a process
	// died, there may be more.
	Behind int
	// Installed are the packages that were installed again.
	Installed []executor.Packages

	ran []executor.Language // that it has variables of
	// Refused says why nothing was restored although there was a checkpoint; empty: it was.
	Refused string
}

// Restored reports whether k is not nil and the checkpoint was not refused.
func (k *Kept) Restored() bool { return k != nil && k.Refused == "" }

// Where checkpoints are in the Store: a head for each key, the pieces of its archive, and a note
// for each key of a subject.
const (
	headPrefix  = "checkpoint/"
	piecePrefix = "piece/"
	ownedPrefix = "kept/"
)

// head is what the Store knows of the checkpoint of a key.
type head struct {
	Subject string    `json:"subject,omitempty"`
	ID      string    `json:"id,omitempty"` // of its pieces; empty: there is none
	Size    int64     `json:"size,omitempty"`
	Made    time.Time `json:"made,omitzero"`
	Behind  int       `json:"behind,omitempty"` // runs since then, if the record that said it was removed
	Until   time.Time `json:"until,omitzero"`   // expiry of the pieces in the Store
	Token   int64     `json:"token"`            // of the lease that wrote it; a lease with a lower token can no longer write
}

func hashed(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:16])
}

func piece(key, id string, n int) string {
	return fmt.Sprintf("%s%s/%s/%d", piecePrefix, hashed(key), id, n)
}

// pieces returns the number of entries that hold size bytes.
func pieces(size int64) int { return int((size + MaxValue - 1) / MaxValue) }

// ownedKey is the key of the note that a subject has a checkpoint of a key.
func ownedKey(subject, key string) string { return ownedPrefix + hashed(subject) + "/" + key }

// keeper is a session as the Manager uses it.
type keeper struct{ executor.Session }

func (k keeper) Files() executor.Files {
	if w := Keeper(nil); executor.As(k.Session, &w) {
		return w.KeeperFiles()
	}
	return k.Session.Files()
}

func (k keeper) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	if w := Keeper(nil); executor.As(k.Session, &w) {
		return w.KeeperRun(ctx, req, emit)
	}
	return k.Session.Run(ctx, req, emit)
}

// checkpointOptions bounds a checkpoint of s.
func (m *Manager) checkpointOptions(s executor.Session) checkpoint.Options {
	wall := checkpointTime
	if most := s.Info().MaxRun.WallTime; most > 0 {
		wall = min(wall, most)
	}
	return checkpoint.Options{MaxBytes: m.opts.Checkpoint.Most, Limits: executor.RunLimits{WallTime: wall}}
}

// binding says to whom the checkpoint of a key belongs, and how well s is enclosed.
func (m *Manager) binding(r *Record, s executor.Session) checkpoint.Binding {
	return checkpoint.Binding{
		Owner: m.opts.Checkpoint.Owner, Subject: r.Subject, Conversation: r.Key, Language: s.Info().Capabilities.Languages[0].Language,
		Network: r.Network, Isolation: s.Info().Capabilities.Isolation,
	}
}

// madeOf is the binding of a checkpoint that is made of s. If s is to leave its backend, the
// options of the Manager have chosen where it goes, and the isolation there may be weaker.
func (m *Manager) madeOf(r *Record, s executor.Session) checkpoint.Binding {
	b := m.binding(r, s)
	if m.Leaves(s.Info().Handle) {
		b.Isolation = executor.IsolationProcess
	}
	return b
}

// keeps reports whether checkpoints of s are made.
func (m *Manager) keeps(s executor.Session) bool {
	c := s.Info().Capabilities
	return m.opts.Checkpoint.Every > 0 && c.Has(executor.FeatureFiles) && len(c.Languages) > 0
}

// loadHead reads the head of a key, with its entry in the Store.
func (m *Manager) loadHead(ctx context.Context, key string) (h head, e Entry, err error) {
	e, err = m.store.Get(ctx, headPrefix+key)
	if err != nil || e.Rev == "" {
		return h, Entry{}, err
	}
	err = e.DecodeForUpdate(&h)
	if later := (*SchemaError)(nil); errors.As(err, &later) {
		return head{}, e, fmt.Errorf("the checkpoint of key %q: %w", key, later)
	}
	if err != nil || h.Size < 0 || h.Size > MaxCheckpoint+maxSealed {
		return head{}, e, nil // this package did not write it
	}
	return h, e, nil
}

// saveHead replaces the head that was read with e.
func (m *Manager) saveHead(ctx context.Context, key string, h head, e Entry, expires time.Time) error {
	e.Expires = expires
	if err := e.Encode(h); err != nil {
		return err
	}
	if _, err := m.store.Put(ctx, headPrefix+key, e); err != nil {
		return err
	}
	return m.mark(ctx, ownedKey(h.Subject, key), expires)
}

// due reports whether a lease of r is to make a checkpoint: because enough has run since the last
// attempt, or because the Store is about to forget the last one.
func (m *Manager) due(ctx context.Context, r *Record, s executor.Session) (bool, error) {
	if !m.keeps(s) {
		return false, nil
	}
	if r.Behind-r.Tried >= m.opts.Checkpoint.Every {
		return true, nil
	}
	h, _, err := m.loadHead(ctx, r.Key)
	return h.ID != "" && h.Until.Before(time.Now().Add(idleTTL(s)+forget)), err
}

func idleTTL(s executor.Session) time.Duration {
	return cmp.Or(s.Info().Handle.IdleTTL, executor.DefaultIdleTTL)
}

// keep makes a checkpoint of a session and saves it under its key.
func (m *Manager) keep(ctx context.Context, r *Record, s executor.Session) error {
	archive, err := m.archive(ctx, r, s)
	if err != nil {
		return err
	}
	return m.saveArchive(ctx, r, s, archive)
}

// archive makes an archive of the session of a record.
func (m *Manager) archive(ctx context.Context, r *Record, s executor.Session) ([]byte, error) {
	var archive bytes.Buffer
	opts := m.checkpointOptions(s)
	opts.Packages = r.Installed
	opts.Languages = append([]executor.Language{}, r.Ran...)
	_, err := checkpoint.Make(ctx, keeper{s}, &archive, opts)
	return archive.Bytes(), err
}

// saveArchive saves an archive of s under the key of a record. It writes the pieces before the head
// and removes old ones after it, so that the head is correct even after a crash in between.
func (m *Manager) saveArchive(ctx context.Context, r *Record, s executor.Session, archive []byte) error {
	return m.saveBound(ctx, r, m.madeOf(r, s), idleTTL(s), archive)
}

// saveBound is saveArchive with a binding and an idle TTL.
func (m *Manager) saveBound(ctx context.Context, r *Record, b checkpoint.Binding, ttl time.Duration, archive []byte) error {
	old, e, err := m.loadHead(ctx, r.Key)
	if err != nil {
		return err
	}
	if old.Token > r.Token {
		return errLost
	}
	sealed, err := m.opts.Checkpoint.seal(b, archive)
	if err != nil {
		return err
	}
	now := time.Now()
	next := head{Subject: r.Subject, ID: rand.Text(), Size: int64(len(sealed)), Made: now, Until: now.Add(ttl + 2*forget), Token: r.Token}
	err = m.putPieces(ctx, r.Key, next, sealed)
	if err == nil {
		err = m.saveHead(ctx, r.Key, next, e, next.Until)
	}
	if err != nil {
		return errors.Join(err, m.dropPieces(context.WithoutCancel(ctx), r.Key, next))
	}
	return m.dropPieces(ctx, r.Key, old)
}

// keepLast makes a checkpoint of a session that is going to be closed, if something has run since
// the last one.
func (m *Manager) keepLast(ctx context.Context, r *Record, s executor.Session) error {
	if r.Behind == 0 || !m.keeps(s) {
		return nil
	}
	err := m.keep(ctx, r, s)
	if err == nil {
		return nil
	}
	return errors.Join(m.unkept(r, err), m.noteBehind(ctx, r))
}

// noteBehind stores how much has run since the checkpoint of a record that is going to be removed.
func (m *Manager) noteBehind(ctx context.Context, r *Record) error {
	if m.opts.Checkpoint.Every == 0 || r.Behind == 0 {
		return nil
	}
	h, e, err := m.loadHead(ctx, r.Key)
	if err != nil || h.ID == "" || h.Token > r.Token {
		return m.storeError(ctx, "keep", err)
	}
	h.Behind = r.Behind
	return m.storeError(ctx, "keep", unlessConflict(m.saveHead(ctx, r.Key, h, e, h.Until)))
}

func (m *Manager) putPieces(ctx context.Context, key string, h head, sealed []byte) error {
	for i := range pieces(h.Size) {
		part := sealed[i*MaxValue : min((i+1)*MaxValue, len(sealed))]
		if _, err := m.store.Put(ctx, piece(key, h.ID, i), Entry{Value: part, Expires: h.Until}); err != nil {
			return err
		}
	}
	return nil
}

// dropPieces removes the pieces of a head.
func (m *Manager) dropPieces(ctx context.Context, key string, h head) error {
	for i := range pieces(h.Size) {
		if err := m.unmark(ctx, piece(key, h.ID, i)); err != nil {
			return err
		}
	}
	return nil
}

// headToken returns the token of the lease that wrote the checkpoint of a key. It is used if the
// record is gone.
func (m *Manager) headToken(ctx context.Context, key string) (int64, error) {
	if m.opts.Checkpoint.Every == 0 {
		return 0, nil
	}
	h, _, err := m.loadHead(ctx, key)
	return h.Token, m.storeError(ctx, "acquire", err)
}

// fence makes sure that no lease with a lower token writes the checkpoint of a key any more. The
// holder of an abandoned sandbox may be alive and find out later that it has lost its lease.
func (m *Manager) fence(ctx context.Context, key, subject string, token int64) error {
	if m.opts.Checkpoint.Every == 0 {
		return nil
	}
	for {
		h, e, err := m.loadHead(ctx, key)
		if err != nil || h.Token >= token {
			return err
		}
		if h.Subject != subject {
			h = head{Subject: subject} // as in restore
		}
		h.Token = token
		err = m.saveHead(ctx, key, h, e, later(h.Until, time.Now().Add(executor.DefaultIdleTTL+2*forget)))
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// restore restores the last checkpoint of a key into a new sandbox, which replaces an older one if
// the record names one. It returns the session that goes on: if the checkpoint cannot be restored,
// that is another one, because the first may have a part of it. A checkpoint of another subject,
// whose record was forgotten, is not restored.
func (m *Manager) restore(ctx context.Context, e *entry, spec executor.Spec, s executor.Session) (_ executor.Session, kept *Kept, err error) {
	if !m.keeps(s) {
		return s, nil, nil
	}
	if e.Handle.Session != "" {
		if err := m.fence(ctx, e.Key, e.Subject, e.Token); err != nil {
			return s, nil, m.storeError(ctx, "acquire", err)
		}
	}
	h, _, err := m.loadHead(ctx, e.Key)
	if err != nil {
		return s, nil, m.storeError(ctx, "acquire", err)
	}
	if h.ID == "" || h.Subject != e.Subject {
		return s, nil, nil
	}
	kept = &Kept{Made: h.Made, Behind: e.Behind + h.Behind}
	sealed, err := m.getPieces(ctx, e.Key, h)
	if err != nil {
		return s, nil, m.storeError(ctx, "acquire", err)
	}
	b := m.binding(&e.Record, s)
	if e.On != "" || m.opts.Checkpoint.Weaker { // the application has said so
		b.Isolation = executor.IsolationMicroVM // at least any other
	}
	archive, err := m.opts.Checkpoint.open(b, sealed)
	opened := err == nil
	if opened {
		err = m.unpack(ctx, s, archive, kept)
	}
	later := (*checkpoint.VersionError)(nil)
	switch {
	case err == nil:
		return s, kept, nil
	case errors.As(err, &later):
		return s, nil, m.later(e.Key, later)
	case !opened:
		kept.Refused = err.Error()
		return s, kept, nil
	case !unsuited(err):
		return s, nil, err
	}
	kept.Refused = err.Error()
	s.Close() // if this fails, the idle TTL removes it
	s, err = m.sandbox(ctx, &e.Record, spec)
	return s, kept, err
}

// later returns the error of a key whose checkpoint a later program has made. The conversation does
// not begin anew: its next checkpoint would replace that one.
func (m *Manager) later(key string, err *checkpoint.VersionError) error {
	return m.fail("acquire", executor.ErrUnavailable, fmt.Errorf("the checkpoint of key %q: %w", key, err))
}

// unpack restores an archive of a key into a session of it, and says in kept what that got.
func (m *Manager) unpack(ctx context.Context, s executor.Session, archive []byte, kept *Kept) error {
	opts := m.checkpointOptions(s)
	opts.Known, opts.MaxBytes = true, MaxCheckpoint // Merge may have made more than Most of several
	made, err := checkpoint.Restore(ctx, keeper{s}, bytes.NewReader(archive), opts)
	if err == nil {
		kept.Files, kept.Names, kept.Omitted, kept.Installed = made.Files, made.Names(), made.Omitted, made.Packages
		if made.Manifest.Language == executor.Python {
			kept.ran = append(kept.ran, executor.Python)
		}
		if len(made.Manifest.JavaScript) > 0 {
			kept.ran = append(kept.ran, executor.JavaScript)
		}
	}
	return err
}

// unsuited reports whether a checkpoint failed because of what is in it, and not because of the
// infrastructure.
func unsuited(err error) bool {
	var e *executor.Error
	if !errors.As(err, &e) {
		return false
	}
	return errors.Is(e.Kind, executor.ErrInvalid) || errors.Is(e.Kind, executor.ErrTooLarge) || errors.Is(e.Kind, executor.ErrUnsupported)
}

// getPieces reads a sealed archive. If a piece is gone, it is too short, and its seal is broken.
func (m *Manager) getPieces(ctx context.Context, key string, h head) ([]byte, error) {
	sealed := make([]byte, 0, h.Size)
	for i := range pieces(h.Size) {
		e, err := m.store.Get(ctx, piece(key, h.ID, i))
		if err != nil {
			return nil, err
		}
		sealed = append(sealed, e.Value...)
	}
	return sealed, nil
}

// forgetKept removes the checkpoint of a key, and the note that the key lost a sandbox.
func (m *Manager) forgetKept(ctx context.Context, key string) error {
	was, err := m.wasLost(ctx, key)
	if err == nil && was != nil {
		err = m.unnoteLost(ctx, key)
		if err == nil && was.Subject != "" {
			err = m.unmark(ctx, ownedKey(was.Subject, key))
		}
	}
	if err != nil {
		return err
	}
	h, e, err := m.loadHead(ctx, key)
	if e.Rev == "" || err != nil {
		return err
	}
	if err := unlessConflict(m.store.Delete(ctx, headPrefix+key, e.Rev)); err != nil {
		return err
	}
	return errors.Join(m.dropPieces(ctx, key, h), m.unmark(ctx, ownedKey(h.Subject, key)))
}

// Erase discards the sessions of a subject and removes the checkpoints that the Store has of it.
// It must not run at the same time as calls for the subject.
func (m *Manager) Erase(ctx context.Context, subject string) error {
	var errs []error
	for _, dir := range []string{subjectDir(subject), ownedKey(subject, "")} {
		var keys []string
		for k, err := range m.store.Keys(ctx, dir) {
			if err != nil {
				return m.storeError(ctx, "erase", err)
			}
			keys = append(keys, k[len(dir):])
		}
		for _, key := range keys {
			e, err := m.load(ctx, key)
			if err == nil && (e.rev == "" || e.Subject == subject) {
				err = m.Discard(ctx, key)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
