package sessions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Record is what the Manager stores about a key.
type Record struct {
	Key      string          `json:"key"`
	Handle   executor.Handle `json:"handle,omitzero"` // zero while the sandbox is being created
	Subject  string          `json:"subject,omitempty"`
	Instance string          `json:"instance,omitempty"` // that holds the lease, or the sandbox if no other process can attach to it
	Until    time.Time       `json:"until,omitzero"`     // end of the lease; zero: no lease
	Token    int64           `json:"token"`              // of the last lease; always grows
	Created  time.Time       `json:"created"`
	Used     time.Time       `json:"used"`
	Noted    time.Time       `json:"noted,omitzero"` // until when the note that Subject has this session lasts at least

	// Acquire compares these with its Spec.
	Template  string                 `json:"template,omitempty"`
	Languages []executor.Language    `json:"languages,omitempty"`
	Network   executor.NetworkPolicy `json:"network,omitzero"`

	Attach  bool   `json:"attach,omitempty"`  // other processes can attach to the sandbox
	Fencing bool   `json:"fencing,omitempty"` // the sandbox shuts out holders with a lower token
	Life    string `json:"life,omitempty"`    // identifies the Manager that holds the lease: an Instance may have had several

	// Unavailable is the time since which no Acquire has reached the backend of Handle. Running is
	// the time until which a run may go on in the sandbox whose end nobody knows.
	Unavailable time.Time `json:"unavailable,omitzero"`
	Running     time.Time `json:"running,omitzero"`

	Behind int `json:"behind,omitempty"` // runs since the last checkpoint: see Kept.Behind
	Tried  int `json:"tried,omitempty"`  // Behind at the last attempt that failed

	On   string `json:"on,omitempty"`   // the backend that the conversation was escalated to
	Need Need   `json:"need,omitempty"` // what its last run lacked: see Escalation

	Lost bool                `json:"lost,omitempty"` // see Lease.Lost
	Why  Loss                `json:"why,omitempty"`  // see Lease.Why
	Ran  []executor.Language `json:"ran,omitempty"`  // see Lease.Ran

	Installed []executor.Packages `json:"installed,omitempty"` // in this sandbox, besides those of its Spec

	IDs    []string `json:"ids,omitempty"`    // see Lease.Once
	Unsure []string `json:"unsure,omitempty"` // those of IDs of which it is not known whether their run began
}

// ended is what the Store keeps of a key whose record was removed because its sandbox has ended. An
// earlier version kept the text of Why alone.
type ended struct {
	Why     Loss      `json:"why,omitempty"`
	Subject string    `json:"subject,omitempty"`
	On      string    `json:"on,omitempty"`
	Used    time.Time `json:"used,omitzero"`
	IDs     []string  `json:"ids,omitempty"`
	Unsure  []string  `json:"unsure,omitempty"`
}

// Where records are in the Store.
const (
	sessionPrefix   = "session/"
	subjectPrefix   = "subject/"
	instancePrefix  = "instance/"
	abandonedPrefix = "abandoned/" // sandboxes that no key uses any more: see Reap
	lostPrefix      = "lost/"      // keys without a record that have had a sandbox, or begin as a copy of one
)

// maxKey bounds the keys of applications.
const maxKey = 512

func checkKey(key string) error {
	if key == "" || len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' }) {
		return fmt.Errorf("key: want 1 to %d bytes without control characters", maxKey)
	}
	return nil
}

// subjectKey is the key of the note that a subject has the session of a key. A subject may be any
// text, so its hash is used, which has a fixed size.
func subjectKey(subject, key string) string { return subjectDir(subject) + key }

func subjectDir(subject string) string {
	h := sha256.Sum256([]byte(subject))
	return subjectPrefix + hex.EncodeToString(h[:16]) + "/"
}

// entry is a record with the revision that it was read at.
type entry struct {
	Record
	rev   string
	value []byte // as the Store has it, if there are fields that this program does not know
	other bool   // another process had the last lease before ours
	made  bool   // there was none

	before    time.Time // Used before the last lease
	inherited bool      // the last lease before ours was not released
}

// forget is how long a record is kept after its sandbox has ended. The record says that there was a
// sandbox.
const forget = 24 * time.Hour

// expires returns when the Store may forget r.
func (r *Record) expires() time.Time {
	return later(r.Used, r.Until).Add(cmp.Or(r.Handle.IdleTTL, executor.DefaultIdleTTL) + forget)
}

// load reads the record of a key. If there is none, the revision is "".
func (m *Manager) load(ctx context.Context, key string) (entry, error) {
	return m.loadAgain(ctx, key, entry{})
}

// loadAgain is load for a caller that has loaded the same key before. It reads the record only if
// it has changed.
func (m *Manager) loadAgain(ctx context.Context, key string, before entry) (entry, error) {
	e, err := m.store.Get(ctx, sessionPrefix+key)
	if err != nil {
		return entry{}, m.storeError(ctx, "acquire", err)
	}
	switch e.Rev {
	case "":
		return entry{}, nil
	case before.rev:
		return before, nil
	}
	out := entry{rev: e.Rev}
	err = e.DecodeForUpdate(&out.Record)
	out.value = e.Value
	if later := (*SchemaError)(nil); errors.As(err, &later) {
		return entry{}, m.storeError(ctx, "acquire", fmt.Errorf("the record of key %q: %w", key, later)) // another replica may know it
	}
	if err != nil || out.Key != key {
		return entry{}, m.fail("acquire", executor.ErrInternal, fmt.Errorf("the record of key %q cannot be read: %w", key, err))
	}
	return out, nil
}

