// Package postgres is a sessions.Store in a PostgreSQL database, for the replicas of a service on
// several machines. PostgreSQL 13 or later is needed.
//
// The table execbroker_entry is made when it is missing; the user needs the right to make it, or to
// read and write it once it is there. Whether an entry has expired, the clock of the server says.
// The clocks of the replicas must agree with it to a second, because records contain times of
// theirs.
package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// Store is a sessions.Store. Open makes one.
type Store struct {
	pool *pgxpool.Pool
}

var (
	_ sessions.Store = (*Store)(nil)
	_ sessions.Clock = (*Store)(nil)
)

// A replica that makes the table at the same time makes this fail with one of raced.
// Keys are bytes, since not all of them need to be text. What never expires does at infinity.
const schema = `CREATE TABLE IF NOT EXISTS execbroker_entry (key bytea PRIMARY KEY, value bytea NOT NULL, rev text NOT NULL, expires timestamptz NOT NULL);
	CREATE INDEX IF NOT EXISTS execbroker_entry_expires ON execbroker_entry (expires)`

// sweep removes a few entries that have expired. Readers do not see them.
const sweep = `DELETE FROM execbroker_entry WHERE key IN
	(SELECT key FROM execbroker_entry WHERE expires <= clock_timestamp() LIMIT 16 FOR UPDATE SKIP LOCKED)`

// Of PostgreSQL's appendix A: undefined_table, and the unique_violation, duplicate_table and
// duplicate_object (its row type) of two connections that make the same table.
const undefinedTable = "42P01"

var raced = map[string]bool{"23505": true, "42P07": true, "42710": true}

// connectTimeout bounds one attempt to connect, unless the URL says connect_timeout.
const connectTimeout = 5 * time.Second

// Open connects to a database. url is a URL or a list of keywords as libpq has them. A password is
// better given apart; it replaces one in url. An error does not contain it.
func Open(ctx context.Context, url, password string) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("sessions: %w", err) // pgx leaves passwords out
	}
	if password != "" {
		cfg.ConnConfig.Password = password
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("sessions: %w", err)
	}
	s := &Store{pool}
	if err := s.makeTable(ctx); err != nil {
		pool.Close()
		return nil, wrap(ctx, "open", err)
	}
	return s, nil
}

func (s *Store) makeTable(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, schema)
	if raced[code(err)] {
		return nil
	}
	return err
}

// code returns what the server says is wrong, or "".
func code(err error) string {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return ""
	}
	return e.Code
}

// do calls f, and again if its connection did not outlive a restart of the server, or if it was the
// first to meet a database that was replaced by an empty one. So f may be done twice: what it
// changes has a revision of its own to be recognised by.
func (s *Store) do(ctx context.Context, op string, f func() error) error {
	err := f()
	if cut(err) && ctx.Err() == nil {
		s.pool.Reset() // the others of its age are no better
		err = f()
	}
	if code(err) == undefinedTable {
		if err = s.makeTable(ctx); err == nil {
			err = f()
		}
	}
	return wrap(ctx, op, err)
}

// cut reports whether a connection that was there ended in the middle of an operation. A server
// that ends one says so by a fatal error, if it still can.
func cut(err error) bool {
	var connect *pgconn.ConnectError
	var fatal *pgconn.PgError
	var network net.Error
	switch {
	case errors.As(err, &connect):
		return false
	case errors.As(err, &fatal):
		return fatal.SeverityUnlocalized == "FATAL"
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) || pgconn.SafeToRetry(err)
}

// Close closes the connections.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// Now implements sessions.Clock.
func (s *Store) Now(ctx context.Context) (at time.Time, err error) {
	err = s.do(ctx, "now", func() error { return s.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at) })
	return at, err
}

