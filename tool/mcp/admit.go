package mcp

import (
	"net/http"
	"sync"
	"time"
)

// admission limits the sessions of an HTTP handler: those of all clients, and those of each key.
// Clients often leave without ending their session, so an unused session is ended before a new one
// is refused.
//
// The sessions of the SDK are not counted. The SDK makes one for every request without a session,
// and ends it after the answer unless the request began a session. A client that first asks for the
// capabilities of the server would otherwise use up its own limit.
type admission struct {
	s           *Server
	max, forKey int

	mu      sync.Mutex
	opening map[string]int // requests that may begin a session, by key
	uses    map[string]*use
}

// use is what is known about a session that a client has begun.
type use struct {
	user   string
	last   time.Time // time of the last request
	active int       // requests in progress
}

func newAdmission(s *Server, o HTTPOptions) *admission {
	return &admission{s: s, max: o.MaxSessions, forKey: o.MaxSessionsPerKey, opening: map[string]int{}, uses: map[string]*use{}}
}

// enter admits a request that may begin a session. The caller calls leave with the ID of the
// session that the request began, or with "". If there is no room, status says why: too many
// sessions in use of this key, or of all clients.
func (a *admission) enter(user string) (leave func(id string), status int) {
	ended := ""
	defer func() { a.s.endSession(ended) }() // after mu is unlocked
	a.mu.Lock()
	defer a.mu.Unlock()
	a.prune()
	of, all := map[string]int{}, 0
	for _, u := range a.uses {
		of[u.user]++
		all++
	}
	for name, n := range a.opening {
		of[name] += n
		all += n
	}
	switch {
	case of[user] >= a.forKey:
		if ended = a.evict(user); ended == "" {
			return nil, http.StatusTooManyRequests
		}
	case all >= a.max:
		// The key with the most sessions loses one. A key that has no more sessions than the new
		// client would then have keeps its sessions.
		most := user
		for name, n := range of {
			if n > of[most] && n > of[user]+1 {
				most = name
			}
		}
		if ended = a.evict(most); ended == "" {
			return nil, http.StatusServiceUnavailable
		}
	}
	a.opening[user]++
	var once sync.Once
	return func(id string) {
		once.Do(func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.opening[user]--; a.opening[user] == 0 {
				delete(a.opening, user)
			}
			if id != "" {
				a.uses[id] = &use{user: user, last: time.Now()}
			}
		})
	}, 0
}

// prune forgets the sessions that have ended.
func (a *admission) prune() {
	live := map[string]bool{}
	for session := range a.s.sdk.Sessions() {
		live[session.ID()] = true
	}
	for id := range a.uses {
		if !live[id] {
			delete(a.uses, id)
		}
	}
}

// evict forgets the least recently used session of a key and returns it. It returns "" if all are
// in use.
func (a *admission) evict(user string) (id string) {
	for i, u := range a.uses {
		if u.user == user && u.active == 0 && (id == "" || u.last.Before(a.uses[id].last)) {
			id = i
		}
	}
	delete(a.uses, id)
	return id
}

// endSession ends the session with an ID, if there is one.
func (s *Server) endSession(id string) {
	for session := range s.sdk.Sessions() {
		if id != "" && session.ID() == id {
			session.Close()
		}
	}
}

// use marks a session as in use until done is called.
func (a *admission) use(id string) (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.uses[id]
	if u == nil {
		return func() {}
	}
	u.active++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		u.active--
		u.last = time.Now()
	}
}

// begun ends the sessions that a request began while the server was being closed.
func (s *Server) begun() {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		s.endSessions()
	}
}

// endSessions ends every session, including those that have not called anything yet.
func (s *Server) endSessions() {
	for session := range s.sdk.Sessions() {
		session.Close()
	}
}

// answering calls leave before any part of an answer is sent, so that a client that has read the
// answer can rely on the count.
type answering struct {
	http.ResponseWriter
	leave func(id string)
}

// Unwrap is for http.ResponseController.
func (w answering) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w answering) WriteHeader(status int) {
	w.leave(w.Header().Get(sessionHeader))
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w answering) Write(p []byte) (int, error) {
	w.leave(w.Header().Get(sessionHeader))
	return w.ResponseWriter.Write(p)
}
