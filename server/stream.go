package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

const (
	// maxQueued is how many bytes of output wait for a client that reads slowly. What is beyond
	// them is left out of the stream and counted; the result has it, as far as results have output.
	maxQueued = 1 << 20
	// patience is how long a client may take for a write, and beat how long it hears nothing.
	patience = 30 * time.Second
	beat     = 10 * time.Second
)

// stream runs code and writes its events as server-sent events: each has the name of its kind, then
// "done" with the result, or "error" with a Problem. It returns an error if nothing has been
// written, and otherwise nil.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, c Client, x executor.Session, req executor.Request) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	q := &queue{w: w, rc: http.NewResponseController(w), wake: make(chan struct{}, 1), cancel: cancel}
	var writing sync.WaitGroup
	begin := sync.OnceFunc(func() {
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("X-Accel-Buffering", "no") // proxies would hold the events back
		w.WriteHeader(http.StatusOK)
		writing.Go(q.write)
	})
	began := false
	res, err := x.Run(ctx, req, func(e executor.Event) error {
		began = true
		begin()
		q.put(string(e.Kind), e, len(e.Data))
		return nil
	})
	_, v, err := s.result(c, res, err)
	if err != nil && !began {
		return err
	}
	begin()
	if err != nil {
		p := *problem(err)
		p.Request = requestID(r)
		q.put("error", p, 0)
	} else {
		q.put("done", v, 0)
	}
	q.end()
	writing.Wait()
	if cause := context.Cause(ctx); cause != nil && r.Context().Err() == nil {
		s.cfg.Log.WarnContext(r.Context(), "streaming", "id", requestID(r), "err", cause)
	}
	return nil
}

// queue holds events for a client, so that the code never waits for it.
type queue struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	wake   chan struct{}
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	events  []queued
	bytes   int // of output in events
	dropped int64
	ended   bool
}

type queued struct {
	name string
	data []byte
	cost int
}

// put adds an event. Output that finds no room is counted instead; what is not output always finds
// it, for there is little of it.
func (q *queue) put(name string, v any, output int) {
	data, err := json.Marshal(v)
	if err != nil { // only types of the contract get here
		return
	}
	cost := 0
	if name == string(executor.EventStdout) || name == string(executor.EventStderr) || name == string(executor.EventOutput) {
		cost = len(data)
	}
	q.mu.Lock()
	if cost > 0 && q.bytes+cost > maxQueued {
		q.dropped += int64(max(output, 1))
	} else {
		q.bytes += cost
		q.events = append(q.events, queued{name, data, cost})
	}
	q.mu.Unlock()
	q.signal()
}

func (q *queue) end() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default: // it is awake
	}
}

// write writes events until the end, or until the client takes none: then the run is of no use to
// anybody and is stopped.
func (q *queue) write() {
	t := time.NewTicker(beat)
	defer t.Stop()
	for {
		text := ""
		select {
		case <-q.wake:
		case <-t.C:
			text = ": the code runs\n\n"
		}
		q.mu.Lock()
		events, dropped, ended := q.events, q.dropped, q.ended
		q.events, q.bytes, q.dropped = nil, 0, 0
		q.mu.Unlock()
		if dropped > 0 {
			text += fmt.Sprintf("event: dropped\ndata: {\"bytes\":%d}\n\n", dropped)
		}
		if err := q.send(text, events); err != nil {
			q.cancel(errors.Join(errors.New("the client takes no events"), err))
			return
		}
		if ended {
			return
		}
	}
}

func (q *queue) send(text string, events []queued) error {
	_ = q.rc.SetWriteDeadline(time.Now().Add(patience)) // a ResponseWriter of tests has none
	for _, e := range events {
		// JSON has no line break, so an event is one line whatever the code prints.
		text += "event: " + e.name + "\ndata: " + string(e.data) + "\n\n"
		if len(text) < 64<<10 {
			continue
		}
		if _, err := q.w.Write([]byte(text)); err != nil {
			return err
		}
		text = ""
	}
	if _, err := q.w.Write([]byte(text)); err != nil {
		return err
	}
	if err := q.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
