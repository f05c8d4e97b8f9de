package server

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Capabilities says what the backend can do and what a key may request.
type Capabilities struct {
	Backend           string                 `json:"backend"`
	Capabilities      *BackendCapabilities   `json:"capabilities"`
	Network           executor.NetworkPolicy `json:"network"`
	Limits            executor.Limits        `json:"limits"`
	MaxTimeoutSeconds float64                `json:"max_timeout_seconds"`
	MaxIdleSeconds    float64                `json:"max_idle_seconds"`
	MaxBodyBytes      int64                  `json:"max_body_bytes"`
	MaxFileBytes      int64                  `json:"max_file_bytes"`
	MaxSessions       int                    `json:"max_sessions"`
	MaxRuns           int                    `json:"max_runs"`
	Operator          bool                   `json:"operator,omitempty"` // the key is that of an operator
	Backends          []string               `json:"backends,omitempty"` // which the key may choose for a session
}

func (s *Server) capabilities(_ http.ResponseWriter, _ *http.Request, c Client) (int, any, error) {
	i := s.x.Info()
	v := Capabilities{
		Backend: i.Name, Capabilities: capabilitiesOf(i.Capabilities), Network: s.cfg.Spec.Network, Limits: s.cfg.Spec.Limits,
		MaxTimeoutSeconds: s.cfg.MaxTimeout.Seconds(), MaxIdleSeconds: s.cfg.MaxIdle.Seconds(),
		MaxBodyBytes: s.cfg.MaxBody, MaxFileBytes: s.cfg.MaxFile, MaxSessions: s.cfg.MaxSessions, MaxRuns: s.cfg.MaxRuns,
		Operator: c.Operator,
	}
	if c.Operator && s.cfg.Backends != nil {
		v.Backends = slices.Sorted(maps.Keys(s.cfg.Backends()))
	}
	v.Network.Mode = cmp.Or(v.Network.Mode, executor.NetworkNone)
	return http.StatusOK, v, nil
}

// Stats are the statistics of a key since the start of the server.
type Stats struct {
	Subject         string                    `json:"subject"`
	UptimeSeconds   float64                   `json:"uptime_seconds"`
	Sessions        int                       `json:"sessions"` // current sessions
	SessionsCreated int64                     `json:"sessions_created"`
	Running         int                       `json:"running"` // current runs
	Runs            map[executor.Status]int64 `json:"runs"`    // ended runs, by status
	RunErrors       int64                     `json:"run_errors"`
}

func (s *Server) stats(_ http.ResponseWriter, _ *http.Request, c Client) (int, any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return http.StatusOK, s.statsOf(c), nil
}

// statsOf returns the statistics of a key. The caller holds mu.
func (s *Server) statsOf(c Client) Stats {
	u := s.usageOf(c)
	return Stats{
		Subject: c.Subject, UptimeSeconds: time.Since(s.started).Seconds(), Sessions: u.sessions, SessionsCreated: u.created,
		Running: u.runs, Runs: maps.Clone(u.done), RunErrors: u.failed,
	}
}

// Health says whether the server accepts runs: "ok", or "draining" while it shuts down.
type Health struct {
	Status string `json:"status"`
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if s.runs.IsShut() {
		answer(w, http.StatusServiceUnavailable, Health{"draining"})
		return
	}
	answer(w, http.StatusOK, Health{"ok"})
}
