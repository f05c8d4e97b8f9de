// Package redis is a sessions.Store in a Redis or Valkey server, for the replicas of a service on
// several machines. Redis 6.2 or later is needed.
//
// The server has to be one primary that loses nothing that it has acknowledged: see [Store.Check].
// A fail-over to a replica that lags behind loses acknowledged writes all the same, since Redis
// replicates asynchronously. Whether an entry has expired, the clock of the server says. The clocks
// of the replicas of the service must agree with it to a second, because records contain times of
// theirs.
//
// Errors of connections are also written to the logger of go-redis, which is the program's to set.
package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// Store is a sessions.Store. Open makes one.
type Store struct {
	db *redis.Client
}

var (
	_ sessions.Store = (*Store)(nil)
	_ sessions.Clock = (*Store)(nil)
)

// prefix begins every key of ours in the database, which others may use too.
const prefix = "execbroker:"

// A value in the database is the revision, the time at which it expires in microseconds, and the
// value of the entry.
const (
	revLen  = 26 // of rand.Text
	headLen = revLen + 8
)

// put replaces what has the revision ARGV[1], or makes what is not there if that is empty.
var put = redis.NewScript(`
local now = redis.call('GETRANGE', KEYS[1], 0, 25)
if now ~= ARGV[1] then return 0 end
if ARGV[3] == '' then redis.call('SET', KEYS[1], ARGV[2]) else redis.call('SET', KEYS[1], ARGV[2], 'PXAT', ARGV[3]) end
return 1`)

// remove removes what has the revision ARGV[1].
var remove = redis.NewScript(`
local now = redis.call('GETRANGE', KEYS[1], 0, 25)
if now == '' then return 1 end
if now ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1`)

// Open connects to a server. url is redis://HOST:PORT/DATABASE, or rediss with TLS, or unix://PATH.
// A password is better given apart; it replaces one in url. An error does not contain it.
func Open(ctx context.Context, url, password string) (*Store, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		// The error of package url repeats what it could not parse.
		return nil, errors.New("sessions: redis: not a URL such as redis://localhost:6379/0")
	}
	o.Password = cmp.Or(password, o.Password)
	o.ContextTimeoutEnabled = true
	// A repeated command whose first answer was lost would find a conflict with itself.
	o.MaxRetries, o.DialerRetries = -1, 1
	s := &Store{redis.NewClient(o)}
	if err := s.db.Ping(ctx).Err(); err != nil {
		s.Close()
		return nil, wrap(ctx, "open", err)
	}
	return s, nil
}

// Close closes the connections.
func (s *Store) Close() error { return s.db.Close() }

// Now implements sessions.Clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	at, err := s.db.Time(ctx).Result()
	return at, wrap(ctx, "time", err)
}

// Get implements sessions.Store.
func (s *Store) Get(ctx context.Context, key string) (sessions.Entry, error) {
	// One byte more than there can be shows a value that no Store has written.
	data, err := s.db.GetRange(ctx, prefix+key, 0, headLen+sessions.MaxValue).Bytes()
	switch {
	case err != nil:
		return sessions.Entry{}, wrap(ctx, "get", err)
	case len(data) == 0:
		return sessions.Entry{}, nil
	case len(data) > headLen+sessions.MaxValue:
		return sessions.Entry{}, fmt.Errorf("sessions: get: redis: the value of %q: %w", prefix+key, executor.ErrTooLarge)
	case len(data) < headLen:
		return sessions.Entry{}, fmt.Errorf("sessions: get: redis: the key %q is not an entry of a store", prefix+key)
	}
	e := sessions.Entry{Rev: string(data[:revLen]), Value: data[headLen:]}
	if at := binary.BigEndian.Uint64(data[revLen:]); at > 0 {
		e.Expires = time.UnixMicro(int64(at))
	}
	return e, nil
}

// Put implements sessions.Store. A revision is random, so that none comes back in a database that
// was restored from an older copy.
func (s *Store) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	if len(e.Value) > sessions.MaxValue {
		return "", fmt.Errorf("sessions: value of %d bytes: %w", len(e.Value), executor.ErrTooLarge)
	}
	rev := rand.Text()
	data := make([]byte, 0, headLen+len(e.Value))
	data = append(data, rev...)
	var micro uint64
	var milli string
	if !e.Expires.IsZero() {
		micro, milli = uint64(e.Expires.UnixMicro()), fmt.Sprint(e.Expires.UnixMilli())
	}
	data = append(binary.BigEndian.AppendUint64(data, micro), e.Value...)
	if err := s.change(ctx, "put", put, key, e.Rev, data, milli); err != nil {
		return "", err
	}
	return rev, nil
}

// Delete implements sessions.Store.
func (s *Store) Delete(ctx context.Context, key, rev string) error {
	return s.change(ctx, "delete", remove, key, rev)
}

// change runs a script about a key, which says whether it has done it.
func (s *Store) change(ctx context.Context, op string, script *redis.Script, key string, args ...any) error {
	done, err := script.Run(ctx, s.db, []string{prefix + key}, args...).Bool()
	switch {
	case err != nil:
		return wrap(ctx, op, err)
	case !done:
		return sessions.ErrConflict
	}
	return nil
}

// literal makes a pattern that only the text itself matches.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// Keys implements sessions.Store.
func (s *Store) Keys(ctx context.Context, with string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		seen := map[string]bool{} // a scan may return a key more than once
		scan := s.db.Scan(ctx, 0, literal.Replace(prefix+with)+"*", 500).Iterator()
		for scan.Next(ctx) {
			k := strings.TrimPrefix(scan.Val(), prefix)
			if !seen[k] && !yield(k, nil) {
				return
			}
			seen[k] = true
		}
		if err := scan.Err(); err != nil {
			yield("", wrap(ctx, "keys", err))
		}
	}
}

// wanted are the settings of a server that loses nothing that it has acknowledged.
var wanted = []struct{ name, value, why string }{
	{"appendonly", "yes", "what was acknowledged is lost when the server ends"},
	{"appendfsync", "always", "the last second is lost when the machine fails"},
	{"maxmemory-policy", "noeviction", "records vanish when the memory is full"},
}

// Check reports what keeps the server from being the one truth of several replicas, joined: a
// setting under which it loses what it has acknowledged, or that it is itself a copy of another.
func (s *Store) Check(ctx context.Context) error {
	var errs []error
	for _, w := range wanted {
		got, err := s.db.ConfigGet(ctx, w.name).Result()
		if err != nil {
			return wrap(ctx, "config get "+w.name, err)
		}
		if got[w.name] != w.value {
			errs = append(errs, fmt.Errorf("%s is %q, want %q: otherwise %s", w.name, got[w.name], w.value, w.why))
		}
	}
	info, err := s.db.InfoMap(ctx, "replication").Result()
	if err != nil {
		return wrap(ctx, "info", err)
	}
	if role := info["Replication"]["role"]; role != "master" {
		errs = append(errs, fmt.Errorf("the role of the server is %q, want %q", role, "master"))
	}
	return errors.Join(errs...)
}

// wrap says what failed. It returns the end of the caller's context unchanged.
func wrap(ctx context.Context, op string, err error) error {
	switch end, _ := ctx.Deadline(); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded) && !end.IsZero() && !time.Now().Before(end):
		return context.DeadlineExceeded // the connection has noticed it before the context has
	}
	return fmt.Errorf("sessions: %s: redis: %w", op, err)
}
