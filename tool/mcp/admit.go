package mcp

import (
	"net/http"
	"sync"
)

// admission bounds the sessions of an HTTP handler.
type admission struct {
	s   *Server
	max int

	mu      sync.Mutex
	opening int
}

// enter lets a request in that may begin a session; leave says that its session, if it has one, is counted as such from here on.
//
// What the SDK calls sessions is not what is counted: it makes one for every request without a session, and ends it after the answer if
// the request did not begin one. A client that first asks what the server speaks would be in its own way.
func (a *admission) enter() (leave func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.s.count()+a.opening >= a.max {
		return nil, false
	}
	a.opening++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.opening--
	}), true
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

// count returns the number of sessions that clients have begun.
func (s *Server) count() (n int) {
	for session := range s.sdk.Sessions() {
		if session.InitializeParams() != nil {
			n++
		}
	}
	return n
}

// answering calls leave before anything of an answer is sent, so that who has read it can rely on the count.
type answering struct {
	http.ResponseWriter
	leave func()
}

// Unwrap is for http.ResponseController.
func (w answering) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w answering) WriteHeader(status int) {
	w.leave()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w answering) Write(p []byte) (int, error) {
	w.leave()
	return w.ResponseWriter.Write(p)
}
