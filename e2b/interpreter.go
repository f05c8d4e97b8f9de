package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/execbroker/execbroker/e2b/internal/api"
	"github.com/execbroker/execbroker/executor"
)

// interpreterPort is where the service of E2B's code interpreter listens in its sandboxes.
const interpreterPort = 49999

// interpreter is the code interpreter in one sandbox.
type interpreter struct {
	id      string // of the sandbox
	base    string
	http    *http.Client
	timeout time.Duration
	silence time.Duration // of a stream, in which something comes every 5 seconds; after it the connection counts as lost
	room    int64         // of the events of a stream that wait to be taken, one that is larger alone: it is the sandbox that says how large they are
}

// interpreter returns the code interpreter of a sandbox that the service has described. It has no
// token of its own: the token for traffic keeps others out.
func (s *service) interpreter(sandbox *api.Sandbox) *interpreter {
	h := http.Header{}
	if sandbox.EnvdAccessToken != nil {
		h.Set("X-Access-Token", *sandbox.EnvdAccessToken)
	}
	if sandbox.TrafficAccessToken != nil && *sandbox.TrafficAccessToken != "" {
		h.Set("E2B-Traffic-Access-Token", *sandbox.TrafficAccessToken)
	}
	h.Set("Content-Type", "application/json")
	return &interpreter{
		id: sandbox.SandboxID, base: s.base(sandbox, interpreterPort), timeout: s.cfg.timeout(), silence: s.ping + 5*time.Second, room: 4 * maxPiece,
		http: &http.Client{
			Transport:     &sandboxTransport{base: s.code, id: sandbox.SandboxID, port: interpreterPort, header: h},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// codeTransport is for the code interpreter, which notices that a client has left only by the end
// of a connection. So each stream has a connection of its own: HTTP/1.1.
func codeTransport(t *http.Transport) *http.Transport {
	t = t.Clone()
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.ForceAttemptHTTP2 = false
	return t
}

// errNoContext says that the code interpreter does not know a context.
var errNoContext = errors.New("the code interpreter has no such context")

// send sends a request, again if it was certainly not delivered. body is sent as JSON; nil means no
// body.
func (i *interpreter) send(ctx context.Context, method, path string, body map[string]string) (*http.Response, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	for n := 0; ; n++ {
		r, err := http.NewRequestWithContext(ctx, method, i.base+path, bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		r.GetBody = nil // or Go would repeat it by itself when an idle connection breaks
		resp, err := i.http.Do(r)
		if err == nil {
			return resp, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		var said *ServiceError
		if errors.As(err, &said) && said.Status == http.StatusNotFound {
			return nil, fmt.Errorf("%w: %s", errNoContext, said.Message)
		}
		if !undelivered(err) || n+1 == attempts || !pause(ctx, n, err) {
			return nil, err
		}
	}
}

// ask sends a request and decodes the answer, which is small, into out unless that is nil.
func (i *interpreter) ask(ctx context.Context, method, path string, body map[string]string, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, i.timeout, errNoAnswer)
	defer cancel()
	resp, err := i.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("the answer is not that of the code interpreter: %w", err)
	}
	return nil
}

// health waits until the code interpreter listens.
func (i *interpreter) health(ctx context.Context) error {
	for n := 0; ; n++ {
		err := i.ask(ctx, http.MethodGet, "/health", nil, nil)
		if err == nil || !early(err) || !pause(ctx, min(n, 4), err) {
			return err
		}
	}
}

var contextID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// create makes a context that nobody else uses, and returns its ID.
func (i *interpreter) create(ctx context.Context, l executor.Language) (string, error) {
	var made struct {
		ID string `json:"id"`
	}
	err := i.ask(ctx, http.MethodPost, "/contexts", map[string]string{"language": string(l), "cwd": executor.Workdir}, &made)
	if err == nil && !contextID.MatchString(made.ID) {
		err = fmt.Errorf("the answer is not that of the code interpreter: context %.80q", made.ID)
	}
	return made.ID, err
}

// remove removes a context, with what runs in it. One that is gone is no error.
func (i *interpreter) remove(ctx context.Context, id string) error {
	err := i.ask(ctx, http.MethodDelete, "/contexts/"+id, nil, nil)
	if errors.Is(err, errNoContext) {
		return nil
	}
	return err
}

// heard is an event of a stream, or the reason why there are no more.
type heard struct {
	codeEvent
	size int64 // of what it holds
	err  error // io.EOF: it was whole
}

// execution is code that was sent. Its connection is its interrupt: closing it stops the code, if
// the code interpreter notices.
type execution struct {
	events chan heard          // closed after the last; who receives calls took
	room   *semaphore.Weighted // of the events that wait there
	cut    context.CancelCauseFunc
	left   context.Context // ended by close: nobody takes events any more
	leave  context.CancelFunc
	done   chan struct{} // closed when the stream is no longer read
}

// took releases the room of an event that no longer waits.
func (x *execution) took(h heard) { x.room.Release(h.size) }

// execute sends code to a context or, if contextID is empty, to the context of the language. ctx
// bounds the sending only. close ends the stream.
func (i *interpreter) execute(ctx context.Context, contextID, language, code string) (*execution, error) {
	life, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cut(context.Cause(ctx)) })
	watch := time.AfterFunc(i.timeout, func() { cut(errNoAnswer) })
	body := map[string]string{"code": code}
	if body["context_id"] = contextID; contextID == "" {
		delete(body, "context_id")
		body["language"] = language
	}
	resp, err := i.send(life, http.MethodPost, "/execute", body) //nolint:bodyclose // what reads it closes it
	if !stop() && err == nil {
		resp.Body.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		watch.Stop()
		cut(nil)
		return nil, err
	}
	x := &execution{events: make(chan heard, 64), room: semaphore.NewWeighted(i.room), cut: cut, done: make(chan struct{})}
	x.left, x.leave = context.WithCancel(context.WithoutCancel(ctx))
	go func() { // close waits for it
		defer close(x.done)
		defer close(x.events)
		defer watch.Stop()
		defer resp.Body.Close()
		r := newEventReader(resp.Body)
		for {
			watch.Reset(i.silence)
			ev, err := r.next()
			if cause := context.Cause(life); err != nil && err != io.EOF && cause != nil {
				err = cause
			}
			watch.Stop() // while events are not taken, nothing is read
			h := heard{ev, min(ev.size(), i.room), err}
			if x.room.Acquire(x.left, h.size) != nil {
				return
			}
			select {
			case x.events <- h:
			case <-x.left.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return x, nil
}

// errLeft is the cause of a stream that nobody waits for any more.
var errLeft = errors.New("the code is to stop")

// close ends the connection, if the stream has not ended. It may be called again.
func (x *execution) close() {
	x.leave()
	x.cut(errLeft)
	<-x.done
}
