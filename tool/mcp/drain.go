package mcp

import (
	"context"
	"errors"
	"net/http"
)

// errDraining is what a call gets that comes too late. Nothing of it has been done.
var errDraining = errors.New("the server is shutting down; nothing was done")

// drainage knows what a shutdown has to wait for. The Server's mu guards it.
type drainage struct {
	begun bool
	busy  int           // calls, and requests that are being answered
	idle  chan struct{} // closed when it has begun and nothing is busy
	done  bool          // idle is closed
}

// check closes idle if it is time.
func (d *drainage) check() {
	if d.begun && d.busy == 0 && !d.done {
		d.done = true
		close(d.idle)
	}
}

// Drain refuses new sessions and calls, and waits until the calls in progress have ended and been answered, or ctx ends. Clients may still
// cancel theirs. The caller closes the Server afterwards.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.drain.begun = true
	s.drain.check()
	s.mu.Unlock()
	select {
	case <-s.drain.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// busy counts something that a shutdown waits for. A new call is refused from then on; what belongs to one that goes on is not.
func (s *Server) busy(call bool) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call && s.drain.begun {
		return nil, errDraining
	}
	s.drain.busy++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drain.busy--
		s.drain.check()
	}, nil
}

// answered has a shutdown wait for the answers to requests, not only for the calls in them.
func (s *Server) answered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // a stream for what the server sends by itself may never end
			next.ServeHTTP(w, r)
			return
		}
		done, err := s.busy(r.Header.Get("Mcp-Session-Id") == "")
		if err != nil {
			w.Header().Set("Retry-After", "5")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer done()
		next.ServeHTTP(w, r)
	})
}
