package mcp

import (
	"context"
	"errors"
	"net/http"
)

// errDraining is the error of a call that arrives after Drain began. The call has done nothing.
var errDraining = errors.New("the server is shutting down; nothing was done")

// Drain refuses new sessions and calls. It waits until the calls in progress have ended and their
// answers are sent, or until ctx ends. Clients can still cancel their calls. The caller closes the
// Server afterwards.
func (s *Server) Drain(ctx context.Context) error { return s.calls.Drain(ctx) }

// answered makes a shutdown wait for the answers to requests, not only for the calls in them.
// Messages of existing sessions are still accepted, because their calls may need them.
func (s *Server) answered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // a stream for notifications of the server may never end
			next.ServeHTTP(w, r)
			return
		}
		var leave func()
		if r.Header.Get("Mcp-Session-Id") != "" {
			leave = s.calls.Hold()
		} else if enter, ok := s.calls.Enter(); ok {
			leave = enter
		} else {
			w.Header().Set("Retry-After", "5")
			http.Error(w, errDraining.Error(), http.StatusServiceUnavailable)
			return
		}
		defer leave()
		next.ServeHTTP(w, r)
	})
}
