package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// TrapOutcome is what came of looking at a fact.
type TrapOutcome string

// The outcomes of traps.
const (
	AsExpected TrapOutcome = "as expected"
	Differs    TrapOutcome = "differs"   // the adapter and its stand-in rely on something else
	Noted      TrapOutcome = "noted"     // nothing was known before
	Errored    TrapOutcome = "errored"   // it was not found out
	Unselected TrapOutcome = "not asked" // by Options.Traps
)

// TrapLine is what was found about one fact.
type TrapLine struct {
	Name     string      `json:"name"`
	Expected string      `json:"expected"`
	Seen     string      `json:"seen"`
	Outcome  TrapOutcome `json:"outcome"`
}

// trap is a fact about a service that clients trip over.
type trap struct {
	name   string
	expect string
	open   bool // what is expected is not known
	// look asks the service. seen is what it did; holds whether that is what is expected.
	look func(ctx context.Context, s *site) (seen string, holds bool, err error)
}

// Trap is the name of a fact with what is expected of it.
type Trap struct{ Name, Expected string }

// Traps returns the facts about a service that a run looks at; nil if there is no kit for the
// backend.
func Traps(typ string) (list []Trap) {
	if f, ok := services[typ]; ok {
		for _, t := range f().traps {
			list = append(list, Trap{t.name, t.expect})
		}
	}
	return list
}

// trapTime bounds a trap.
const trapTime = 2 * time.Minute

// site is where traps look: one sandbox for all of them, made when it is first needed.
type site struct {
	svc   *service
	o     *Options
	proxy *proxy
	rec   *recorder

	trap    string // that looks
	x       executor.Executor
	session executor.Session
	id      string // of the sandbox at the service
	about   map[string]any
}

// all looks at the traps that are selected, one after the other.
func (s *site) all(ctx context.Context, list []trap) (lines []TrapLine, err error) {
	defer func() {
		if s.session != nil {
			err = errors.Join(err, s.session.Close())
		}
		if s.x != nil {
			err = errors.Join(err, s.x.Close())
		}
	}()
	for _, t := range list {
		l := TrapLine{Name: t.name, Expected: t.expect, Outcome: Unselected}
		if s.selected(t.name) {
			s.trap = t.name
			if ctx.Err() != nil {
				return lines, context.Cause(ctx)
			}
			s.one(ctx, t, &l)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func (s *site) selected(name string) bool {
	return s.o.Traps == nil || slices.ContainsFunc(s.o.Traps, func(p string) bool { ok, _ := path.Match(p, name); return ok })
}

func (s *site) one(ctx context.Context, t trap, l *TrapLine) {
	ctx, cancel := context.WithTimeout(ctx, trapTime)
	defer cancel()
	defer func() {
		if p := recover(); p != nil { // the sandboxes are not to be forgotten because of it
			l.Outcome, l.Seen = Errored, fmt.Sprintf("panic: %v", p)
		}
	}()
	seen, holds, err := t.look(ctx, s)
	l.Seen = s.rec.scrub.hide(seen)
	switch {
	case err != nil:
		l.Outcome, l.Seen = Errored, s.rec.scrub.text(err.Error())
	case t.open:
		l.Outcome = Noted
	case holds:
		l.Outcome = AsExpected
	default:
		l.Outcome = Differs
	}
}

// sandbox returns the ID of the sandbox that traps share.
func (s *site) sandbox(ctx context.Context) (string, error) {
	if s.id != "" {
		return s.id, nil
	}
	if s.x == nil {
		var err error
		if s.x, err = s.o.through(ctx, s.svc, s.proxy.url, s.o.Owners()[0]); err != nil {
			return "", err
		}
	}
	var err error
	if s.session, err = s.x.Create(ctx, executor.Spec{}); err != nil {
		return "", err
	}
	s.id, err = s.svc.find(ctx, s)
	return s.id, err
}

// call sends a request to the control plane, with a body that may be nil.
func (s *site) call(ctx context.Context, method, path string, body any, headers ...string) (*answer, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h[headers[i]] = []string{headers[i+1]}
	}
	return s.proxy.ask(ctx, s.trap, method, path, data, h)
}

func (s *site) decode(ctx context.Context, method, path string, body, into any) error {
	a, err := s.call(ctx, method, path, body)
	if err != nil {
		return err
	}
	if a.status >= 300 {
		return fmt.Errorf("%s: %v", method, a)
	}
	return json.Unmarshal(a.body, into)
}

// on is a trap that makes one request about the sandbox that traps share.
func on(name, expect string, request func(s *site, id string) (method, path string, body any), status int, says string) trap {
	return trap{name: name, expect: expect, look: func(ctx context.Context, s *site) (string, bool, error) {
		id, err := s.sandbox(ctx)
		if err != nil {
			return "", false, err
		}
		method, path, body := request(s, id)
		return s.expect(ctx, method, path, body, status, says)
	}}
}

// request is one that needs no sandbox. In its path machinesPath stands for that of the Machines.
type request struct {
	method, path string
	body         any
}

// without is a trap that makes such a request.
func without(name, expect string, r request, status int, says string, headers ...string) trap {
	return trap{name: name, expect: expect, look: func(ctx context.Context, s *site) (string, bool, error) {
		return s.expect(ctx, r.method, strings.Replace(r.path, machinesPath, s.machines(), 1), r.body, status, says, headers...)
	}}
}

// expect makes a request and compares the status and a part of the body. What was made in spite of
// the expectation is removed at the end.
func (s *site) expect(ctx context.Context, method, path string, body any, status int, says string, headers ...string) (string, bool, error) {
	a, err := s.call(ctx, method, path, body, headers...)
	return a.seen(err, status, says)
}

// seen is what a trap returns that has asked for a, or failed to: whether the answer has a status
// and says something.
func (a *answer) seen(err error, status int, says string) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	return a.String(), a.status == status && strings.Contains(string(a.body), says), nil
}
