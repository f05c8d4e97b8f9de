package pool

import (
	"context"
	"fmt"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// session is a warm session that was handed out. A warm session allows all that its backend allows;
// session applies the run limits of the Spec that it serves.
type session struct {
	executor.Session
	run, most executor.RunLimits
}

// As passes backend-specific values through.
func (s *session) As(target any) bool { return executor.As(s.Session, target) }

// Info reports the limits of the Spec, also in the handle, so that they apply to holders that
// attach.
func (s *session) Info() executor.SessionInfo { return s.mark(s.Session.Info()) }

// Refresh reports the limits of the Spec, like Info.
func (s *session) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	i, err := s.Session.Refresh(ctx)
	return s.mark(i), err
}

func (s *session) mark(i executor.SessionInfo) executor.SessionInfo {
	i.Run, i.MaxRun = s.run, s.most
	i.Handle.Run, i.Handle.MaxRun = s.run, s.most
	return i
}

// Run applies the limits.
func (s *session) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	req.Limits = req.Limits.Or(s.run)
	if over := req.Limits.Exceeds(s.most); len(over) > 0 {
		h := s.Session.Info().Handle
		return nil, &executor.Error{
			Op: "run", Backend: h.Backend, Session: h.Session, Kind: executor.ErrInvalid, Ran: executor.RanNo,
			Err: fmt.Errorf("limits: the session allows %s", strings.Join(over, ", ")),
		}
	}
	return s.Session.Run(ctx, req, emit)
}
