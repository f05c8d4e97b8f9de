package backends_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/executor/sessions/postgres"
	"github.com/execbroker/execbroker/executor/sessions/redis"
	"github.com/execbroker/execbroker/executor/sessions/sqlite"
	"github.com/execbroker/execbroker/internal/dbtest"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/waittest"
)

// recordsFile has whatever writes records.
const recordsFile = `
backends: {a: {type: fake, on: a, broker: {prices: {run: 0.001}}}, b: {type: fake, on: b}}
routes:
  - {name: shadowed, match: {attributes: {shadow: allowed}}, split: [{backend: a, weight: 1}]}
  - {name: rolled, split: [{backend: a, weight: 1}, {backend: b, weight: 0}]}
rollouts: {rolled: {to: b, guard: {success: -1%}}}
shadows:
  shadowed: {to: b, share: 100%, when: {shadow: allowed}, most: 1000/min, budget: 5/day, control: 50%, keep: {code: true}}
guard: {quotas: [{per: month, runs: 100000}]}
sessions: {lease_ttl: 5m, checkpoint: {every: 1 run, key: {env: CHECKPOINT_KEY}}}`

// recordKind is a kind of record.
type recordKind struct {
	prefix string                  // of their names
	use    func(r *recorded) error // reads one
}

// recordKinds are all of them.
var recordKinds = []recordKind{
	{"session/", (*recorded).chat},
	{"checkpoint/", func(r *recorded) error {
		return r.with(func(b *backends.Broker) error { return b.Manager().Discard(r.Context(), "chat") })
	}},
	{"account/", (*recorded).usage},
	{"usage/", (*recorded).usage},
	{"rollout/", func(r *recorded) error {
		_, err := backends.ReadRollouts(r.Context(), r.store, parse(r.T, recordsFile))
		return err
	}},
	{"experiment/", func(r *recorded) error {
		_, err := backends.ReadExperiments(r.Context(), r.store, parse(r.T, recordsFile))
		return err
	}},
	{"shadow/", func(r *recorded) error {
		_, err := backends.ReadShadows(r.Context(), r.store, parse(r.T, recordsFile))
		return err
	}},
	{"shadow-example/", func(r *recorded) error {
		_, err := backends.ReadShadowExamples(r.Context(), r.store, parse(r.T, recordsFile), "shadowed")
		return err
	}},
}

// notRecords are what has no fields: bytes, and notes that there is something.
var notRecords = []string{"piece/", "kept/", "subject/", "instance/", "abandoned/", "lost/", "rollout-subject/"}

// recorded is a deployment over a store whose records are looked at.
type recorded struct {
	*mirrored
}

// with opens a broker, calls f and closes it.
func (r *recorded) with(f func(*backends.Broker) error) error {
	r.Helper()
	b, err := backends.Open(r.Context(), driver.Env{Owner: "me", Instance: "one"}, r.reg, parse(r.T, recordsFile), backends.WithStore(r.store))
	if err != nil {
		return err
	}
	err = f(b)
	b.Close() // it fails if a record cannot be read
	return err
}

// chat has a message in a conversation.
func (r *recorded) chat() error {
	return r.with(func(b *backends.Broker) error {
		l, err := b.Manager().Acquire(r.Context(), "chat", executor.Spec{Subject: "u"})
		if err != nil {
			return err
		}
		_, err = l.Run(r.Context(), executor.Request{Code: "x = 1"}, nil)
		return errors.Join(err, l.Release())
	})
}

func (r *recorded) usage() error {
	_, err := backends.ReadUsage(r.Context(), r.store, time.Now().AddDate(0, 0, -2), time.Now())
	return err
}

// all returns the entries whose names begin with a prefix.
func (r *recorded) all(prefix string) map[string]sessions.Entry {
	r.Helper()
	found := map[string]sessions.Entry{}
	for name, err := range r.store.Keys(r.Context(), prefix) {
		if err != nil {
			r.Fatal(err)
		}
		e, err := r.store.Get(r.Context(), name)
		if err != nil {
			r.Fatal(err)
		}
		if e.Rev != "" {
			found[name] = e
		}
	}
	return found
}

