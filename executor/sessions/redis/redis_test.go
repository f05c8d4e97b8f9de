package redis_test

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"

	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/executor/sessions/redis"
	"github.com/execbroker/execbroker/executor/sessions/storetest"
	"github.com/execbroker/execbroker/internal/dbtest"
)

func open(t *testing.T, db *dbtest.Server) *redis.Store {
	t.Helper()
	s, err := redis.Open(t.Context(), db.URL, db.Password)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// do sends a command of the server's own.
func do(t *testing.T, db *dbtest.Server, args ...any) {
	t.Helper()
	o, err := client.ParseURL(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	o.Password = db.Password
	c := client.NewClient(o)
	defer c.Close()
	if err := c.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestRedis(t *testing.T) {
	db := dbtest.Redis(t)
	t.Run("store", func(t *testing.T) {
		storetest.Test(t, func(t *testing.T) func() sessions.Store {
			do(t, db, "flushall")
			return func() sessions.Store { return open(t, db) }
		})
	})
	t.Run("oversized", func(t *testing.T) {
		storetest.TestOversized(t, open(t, db), func(key string) { do(t, db, "append", "execbroker:"+key, strings.Repeat("x", 1<<20)) })
	})
	t.Run("neighbours", func(t *testing.T) { neighbours(t, db) })
	t.Run("server", func(t *testing.T) {
		storetest.TestServer(t, db, func(ctx context.Context, password string) (sessions.Store, error) {
			s, err := redis.Open(ctx, db.URL, cmp.Or(password, db.Password))
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { s.Close() })
			return s, nil
		})
	})
	t.Run("check", func(t *testing.T) { check(t, db) }) // the last, since it leaves a copy of another server
}

// neighbours: others use the same database.
func neighbours(t *testing.T, db *dbtest.Server) {
	do(t, db, "flushall")
	s := open(t, db)
	do(t, db, "set", "theirs", "x")
	do(t, db, "set", "execbroker:short", "x")
	for k, err := range s.Keys(t.Context(), "") {
		if err != nil || k != "short" {
			t.Errorf("got key %q, %v", k, err)
		}
	}
	if e, err := s.Get(t.Context(), "short"); err == nil || !strings.Contains(err.Error(), "not an entry") {
		t.Errorf("got %+v, %v", e, err)
	}
}

// check: a server that may lose what it has acknowledged is found out.
func check(t *testing.T, db *dbtest.Server) {
	s := open(t, db)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("got %v", err)
	}
	for _, c := range []struct {
		name string
		set  []any
	}{
		{"appendonly", []any{"config", "set", "appendonly", "no"}},
		{"appendfsync", []any{"config", "set", "appendfsync", "everysec"}},
		{"maxmemory-policy", []any{"config", "set", "maxmemory-policy", "allkeys-lru"}},
		{"role", []any{"replicaof", "127.0.0.1", "1"}},
	} {
		do(t, db, c.set...)
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%v: got %v", c.set, err)
		}
	}
}

func TestUnusable(t *testing.T) {
	for url, want := range map[string]string{
		"redis://:secret@127.0.0.1:1/0": "127.0.0.1", // nobody listens
		"redis://:secret@[::1":          "not a URL",
		"http://x":                      "not a URL",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		s, err := redis.Open(ctx, url, "hidden")
		cancel()
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: got %v, want %q without a password", url, err, want)
		}
	}
}
