package backends

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/pool"
)

// Settings is what the broker, not the adapter, does with a backend. In a file it stands under the
// key "broker" of the entry.
type Settings struct {
	Pools   []Pool  `json:"pools,omitempty"` // the first that fits serves; if none does, the session is created cold and counted
	Queue   Queue   `json:"queue,omitzero"`
	Breaker Breaker `json:"breaker,omitzero"`
}

// Pool keeps sessions warm: see package pool. The fields below Prelude are those of executor.Spec;
// a Create that asks for anything else is served cold, and Stats and the log say in what it
// differs. How long runs may take is not among them: see pool.Options.
type Pool struct {
	Size      int                    `json:"size"`                // warm sessions to aim for, 1 to 1000
	MaxAge    driver.Duration        `json:"max_age,omitzero"`    // default half of the idle TTL, which is 1 h
	Refill    int                    `json:"refill,omitempty"`    // creations in flight at a time; default 1
	Suspended bool                   `json:"suspended,omitempty"` // kept suspended until they are handed out, at backends that can
	Prelude   []Prelude              `json:"prelude,omitempty"`   // run in each session before it is ready, for imports that take long
	Template  string                 `json:"template,omitempty"`
	Languages []executor.Language    `json:"languages,omitempty"`
	Packages  []executor.Packages    `json:"packages,omitempty"`
	Aliases   []string               `json:"aliases,omitzero"` // default executor.DataDir where the backend has aliases. Specs without them are served as well
	Ports     bool                   `json:"ports,omitempty"`  // for Specs that ask for ports, and for no others
	Limits    executor.Limits        `json:"limits,omitzero"`
	Network   executor.NetworkPolicy `json:"network,omitzero"`
}

// Prelude is code that a pool runs in its sessions. What it defines is there for who gets the
// session.
type Prelude struct {
	Language executor.Language `json:"language,omitempty"` // empty: the session's first
	Code     string            `json:"code"`
}

// Queue bounds the sandboxes that this process holds of a backend. A Create beyond Max waits, in
// order of arrival within a subject and in turn between subjects, and then fails with ErrExhausted,
// which routes fall back on.
type Queue struct {
	Max    int             `json:"max,omitempty"`    // sandboxes at a time, warm ones included; 0: no bound
	Length int             `json:"length,omitempty"` // Creates that wait; beyond it one fails at once. Default Max
	Wait   driver.Duration `json:"wait,omitzero"`    // default 10 s
}

// Breaker stops asking a backend that fails. What is refused before the provider is asked counts
// neither way. Create then fails at once with ErrUnavailable, which routes fall back on. After Open
// the broker itself tries what failed last, without labels and environment, and goes on trying, so
// that no user waits to find out that a provider is still down. Where the provider can list
// sandboxes it is first asked for that, so that an outage costs no sandboxes.
type Breaker struct {
	Failures int             `json:"failures,omitempty"` // in a row, of ErrUnavailable or deadlines that passed; 0: no breaker
	Open     driver.Duration `json:"open,omitzero"`      // between two tries; default 30 s
}

const (
	defaultWait = 10 * time.Second
	defaultOpen = 30 * time.Second
	maxPool     = 1000
)

// check reports every mistake in s.
func (s Settings) check() error {
	var errs []error
	wrong := func(path, format string, args ...any) {
		errs = append(errs, driver.At(path, fmt.Errorf(format, args...)))
	}
	warm := 0
	for i, p := range s.Pools {
		at := "pools[" + strconv.Itoa(i) + "]"
		if p.Size < 1 || p.Size > maxPool {
			wrong(at+".size", "want 1 to %d", maxPool)
		}
		warm += p.Size
		if p.MaxAge < 0 {
			wrong(at+".max_age", "negative")
		}
		if p.Refill < 0 {
			wrong(at+".refill", "negative")
		}
		for j, r := range p.Prelude {
			if r.Code == "" {
				wrong(fmt.Sprintf("%s.prelude[%d].code", at, j), "empty")
			}
		}
		if err := p.spec(executor.Capabilities{}).Validate(); err != nil {
			errs = append(errs, driver.At(at, reason(err)))
		}
	}
	q := s.Queue
	switch {
	case q.Max < 0:
		wrong("queue.max", "negative")
	case q.Max == 0 && (q.Length != 0 || q.Wait != 0):
		wrong("queue.max", "missing; without it nothing waits")
	case q.Max > 0 && q.Max <= warm:
		wrong("queue.max", "the pools keep %d warm and leave no room; want at least %d", warm, warm+1)
	}
	if q.Length < 0 {
		wrong("queue.length", "negative")
	}
	if q.Wait < 0 {
		wrong("queue.wait", "negative")
	}
	b := s.Breaker
	switch {
	case b.Failures < 0:
		wrong("breaker.failures", "negative")
	case b.Failures == 0 && b.Open != 0:
		wrong("breaker.failures", "missing; without it there is no breaker")
	}
	if b.Open < 0 {
		wrong("breaker.open", "negative")
	}
	return errors.Join(errs...)
}

// Misfit says whether the pools can serve a session of spec on a backend with caps. If none can, it
// returns the one that comes nearest and the fields of executor.Spec in which that differs. Without
// pools, and where one can, there are no fields.
func (s Settings) Misfit(caps executor.Capabilities, spec executor.Spec) (i int, fields []string) {
	return nearest(s.Pools, func(p Pool) []string { return pool.Differs(p.spec(caps), caps, spec) })
}

// nearest returns the pool of which differs names the fewest fields, and these; without pools it is
// -1. It is the first that fits, if one does; otherwise it is the one that whoever configured it
// will have meant.
func nearest[P any](pools []P, differs func(P) []string) (at int, fields []string) {
	at = -1
	for i, p := range pools {
		if d := differs(p); at < 0 || len(d) < len(fields) {
			at, fields = i, d
		}
	}
	return at, fields
}

// reason takes the words of a refusal out of an error that says of what it is one.
func reason(err error) error {
	if e := (*executor.Error)(nil); errors.As(err, &e) && e.Err != nil {
		return e.Err
	}
	return err
}

// spec is that of the warm sessions at a backend with the capabilities c.
func (p Pool) spec(c executor.Capabilities) executor.Spec {
	if p.Aliases == nil && c.Has(executor.FeatureAliases) {
		p.Aliases = []string{executor.DataDir}
	}
	return executor.Spec{Template: p.Template, Languages: p.Languages, Packages: p.Packages, Aliases: p.Aliases, Ports: p.Ports, Limits: p.Limits, Network: p.Network}
}

func (p Pool) options(env driver.Env, c executor.Capabilities) pool.Options {
	o := pool.Options{
		Spec: p.spec(c), Size: p.Size, MaxAge: time.Duration(p.MaxAge), Refill: p.Refill, Suspended: p.Suspended,
		Hooks: env.Hooks, Log: env.Logger(),
	}
	for _, r := range p.Prelude {
		o.Prelude = append(o.Prelude, executor.Request{Language: r.Language, Code: r.Code})
	}
	return o
}

// orDefault returns d, or what it stands for if it is zero.
func orDefault(d driver.Duration, standard time.Duration) time.Duration {
	if d == 0 {
		return standard
	}
	return time.Duration(d)
}
