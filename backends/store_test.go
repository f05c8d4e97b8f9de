package backends_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/dbtest"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/waittest"
)

// testStore is a store that several brokers share.
type testStore struct {
	config string         // the value of sessions
	server *dbtest.Server // nil if there is none
}

// sharedStores make one of each kind.
var sharedStores = map[string]func(*testing.T) testStore{
	"sqlite": func(t *testing.T) testStore {
		return testStore{config: "{store: 'sqlite:" + filepath.Join(t.TempDir(), "s.db") + "'}"}
	},
	"postgres": func(t *testing.T) testStore { return serverStore(t, dbtest.Postgres(t)) },
	"redis":    func(t *testing.T) testStore { return serverStore(t, dbtest.Redis(t)) },
}

func serverStore(t *testing.T, db *dbtest.Server) testStore {
	name := strings.ToUpper(strings.NewReplacer("/", "_", "-", "_").Replace(t.Name())) + "_PASSWORD"
	t.Setenv(name, db.Password)
	return testStore{"{store: '" + db.URL + "', store_password: {env: " + name + "}}", db}
}

// While the store is away, a conversation that a process holds goes on, another one is refused, and
// afterwards both go on as if nothing had happened.
func TestStoreIsAway(t *testing.T) {
	for _, name := range []string{"postgres", "redis"} {
		t.Run(name, func(t *testing.T) {
			store := sharedStores[name](t)
			w := newWorld(t, fake.Options{})
			b := w.open("{backends: {a: {type: fake, on: a}}, sessions: " + store.config + "}")
			held, err := b.Manager().Acquire(t.Context(), "held", executor.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			w.says(held, "x = 1", "")
			store.server.Kill()
			w.says(held, "x = x + 1", "")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := b.Manager().Acquire(ctx, "other", executor.Spec{}); !errors.Is(err, executor.ErrUnavailable) || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v, want %v that names %s", err, executor.ErrUnavailable, name)
			}
			store.server.Start()
			w.says(held, "print(x)", "2\n")
			if err := held.Release(); err != nil {
				t.Error(err)
			}
			for _, key := range []string{"held", "other"} {
				lease, err := b.Manager().Acquire(t.Context(), key, executor.Spec{})
				if err != nil {
					t.Fatal(err)
				}
				if key == "held" {
					w.says(lease, "print(x)", "2\n")
				}
				if err := lease.Discard(); err != nil {
					t.Error(err)
				}
			}
			w.close(b)
		})
	}
}

