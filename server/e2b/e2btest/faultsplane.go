package e2btest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing/iotest"
	"time"
)

// apiError is an error of the control plane.
type apiError struct {
	Status  int    `json:"code"`
	Message string `json:"message"`
	Code    string `json:"error_code,omitempty"`
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // only plain types of this package get here
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that is gone needs no answer
}

var (
	createPath = regexp.MustCompile(`^(/v2)?/sandboxes$`)
	onePath    = regexp.MustCompile(`^(?:/v2)?/sandboxes/([a-z0-9]+)(?:-[^/]*)?(?:/|$)`)
	lifePath   = regexp.MustCompile(`^(/v2)?/sandboxes(/[^/]+/(connect|resume|timeout))?$`)
)

// servePlane serves a request of the control plane.
func (f *faulty) servePlane(w http.ResponseWriter, r *http.Request, now Faults) {
	creates := r.Method == http.MethodPost && createPath.MatchString(r.URL.Path)
	var refused apiError
	switch {
	case now.OldPaths && strings.HasPrefix(r.URL.Path, "/v2/"):
		refused = apiError{Status: http.StatusNotFound, Message: "no matching operation was found"}
	case f.happens(func(f *Faults) *int { return &f.ForeignErrors }):
		http.Error(w, "upstream request timeout", http.StatusGatewayTimeout)
		return
	case f.happens(func(f *Faults) *int { return &f.RateLimited }):
		h := w.Header()
		h.Set("RateLimit-Limit", "20000")
		h.Set("RateLimit-Remaining", "0")
		h.Set("RateLimit-Reset", strconv.Itoa(int(now.RetryAfter.Seconds())))
		if now.RetryAfter > 0 {
			h.Set("Retry-After", strconv.Itoa(int(math.Ceil(now.RetryAfter.Seconds()))))
		}
		refused = apiError{Status: http.StatusTooManyRequests, Message: "Rate limit exceeded"}
	case creates && f.happens(func(f *Faults) *int { return &f.QuotaExceeded }):
		refused = apiError{Status: http.StatusTooManyRequests, Message: "you have reached the maximum number of concurrent E2B sandboxes (20)"}
	case creates && f.happens(func(f *Faults) *int { return &f.NoCapacity }):
		refused = apiError{Status: http.StatusServiceUnavailable, Message: "there is no capacity for the sandbox", Code: "sandbox_capacity_unavailable"}
	case creates && f.happens(func(f *Faults) *int { return &f.PlacementFailed }):
		refused = apiError{Status: http.StatusInternalServerError, Message: "Failed to place sandbox", Code: "sandbox_create_failed"}
	case onePath.MatchString(r.URL.Path) && f.happens(func(f *Faults) *int { return &f.Changing }):
		refused = apiError{Status: http.StatusConflict, Message: "the sandbox is still transitioning"}
	}
	if refused.Status != 0 {
		writeJSON(w, refused.Status, refused)
		return
	}
	if now.NoIdempotency {
		r = r.Clone(r.Context())
		r.Header.Del("Idempotency-Key")
	}
	if now.ClampedTimeouts && r.Method == http.MethodPost && lifePath.MatchString(r.URL.Path) {
		r = f.clamped(r)
	}
	if f.happens(func(f *Faults) *int { return &f.LostAnswers }) {
		f.server.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	f.server.ServeHTTP(w, r)
}

// clamped shortens the timeout that a request asks for to what is left of the longest life.
func (f *faulty) clamped(r *http.Request) *http.Request {
	body, err := io.ReadAll(r.Body)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(body, &fields)
	}
	if seconds, ok := fields["timeout"].(float64); err == nil && ok {
		left := f.longest
		if m := onePath.FindStringSubmatch(r.URL.Path); m != nil {
			left -= time.Since(f.started(r, m[1]))
		}
		fields["timeout"] = min(int64(seconds), int64(left/time.Second))
		body, err = json.Marshal(fields)
	}
	r = r.Clone(r.Context())
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), iotest.ErrReader(cmp.Or(err, io.EOF))), r.Body}
	return r
}

// started returns when a sandbox was created.
func (f *faulty) started(r *http.Request, id string) time.Time {
	ask := r.Clone(r.Context())
	ask.Method, ask.URL.Path, ask.Body = http.MethodGet, "/sandboxes/"+id, http.NoBody
	a := httptest.NewRecorder()
	f.server.ServeHTTP(a, ask)
	var said struct{ StartedAt time.Time }
	if a.Code != http.StatusOK || json.Unmarshal(a.Body.Bytes(), &said) != nil {
		return time.Now() // the server says what is wrong
	}
	return said.StartedAt
}

// RoundTrip asks the server what no client asks for.
func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	a := httptest.NewRecorder()
	f.server.ServeHTTP(a, r)
	answer := a.Result()
	answer.Request = r
	return answer, nil
}

