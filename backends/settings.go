package backends

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/pool"
)

// Settings says what the broker, not the adapter, does with a backend. In a file it is the key
// "broker" of the entry.
type Settings struct {
	Pools   []Pool  `json:"pools,omitempty"` // the first pool that fits is used; if none fits, the session is created cold and counted
	Queue   Queue   `json:"queue,omitzero"`
	Breaker Breaker `json:"breaker,omitzero"`
	// Prices are those of the backend. Nil: those that its provider has published when this version
	// of the adapter was made, which are zero for local backends.
	Prices *driver.Prices `json:"prices,omitempty"`
}

// Pool keeps sessions warm: see package pool. The fields after Prelude are those of executor.Spec.
// A Create with other values is served cold, and Stats and the log name the fields that differ. The
// wall time of runs is not among them: see pool.Options.
type Pool struct {
	Size      int                    `json:"size,omitempty"`       // number of warm sessions, 1 to 1000
	SizeTotal int                    `json:"size_total,omitempty"` // instead of Size: number of warm sessions of all processes that share the store of the Sessions, in equal parts
	MaxAge    driver.Duration        `json:"max_age,omitzero"`     // default half of the idle TTL, which is 1 h
	Refill    int                    `json:"refill,omitempty"`     // creations at the same time; default 1
	Suspended bool                   `json:"suspended,omitempty"`  // keep sessions suspended until they are handed out; the backend must support it
	Prelude   []Prelude              `json:"prelude,omitempty"`    // run in each session before it is ready, for imports that take long
	Template  string                 `json:"template,omitempty"`
	Languages []executor.Language    `json:"languages,omitempty"`
	Packages  []executor.Packages    `json:"packages,omitempty"`
	Aliases   []string               `json:"aliases,omitzero"` // default executor.DataDir if the backend has aliases. Specs without aliases are served too
	Ports     bool                   `json:"ports,omitempty"`  // serve only Specs that have Ports
	Limits    executor.Limits        `json:"limits,omitzero"`
	Network   executor.NetworkPolicy `json:"network,omitzero"`
}

// Prelude is code that a pool runs in its sessions. The user of the session gets what it defines.
type Prelude struct {
	Language executor.Language `json:"language,omitempty"` // empty: the session's first
	Code     string            `json:"code"`
}

// Queue bounds the sandboxes of a backend that this process holds. A Create beyond Max waits: in
// order of arrival within a subject, and in turn between subjects. After Wait it fails with
// ErrExhausted, and routes fall back.
type Queue struct {
	Max    int             `json:"max,omitempty"`    // sandboxes at the same time, including warm ones; 0: no limit
	Length int             `json:"length,omitempty"` // waiting Creates; one more fails at once. Default Max
	Wait   driver.Duration `json:"wait,omitzero"`    // default 10 s
}

// Breaker stops using a backend that fails. While it is open, Create fails at once with
// ErrUnavailable, and routes fall back. A request that is refused before the provider is asked
// counts neither as a failure nor as a success. After Open the broker itself tries the Spec that
// failed last, without labels and environment, and keeps trying, so that no user has to wait to
// find out that a provider is still down. If the provider can list sandboxes, it is first asked for
// that, so that an outage does not cost sandboxes.
type Breaker struct {
	Failures int             `json:"failures,omitempty"` // consecutive errors that are ErrUnavailable or passed deadlines; 0: no breaker
	Open     driver.Duration `json:"open,omitzero"`      // between two tries; default 30 s
}

const (
	defaultWait = 10 * time.Second
	defaultOpen = 30 * time.Second
	maxPool     = 1000
)

// problems collects the errors of settings.
type problems []error

func (p *problems) add(path, format string, args ...any) {
	*p = append(*p, driver.At(path, fmt.Errorf(format, args...)))
}

func (p *problems) negative(path string, n int64) {
	if n < 0 {
		p.add(path, "negative")
	}
}

