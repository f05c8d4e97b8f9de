package flytest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Bounds of requests.
const (
	maxBody     = 1 << 20 // of a create: files[] travel in it
	maxExec     = 16 << 10
	readTimeout = 30 * time.Second // for a body, however slowly it comes
)

// call is one request that has been let in.
type call struct {
	s       *Server
	w       http.ResponseWriter
	r       *http.Request
	op      Op
	pattern string // of its route
	tok     token
	app     *app
	m       *machine
	region  string // being tried, of a create
	body    []byte
}

// token is what a client presents.
type token struct {
	value string
	app   string // the only one that it is good for; empty: all
}

// answer is what a handler has to say: JSON, or nothing with 204.
type answer struct {
	status int
	body   any
}

func ok(body any) (answer, error) { return answer{http.StatusOK, body}, nil }

// okay is the most frequent answer.
func okay() (answer, error) { return ok(map[string]bool{"ok": true}) }

// handler does one operation. Its error is an *apiError or that of a request that was given up.
type handler func(ctx context.Context, c *call) (answer, error)

// under makes a handler of a function that is called with Server.mu held.
func under(f func(c *call) (answer, error)) handler {
	return func(_ context.Context, c *call) (answer, error) {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		return f(c)
	}
}

// changing is under for what changes a Machine, if mayChange allows it.
func changing(f func(c *call) (answer, error)) handler {
	return func(_ context.Context, c *call) (answer, error) {
		return c.change(func() (answer, error) { return f(c) })
	}
}

// change calls f with Server.mu held, if the client may change the Machine.
func (c *call) change(f func() (answer, error)) (answer, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.m.mayChange(c); err != nil {
		return answer{}, err
	}
	return f()
}

// taking makes a handler of a function that takes the body of the request.
func taking[In any](f func(ctx context.Context, c *call, in *In) (answer, error)) handler {
	return func(ctx context.Context, c *call) (answer, error) {
		in := new(In)
		if err := c.decode(in); err != nil {
			return answer{}, err
		}
		return f(ctx, c, in)
	}
}

// offered is taking for a body that need not be there.
func offered[In any](f func(ctx context.Context, c *call, in *In) (answer, error)) handler {
	take := taking(f)
	return func(ctx context.Context, c *call) (answer, error) {
		if len(c.body) == 0 {
			return f(ctx, c, new(In))
		}
		return take(ctx, c)
	}
}

// done is okay, or the error of what was to be done.
func done(err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	return okay()
}

// scope says what a path names, which is looked up before the handler runs.
type scope int

const (
	scopeNone scope = iota
	scopeApp
	scopeMachine
)

type route struct {
	pattern string // of http.ServeMux
	op      Op
	scope   scope
	handle  handler
}

func (s *Server) router() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range routes() {
		mux.Handle(r.pattern, s.serve(r))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		s.write(w, nil, fail(http.StatusNotFound, "flytest: no such path or method in the emulator"))
	})
	return mux
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.routes.ServeHTTP(w, r) }

// serve wraps an operation in what all have: identity, limits, the token, the body, switches.
func (s *Server) serve(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(s.life, func() { cancel(errClosed) })()
		c := &call{s: s, w: w, r: r, op: rt.op, pattern: rt.pattern}
		if rt.scope != scopeNone {
			// With Fly it leads a client to a server that knows what the client has just done.
			http.SetCookie(w, &http.Cookie{Name: "fly_flaps_affinity", Value: "flytest", Path: "/v1/apps/" + r.PathValue("app"), HttpOnly: true})
		}
		a, err := s.handle(ctx, rt, c)
		s.write(w, &a, err)
	})
}

func (s *Server) handle(ctx context.Context, rt route, c *call) (answer, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return answer{}, fail(http.StatusServiceUnavailable, "flytest: %v", errClosed)
	}
	if err := c.authenticate(); err != nil {
		return answer{}, err
	}
	if err := c.read(); err != nil {
		return answer{}, err
	}
	if err := c.resolve(rt.scope); err != nil {
		return answer{}, err
	}
	if err := s.limit(c); err != nil {
		return answer{}, err
	}
	before, after := s.tripped(c)
	if before != nil {
		return answer{}, before.apply()
	}
	a, err := rt.handle(ctx, c)
	if after != nil && err == nil {
		return answer{}, after.apply()
	}
	return a, err
}

