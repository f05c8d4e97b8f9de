package router

import (
	"context"
	"maps"

	"github.com/execbroker/execbroker/executor"
)

// The keys that the router adds to handles, so that the statistics of experiments survive a
// restart.
const (
	metaRoute    = "router.route"
	metaAssigned = "router.assigned"
)

// Assignment returns what a Router has stored in a handle: the route that matched, and the backend
// that its split selected. They are empty if no Router made the session.
func Assignment(h executor.Handle) (route, assigned string) {
	return h.Meta[metaRoute], h.Meta[metaAssigned]
}

// session adds the route to what a session reports. It changes nothing else, so it embeds the
// interface, and methods that are added to Session later pass through.
type session struct {
	executor.Session
	r               *Router
	route, assigned string
}

// As passes backend-specific values through.
func (s *session) As(target any) bool { return executor.As(s.Session, target) }

// Info returns that of the backend's session, with the route in its handle.
func (s *session) Info() executor.SessionInfo { return s.mark(s.Session.Info()) }

// Refresh does the same as Info, after asking the backend.
func (s *session) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	i, err := s.Session.Refresh(ctx)
	if err != nil {
		return i, err
	}
	return s.mark(i), nil
}

func (s *session) mark(i executor.SessionInfo) executor.SessionInfo {
	m := map[string]string{}
	maps.Copy(m, i.Handle.Meta)
	m[metaRoute], m[metaAssigned] = s.route, s.assigned
	i.Handle.Meta = m
	return i
}

// Run adds the route to the origin of the result.
func (s *session) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	return s.run(ctx, "run", req, func(ctx context.Context) (*executor.Result, error) { return s.Session.Run(ctx, req, emit) })
}

// Install adds the route to the origin of the result.
func (s *session) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (*executor.Result, error) {
	return s.run(ctx, "install", executor.Request{Language: p.Language}, func(ctx context.Context) (*executor.Result, error) {
		return s.Session.Install(ctx, p, emit)
	})
}

func (s *session) run(ctx context.Context, op string, req executor.Request, do func(context.Context) (*executor.Result, error)) (*executor.Result, error) {
	ctx, end := s.r.begin(ctx, executor.Op{Name: op, Session: s.Session.Info().Handle.Session, Run: req.ID, Language: req.Language})
	res, err := do(ctx)
	out := executor.Outcome{Err: err}
	if res != nil {
		res.Origin.Route, res.Origin.Assigned = s.route, s.assigned
		out.Status, out.Queued, out.Duration, out.Origin = res.Status, res.Queued, res.Duration, res.Origin
	}
	end(out)
	return res, err
}
