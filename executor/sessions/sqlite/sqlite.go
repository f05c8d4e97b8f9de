// Package sqlite is a sessions.Store in a file. All processes of one machine may use the file at
// the same time. The database engine is SQLite, compiled to Go.
package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	engine "modernc.org/sqlite" // also registers the driver "sqlite"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// Store is a sessions.Store. Open makes one.
type Store struct {
	path string
	db   *sql.DB
	// turn queues the writers. SQLite lets new writers overtake waiting ones, and so does
	// database/sql: the renewal of a lease could wait behind hundreds of other writes, and the
	// lease would be lost.
	turn *semaphore.Weighted
}

var _ sessions.Store = (*Store)(nil)

// Revisions come from one counter for all keys. No delete decreases it.
const schema = `
CREATE TABLE IF NOT EXISTS revision (last INTEGER NOT NULL);
INSERT INTO revision SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM revision);
CREATE TABLE IF NOT EXISTS entry (key TEXT PRIMARY KEY, value BLOB, rev INTEGER NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entry_expires ON entry (expires) WHERE expires > 0;
`

// connections bounds the connections to the database. Each has three files open, and more of them
// than processors do not read faster.
const connections = 8

// patience is how long to wait for other users of the database.
const patience = 10 * time.Second

// Open opens the database in a file, or creates it. The directory must be on a local disk: SQLite's
// locks do not work over a network. Only the user of this process can read and write the file and
// those that SQLite makes beside it, whatever the umask is and even if another version of this
// package made them readable for others.
func Open(path string) (*Store, error) {
	if err := private(path); err != nil {
		return nil, fmt.Errorf("sessions: %w", err)
	}
	q := url.Values{}
	// If another process writes, wait for it.
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", patience.Milliseconds()))

	q.Add("_pragma", "journal_mode(WAL)") // readers and a writer do not wait for each other
	q.Add("_pragma", "synchronous(FULL)") // no revision is used twice after a power failure
	q.Add("_txlock", "immediate")         // a transaction that reads and then writes needs the lock from its beginning
	name := "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, fmt.Errorf("sessions: %s: %w", path, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	s := &Store{path: path, db: db, turn: semaphore.NewWeighted(1)}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(patience); ; <-poll.C {
		_, err = db.Exec(schema) //nolint:noctx // a local file, bounded by patience
		if !busy(err) || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("sessions: %s: %w", path, err)
	}
	return s, nil
}

// creating is held while a database is created, so that no other Store of this process has it open.
var creating sync.Mutex

