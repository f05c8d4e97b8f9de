package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// TestDeadContext checks that a call whose context has ended before it says that nothing has run.
func TestDeadContext(t *testing.T) {
	s := newCloud().session(t, executor.Spec{})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for kind, ctx := range map[error]context.Context{context.Canceled: canceled, context.DeadlineExceeded: late} {
		_, runErr := s.Run(ctx, executor.Request{Code: "x"}, nil)
		_, refreshErr := s.Refresh(ctx)
		for _, err := range []error{runErr, refreshErr} {
			var e *executor.Error
			if !errors.As(err, &e) || e.Kind != kind || e.Ran != executor.RanNo || e.Err != nil {
				t.Errorf("got %v, want %v with RanNo", err, kind)
			}
		}
	}
}