// Get implements sessions.Store.
func (s *Store) Get(ctx context.Context, key string) (e sessions.Entry, err error) {
	err = s.do(ctx, "get", func() error {
		row := s.pool.QueryRow(ctx, `SELECT CASE WHEN octet_length(value) <= $2 THEN value END, octet_length(value), rev, expires
			FROM execbroker_entry WHERE key = $1 AND expires > clock_timestamp()`, []byte(key), sessions.MaxValue)
		var size int
		var expires pgtype.Timestamptz
		switch err := row.Scan(&e.Value, &size, &e.Rev, &expires); {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		if size > sessions.MaxValue { // not written by a Store
			return fmt.Errorf("sessions: get: postgres: %q has a value of %d bytes: %w", key, size, executor.ErrTooLarge)
		}
		e.Expires = expires.Time // zero at infinity
		return nil
	})
	return e, err
}

// Put implements sessions.Store. A revision is random, so that none comes back in a database that
// was restored from an older copy.
func (s *Store) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	if len(e.Value) > sessions.MaxValue {
		return "", fmt.Errorf("sessions: value of %d bytes: %w", len(e.Value), executor.ErrTooLarge)
	}
	rev, value := rand.Text(), e.Value
	if value == nil {
		value = []byte{} // nil is NULL
	}
	// What has expired is as good as gone, and is replaced.
	put := `INSERT INTO execbroker_entry AS old VALUES ($1, $2, $3, $4) ON CONFLICT (key) DO UPDATE
		SET value = excluded.value, rev = excluded.rev, expires = excluded.expires WHERE old.expires <= clock_timestamp()`
	args := []any{[]byte(key), value, rev, moment(e.Expires)}
	if e.Rev != "" {
		put = "UPDATE execbroker_entry SET value = $2, rev = $3, expires = $4 WHERE key = $1 AND rev = $5 AND expires > clock_timestamp()"
		args = append(args, e.Rev)
	}
	n, err := s.change(ctx, "put", func(b *pgx.Batch) {
		b.Queue(put, args...)
		b.Queue(sweep)
	})
	if err == nil && n == 0 {
		// It has not conflicted with itself if an earlier attempt was done and its answer lost.
		var now sessions.Entry
		if now, err = s.Get(ctx, key); err == nil && now.Rev != rev {
			err = sessions.ErrConflict
		}
	}
	if err != nil {
		return "", err
	}
	return rev, nil
}

// Delete implements sessions.Store.
func (s *Store) Delete(ctx context.Context, key, rev string) error {
	n, err := s.change(ctx, "delete", func(b *pgx.Batch) {
		b.Queue("DELETE FROM execbroker_entry WHERE key = $1 AND (rev = $2 OR expires <= clock_timestamp())", []byte(key), rev)
	})
	if err != nil || n > 0 {
		return err
	}
	now, err := s.Get(ctx, key)
	if err == nil && now.Rev != "" {
		err = sessions.ErrConflict
	}
	return err
}

// change sends statements in one round trip, as one transaction, and returns how many rows the
// first has changed.
func (s *Store) change(ctx context.Context, op string, statements func(*pgx.Batch)) (n int64, err error) {
	err = s.do(ctx, op, func() error {
		var b pgx.Batch
		statements(&b)
		sent := s.pool.SendBatch(ctx, &b)
		done, err := sent.Exec()
		n = done.RowsAffected()
		return cmp.Or(err, sent.Close())
	})
	return n, err
}

// Keys implements sessions.Store. It reads in pages, so that a slow loop holds no connection.
func (s *Store) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	const page = 500
	return func(yield func(string, error) bool) {
		for from, more := []byte(prefix), true; more; {
			var keys [][]byte
			err := s.do(ctx, "keys", func() (err error) {
				rows, _ := s.pool.Query(ctx, `SELECT key FROM execbroker_entry
					WHERE key >= $1 AND substring(key FOR length($2::bytea)) = $2 AND expires > clock_timestamp() ORDER BY key LIMIT $3`, from, []byte(prefix), page)
				keys, err = pgx.CollectRows(rows, pgx.RowTo[[]byte]) // with the error of the query
				return err
			})
			if err != nil {
				yield("", err)
				return
			}
			for _, k := range keys {
				if !yield(string(k), nil) {
					return
				}
				from = append(k, 0) // the next key there can be
			}
			more = len(keys) == page
		}
	}
}

// moment is a time in the database.
func moment(t time.Time) pgtype.Timestamptz {
	if t.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: t, Valid: true}
}

// wrap says what failed. It returns the end of the caller's context unchanged.
func wrap(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("sessions: %s: postgres: %w", op, err)
}