// save writes a record if its revision is still the one that was read.
func (m *Manager) save(ctx context.Context, e *entry) error {
	next := Entry{Value: e.value, Rev: e.rev, Expires: e.expires()}
	if err := next.Encode(e.Record); err != nil {
		return err
	}
	rev, err := m.store.Put(ctx, sessionPrefix+e.Key, next)
	if errors.Is(err, executor.ErrTooLarge) { // it has fields that are not ours
		return fmt.Errorf("the record of key %q: %w", e.Key, err)
	}
	if err != nil {
		return err
	}
	if e.rev = rev; len(e.value) > 0 {
		e.value = next.Value
	}
	return nil
}

// remove deletes a record and the note about its subject. It spares the note of a record that
// another process makes meanwhile.
func (m *Manager) remove(ctx context.Context, e *entry) error {
	note, err := m.noteOf(ctx, e.Subject, e.Key)
	if err == nil {
		err = m.store.Delete(ctx, sessionPrefix+e.Key, e.rev)
	}
	if err == nil && note.Rev != "" {
		err = unlessConflict(m.store.Delete(ctx, subjectKey(e.Subject, e.Key), note.Rev))
	}
	return err
}

// wasLost returns what is known of a key without a record whose sandbox has ended, or nil.
func (m *Manager) wasLost(ctx context.Context, key string) (*ended, error) {
	e, err := m.store.Get(ctx, lostPrefix+key)
	if err != nil || e.Rev == "" {
		return nil, m.storeError(ctx, "acquire", err)
	}
	var was ended
	switch err, later := e.Decode(&was), (*SchemaError)(nil); {
	case errors.As(err, &later):
		return nil, m.storeError(ctx, "acquire", fmt.Errorf("the end of key %q: %w", key, later))
	case err != nil:
		was = ended{Why: Loss(e.Value)}
	}
	switch was.Why {
	case LossGone, LossUnavailable, LossAbandoned, LossEvicted, LossForked, LossMoved:
	default:
		was.Why = ""
	}
	return &was, nil
}

// noteLost stores for the next Acquire of the key of r, which has no record, that the sandbox was
// lost with its variables and files. An empty why says that it ended with its process.
func (m *Manager) noteLost(ctx context.Context, r *Record, why Loss) error {
	var note Entry
	if err := note.Encode(ended{Why: why, Subject: r.Subject, On: r.On, Used: r.Used, IDs: r.IDs, Unsure: r.Unsure}); err != nil {
		return err
	}
	err := m.mark(ctx, lostPrefix+r.Key, r.expires(), note.Value...)
	if err == nil && r.Subject != "" { // for Erase
		err = m.mark(ctx, ownedKey(r.Subject, r.Key), r.expires())
	}
	return err
}

// removeLost removes the record of a sandbox that has ended, and notes that there was one.
func (m *Manager) removeLost(ctx context.Context, op string, e *entry, why Loss) error {
	err := m.noteLost(ctx, &e.Record, why)
	if err == nil {
		err = unlessConflict(m.remove(ctx, e))
	}
	return m.storeError(ctx, op, err)
}

// unnoteLost removes the note of noteLost, once a record says it or it is no longer true.
func (m *Manager) unnoteLost(ctx context.Context, key string) error {
	return m.unmark(ctx, lostPrefix+key)
}

// noteTime is how much longer than its record a note lasts. So a conversation in use writes its
// note once in this time, and not with every message.
const noteTime = 24 * time.Hour

// note stores that a subject has the session of a key, unless a note lasts as long as the record.
func (m *Manager) note(ctx context.Context, r *Record) error {
	if r.Subject == "" || !r.expires().After(r.Noted) {
		return nil
	}
	until := r.expires().Add(noteTime)
	err := m.mark(ctx, subjectKey(r.Subject, r.Key), until)
	if err == nil {
		r.Noted = until
	}
	return err
}

// noteOf returns the note that a subject has the session of a key.
func (m *Manager) noteOf(ctx context.Context, subject, key string) (Entry, error) {
	if subject == "" {
		return Entry{}, nil
	}
	return m.store.Get(ctx, subjectKey(subject, key))
}

// mark stores an entry, or renews it.
func (m *Manager) mark(ctx context.Context, key string, expires time.Time, value ...byte) error {
	old, err := m.store.Get(ctx, key)
	if err != nil {
		return err
	}
	_, err = m.store.Put(ctx, key, Entry{Value: value, Rev: old.Rev, Expires: expires})
	return unlessConflict(err) // another process has just written the same
}

// unmark removes an entry if it is there.
func (m *Manager) unmark(ctx context.Context, key string) error {
	old, err := m.store.Get(ctx, key)
	if err != nil || old.Rev == "" {
		return err
	}
	return unlessConflict(m.store.Delete(ctx, key, old.Rev))
}

// unlessConflict is for a write that does not matter if another process wrote at the same time.
func unlessConflict(err error) error {
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// storeError returns an error that the Store failed, if err is not nil. If the caller's context
// ended, it returns that error instead.
func (m *Manager) storeError(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return m.fail(op, ctx.Err(), nil)
	}
	return m.fail(op, executor.ErrUnavailable, fmt.Errorf("session store: %w", err))
}

func (m *Manager) fail(op string, kind, cause error) *executor.Error {
	return &executor.Error{Op: op, Backend: m.x.Info().Name, Kind: kind, Ran: executor.RanNo, Err: cause}
}
