package runner_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/runner"
)

// A sandbox that hangs is not waited for longer than for any other answer, and goes on when it can.
func TestRefreshOfAHungSandbox(t *testing.T) {
	t.Parallel()
	l := &local{}
	x := open(t, l, func(o *runner.Options) { o.AnswerTimeout = 10 * time.Second })
	s := create(t, x)
	if got := value(t, s, "x = 41; x + 1"); got != "42" {
		t.Errorf("got %q", got)
	}
	p := l.boxes[s.Info().Handle.Session].cmd.Process
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, err := s.Refresh(t.Context())
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, executor.ErrUnavailable) || !strings.Contains(err.Error(), "does not answer within 10s") {
		t.Errorf("got %v", err)
	}
	if i, err := s.Refresh(t.Context()); err != nil || i.State != executor.SessionRunning {
		t.Errorf("got %+v, %v", i, err)
	}
	if got := value(t, s, "x"); got != "41" {
		t.Errorf("got %q", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