// check returns all errors in s.
func (s Settings) check() error {
	var bad problems
	warm := 0
	for i, p := range s.Pools {
		at := "pools[" + strconv.Itoa(i) + "]"
		switch {
		case p.SizeTotal < 0 || p.SizeTotal > maxPool:
			bad.add(at+".size_total", "want 1 to %d", maxPool)
		case p.SizeTotal > 0 && p.Size > 0:
			bad.add(at+".size_total", "not together with size")
		case p.SizeTotal == 0 && (p.Size < 1 || p.Size > maxPool):
			bad.add(at+".size", "want 1 to %d", maxPool)
		}
		warm += p.Size + p.SizeTotal
		bad.negative(at+".max_age", int64(p.MaxAge))
		bad.negative(at+".refill", int64(p.Refill))
		for j, r := range p.Prelude {
			if r.Code == "" {
				bad.add(fmt.Sprintf("%s.prelude[%d].code", at, j), "empty")
			}
		}
		if err := p.spec(executor.Capabilities{}).Validate(); err != nil {
			bad = append(bad, driver.At(at, reason(err)))
		}
	}
	q := s.Queue
	switch {
	case q.Max < 0:
		bad.add("queue.max", "negative")
	case q.Max == 0 && (q.Length != 0 || q.Wait != 0):
		bad.add("queue.max", "missing; the other settings need it")
	case q.Max > 0 && q.Max <= warm:
		bad.add("queue.max", "the pools keep %d sandboxes warm, which leaves no room for others; want at least %d", warm, warm+1)
	}
	bad.negative("queue.length", int64(q.Length))
	bad.negative("queue.wait", int64(q.Wait))
	b := s.Breaker
	switch {
	case b.Failures < 0:
		bad.add("breaker.failures", "negative")
	case b.Failures == 0 && b.Open != 0:
		bad.add("breaker.failures", "missing; the other settings need it")
	}
	bad.negative("breaker.open", int64(b.Open))
	if s.Prices != nil {
		bad = append(bad, driver.At("prices", s.Prices.Validate()))
	}
	return errors.Join(bad...)
}

// Misfit says whether the pools can serve a session of spec on a backend with caps. If none can, it
// returns the index of the closest pool and the fields of executor.Spec that differ. Without pools,
// and if one can, fields is empty.
func (s Settings) Misfit(caps executor.Capabilities, spec executor.Spec) (i int, fields []string) {
	return nearest(s.Pools, func(p Pool) []string { return pool.Differs(p.spec(caps), caps, spec) })
}

// nearest returns the index of the pool with the fewest differing fields, and these fields. Without
// pools it returns -1. If a pool fits, it is the first that does; otherwise it is probably the pool
// that was meant for this Spec.
func nearest[P any](pools []P, differs func(P) []string) (at int, fields []string) {
	at = -1
	for i, p := range pools {
		if d := differs(p); at < 0 || len(d) < len(fields) {
			at, fields = i, d
		}
	}
	return at, fields
}

// reason returns the text of a refusal without the operation that the error names.
func reason(err error) error {
	if e := (*executor.Error)(nil); errors.As(err, &e) && e.Err != nil {
		return e.Err
	}
	return err
}

// spec returns the Spec of the warm sessions on a backend with the capabilities c.
func (p Pool) spec(c executor.Capabilities) executor.Spec {
	if p.Aliases == nil && c.Has(executor.FeatureAliases) {
		p.Aliases = []string{executor.DataDir}
	}
	return executor.Spec{Template: p.Template, Languages: p.Languages, Packages: p.Packages, Aliases: p.Aliases, Ports: p.Ports, Limits: p.Limits, Network: p.Network}
}

func (p Pool) options(env driver.Env, c executor.Capabilities) pool.Options {
	o := pool.Options{
		Spec: p.spec(c), Size: p.Size + p.SizeTotal, MaxAge: time.Duration(p.MaxAge), Refill: p.Refill, Suspended: p.Suspended,
		Hooks: env.Hooks, Log: env.Logger(),
	}
	for _, r := range p.Prelude {
		o.Prelude = append(o.Prelude, executor.Request{Language: r.Language, Code: r.Code})
	}
	return o
}

// orDefault returns d, or standard if d is zero.
func orDefault(d driver.Duration, standard time.Duration) time.Duration {
	return cmp.Or(time.Duration(d), standard)
}
