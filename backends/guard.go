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

// Guard refuses with ErrDenied before anything starts, on every backend and every route. Zero
// fields do not bound. Sessions whose Spec has no Subject count as one subject. The counts are
// those of this process; Sessions bounds across processes.
type Guard struct {
	CodeBytes          int `json:"code_bytes,omitempty"`           // of Request.Code, and of all words of Request.Command
	RunsPerMinute      int `json:"runs_per_minute,omitempty"`      // of one subject, in any 60 seconds; at most 10000. Install is one
	RunsAtOnce         int `json:"runs_at_once,omitempty"`         // of one subject
	SessionsPerSubject int `json:"sessions_per_subject,omitempty"` // held by this process
	// Packages are the names that may be installed, by language. Versions are free. A language that
	// is not there may install none; without Packages everything may be installed that the backend
	// allows.
	Packages map[executor.Language][]string `json:"packages,omitempty"`
}

// maxRate bounds what is remembered of each subject.
const maxRate = 10_000

func (g Guard) check() error {
	var errs []error
	for _, f := range []struct {
		name string
		n    int
	}{
		{"code_bytes", g.CodeBytes}, {"runs_per_minute", g.RunsPerMinute}, {"runs_at_once", g.RunsAtOnce},
		{"sessions_per_subject", g.SessionsPerSubject},
	} {
		if f.n < 0 {
			errs = append(errs, driver.At(f.name, errors.New("negative")))
		}
	}
	if g.RunsPerMinute > maxRate {
		errs = append(errs, driver.At("runs_per_minute", fmt.Errorf("at most %d", maxRate)))
	}
	for l, names := range g.Packages {
		for i, name := range names {
			if _, err := packageName(l, name); err != nil {
				errs = append(errs, driver.At(index("packages."+string(l), i), err))
			}
		}
	}
	return errors.Join(errs...)
}

// packageName returns the one form of the name in a requirement.
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

// guard keeps the counts. Locks are held for moments only.
type guard struct {
	mu       sync.Mutex
	cfg      Guard
	allowed  map[executor.Language][]string // names in their one form
	subjects map[string]*usage
	next     time.Time // of the next look for subjects that are gone
}

// usage is what a subject has and did.
type usage struct {
	sessions, running int
	starts            []time.Time // of runs of the last minute, the oldest first
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
			if name, err := packageName(l, n); err == nil { // check has looked
				g.allowed[l] = append(g.allowed[l], name)
			}
		}
	}
}

// of returns the usage of a subject. The caller has the lock.
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

// forget removes the starts that have left the window.
func (u *usage) forget(now time.Time) {
	i := slices.IndexFunc(u.starts, func(t time.Time) bool { return now.Sub(t) < window })
	if i < 0 {
		u.starts = nil
		return
	}
	u.starts = slices.Delete(u.starts, 0, i)
}

func denied(d executor.Denial, format string, args ...any) *executor.Error {
	return &executor.Error{Kind: executor.ErrDenied, Ran: executor.RanNo, Denied: d, Err: fmt.Errorf("guard: "+format, args...)}
}

// beyond is the denial of a rule that counts.
func beyond(rule executor.Rule, limit, have int) executor.Denial {
	return executor.Denial{Rule: rule, Limit: int64(limit), Have: int64(have)}
}

// session admits a session. What it returns lets go of it, once.
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
	return g.leave(&u.sessions), nil
}

// hold counts a session that exists already.
func (g *guard) hold(subject string) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leave(&g.of(subject).sessions)
}

// leave counts one more, and returns what counts it off. The caller has the lock.
func (g *guard) leave(n *int) func() {
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

// run admits a run of size bytes of code, or an installation. What it returns ends it.
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
	return g.leave(&u.running), nil
}

// packages refuses what is not on the list. The caller has the lock.
func (g *guard) packages(ps ...executor.Packages) *executor.Error {
	if g.allowed == nil {
		return nil
	}
	for _, p := range ps {
		for _, text := range p.Names {
			name, err := packageName(p.Language, text)
			if err != nil {
				return &executor.Error{Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: fmt.Errorf("packages: %w", err)} // on every backend
			}
			if !slices.Contains(g.allowed[p.Language], name) {
				return denied(executor.Denial{Rule: executor.RulePackage, Package: name}, "packages: %s is not on the list of %s packages; allowed are: %s",
					name, p.Language, strings.Join(g.allowed[p.Language], ", "))
			}
		}
	}
	return nil
}
