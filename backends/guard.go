package backends

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/requirement"
)

// Guard refuses operations with ErrDenied before anything starts, on every backend and every route.
// A zero field is no limit. Sessions whose Spec has no Subject count as one subject. The numbers
// are counted in this process; Sessions has limits across processes.
type Guard struct {
	CodeBytes          int `json:"code_bytes,omitempty"`           // bytes of Request.Code, or of all words of Request.Command
	RunsPerMinute      int `json:"runs_per_minute,omitempty"`      // runs of one subject in any 60 seconds; at most 10000. An Install counts as a run
	RunsAtOnce         int `json:"runs_at_once,omitempty"`         // runs of one subject at the same time
	SessionsPerSubject int `json:"sessions_per_subject,omitempty"` // sessions that this process holds
	// Packages are the names of packages that may be installed, by language, in any version. A
	// language that is not listed may install none. Without Packages everything may be installed
	// that the backend allows.
	Packages map[executor.Language][]string `json:"packages,omitempty"`
}

// maxRate bounds the memory for each subject.
const maxRate = 10_000

func (g Guard) check() error {
	var bad problems
	bad.negative("code_bytes", int64(g.CodeBytes))
	bad.negative("runs_per_minute", int64(g.RunsPerMinute))
	bad.negative("runs_at_once", int64(g.RunsAtOnce))
	bad.negative("sessions_per_subject", int64(g.SessionsPerSubject))
	if g.RunsPerMinute > maxRate {
		bad.add("runs_per_minute", "at most %d", maxRate)
	}
	for l, names := range g.Packages {
		for i, name := range names {
			_, err := packageName(l, name)
			bad = append(bad, driver.At(index("packages."+string(l), i), err))
		}
	}
	return errors.Join(bad...)
}

// packageName returns the normalized name of the package in a requirement.
func packageName(l executor.Language, text string) (string, error) {
	if l == executor.JavaScript {
		name := text
		if at := strings.LastIndexByte(text, '@'); at > 0 { // "@scope/name@1.2"
			name = text[:at]
		}
		if name == "" || strings.ContainsAny(name, " :\\") || strings.Count(name, "/") > strings.Count(name, "@") || strings.HasPrefix(name, ".") {
			return "", fmt.Errorf("%.60q is not the name of a package of npm", text)
		}
		return strings.ToLower(name), nil
	}
	r, err := requirement.Parse(text)
	return r.Name, err
}

// guard keeps the counts. Its lock is held only for short computations.
type guard struct {
	mu       sync.Mutex
	cfg      Guard
	allowed  map[executor.Language][]string // normalized names
	subjects map[string]*usage
	next     time.Time // when to remove unused subjects next
}

// usage is what a subject uses and has used.
type usage struct {
	sessions, running int
	starts            []time.Time // of the runs in the last minute, the oldest first
}

const window = time.Minute

func (g *guard) set(cfg Guard) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cfg, g.allowed = cfg, nil
	if cfg.Packages != nil {
		g.allowed = map[executor.Language][]string{}
	}
	for l, names := range cfg.Packages {
		for _, n := range names {
			if name, err := packageName(l, n); err == nil { // check has refused other names
				g.allowed[l] = append(g.allowed[l], name)
			}
		}
	}
}

// of returns the usage of a subject. The caller holds the lock.
func (g *guard) of(subject string) *usage {
	now := time.Now()
	if now.After(g.next) {
		g.next = now.Add(window)
		for s, u := range g.subjects {
			if u.forget(now); u.sessions+u.running+len(u.starts) == 0 {
				delete(g.subjects, s)
			}
		}
	}
	u := g.subjects[subject]
	if u == nil {
		u = &usage{}
		if g.subjects == nil {
			g.subjects = map[string]*usage{}
		}
		g.subjects[subject] = u
	}
	return u
}

// forget removes the starts that are older than the window.
func (u *usage) forget(now time.Time) {
	u.starts = slices.DeleteFunc(u.starts, func(t time.Time) bool { return now.Sub(t) >= window })
}

func denied(d executor.Denial, format string, args ...any) *executor.Error {
	return &executor.Error{Kind: executor.ErrDenied, Ran: executor.RanNo, Denied: d, Err: fmt.Errorf("guard: "+format, args...)}
}

// beyond returns the Denial of a rule with a number.
func beyond(rule executor.Rule, limit, have int) executor.Denial {
	return executor.Denial{Rule: rule, Limit: int64(limit), Have: int64(have)}
}

// session admits a session. The function that it returns releases the session, once.
func (g *guard) session(subject string, ps []executor.Packages) (func(), *executor.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.packages(ps...); err != nil {
		return nil, err
	}
	u := g.of(subject)
	if most := g.cfg.SessionsPerSubject; most > 0 && u.sessions >= most {
		return nil, denied(beyond(executor.RuleSessions, most, u.sessions), "sessions_per_subject: the subject has %d sessions already", u.sessions)
	}
	return g.count(&u.sessions), nil
}

// hold counts a session that exists already.
func (g *guard) hold(subject string) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count(&g.of(subject).sessions)
}

// count adds one to n and returns the function that subtracts it again, once. The caller holds the
// lock.
func (g *guard) count(n *int) func() {
	*n++
	var once sync.Once
	return func() {
		once.Do(func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			*n--
		})
	}
}

// run admits a run of size bytes of code, or an installation. The function that it returns ends it.
func (g *guard) run(subject string, size int, ps ...executor.Packages) (func(), *executor.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if most := g.cfg.CodeBytes; most > 0 && size > most {
		return nil, denied(beyond(executor.RuleCodeSize, most, size), "code_bytes: the code has %d bytes, and %d are allowed", size, most)
	}
	if err := g.packages(ps...); err != nil {
		return nil, err
	}
	u := g.of(subject)
	if most := g.cfg.RunsAtOnce; most > 0 && u.running >= most {
		return nil, denied(beyond(executor.RuleRunsAtOnce, most, u.running), "runs_at_once: the subject has %d runs in progress", u.running)
	}
	if most := g.cfg.RunsPerMinute; most > 0 {
		now := time.Now()
		u.forget(now)
		if n := len(u.starts); n >= most {
			wait := u.starts[n-most].Add(window).Sub(now)
			e := denied(beyond(executor.RuleRate, most, n), "runs_per_minute: the subject has had %d runs within a minute; the next is possible in %v", n, wait.Round(time.Second))
			e.RetryAfter = wait
			return nil, e
		}
		u.starts = append(u.starts, now)
	}
	return g.count(&u.running), nil
}

// packages refuses packages that are not on the list. The caller holds the lock.
func (g *guard) packages(ps ...executor.Packages) *executor.Error {
	if g.allowed == nil {
		return nil
	}
	for _, p := range ps {
		for _, text := range p.Names {
			name, err := packageName(p.Language, text)
			if err != nil {
				return &executor.Error{Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: fmt.Errorf("packages: %w", err)} // every backend would refuse it
			}
			if !slices.Contains(g.allowed[p.Language], name) {
				return denied(executor.Denial{Rule: executor.RulePackage, Package: name}, "packages: %s is not on the list of %s packages; allowed are: %s",
					name, p.Language, strings.Join(g.allowed[p.Language], ", "))
			}
		}
	}
	return nil
}