// change changes an entry, as another version of the program might.
func (r *recorded) change(name string, f func(fields map[string]any)) {
	r.Helper()
	e, err := r.store.Get(r.Context(), name)
	if err != nil {
		r.Fatal(err)
	}
	fields := decoded(r.T, e)
	f(fields)
	if e.Value, err = json.Marshal(fields); err != nil {
		r.Fatal(err)
	}
	if _, err := r.store.Put(r.Context(), name, e); err != nil {
		r.Fatal(err)
	}
}

func decoded(t *testing.T, e sessions.Entry) (fields map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(e.Value)))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		t.Fatalf("%s: %v", e.Value, err)
	}
	return fields
}

// mark adds a field to the structs of a record that are elements of lists.
func mark(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			mark(inner)
		}
	case []any:
		for _, e := range v {
			if fields, is := e.(map[string]any); is {
				fields["later"] = "kept"
			}
			mark(e)
		}
	}
}

// unmarked returns the first element of a list of was that is as before in now but for its mark.
func unmarked(was, now any) string {
	switch was := was.(type) {
	case map[string]any:
		now, _ := now.(map[string]any)
		for name, inner := range was {
			if lost := unmarked(inner, now[name]); lost != "" {
				return name + "." + lost
			}
		}
	case []any:
		now, _ := now.([]any)
		for _, e := range was {
			fields, is := e.(map[string]any)
			if !is {
				continue
			}
			delete(fields, "later")
			same := fmt.Sprint(fields)
			if slices.ContainsFunc(now, func(e any) bool { return fmt.Sprint(e) == same }) {
				return same
			}
		}
	}
	return ""
}

