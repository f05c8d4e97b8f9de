package compat

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/stdin"
)

// The codes with which Piston closes a connection.
const (
	closeInitialized closing = iota + 4000
	closeInitTimeout
	closeNotified
	closeNotInit
	closeOnlyStdin
	closeBadSignal
	closeDone closing = 4999
)

// pistonSignals are the signals that stop a run. There is no other way to send one to code in an
// interpreter.
var pistonSignals = []string{"SIGINT", "SIGTERM", "SIGKILL", "SIGQUIT", "SIGHUP", "SIGABRT"}

// message is a message of Piston's WebSocket.
type message map[string]any

// pistonConnect runs code over a WebSocket: input arrives and output leaves while it runs.
func pistonConnect(c *call) (int, any, error) {
	return 0, nil, c.connect(c.pistonServe, func(s *socket, err error) closing {
		_ = s.send(message{"type": "error", "message": c.refusal(err).text})
		return closeNotified
	})
}

// pistonServe runs the code of the first message.
func (c *call) pistonServe(s *socket) error {
	_ = s.ws.SetReadDeadline(time.Now().Add(min(initTime, c.cfg.BodyTime)))
	raw, err := s.receive(c.cfg.MaxBody)
	if why := (refusal{}); errors.As(err, &why) {
		return why
	} else if err != nil {
		return closeInitTimeout
	}
	_ = s.ws.SetReadDeadline(time.Time{})
	var q pistonRequest
	if json.Unmarshal(raw, &q) == nil && q.Type != "init" {
		return closeNotInit
	}
	j, err := decodePiston(c, raw)
	if err != nil {
		return err
	}
	input := stdin.New()
	defer input.Close()
	takes := q.Stdin == "" && c.x.Info().Capabilities.HasFor(j.runtime.Language, executor.FeatureStdin)
	if takes {
		j.stdin = input
	}
	if err := s.send(message{"type": "runtime", "language": j.runtime.Language, "version": pistonVersionOf(j.runtime)}, message{"type": "stage", "stage": "run"}); err != nil {
		return err
	}
	ctx, stop := s.listen(c.r.Context(), func(raw json.RawMessage) error { return pistonHears(c.ctx, raw, input, takes) })
	o, err := c.run(ctx, j, func(e executor.Event) error {
		if e.Kind != executor.EventStdout && e.Kind != executor.EventStderr {
			return nil
		}
		return s.send(message{"type": "data", "stream": e.Kind, "data": e.Data.String()})
	})
	cause := context.Cause(ctx)
	input.Close() // nobody reads what a message waits to send
	stop()
	return s.pistonExit(c, j, o, err, cause)
}

// stoppedBy is the signal of a client that has stopped its run.
type stoppedBy string

func (stoppedBy) Error() string { return "the client has stopped the run" }

// pistonExit tells how the run has ended.
func (s *socket) pistonExit(c *call, j job, o *outcome, err, cause error) error {
	exit := message{"type": "exit", "stage": "run", "code": nil, "signal": nil}
	sig, code := stoppedBy(""), closing(0)
	switch {
	case errors.As(cause, &sig):
		exit["signal"] = string(sig)
	case errors.As(cause, &code):
		return code
	case err != nil:
		return err
	default:
		if end := o.ending(); end != "" {
			if err := s.send(message{"type": "data", "stream": "stderr", "data": end}); err != nil {
				return err
			}
		}
		stage := pistonStageOf(o)
		exit["code"], exit["signal"] = stage.Code, stage.Signal
		if stage.Signal != nil {
			exit["error"] = stage.Message
		}
	}
	if err := s.send(exit); err != nil {
		return err
	}
	return closeDone
}

// pistonHears does what a message asks for that arrives while code runs.
func pistonHears(ctx context.Context, raw json.RawMessage, input *stdin.Input, takes bool) error {
	var m struct{ Type, Stream, Data, Signal string }
	switch err := json.Unmarshal(raw, &m); {
	case err != nil:
		return closeNotified
	case m.Type == "init":
		return closeInitialized
	case m.Type == "data" && (m.Stream != "stdin" || !takes):
		return closeOnlyStdin
	case m.Type == "data":
		return input.Send(ctx, []byte(m.Data))
	case m.Type == "signal" && slices.Contains(pistonSignals, m.Signal):
		return stoppedBy(m.Signal)
	case m.Type == "signal":
		return closeBadSignal
	}
	return nil
}
