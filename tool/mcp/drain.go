package mcp

import (
	"context"
	"errors"
	"net/http"
)

// errDraining is what a call gets that comes too late. Nothing of it has been done.
var errDraining = errors.New("the server is shutting down; nothing was done")

// Drain refuses new sessions and calls, and waits until the calls in progress have ended and been
// answered, or ctx ends. Clients may still cancel theirs. The caller closes the Server afterwards.
func (s *Server) Drain(ctx context.Context) error { return s.calls.Drain(ctx) }

// answered has a shutdown wait for the answers to requests, not only for the calls in them. What
// belongs to a session may still come, since its calls may need it.
func (s *Server) answered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // a stream for what the server sends by itself may never end
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
