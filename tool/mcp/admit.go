package mcp

import (
	"net/http"
	"sync"
	"time"
)

// admission bounds the sessions of an HTTP handler: those of all clients, and those of each key.
// Clients go away without a word, so a session that nobody uses gives way before somebody is
// refused.
//
// What the SDK calls sessions is not what is counted: it makes one for every request without a
// session, and ends it after the answer if the request did not begin one. A client that first asks
// what the server speaks would be in its own way.
type admission struct {
	s           *Server
	max, forKey int

	mu      sync.Mutex
	opening map[string]int // by key
	uses    map[string]*use
}

// use is what is known of a session that a client has begun.
type use struct {
	user   string
	last   time.Time // of the last request
	active int       // requests now
}

func newAdmission(s *Server, o HTTPOptions) *admission {
	return &admission{s: s, max: o.MaxSessions, forKey: o.MaxSessionsPerKey, opening: map[string]int{}, uses: map[string]*use{}}
}

// enter lets a request in that may begin a session. leave says that it has begun the one with an
// ID, or none. If there is no room, status says why: the key has too many sessions that are in use,
// or all clients have.
func (a *admission) enter(user string) (leave func(id string), status int) {
	ended := ""
	defer func() { a.s.endSession(ended) }() // when mu is free
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
		if ended = a.giveWay(user); ended == "" {
			return nil, http.StatusTooManyRequests
		}
	case all >= a.max:
		// Whoever has most gives way. One that has not more than the new client would have then
		// keeps what it has.
		most := user
		for name, n := range of {
			if n > of[most] && n > of[user]+1 {
				most = name
			}
		}
		if ended = a.giveWay(most); ended == "" {
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

// giveWay forgets the session of a key that was not used for the longest time and returns it; "" if
// all are in use.
func (a *admission) giveWay(user string) (id string) {
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

// use says that a session is in use until done is called.
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

// begun ends the sessions that a request began while the server was closed.
func (s *Server) begun() {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		s.endSessions()
	}
}

// endSessions ends every session, those too that have not called anything yet.
func (s *Server) endSessions() {
	for session := range s.sdk.Sessions() {
		session.Close()
	}
}

// answering calls leave before anything of an answer is sent, so that who has read it can rely on
// the count.
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
