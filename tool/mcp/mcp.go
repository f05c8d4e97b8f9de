// Package mcp serves the code-execution tool to clients of the Model Context Protocol, over
// standard input and output or over HTTP. Each client session has its own sandbox, which ends with
// the session.
//
// Tools: the tool of package tool by its name (execute_code), and install_packages, upload_file,
// download_file, list_files, list_packages, get_capabilities and reset_session, as far as the
// backend supports them. Images that code displays are image content. Files are resources below
// sandbox:///workspace/, which resources/list lists and resources/read reads. If the client asks
// for progress, output is sent as progress while the code runs. If it sets a level of logs, it gets
// steps and failures as logs. A call that the client cancels is stopped, and so are the calls of a
// client that has disconnected.
//
// The version of the SDK has no tasks, so the server has none either.
package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execbroker/execbroker/internal/drain"
	"github.com/execbroker/execbroker/tool"
)

// Options configures New. The zero value serves one user.
type Options struct {
	// Name and Version are sent to clients. Empty: "execbroker" and "0".
	Name, Version string
	// Subject and Attributes are for the sandboxes of clients over standard input and output: see
	// executor.Spec.
	Subject    string
	Attributes map[string]string
	// Mirror copies files of the client over standard input and output: see tool.Conversation. It
	// may ask the user with Confirm. Nil: files are only in the sandbox.
	Mirror tool.Mirror
	// Log gets what clients are not told. Nil: no log.
	Log *slog.Logger
}

// Server serves a tool. Its methods are safe for concurrent use. The caller closes it before it
// closes what the tool uses.
type Server struct {
	t   *tool.Tool
	o   Options
	sdk *sdk.Server

	work  sync.WaitGroup // goroutines that wait for the end of a session
	calls drain.Gate     // calls and the answers to requests

	life context.Context // ends at Close
	end  context.CancelFunc

	mu        sync.Mutex
	closed    bool
	learned   chan struct{} // see learn
	learnedAt time.Time     // zero while Learn runs
	clients   map[*sdk.ServerSession]*client
	ended     error // errors of removing the sandboxes of disconnected clients
}

// client is one session of the protocol.
type client struct {
	tool.Conversation
	user string // the user over HTTP; empty: the user of this process
	life context.Context
	end  context.CancelCauseFunc

	used atomic.Bool // a call may have made a sandbox

	// once removes the sandbox when the session ends. Only the first call does anything.
	once func() error
}

var (
	errGone   = errors.New("the client has gone")
	errClosed = errors.New("the server is shutting down")
)

// New makes a Server of t. The caller still owns t.
func New(t *tool.Tool, o Options) *Server {
	o.Name, o.Version = cmp.Or(o.Name, "execbroker"), cmp.Or(o.Version, "0")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s := &Server{t: t, o: o, clients: map[*sdk.ServerSession]*client{}}
	s.sdk = sdk.NewServer(&sdk.Implementation{Name: o.Name, Version: o.Version}, &sdk.ServerOptions{
		Instructions: "Runs code in an isolated sandbox that belongs to this session: variables and files stay until it ends or is reset.",
		Capabilities: &sdk.ServerCapabilities{Logging: &sdk.LoggingCapabilities{}}, //nolint:staticcheck // deprecated in 2026-07-28, but today's clients show logs
		Logger:       o.Log,
		// All that a client reads is its own: its files, and tools that depend on its key. The
		// default of the protocol lets a proxy give it to others.
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
	})
	s.life, s.end = context.WithCancel(context.Background())
	s.sdk.AddReceivingMiddleware(s.informed, s.withFiles)
	s.addTools()
	s.addResources()
	return s
}

// Serve answers one client over a pair of streams, until the client closes its end or ctx ends, and
// removes its sandbox. It closes in at the end. Each message is one line of JSON.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	session, err := s.sdk.Connect(ctx, &sdk.IOTransport{
		Reader:        &watched{ReadCloser: in, ended: func() { end(errGone) }},
		Writer:        out,
		MaxLineLength: maxMessage,
	}, nil)
	if err != nil {
		return err
	}
	c := s.client(session, "", s.o.Subject, s.o.Attributes, s.o.Mirror)
	if c == nil {
		return errors.Join(errClosed, session.Close())
	}
	// Calls must end first: the SDK waits for them before it closes a session.
	stop := context.AfterFunc(life, func() { c.end(context.Cause(life)) })
	defer stop()
	defer context.AfterFunc(ctx, func() {
		c.end(context.Cause(ctx))
		in.Close()
		session.Close()
	})()
	err = session.Wait()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return errors.Join(err, s.forget(session, c))
}

// watched reports the end of its input.
type watched struct {
	io.ReadCloser
	ended func()
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil {
		w.ended()
	}
	return n, err
}

// client returns the client of a session and creates it if necessary. It returns nil if the server
// is closed.
func (s *Server) client(session *sdk.ServerSession, user, subject string, attributes map[string]string, m tool.Mirror) *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[session]; c != nil || s.closed {
		return c
	}
	// The ID must be a name that nobody can guess or repeat, so the client's own name of its
	// session is not used.
	c := &client{Conversation: tool.Conversation{ID: "mcp-" + rand.Text(), Subject: subject, Attributes: attributes, Mirror: m}, user: user}
	c.life, c.end = context.WithCancelCause(context.Background()) // for the session, which lives longer than a request
	c.once = sync.OnceValue(func() error { return s.t.Reset(context.Background(), c.Conversation) })
	s.clients[session] = c
	s.work.Go(func() {
		session.Wait() //nolint:errcheck // how a connection ended does not matter here
		if err := s.forget(session, c); err != nil {
			s.o.Log.Warn("removing the sandbox of a client", "err", err)
			s.mu.Lock()
			s.ended = errors.Join(s.ended, err)
			s.mu.Unlock()
		}
	})
	return c
}

// forget releases everything of a session.
func (s *Server) forget(session *sdk.ServerSession, c *client) error {
	c.end(errGone)
	err := c.once()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, session)
	return err
}

// Close ends every session, stops what runs in them and removes their sandboxes. Drain lets calls
// end first.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.clients {
		c.end(errClosed)
	}
	s.mu.Unlock()
	s.end()
	s.endSessions()
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}
