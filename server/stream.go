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
	// maxQueued is how many bytes of output are queued for a client that reads slowly. More output
	// is left out of the stream and counted. The result has it, as far as results contain output.
	maxQueued = 1 << 20
	// beat is the longest time without a message to the client.
	beat = 10 * time.Second
)

// stream runs code and writes its events as server-sent events. Each has the name of its kind, and
// the last is "done" with the result, or "error" with a Problem. stream returns an error only if
// nothing has been written.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, c Client, x executor.Session, req executor.Request) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	q := &queue{w: w, rc: http.NewResponseController(w), wake: make(chan struct{}, 1), cancel: cancel}
	var writing sync.WaitGroup
	begin := sync.OnceFunc(func() {
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("X-Accel-Buffering", "no") // otherwise proxies would delay the events
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
	_, v, err := s.result(c, x, res, err)
	if err != nil && !began {
		return err
	}
	begin()
	if err != nil {
		p := *ProblemOf(err)
		p.Request = requestID(r)
		s.failed(r, c, err)
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

// queue queues events for a client, so that the code never waits for the client.
type queue struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	wake   chan struct{}
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	events  []queued
	bytes   int // bytes of output in events
	dropped int64
	ended   bool
}

type queued struct {
	name string
	data []byte
	cost int
}

// put adds an event. Output for which there is no room is only counted. Other events are always
// added, because they are small and few.
func (q *queue) put(name string, v any, output int) {
	data, err := json.Marshal(v)
	if err != nil { // impossible: v has a type of the contract
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
	default: // write is awake already
	}
}

// write writes events until the end. If the client stops reading, nobody needs the run any more,
// and write stops it.
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
			q.cancel(errors.Join(errors.New("the client does not read its events"), err))
			return
		}
		if ended {
			return
		}
	}
}

func (q *queue) send(text string, events []queued) error {
	for _, e := range events {
		// JSON contains no line break, so the data of an event is always one line.
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