// TestRecords: in each store every record has the version of its schema, fields that this program
// does not know stay in it and in the elements of its lists, and one of a later version is refused
// and neither changed nor removed.
func TestRecords(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (sessions.Store, error){
		"memory": func(*testing.T) (sessions.Store, error) { return sessions.NewMemoryStore(), nil },
		"sqlite": func(t *testing.T) (sessions.Store, error) { return sqlite.Open(filepath.Join(t.TempDir(), "s.db")) },
		"postgres": func(t *testing.T) (sessions.Store, error) {
			db := dbtest.Postgres(t)
			return postgres.Open(t.Context(), db.URL, db.Password)
		},
		"redis": func(t *testing.T) (sessions.Store, error) {
			db := dbtest.Redis(t)
			return redis.Open(t.Context(), db.URL, db.Password)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CHECKPOINT_KEY", strings.Repeat("k", 32))
			store, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			if c, closes := store.(interface{ Close() error }); closes {
				t.Cleanup(func() {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			w := newWorld(t, fake.Options{Packages: []string{"six"}})
			r := &recorded{watchShadows(w, store)}
			r.everything()
			r.versions()
			r.keeps()
			r.refuses()
		})
	}
}

// everything makes records of all kinds.
func (r *recorded) everything() {
	r.Helper()
	make := func() {
		err := r.with(func(b *backends.Broker) error {
			l, err := b.Manager().Acquire(r.Context(), "chat", executor.Spec{Subject: "u"})
			if err != nil {
				return err
			}
			if _, err := l.Install(r.Context(), executor.Packages{Names: []string{"six"}}, nil); err != nil {
				return err
			}
			if err := l.Release(); err != nil {
				return err
			}
			return r.shadowed(b)
		})
		if err != nil {
			r.Fatal(err)
		}
	}
	make()
	r.archive()
	for _, k := range recordKinds {
		for tries := 0; len(r.all(k.prefix)) == 0; tries++ {
			if tries == 10 {
				r.Fatalf("there is no record %s among %q", k.prefix, names(r.all("")))
			}
			make()
		}
	}
}

// shadowed has conversations until an example of one is kept. Those for control keep none.
func (r *recorded) shadowed(b *backends.Broker) error {
	r.Helper()
	kept := func() bool { return len(r.all("shadow-example/")) > 0 }
	for {
		before := len(r.repeatedOn("a"))
		s, err := b.Create(r.Context(), executor.Spec{Subject: "v", Attributes: allowed})
		if err != nil {
			return err
		}
		_, err = s.Run(r.Context(), executor.Request{Code: "print('differs')"}, nil)
		if err := errors.Join(err, s.Close()); err != nil {
			return err
		}
		waittest.Until(r.T, "an example is kept, or the conversation is for control", func() error {
			if kept() || len(r.repeatedOn("a")) > before {
				return nil
			}
			return errors.New("it is neither")
		})
		if kept() {
			return nil
		}
	}
}

// versions checks that each record has the version of its schema, and that the table has its kind.
func (r *recorded) versions() {
	r.Helper()
	for name, e := range r.all("") {
		is := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if slices.ContainsFunc(notRecords, is) {
			continue
		}
		if v := fmt.Sprint(decoded(r.T, e)["v"]); v != fmt.Sprint(sessions.Schema) {
			r.Errorf("%s: got version %q", name, v)
		}
		if !slices.ContainsFunc(recordKinds, func(k recordKind) bool { return is(k.prefix) }) {
			r.Errorf("%s is of a kind that this test does not know", name)
		}
	}
}

// archive writes what was spent yesterday, as the ledger does after its day: see TestDays there.
func (r *recorded) archive() {
	r.Helper()
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	e := sessions.Entry{Expires: day.AddDate(1, 0, 0)}
	err := e.Encode(struct {
		Account string `json:"account"`
		Day     int64  `json:"day"`
	}{"subject=u", day.Unix()})
	if err == nil {
		_, err = r.store.Put(r.Context(), "usage/"+day.Format(time.DateOnly)+"/account/holder", e)
	}
	if err != nil && !errors.Is(err, sessions.ErrConflict) {
		r.Fatal(err)
	}
}

func names(all map[string]sessions.Entry) (found []string) {
	for name := range all {
		found = append(found, name)
	}
	return found
}

// keeps checks that what this program does not know stays in records that it writes.
func (r *recorded) keeps() {
	r.Helper()
	before := map[string]sessions.Entry{}
	for _, k := range recordKinds {
		for name := range r.all(k.prefix) {
			r.change(name, func(f map[string]any) {
				mark(f)
				f["later"] = map[string]any{"a": []any{"kept"}}
				delete(f, "v") // as an earlier version wrote it
			})
		}
	}
	for name, e := range r.all("") {
		before[name] = e
	}
	r.everything()
	if err := backends.ChangeRollout(r.Context(), r.store, parse(r.T, recordsFile), "rolled", backends.RolloutPause, "ops"); err != nil {
		r.Error(err)
	}
	written := map[string]bool{}
	for _, k := range recordKinds {
		for name, e := range r.all(k.prefix) {
			was, there := before[name]
			if !there || was.Rev == e.Rev {
				continue
			}
			written[k.prefix] = true
			now := decoded(r.T, e)
			if fmt.Sprint(now["later"]) != "map[a:[kept]]" || fmt.Sprint(now["v"]) != fmt.Sprint(sessions.Schema) {
				r.Errorf("%s: an unknown field is lost, or the version: %s\nafter %s", name, e.Value, was.Value)
			}
			if lost := unmarked(decoded(r.T, was), now); lost != "" {
				r.Errorf("%s: an unknown field of %s is lost: %s", name, lost, e.Value)
			}
		}
	}
	for _, prefix := range []string{"session/", "checkpoint/", "account/", "rollout/", "experiment/", "shadow/"} { // the others are written once
		if !written[prefix] {
			r.Errorf("no record %s was written again", prefix)
		}
	}
}

// refuses checks that a record of a later version is refused.
func (r *recorded) refuses() {
	for _, k := range recordKinds {
		changed := r.all(k.prefix)
		for name := range changed {
			r.change(name, func(f map[string]any) { f["v"] = sessions.Schema + 1 })
		}
		before := r.all(k.prefix)
		err := k.use(r)
		later := (*sessions.SchemaError)(nil)
		if !errors.As(err, &later) || later.Schema != sessions.Schema+1 || !strings.Contains(err.Error(), "use that version") {
			r.Errorf("%s of a later version: got %v", k.prefix, err)
		}
		after := r.all(k.prefix)
		for name, e := range before {
			if after[name].Rev != e.Rev {
				r.Errorf("%s: it was changed", name)
			}
		}
		for name := range before {
			if after[name].Rev != "" {
				r.change(name, func(f map[string]any) { f["v"] = sessions.Schema })
			}
		}
	}
}
