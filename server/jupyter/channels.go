package jupyter

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"

	"github.com/execbroker/execbroker/internal/front"
)

const (
	maxConns  = 16      // connections of a kernel
	maxUnread = 8 << 20 // bytes that wait for a client; more output is left out
)

// conn is a connection of a client to the channels of a kernel.
type conn struct {
	k       *kernel
	ws      *websocket.Conn
	session string // by which the client is known when it connects again; empty: it is not
	frames  framing
	out     *outbox
}

// channels accepts the WebSocket of a kernel, and serves it until it or the kernel ends.
func (c *call) channels(k *kernel) (int, any, error) {
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") {
		return 0, nil, refuse(http.StatusUpgradeRequired, "want a WebSocket")
	}
	leave, ok := c.live.Enter()
	if !ok {
		return 0, nil, errShutdown
	}
	defer leave()
	n := &conn{k: k, frames: framingJSON, session: c.r.URL.Query().Get("session_id"), out: newOutbox()}
	if err := k.join(n); err != nil {
		return 0, nil, err
	}
	defer k.part(n)
	websocket.Server{
		Handshake: func(cfg *websocket.Config, _ *http.Request) error { // handler has checked the origin
			chosen := slices.Contains(cfg.Protocol, protocolV1)
			if cfg.Protocol = nil; chosen {
				n.frames, cfg.Protocol = framingV1, []string{protocolV1}
			}
			return nil
		},
		Handler: func(ws *websocket.Conn) { n.serve(c.r.Context(), ws) },
	}.ServeHTTP(c.w, c.r)
	return 0, nil, nil
}

// join adds a connection. A client that was the last to leave gets what it has missed.
func (k *kernel) join(c *conn) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.conns) >= maxConns {
		return refuse(http.StatusTooManyRequests, "the kernel has %d connections; close one first", maxConns)
	}
	if k.away != nil && k.away.session == c.session {
		c.out = k.away.out
		c.out.reopen()
	}
	k.away = nil
	k.conns[c] = true
	return nil
}

// part removes a connection. Nobody is left to give the input that it was asked for.
func (k *kernel) part(c *conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
	if len(k.conns) == 0 && c.session != "" && len(c.session) <= maxName {
		k.away = c
	}
	if k.asking != nil && k.asking.conn == c {
		k.asking.input.Close()
	}
}

// serve reads and writes messages until the connection or the kernel ends.
func (c *conn) serve(ctx context.Context, ws *websocket.Conn) {
	c.ws = ws
	ws.PayloadType = c.frames.payload
	defer context.AfterFunc(c.k.ctx, func() { _ = ws.SetReadDeadline(time.Now()) })()
	var writing sync.WaitGroup
	writing.Go(c.write)
	defer writing.Wait()
	defer c.out.end()
	next := c.frames.receiver(ws, c.k.s.cfg.MaxBody)
	for {
		q, err := next()
		if err != nil { // the client has gone, or does not keep to the protocol
			c.k.s.cfg.Log.DebugContext(ctx, "a connection has ended", "id", front.RequestID(ctx), "kernel", c.k.id, "err", err)
			return
		}
		c.hear(ctx, q)
	}
}

// write writes what is queued. A client that does not take it is disconnected.
func (c *conn) write() {
	defer c.ws.Close()
	for {
		messages, ended := c.out.take()
		for _, m := range messages {
			raw, err := c.frames.encode(m)
			if err == nil {
				_, err = c.ws.Write(raw)
			}
			if err != nil {
				return
			}
		}
		if ended {
			return
		}
	}
}

// reply answers a request of the client.
func (c *conn) reply(channel, kind string, parent json.RawMessage, content any) {
	m, err := answer(channel, kind, c.k.session, parent, content)
	if err != nil {
		c.k.s.cfg.Log.Warn("a message cannot be encoded", "type", kind, "err", err)
		return
	}
	c.out.put(m, kind)
}

// hear does what a message asks for, or queues it.
func (c *conn) hear(ctx context.Context, q request) {
	switch f := immediate[q.Type]; {
	case q.channel == stdio && q.Type == "input_reply":
		c.k.give(ctx, c, q)
	case q.channel == control && f != nil:
		c.k.publish("status", q.raw, status{busy})
		c.reply(control, replyTo(q.Type), q.raw, f(c.k, ctx, q))
		c.k.publish("status", q.raw, status{idle})
	case q.channel != shell && q.channel != control || handlers[q.Type] == nil:
		c.k.s.cfg.Log.InfoContext(ctx, "a message was ignored", "id", front.RequestID(ctx), "type", q.Type, "channel", q.channel)
	default:
		if err := c.k.put(&task{conn: c, q: q}, false); err != nil {
			c.reply(q.channel, replyTo(q.Type), q.raw, failed("Refused", err.Error()))
		}
	}
}

// replyTo is the type of the answer to a request.
func replyTo(kind string) string { return strings.TrimSuffix(kind, "_request") + "_reply" }

// outbox queues messages for a client, so that code never waits for a client.
type outbox struct {
	wake chan struct{}

	mu       sync.Mutex
	messages []message
	bytes    int
	dropped  int     // messages of output since the last take
	last     message // of them
	ended    bool
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// put queues a message. Output for which there is no room is only counted, and other messages
// disconnect a client that has not taken four times as much.
func (o *outbox) put(m message, kind string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	size := len(m.Header) + len(m.Parent) + len(m.Content)
	output := kind == "stream" || kind == "display_data" || kind == "execute_result"
	switch {
	case output && o.bytes+size > maxUnread && o.bytes > 0:
		o.dropped++
		o.last = m
	case o.bytes > 4*maxUnread:
		o.ended = true
	default:
		o.messages = append(o.messages, m)
		o.bytes += size
	}
	o.signal()
}

func (o *outbox) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.signal()
}

// reopen lets another connection take what is queued.
func (o *outbox) reopen() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = false
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default: // take is awake already
	}
}

// take waits for messages.
func (o *outbox) take() (messages []message, ended bool) {
	<-o.wake
	o.mu.Lock()
	defer o.mu.Unlock()
	messages = o.messages
	if o.dropped > 0 {
		text := fmt.Sprintf("[%d messages of output are left out: this client reads too slowly]\n", o.dropped)
		if m, err := answer(iopub, "stream", "", o.last.Parent, stream{"stderr", text}); err == nil {
			messages = append(messages, m)
		}
	}
	o.messages, o.bytes, o.dropped = nil, 0, 0
	return messages, o.ended
}
