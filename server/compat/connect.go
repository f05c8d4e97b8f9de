package compat

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"golang.org/x/net/websocket"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/stdin"
)

const (
	// initTime is how long the first message may take: with the second of the original, clients far
	// away fail.
	initTime = 10 * time.Second
	// patience is how long a client may take for a write.
	patience = 30 * time.Second
	// maxMessage bounds a message after the first.
	maxMessage = 1 << 20
)

// The codes with which Piston closes a connection.
const (
	closeDone        = 4999
	closeInitialized = 4000
	closeInitTimeout = 4001
	closeNotified    = 4002
	closeNotInit     = 4003
	closeOnlyStdin   = 4004
	closeBadSignal   = 4005
)

// pistonSignals are the signals that stop a run. There is no other way to send one to code in an
// interpreter.
var pistonSignals = []string{"SIGINT", "SIGTERM", "SIGKILL", "SIGQUIT", "SIGHUP", "SIGABRT"}

// closing ends a connection with a code.
type closing int

func (closing) Error() string { return "the connection is closed" }

// pistonConnect runs code over a WebSocket: input arrives and output leaves while it runs.
func pistonConnect(c *call) (int, any, error) {
	if !upgrades(c.r) {
		return 0, nil, refusal{http.StatusUpgradeRequired, "want a WebSocket"}
	}
	leave, ok := c.live.Enter()
	if !ok || c.runs.gate.IsShut() {
		if ok {
			leave()
		}
		return 0, nil, refusal{http.StatusServiceUnavailable, "the server is shutting down"}
	}
	defer leave()
	// admit has checked the origin.
	websocket.Server{Handler: func(ws *websocket.Conn) {
		defer context.AfterFunc(c.ctx, func() { _ = ws.SetDeadline(time.Now()) })()
		p := &pistonConn{call: c, ws: ws, in: &limited{r: ws}}
		p.dec = json.NewDecoder(p.in)
		code := closing(closeNotified)
		if err := p.serve(); err != nil && !errors.As(err, &code) {
			p.send(map[string]any{"type": "error", "message": c.refusal(err).text})
		}
		_ = ws.SetWriteDeadline(time.Now().Add(patience))
		_ = ws.WriteClose(int(code))
	}}.ServeHTTP(c.w, c.r)
	return 0, nil, nil
}

// limited bounds the size of each message of a client.
type limited struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, refusal{http.StatusRequestEntityTooLarge, "a message is too large"}
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

type pistonConn struct {
	*call
	ws  *websocket.Conn
	in  *limited
	dec *json.Decoder // of the messages; a message may come in several frames
}

// receive reads a message of at most some bytes.
func (p *pistonConn) receive(most int64) (raw json.RawMessage, err error) {
	p.in.left = most
	err = p.dec.Decode(&raw)
	return raw, err
}

// send writes a message. A client that does not read it ends its run.
func (p *pistonConn) send(v any) error {
	_ = p.ws.SetWriteDeadline(time.Now().Add(patience))
	return websocket.JSON.Send(p.ws, v)
}

// serve runs the code of the first message.
func (p *pistonConn) serve() error {
	_ = p.ws.SetReadDeadline(time.Now().Add(min(initTime, p.cfg.BodyTime)))
	raw, err := p.receive(p.cfg.MaxBody)
	if err != nil && p.in.left > 0 {
		return closing(closeInitTimeout)
	} else if err != nil {
		return err
	}
	var q pistonRequest
	if json.Unmarshal(raw, &q) == nil && q.Type != "init" {
		return closing(closeNotInit)
	}
	j, err := decodePiston(p.call, raw)
	if err != nil {
		return err
	}
	_ = p.ws.SetReadDeadline(time.Time{})
	input := stdin.New()
	defer input.Close()
	if q.Stdin == "" && p.x.Info().Capabilities.HasFor(j.runtime.Language, executor.FeatureStdin) {
		j.stdin = input
	}
	for _, m := range []map[string]any{
		{"type": "runtime", "language": j.runtime.Language, "version": pistonVersionOf(j.runtime)}, {"type": "stage", "stage": "run"},
	} {
		if err := p.send(m); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(p.r.Context())
	read := make(chan struct{})
	go func() {
		defer close(read)
		cancel(p.listen(ctx, input, j.stdin == input))
	}()
	o, err := p.run(ctx, j, func(e executor.Event) error {
		if e.Kind != executor.EventStdout && e.Kind != executor.EventStderr {
			return nil
		}
		return p.send(map[string]any{"type": "data", "stream": e.Kind, "data": e.Data.String()})
	})
	cause := context.Cause(ctx)
	cancel(nil)
	_ = p.ws.SetReadDeadline(time.Now()) // ends listen
	<-read
	return p.finish(j, o, err, cause)
}

// stoppedBy is the signal of a client that has stopped its run.
type stoppedBy string

func (stoppedBy) Error() string { return "the client has stopped the run" }

// finish tells how the run has ended.
func (p *pistonConn) finish(j job, o *outcome, err, cause error) error {
	exit := map[string]any{"type": "exit", "stage": "run", "code": nil, "signal": nil}
	sig := stoppedBy("")
	switch code := closing(0); {
	case errors.As(cause, &sig):
		exit["signal"] = string(sig)
	case errors.As(cause, &code):
		return code
	case err != nil:
		return err
	default:
		s := encodePiston(p.call, j, o).(map[string]any)["run"].(pistonStage)
		if end := o.ending(); end != "" {
			if err := p.send(map[string]any{"type": "data", "stream": "stderr", "data": end}); err != nil {
				return err
			}
		}
		exit["code"], exit["signal"] = s.Code, s.Signal
		if s.Message != nil && s.Signal != nil {
			exit["error"] = *s.Message
		}
	}
	if err := p.send(exit); err != nil {
		return err
	}
	return closing(closeDone)
}

// listen reads what the client sends while its code runs, and returns why it has stopped.
func (p *pistonConn) listen(ctx context.Context, input *stdin.Input, takes bool) error {
	for {
		var m struct{ Type, Stream, Data, Signal string }
		raw, err := p.receive(maxMessage)
		switch {
		case err != nil:
			return err
		case json.Unmarshal(raw, &m) != nil:
			return closing(closeNotified)
		case m.Type == "init":
			return closing(closeInitialized)
		case m.Type == "data" && (m.Stream != "stdin" || !takes):
			return closing(closeOnlyStdin)
		case m.Type == "data":
			if input.Send(ctx, []byte(m.Data)) != nil {
				return context.Cause(ctx)
			}
		case m.Type == "signal" && slices.Contains(pistonSignals, m.Signal):
			return stoppedBy(m.Signal)
		case m.Type == "signal":
			return closing(closeBadSignal)
		}
	}
}