// private creates the database, if it is not there, and takes it from everybody else, with the
// files beside it. SQLite gives new files beside a database the rights of the database. A file of
// another user, who shares it with this one, keeps its rights.
//
// A database that is there is not opened here: closing it would take the locks of other Stores of
// this process.
func private(path string) error {
	creating.Lock()
	defer creating.Unlock()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, name := range []string{path, path + "-wal", path + "-shm", path + "-journal"} {
		if err := os.Chmod(name, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// The codes of SQLite for a database that another process has locked, and for a full disk.
const (
	codeBusy = 5
	codeFull = 13
)

// busy reports whether another process has locked the database. SQLite does not wait by itself if
// two processes change the journal mode of a new file at the same time.
func busy(err error) bool {
	var e *engine.Error
	return errors.As(err, &e) && e.Code()&0xff == codeBusy // with any extended code
}

// logRoom is what SQLite's log of writes takes on the disk before the database gets what is in it.
const logRoom = 4 << 20

// Check reports whether there is room on the disk for what is written next. It makes a file of that
// size beside the database for a moment.
func (s *Store) Check(context.Context) (err error) {
	f, err := os.CreateTemp(filepath.Dir(s.path), ".execbroker-room-*")
	if err != nil {
		return fmt.Errorf("sessions: %s: %w", s.path, err)
	}
	defer os.Remove(f.Name())
	_, err = io.CopyN(f, rand.Reader, logRoom) // file systems store what is alike in less
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sessions: %s: %d MiB do not fit on its disk: %w", s.path, logRoom>>20, err)
	}
	return nil
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Get implements sessions.Store.
func (s *Store) Get(ctx context.Context, key string) (sessions.Entry, error) {
	var (
		e            sessions.Entry
		rev, expires int64
		size         int
	)
	err := s.db.QueryRowContext(ctx, "SELECT CASE WHEN length(value) <= ? THEN value END, coalesce(length(value), 0), rev, expires FROM entry "+
		"WHERE key = ? AND (expires = 0 OR expires > ?)", sessions.MaxValue, key, now()).Scan(&e.Value, &size, &rev, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return sessions.Entry{}, nil
	}
	if err != nil {
		return sessions.Entry{}, s.wrap(ctx, "get", err)
	}
	if size > sessions.MaxValue { // not written by a Store
		return sessions.Entry{}, fmt.Errorf("sessions: get: sqlite: %q has a value of %d bytes: %w", key, size, executor.ErrTooLarge)
	}
	e.Rev = strconv.FormatInt(rev, 10)
	if expires != 0 {
		e.Expires = time.UnixMicro(expires)
	}
	return e, nil
}

// Put implements sessions.Store.
func (s *Store) Put(ctx context.Context, key string, e sessions.Entry) (rev string, err error) {
	if len(e.Value) > sessions.MaxValue {
		return "", fmt.Errorf("sessions: value of %d bytes: %w", len(e.Value), executor.ErrTooLarge)
	}
	var expires int64
	if !e.Expires.IsZero() {
		expires = e.Expires.UnixMicro()
	}
	err = s.write(ctx, "put", func(tx *sql.Tx) error {
		// Expired entries are hidden from all readers. Here they are also removed, a few at a time.
		if _, err := tx.ExecContext(ctx, "DELETE FROM entry WHERE key = ? AND expires > 0 AND expires <= ?", key, now()); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx,
			"DELETE FROM entry WHERE key IN (SELECT key FROM entry WHERE expires > 0 AND expires <= ? LIMIT 16)", now()); err != nil {
			return err
		}
		if err := same(ctx, tx, key, e.Rev, true); err != nil {
			return err
		}
		var n int64
		if err := tx.QueryRowContext(ctx, "UPDATE revision SET last = last + 1 RETURNING last").Scan(&n); err != nil {
			return err
		}
		rev = strconv.FormatInt(n, 10)
		_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO entry (key, value, rev, expires) VALUES (?, ?, ?, ?)", key, e.Value, n, expires)
		return err
	})
	return rev, err
}

// Delete implements sessions.Store.
func (s *Store) Delete(ctx context.Context, key, rev string) error {
	return s.write(ctx, "delete", func(tx *sql.Tx) error {
		if err := same(ctx, tx, key, rev, false); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM entry WHERE key = ?", key)
		return err
	})
}

// same fails with ErrConflict if the entry of key has another revision than rev. If there is no
// entry, it fails only if must is set and rev is not "".
func same(ctx context.Context, tx *sql.Tx, key, rev string, must bool) error {
	var n int64
	err := tx.QueryRowContext(ctx, "SELECT rev FROM entry WHERE key = ? AND (expires = 0 OR expires > ?)", key, now()).Scan(&n)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if must && rev != "" {
			return sessions.ErrConflict
		}
		return nil
	case err != nil:
		return err
	case strconv.FormatInt(n, 10) != rev:
		return sessions.ErrConflict
	}
	return nil
}

func (s *Store) write(ctx context.Context, op string, f func(*sql.Tx) error) error {
	if err := s.turn.Acquire(ctx, 1); err != nil {
		return s.wrap(ctx, op, err)
	}
	defer s.turn.Release(1)
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return s.wrap(ctx, op, err)
	}
	defer tx.Rollback() // after Commit it does nothing
	if err := f(tx); err != nil {
		return s.wrap(ctx, op, err)
	}
	return s.wrap(ctx, op, tx.Commit())
}

// Keys implements sessions.Store. It reads in pages, so that a slow loop does not block other
// users.
func (s *Store) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		const page = 500
		from, inclusive := prefix, true
		for {
			keys, err := s.page(ctx, from, inclusive, prefix, page)
			if err != nil {
				yield("", s.wrap(ctx, "keys", err))
				return
			}
			for _, k := range keys {
				if !yield(k, nil) {
					return
				}
			}
			if len(keys) < page {
				return
			}
			from, inclusive = keys[len(keys)-1], false
		}
	}
}

func (s *Store) page(ctx context.Context, from string, inclusive bool, prefix string, n int) ([]string, error) {
	// substr compares text exactly; LIKE and GLOB would not.
	rows, err := s.db.QueryContext(ctx, `SELECT key FROM entry
		WHERE (key > ? OR ? AND key = ?) AND substr(key, 1, length(?)) = ? AND (expires = 0 OR expires > ?) ORDER BY key LIMIT ?`,
		from, inclusive, from, prefix, prefix, now(), n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var keys []string
	for rows.Next() {
		var k string
		if err := rows.Scan(&k); err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, rows.Err()
}

func now() int64 { return time.Now().UnixMicro() }

// wrap says what failed. It returns the end of the caller's context and a conflict unchanged.
func (s *Store) wrap(ctx context.Context, op string, err error) error {
	switch {
	case err == nil, errors.Is(err, sessions.ErrConflict):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if e := (*engine.Error)(nil); errors.As(err, &e) && e.Code() == codeFull {
		return fmt.Errorf("sessions: %s: %w; make room on the disk of %s", op, err, s.path)
	}
	return fmt.Errorf("sessions: %s: %w", op, err)
}
