package mcp

import (
	"context"
	"errors"
	"reflect"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// listWait is how long a list of tools waits for what a sandbox says about itself. If that
	// comes later, the clients are told that the list has changed.
	listWait = 5 * time.Second
	// learnTime bounds Learn, and again is the time until it is tried again after an error.
	learnTime = time.Minute
	again     = time.Minute
)

// informed makes a client's list of tools say what the sandbox has. A backend that does not answer
// delays the list only by listWait.
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

// learn starts Learn, unless it is running or has just run. done is closed when there is a result.
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
			s.addExecute(d) // the SDK then notifies the clients
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.learnedAt = time.Now()
	})
	return answered
}
