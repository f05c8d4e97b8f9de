package mcp

import (
	"context"
	"errors"
	"reflect"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// listWait is how long a list of tools waits for what a sandbox says of itself. What comes
	// later is told to the clients as a change.
	listWait = 5 * time.Second
	// learnTime bounds that, and again is when it is tried again after an error.
	learnTime = time.Minute
	again     = time.Minute
)

// informed has a client's list of tools say what there is in the sandbox. A backend that is away
// holds it up for a moment only.
func (s *Server) informed(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if method == "tools/list" {
			ctx, cancel := context.WithTimeout(ctx, listWait)
			defer cancel()
			select {
			case <-s.learn():
			case <-ctx.Done():
			}
		}
		return next(ctx, method, req)
	}
}

// learn begins to ask, unless somebody does or has just done so, and returns what is closed when
// there is an answer.
func (s *Server) learn() (done <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.learned != nil && (s.learnedAt.IsZero() || time.Since(s.learnedAt) < again) {
		return s.learned
	}
	answered := make(chan struct{})
	if s.closed {
		close(answered)
		return answered
	}
	s.learned, s.learnedAt = answered, time.Time{}
	s.work.Go(func() {
		defer close(answered)
		ctx, cancel := context.WithTimeout(s.life, learnTime)
		defer cancel()
		before := s.t.Definition()
		if err := s.t.Learn(ctx); err != nil && !errors.Is(s.life.Err(), context.Canceled) {
			s.o.Log.Warn("asking a sandbox what it has", "err", err)
		}
		if d := s.t.Definition(); !reflect.DeepEqual(d, before) {
			s.addExecute(d) // which tells the clients
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.learnedAt = time.Now()
	})
	return answered
}