// proxyError is an answer of what stands before sandboxes.
type proxyError struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Code      int    `json:"code"`
	Port      int    `json:"port,omitempty"`
}

// badGateway returns the kind of 502 that a request is answered with, if any.
func (f *faulty) badGateway(to address) (kind BadGateway) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kind = f.now.BadGateway; kind != "" && f.now.BadGateways > 0 {
		if f.now.BadGateways--; f.now.BadGateways == 0 { // which would be all that follow
			f.now.BadGateway = ""
		}
	}
	if kind == "" && to.port == envdPort && f.now.LateEnvd > 0 {
		f.now.LateEnvd--
		kind = PortNotOpen
	}
	return kind
}

// cut returns after how many bytes an answer of a port breaks. Zero: it does not.
func (f *faulty) cut(to address) (after int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now.CutPort != 0 && f.now.CutPort != to.port {
		return 0
	}
	if after = f.now.CutAfter; after > 0 && f.now.Cuts > 0 {
		if f.now.Cuts--; f.now.Cuts == 0 { // which would be all that follow
			f.now.CutAfter = 0
		}
	}
	return after
}

// serveWay serves a request for a port of a sandbox.
func (f *faulty) serveWay(w http.ResponseWriter, r *http.Request, now Faults, to address) {
	if kind := f.badGateway(to); kind != "" {
		kind.write(w, to)
		return
	}
	if f.happens(func(f *Faults) *int { return &f.TooManyOpen }) {
		writeJSON(w, http.StatusTooManyRequests, proxyError{
			SandboxID: to.sandbox, Message: "too many concurrent incoming connections (limit: 1)", Code: http.StatusTooManyRequests,
		})
		return
	}
	if after := f.cut(to); after > 0 {
		w = &cutWriter{ResponseWriter: w, left: after, inOrder: now.CutInGoodOrder}
	}
	switch to.port {
	case envdPort:
		f.serveEnvd(w, r, now)
	case interpreterPort:
		f.serveInterpreter(w, r, now)
	default:
		f.server.ServeHTTP(w, r)
	}
}

// write answers that there is no way to a port.
func (b BadGateway) write(w http.ResponseWriter, to address) {
	e := proxyError{SandboxID: to.sandbox, Code: http.StatusBadGateway}
	switch b {
	case PortNotOpen:
		e.Message, e.Port = "The sandbox is running but port is not open", to.port
	case RouteFailed:
		http.Error(w, "Failed to route request to sandbox", http.StatusBadGateway)
		return
	case BrokenInBrowsers:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("<!DOCTYPE html><html><body><h1>Sandbox Not Found</h1></body></html>")) // a client that is gone needs no answer
		return
	case SandboxNotFound:
		e.Message = "The sandbox was not found"
	}
	writeJSON(w, http.StatusBadGateway, e)
}

// cutWriter passes on the beginning of an answer.
type cutWriter struct {
	http.ResponseWriter
	left    int64
	inOrder bool // what has been passed on looks like all of it
	broken  bool // the connection is closed
}

func (c *cutWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Flush implements http.Flusher.
func (c *cutWriter) Flush() {
	if !c.broken { // what was taken over cannot be flushed
		_ = http.NewResponseController(c.ResponseWriter).Flush()
	}
}

// WriteHeader announces no length, which an end in good order could not have.
func (c *cutWriter) WriteHeader(status int) {
	c.Header().Del("Content-Length")
	c.ResponseWriter.WriteHeader(status)
}

func (c *cutWriter) Write(p []byte) (int, error) {
	n := min(int64(len(p)), c.left)
	m, err := c.ResponseWriter.Write(p[:n])
	if c.left -= int64(m); err != nil || int(n) == len(p) {
		return m, err
	}
	c.Flush()
	if !c.inOrder {
		if conn, _, err := http.NewResponseController(c.ResponseWriter).Hijack(); err == nil {
			c.broken = true
			_ = conn.Close() // it is to break
		}
	}
	return m, http.ErrHandlerTimeout
}

// deaf is an answer that goes on when its client has left.
type deaf struct {
	http.ResponseWriter
	client  context.Context
	unheard *atomic.Int64 // bytes that nobody has got
}

func (d deaf) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// FlushError is for http.ResponseController.
func (d deaf) FlushError() error {
	_ = http.NewResponseController(d.ResponseWriter).Flush() // nobody may be there
	return nil
}

// Flush implements http.Flusher.
func (d deaf) Flush() { _ = d.FlushError() }

func (d deaf) Write(p []byte) (int, error) {
	if _, err := d.ResponseWriter.Write(p); err != nil || d.client.Err() != nil {
		d.unheard.Add(int64(len(p)))
	}
	return len(p), nil
}

// unseen makes the server serve a request to its end, whether or not its client is there.
func (f *faulty) unseen(w http.ResponseWriter, r *http.Request) {
	f.server.ServeHTTP(deaf{w, r.Context(), &f.unheard}, r.WithContext(context.WithoutCancel(r.Context())))
}