// authenticate finds the token of a request, in any of the forms that clients send.
func (c *call) authenticate() error {
	h := c.r.Header.Get("Authorization")
	scheme, value, found := strings.Cut(h, " ")
	if !found || !strings.EqualFold(scheme, "Bearer") && !strings.EqualFold(scheme, "FlyV1") {
		return errToken()
	}
	value = strings.TrimSpace(value)
	value = strings.TrimPrefix(value, "FlyV1 ") // a token is copied with its scheme
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, t := range c.s.tokens {
		// Several macaroons are one token; the discharges that a client adds to it are not for the
		// emulator.
		if value == strings.TrimPrefix(t.value, "FlyV1 ") || slices.Contains(strings.Split(value, ","), t.value) {
			c.tok = t
			return nil
		}
	}
	return errToken()
}

// read takes the body, however slow or large its sender makes it.
func (c *call) read() error {
	rc := http.NewResponseController(c.w)
	_ = rc.SetReadDeadline(time.Now().Add(readTimeout)) // where there is none, the listener has one
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	_ = rc.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return fail(http.StatusRequestEntityTooLarge, "flytest: the body is larger than %d bytes", maxBody)
	case err != nil:
		return fail(http.StatusBadRequest, "flytest: the body has not arrived: %v", err)
	}
	c.body = b
	return nil
}

// decode reads JSON into v. A field that v does not have is a mistake of the client.
func (c *call) decode(v any) error {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return errEOF()
	}
	d := json.NewDecoder(bytes.NewReader(c.body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fail(http.StatusBadRequest, "flytest: the body: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fail(http.StatusBadRequest, "flytest: the body has more than one JSON value")
	}
	return nil
}

// resolve looks up what the path names.
func (c *call) resolve(sc scope) error {
	if sc == scopeNone {
		return nil
	}
	name := c.r.PathValue("app")
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.tok.app != "" && c.tok.app != name {
		return errUnauthorized()
	}
	a := c.s.apps[name]
	if a == nil {
		return errAppNotFound()
	}
	c.app = a
	if sc == scopeMachine {
		if c.m = a.machines[c.r.PathValue("id")]; c.m == nil {
			return errMachineNotFound()
		}
	}
	return nil
}

var requests atomic.Int64

// requestID has the form of Fly's: a ULID and a region.
func requestID() string {
	requests.Add(1)
	return newULID(time.Now()) + "-iad"
}

// write sends what a handler has said.
func (s *Server) write(w http.ResponseWriter, a *answer, err error) {
	h := w.Header()
	h.Set("Fly-Request-Id", requestID())
	h.Set("Server", "Fly/flytest")
	var e *apiError
	if err != nil && !errors.As(err, &e) {
		if errors.Is(err, errCut) {
			panic(http.ErrAbortHandler) // the connection ends without an answer
		}
		e = fail(http.StatusInternalServerError, "flytest: %v", err)
	}
	status, body := http.StatusOK, any(nil)
	switch {
	case e != nil:
		for k, v := range e.header {
			h[k] = v
		}
		if e.body == nil {
			w.WriteHeader(e.status)
			_, _ = io.WriteString(w, e.text) // the client has gone
			return
		}
		status, body = e.status, e.body
	case a != nil:
		status, body = a.status, a.body
	}
	if body == nil {
		w.WriteHeader(status)
		return
	}
	b, err := json.Marshal(body)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"flytest: the answer cannot be encoded"}`)
	}
	h.Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client has gone
}

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// newULID returns an identifier of 26 characters that sorts by time.
func newULID(t time.Time) string {
	b := make([]byte, 26)
	ms := uint64(t.UnixMilli())
	for i := 9; i >= 0; i-- {
		b[i] = crockford[ms&31]
		ms >>= 5
	}
	_, _ = rand.Read(b[10:]) // it never fails
	for i := 10; i < 26; i++ {
		b[i] = crockford[b[i]&31]
	}
	return string(b)
}