// A store that was emptied knows nobody: who holds a conversation loses it, and who comes then gets
// another sandbox and a higher token, so that the first one can do nothing any more.
func TestStoreIsEmptied(t *testing.T) {
	for _, name := range []string{"postgres", "redis"} {
		t.Run(name, func(t *testing.T) {
			store := sharedStores[name](t)
			w := newWorld(t, fake.Options{})
			open := func(instance, ttl string) *backends.Broker {
				return w.openAs(instance, "{backends: {a: {type: fake, on: a}}, sessions: "+strings.TrimSuffix(store.config, "}")+", lease_ttl: "+ttl+"}}")
			}
			// The first lease has to be lost, and soon. The second one has to be renewed in time,
			// also on a busy machine.
			one, two := open("one", "3s"), open("two", "5m")
			first, err := one.Manager().Acquire(t.Context(), "chat", executor.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			store.server.Empty()
			second, err := two.Manager().Acquire(t.Context(), "chat", executor.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			if !second.Fresh || second.Token <= first.Token || second.Info().Handle.Session == first.Info().Handle.Session {
				t.Errorf("got token %d after %d, fresh %v", second.Token, first.Token, second.Fresh)
			}
			waittest.Until(t, "the first lease is lost", func() error {
				if _, err := first.Run(t.Context(), executor.Request{Code: "x = 1"}, nil); !errors.Is(err, executor.ErrClosed) {
					return fmt.Errorf("got %v, want ErrClosed", err) //nolint:errorlint // it may be nil
				}
				return nil
			})
			w.says(second, "print(1)", "1\n")
			if err := errors.Join(first.Release(), second.Discard()); err != nil {
				t.Error(err)
			}
			one.Close() // the sandbox of the first one is nobody's; the reaper removes it
			w.close(two)
		})
	}
}

func TestOpenWithoutAStore(t *testing.T) {
	w := newWorld(t, fake.Options{})
	for _, store := range []string{"sqlite:/nowhere/at/all.db", "postgres://u@127.0.0.1:1/db", "redis://127.0.0.1:1/0"} {
		_, err := backends.Open(t.Context(), driver.Env{Owner: "me"}, w.reg, parse(t, "{backends: {a: {type: fake, on: a}}, sessions: {store: '"+store+"'}}"))
		if ms := executor.FieldErrors(err); len(ms) != 1 || ms[0].Path != "sessions.store" {
			t.Errorf("%s: got %v", store, err)
		}
	}
}

func TestStoreMistakes(t *testing.T) {
	w := newWorld(t, fake.Options{})
	for sessions, want := range map[string]string{
		"{store: mysql}":                                "sessions.store: unknown store",
		"{store: 'sqlite:'}":                            "sessions.store: names no file",
		"{store: 'postgres:db'}":                        "sessions.store: not a URL with a host",
		"{store: 'redis://%zz'}":                        "sessions.store: not a URL with a host",
		"{store: 'postgres://u:hidden@h/db'}":           "sessions.store: contains a password",
		"{store: 'postgres://h/db?password=hidden'}":    "sessions.store: contains a password",
		"{store: 'rediss://:hidden@h/0'}":               "sessions.store: contains a password",
		"{store: 'sqlite:f', store_password: {env: X}}": `sessions.store_password: "sqlite" takes no password`,
		"{store: 'redis://h', store_password: hidden}":  "sessions.store_password",
	} {
		cfg, err := backends.Parse([]byte("{backends: {a: {type: fake, on: a}}, sessions: " + sessions + "}"))
		if err == nil {
			err = cfg.Check(w.reg)
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: got %v, want %q", sessions, err, want)
		}
	}
}

// slowClock is a Store whose clock is behind that of this machine.
type slowClock struct {
	sessions.Store
	by  time.Duration
	err error
}

func (s slowClock) Now(context.Context) (time.Time, error) { return time.Now().Add(-s.by), s.err }

// Doctor says by how much the clocks differ, if that is more than a lease.
func TestDoctorOfClock(t *testing.T) {
	for _, c := range []struct {
		store slowClock
		cfg   backends.Sessions
		want  string
	}{
		{slowClock{by: 20 * time.Second}, backends.Sessions{}, ""},
		{slowClock{by: 20 * time.Second}, backends.Sessions{LeaseTTL: driver.Duration(10 * time.Second)}, "the clock of this machine is 20s ahead of the clock of the session store"},
		{slowClock{by: 2 * time.Hour}, backends.Sessions{}, "the clock of this machine is 2h0m0s ahead of the clock of the session store"},
		{slowClock{by: -2 * time.Hour}, backends.Sessions{}, "the clock of this machine is 2h0m0s behind the clock of the session store"},
		{slowClock{err: errors.New("no clock")}, backends.Sessions{}, "no clock"},
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := backends.DoctorClock(t.Context(), c.cfg, c.store); got.OK != (c.want == "") || got.Detail != c.want || got.OK != (got.Fix == "") {
				t.Errorf("%+v: got %+v, want %q", c.store, got, c.want)
			}
		})
	}
}

// Doctor says whether a shared store answers, and whether it keeps what it acknowledges.
func TestDoctorOfStore(t *testing.T) {
	w := newWorld(t, fake.Options{})
	look := func(store string) map[string]bool {
		found := map[string]bool{}
		for _, c := range backends.Doctor(t.Context(), driver.Env{Owner: "me"}, w.reg, parse(t, "{backends: {a: {type: fake, on: a}}, sessions: "+store+"}"))[backends.StoreCheck] {
			found[c.Name] = c.OK
			if !c.OK && (c.Detail == "" || c.Fix == "") {
				t.Errorf("%s: got %+v without what to do", store, c)
			}
		}
		return found
	}
	for name, want := range map[string]int{"sqlite": 2, "postgres": 2, "redis": 3} {
		if found := look(sharedStores[name](t).config); len(found) != want || !found[name] || name == "redis" && !found["durability"] || name == "sqlite" && !found["room on the disk"] || name != "sqlite" && !found["clock"] {
			t.Errorf("%s: got %v", name, found)
		}
	}
	if found := look(serverStore(t, dbtest.Redis(t, "--appendfsync", "everysec")).config); !found["redis"] || found["durability"] {
		t.Errorf("a server that loses a second: got %v", found)
	}
	if found := look("{store: 'redis://127.0.0.1:1'}"); len(found) != 1 || found["redis"] {
		t.Errorf("no server: got %v", found)
	}
	if found := look("{store: memory}"); len(found) != 0 {
		t.Errorf("no shared store: got %v", found)
	}
}
