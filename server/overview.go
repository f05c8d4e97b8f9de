package server

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Overview is what happens at a server, for operators.
type Overview struct {
	UptimeSeconds float64         `json:"uptime_seconds"`
	Sessions      []LiveSession   `json:"sessions"` // of all keys, the oldest first; at most 500
	Keys          []Stats         `json:"keys"`     // of each key that has been used
	Failures      []FailedRequest `json:"failures"` // the last requests that failed, the newest first
	Backends      []BackendStatus `json:"backends"`
	Arms          []ArmStatus     `json:"arms"`
	Used          []Used          `json:"used"` // on this day, in UTC: what is limited by a quota or has a price
}

// LiveSession is a session in an Overview. Its ID is not there: only its key can use it.
type LiveSession struct {
	Subject     string              `json:"subject"`
	Backend     string              `json:"backend"`
	Languages   []executor.Language `json:"languages"`
	Created     time.Time           `json:"created"`
	IdleSeconds float64             `json:"idle_seconds"` // it ends this long after its last use
	Busy        bool                `json:"busy"`
}

// FailedRequest is a request that failed. What the code of a run did is no failure.
type FailedRequest struct {
	Time      time.Time `json:"time"`
	Subject   string    `json:"subject"`
	Operation string    `json:"operation"` // "POST /v1/run"
	Status    int       `json:"status"`
	Kind      string    `json:"kind"`
	Message   string    `json:"message"` // what the client was told
	Request   string    `json:"request_id"`
}

// BackendStatus is what a backend has now.
type BackendStatus struct {
	Name     string       `json:"name"`
	Sessions int          `json:"sessions"`          // with those that are warm
	Waiting  int          `json:"waiting"`           // requests for a session in the queue
	Breaker  string       `json:"breaker,omitempty"` // "closed", "open", "trying"; empty: it has none
	Removed  bool         `json:"removed,omitempty"` // no longer configured, but it has sessions
	Pools    []PoolStatus `json:"pools,omitempty"`
}

// PoolStatus is a pool of warm sessions.
type PoolStatus struct {
	Warm     int   `json:"warm"`
	Starting int   `json:"starting"`
	Hits     int64 `json:"hits"`
	Misses   int64 `json:"misses"` // sessions that were created cold, whatever the reason
	Failed   int64 `json:"failed"` // warm sessions that could not be created, or were dead
}

// ArmStatus is what one arm of a route has done since the server started.
type ArmStatus struct {
	Route      string           `json:"route,omitempty"` // empty: the backend was used directly
	Assigned   string           `json:"assigned"`        // the backend that the split selected
	Backend    string           `json:"backend,omitempty"`
	Turns      int64            `json:"turns"` // of users
	Answered   int64            `json:"answered"`
	Errors     map[string]int64 `json:"errors,omitempty"` // the other turns, by executor.KindName
	P50Seconds float64          `json:"p50_seconds"`      // of turns
	P95Seconds float64          `json:"p95_seconds"`
	Cost       executor.Money   `json:"cost,omitempty"`
}

// Used is what an account has used.
type Used struct {
	Account string         `json:"account"` // "subject=alice", or an attribute with a quota: "plan=pro"
	Runs    int64          `json:"runs"`
	Seconds float64        `json:"seconds"` // of runs
	Cost    executor.Money `json:"cost,omitempty"`
}

// maxLive and maxFailures are the largest numbers of sessions and failures in an Overview.
const (
	maxLive     = 500
	maxFailures = 100
)

// overview answers operators only.
func (s *Server) overview(_ http.ResponseWriter, r *http.Request, c Client) (int, any, error) {
	if !c.Operator {
		return 0, nil, notOperator()
	}
	var v Overview
	if s.cfg.Overview != nil {
		var err error
		if v, err = s.cfg.Overview(r.Context()); err != nil {
			return 0, nil, err
		}
	}
	v.UptimeSeconds = time.Since(s.started).Seconds()
	v.Sessions, v.Keys = []LiveSession{}, []Stats{}
	s.mu.Lock()
	live := slices.Collect(maps.Values(s.sessions))
	for id := range s.usage {
		v.Keys = append(v.Keys, s.statsOf(s.cfg.Keys.clients[id]))
	}
	v.Failures = slices.Clone(s.failures)
	s.mu.Unlock()
	for _, b := range live {
		d := s.describe(b)
		v.Sessions = append(v.Sessions, LiveSession{
			Subject: s.cfg.Keys.clients[b.owner].Subject, Backend: d.Backend, Languages: d.Languages, Created: d.Created, IdleSeconds: d.IdleSeconds, Busy: d.Busy,
		})
	}
	slices.SortFunc(v.Sessions, func(a, b LiveSession) int { return a.Created.Compare(b.Created) })
	v.Sessions = v.Sessions[:min(len(v.Sessions), maxLive)]
	slices.SortFunc(v.Keys, func(a, b Stats) int { return cmp.Compare(a.Subject, b.Subject) })
	slices.Reverse(v.Failures)
	// A list that is empty is one in JSON too.
	v.Failures, v.Backends, v.Arms, v.Used = listed(v.Failures), listed(v.Backends), listed(v.Arms), listed(v.Used)
	return http.StatusOK, v, nil
}

func listed[T any](s []T) []T { return append([]T{}, s...) }

// failed remembers a request that failed.
func (s *Server) failed(r *http.Request, c Client, err error) {
	p := ProblemOf(err)
	f := FailedRequest{Time: time.Now(), Subject: c.Subject, Operation: r.Pattern, Status: p.Status, Kind: p.Kind, Message: p.Message, Request: requestID(r)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failures) >= maxFailures {
		s.failures = slices.Delete(s.failures, 0, len(s.failures)-maxFailures+1)
	}
	s.failures = append(s.failures, f)
}
