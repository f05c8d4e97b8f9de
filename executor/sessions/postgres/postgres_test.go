package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/executor/sessions/postgres"
	"github.com/execbroker/execbroker/executor/sessions/storetest"
	"github.com/execbroker/execbroker/internal/dbtest"
)

func open(t *testing.T, db *dbtest.Server) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), db.URL, db.Password)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func exec(t *testing.T, db *dbtest.Server, sql string) {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Password = db.Password
	c, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func TestPostgres(t *testing.T) {
	db := dbtest.Postgres(t)
	t.Run("open-together", func(t *testing.T) { openTogether(t, db) })
	t.Run("store", func(t *testing.T) {
		storetest.Test(t, func(t *testing.T) func() sessions.Store {
			exec(t, db, "DROP TABLE IF EXISTS execbroker_entry")
			return func() sessions.Store { return open(t, db) }
		})
	})
	t.Run("oversized", func(t *testing.T) {
		storetest.TestOversized(t, open(t, db), func(key string) {
			exec(t, db, "UPDATE execbroker_entry SET value = convert_to(repeat('x', 1048576), 'UTF8') WHERE key = convert_to('"+key+"', 'UTF8')")
		})
	})
	t.Run("sweep", func(t *testing.T) { sweep(t, db) })
	t.Run("lost-answer", func(t *testing.T) { lostAnswer(t, db) })
	t.Run("server", func(t *testing.T) {
		storetest.TestServer(t, db, func(ctx context.Context, password string) (sessions.Store, error) {
			s, err := postgres.Open(ctx, db.URL, cmp.Or(password, db.Password))
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { s.Close() })
			return s, nil
		})
	})
}

// openTogether: replicas that start at once make the table only once, and none fails.
func openTogether(t *testing.T, db *dbtest.Server) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := postgres.Open(t.Context(), db.URL, db.Password)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := s.Get(t.Context(), "k"); err != nil {
				t.Error(err)
			}
			s.Close()
		})
	}
	wg.Wait()
}

// lostAnswer: what was done although the connection ended before its answer is done, once.
func lostAnswer(t *testing.T, db *dbtest.Server) {
	var lose atomic.Bool
	s := open(t, &dbtest.Server{
		URL:      strings.Replace(db.URL, hostOf(t, db), losing(t, hostOf(t, db), &lose), 1),
		Password: db.Password,
	})
	rev, err := s.Put(t.Context(), "lost", sessions.Entry{Value: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	lose.Store(true)
	next, err := s.Put(t.Context(), "lost", sessions.Entry{Value: []byte("2"), Rev: rev})
	if err != nil || lose.Load() {
		t.Fatalf("got %v, answer still to be lost %v", err, lose.Load())
	}
	if e, err := s.Get(t.Context(), "lost"); err != nil || e.Rev != next || string(e.Value) != "2" {
		t.Errorf("got %+v, %v, want revision %s", e, err, next)
	}
	lose.Store(true)
	if _, err := s.Put(t.Context(), "lost", sessions.Entry{Rev: rev}); !errors.Is(err, sessions.ErrConflict) {
		t.Errorf("got %v, want %v", err, sessions.ErrConflict)
	}
	lose.Store(true)
	if err := s.Delete(t.Context(), "lost", next); err != nil {
		t.Error(err)
	}
}

func hostOf(t *testing.T, db *dbtest.Server) string {
	t.Helper()
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// losing forwards to host, and ends a connection instead of passing the next answer on when it is
// told to lose one. It returns its own address.
func losing(t *testing.T, host string, lose *atomic.Bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	forward := func(client net.Conn) {
		defer client.Close()
		server, err := net.Dial("tcp", host)
		if err != nil {
			return
		}
		wg.Go(func() {
			io.Copy(server, client) //nolint:errcheck // the connection ends
			server.Close()
		})
		for buf := make([]byte, 64<<10); ; {
			n, err := server.Read(buf)
			if err != nil || lose.CompareAndSwap(true, false) {
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { forward(c) })
		}
	})
	return l.Addr().String()
}

// sweep: entries that have expired do not stay.
func sweep(t *testing.T, db *dbtest.Server) {
	s := open(t, db)
	for i := range 40 {
		if _, err := s.Put(t.Context(), fmt.Sprint(i), sessions.Entry{Expires: time.Now().Add(-time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, db, `DO $$ BEGIN ASSERT (SELECT count(*) FROM execbroker_entry WHERE expires < now()) < 20; END $$`)
}

func TestUnusable(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:secret@127.0.0.1:1/db": "127.0.0.1", // nobody listens
		"postgres://u:secret@[::1":           "cannot parse",
		"host=127.0.0.1 port=x":              "invalid port",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		s, err := postgres.Open(ctx, url, "hidden")
		cancel()
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: got %v, want %q without a password", url, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := postgres.Open(ctx, "postgres://u@127.0.0.1:1/db", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
