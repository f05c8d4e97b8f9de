package backends

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/executor/sessions/postgres"
	"github.com/execbroker/execbroker/executor/sessions/redis"
	"github.com/execbroker/execbroker/executor/sessions/sqlite"
)

const (
	memoryStore  = "memory"
	sqliteScheme = "sqlite"
)

// StoreCheck is the name under which Doctor has the findings about the store of Sessions, if it is
// a shared one. No backend has such a name.
const StoreCheck = "sessions.store"

// openStore connects to a store that is shared.
type openStore func(ctx context.Context, location, password string) (sharedStore, error)

type sharedStore interface {
	sessions.Store
	io.Closer
}

// stores are the shared ones, by the scheme of Sessions.Store. All but sqlite are servers.
var stores = map[string]openStore{
	sqliteScheme: func(_ context.Context, location, _ string) (sharedStore, error) {
		return sqlite.Open(strings.TrimPrefix(location, sqliteScheme+":"))
	},
	"postgres":   openPostgres,
	"postgresql": openPostgres,
	"redis":      openRedis,
	"rediss":     openRedis,
}

func openPostgres(ctx context.Context, location, password string) (sharedStore, error) {
	return postgres.Open(ctx, location, password)
}

func openRedis(ctx context.Context, location, password string) (sharedStore, error) {
	return redis.Open(ctx, location, password)
}

// checkStore checks Store and StorePassword without connecting.
func (s Sessions) checkStore(bad *problems) {
	scheme, rest, _ := strings.Cut(s.Store, ":")
	_, known := stores[scheme]
	server := known && scheme != sqliteScheme
	u, err := url.Parse(s.Store)
	switch {
	case s.Store == "" || s.Store == memoryStore:
	case !known:
		bad.add("store", `unknown store; want "memory", "sqlite:FILE", or a URL that begins with postgres://, redis:// or rediss://`)
	case rest == "":
		bad.add("store", `names no file; write for example "sqlite:sessions.db"`)
	case server && (err != nil || u.Host == ""):
		bad.add("store", "not a URL with a host; write for example postgres://app@db.example/app") // without the URL, which may contain a password
	case server && hasPassword(u):
		bad.add("store", "contains a password; name it in store_password, as {env: NAME} or {file: PATH}")
	}
	if s.StorePassword.IsZero() {
		return
	}
	if err := s.StorePassword.Validate(); err != nil {
		bad.add("store_password", "%v", err)
	}
	if !server {
		bad.add("store_password", "%q takes no password", scheme)
	}
}

// hasPassword reports whether a URL has one, in either of the places where libpq takes one.
func hasPassword(u *url.URL) bool {
	_, set := u.User.Password()
	return set || u.Query().Has("password")
}

// Shared reports whether the store outlives the process, so that other processes can share it.
func (s Sessions) Shared() bool {
	scheme, _, _ := strings.Cut(s.Store, ":")
	return stores[scheme] != nil
}

// OpenStore opens the store. The caller closes it.
func (s Sessions) OpenStore(ctx context.Context) (sessions.Store, io.Closer, error) {
	if !s.Shared() {
		return sessions.NewMemoryStore(), io.NopCloser(nil), nil
	}
	var password string
	if !s.StorePassword.IsZero() {
		var err error
		if password, err = s.StorePassword.Value(); err != nil {
			return nil, nil, driver.At("sessions.store_password", err)
		}
	}
	scheme, _, _ := strings.Cut(s.Store, ":")
	st, err := stores[scheme](ctx, s.Store, password)
	if err != nil {
		return nil, nil, driver.At("sessions.store", err)
	}
	return st, st, nil
}

// doctor opens the store and asks it whether it keeps what it acknowledges and has room for more,
// if it can say so.
func (s Sessions) doctor(ctx context.Context) []driver.Check {
	scheme, _, _ := strings.Cut(s.Store, ":")
	st, closer, err := s.OpenStore(ctx)
	if err != nil {
		fix := "start the server, or correct sessions.store and sessions.store_password"
		if scheme == sqliteScheme {
			fix = "put a copy of the file in its place, or correct sessions.store"
		}
		return []driver.Check{{Name: scheme, Detail: err.Error(), Fix: fix}}
	}
	defer closer.Close()
	found := []driver.Check{{Name: scheme, OK: true}}
	if _, ok := st.(sessions.Clock); ok {
		found = append(found, s.doctorClock(ctx, st))
	}
	if c, ok := st.(interface{ Check(context.Context) error }); ok {
		err := c.Check(ctx)
		name, fix := "durability", "configure the server so: the guide on sessions says why"
		if scheme == sqliteScheme {
			name, fix = "room on the disk", "make room there; the store keeps what it has meanwhile"
		}
		check := driver.Check{Name: name, OK: err == nil}
		if err != nil {
			check.Detail, check.Fix = strings.ReplaceAll(err.Error(), "\n", "; "), fix
		}
		found = append(found, check)
	}
	return found
}

// doctorClock compares the clock of this machine with that of the store.
func (s Sessions) doctorClock(ctx context.Context, st sessions.Store) driver.Check {
	ahead, err := sessions.ClockAhead(ctx, st)
	check := driver.Check{Name: "clock", Detail: sessions.ClockDifference(ahead, orDefault(s.LeaseTTL, sessions.DefaultLeaseTTL))}
	if err != nil {
		check.Detail = err.Error()
	}
	if check.OK = check.Detail == ""; !check.OK {
		check.Fix = "set the clocks of this machine and of the server of the store, with NTP; until then this machine removes no abandoned sandboxes"
	}
	return check
}

// sameStore refuses a change of the store while the program runs.
func (s Sessions) sameStore(next Sessions) error {
	if s.Store != next.Store || s.StorePassword != next.StorePassword {
		return driver.At(StoreCheck, fmt.Errorf("cannot change while the program runs; it is %q", s.Store))
	}
	return nil
}
