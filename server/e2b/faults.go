package e2b

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Faults are what E2B does, or older versions of it, that clients trip over. This server does none of it. Programs that have to get along
// with E2B turn them on in their tests; clients cannot. The zero value is none. Numbers count down as they happen.
type Faults struct {
	// Of the control plane.

	RateLimited     int           // so many requests are answered with 429, a time to wait in RetryAfter, and the headers RateLimit-*
	RetryAfter      time.Duration // of RateLimited. Zero: the header is missing
	QuotaExceeded   int           // so many sandboxes are refused with 429 for the number that there is; this one never has Retry-After
	NoCapacity      int           // so many sandboxes are refused with 503: nothing has changed and the request may be repeated
	PlacementFailed int           // so many sandboxes are refused with 500, whose message says that they could not be placed
	LostAnswers     int           // so many requests are carried out, and the connection breaks instead of an answer
	ForeignErrors   int           // so many requests are answered with 504 by something that stands before and speaks plain text
	Changing        int           // so many requests for a known sandbox are answered with 409: it is between two states
	OldPaths        bool          // there is nothing below /v2
	NoIdempotency   bool          // the header Idempotency-Key means nothing
	ClampedTimeouts bool          // a timeout beyond the longest life is shortened in silence to what is left of it since the start

	// Of the way to sandboxes.

	BadGateway     BadGateway // every request is answered with this kind of 502
	BadGateways    int        // if not zero, only so many are
	TooManyOpen    int        // so many requests are answered with 429 for the connections that are open, with the ID of the sandbox
	CutAfter       int64      // answers break after so many bytes of their bodies. Zero: none does
	CutInGoodOrder bool       // and look as if that were their end
	CutPort        int        // only those of this port. Zero: of all
	Cuts           int        // if not zero, only so many are cut

	// Of envd.

	TornUploads     bool // a file is emptied when its upload begins, and what had arrived of one that is broken off remains
	PackedDownloads bool // whoever takes gzip gets it: without a length, and with an end in good order where reading has failed
	DetachedOutput  bool // what a command writes while nobody is connected to it is lost, and so is its end once it was told
	OneTag          bool // a tag finds its process only if no other has one
	FatalPings      bool // a Keepalive-Ping-Interval below one ends envd and all commands
	LateEnvd        int  // so many requests find envd not listening yet

	// Of the code interpreter.

	// StuckAfterAbandon: a run that begins so soon after the end of one whose client has gone is never executed, and never ends. E2B's does
	// so for about 50 ms. Zero: none.
	StuckAfterAbandon time.Duration
	UnseenDisconnects bool // code whose client has gone goes on, and the next waits for it
	PastedEnvironment bool // env_vars become source text in Python, without quoting
	LostDirectory     bool // a context that is restarted does not begin in its directory
	BlankLines        bool // the stream has empty lines between events
	// SilentExecution: an execution of the service itself, in which it changes the directory of a context, counts where the language is not
	// Python.
	SilentExecution bool
	// ReplacedProcesses: where the language is not Python, stopping code replaces the process, with its state, and the numbers of executions
	// go on.
	ReplacedProcesses bool
	EndlessExit       bool          // where the language is not Python, code that ends its process never ends
	LateNumbers       bool          // the number of an execution comes with its end, as of code that keeps the lock of its interpreter
	SlowDeletes       time.Duration // removing or restarting a context takes so long. At E2B it is up to 3 s
}

// BadGateway is a kind of the status 502, which means different things. The zero value is none.
type BadGateway string

// The kinds of 502.
const (
	SandboxNotFound  BadGateway = "sandbox-not-found" // ended, killed or never there: the answer is the same
	PortNotOpen      BadGateway = "port-not-open"     // the sandbox runs, and the service in it does not
	RouteFailed      BadGateway = "route-failed"      // plain text; the sandbox may run
	BrokenInBrowsers BadGateway = "html"              // as browsers get it, and whoever looks like one
)

// faulty holds the faults of a server.
type faulty struct {
	mu  sync.Mutex
	now Faults
}

// SetFaults replaces the faults of Config.
func (s *Server) SetFaults(f Faults) {
	s.faulty.mu.Lock()
	defer s.faulty.mu.Unlock()
	s.faulty.now = f
}

// faults returns what is turned on.
func (s *Server) faults() Faults {
	s.faulty.mu.Lock()
	defer s.faulty.mu.Unlock()
	return s.faulty.now
}

// happens reports whether a counted fault is to happen, and counts it.
func (s *Server) happens(which func(*Faults) *int) bool {
	s.faulty.mu.Lock()
	defer s.faulty.mu.Unlock()
	n := which(&s.faulty.now)
	if *n <= 0 {
		return false
	}
	*n--
	return true
}

// planeFault answers a request of the control plane in place of what was asked for, if a fault says so.
func (s *Server) planeFault(w http.ResponseWriter, r *http.Request) bool {
	f := s.faults()
	switch {
	case f == Faults{}:
		return false
	case f.OldPaths && strings.HasPrefix(r.URL.Path, "/v2/"):
		writeError(w, refuse(http.StatusNotFound, "no matching operation was found"))
	case s.happens(func(f *Faults) *int { return &f.ForeignErrors }):
		http.Error(w, "upstream request timeout", http.StatusGatewayTimeout)
	case s.happens(func(f *Faults) *int { return &f.RateLimited }):
		h := w.Header()
		h.Set("RateLimit-Limit", "20000")
		h.Set("RateLimit-Remaining", "0")
		h.Set("RateLimit-Reset", strconv.Itoa(int(f.RetryAfter.Seconds())))
		e := refuse(http.StatusTooManyRequests, "Rate limit exceeded")
		e.RetryAfter = f.RetryAfter
		writeError(w, e)
	case s.happens(func(f *Faults) *int { return &f.LostAnswers }):
		s.api.ServeHTTP(unheard{http.Header{}}, r)
		panic(http.ErrAbortHandler)
	default:
		return false
	}
	return true
}

// unheard takes answers that nobody gets.
type unheard struct{ h http.Header }

func (u unheard) Header() http.Header         { return u.h }
func (u unheard) Write(p []byte) (int, error) { return len(p), nil }
func (u unheard) WriteHeader(int)             {}

// createFault refuses a sandbox if a fault says so.
func (s *Server) createFault() error {
	switch {
	case s.happens(func(f *Faults) *int { return &f.QuotaExceeded }):
		return refuse(http.StatusTooManyRequests, "you have reached the maximum number of concurrent E2B sandboxes (20)")
	case s.happens(func(f *Faults) *int { return &f.NoCapacity }):
		return &apiError{Status: http.StatusServiceUnavailable, Message: "there is no capacity for the sandbox", Code: "sandbox_capacity_unavailable"}
	case s.happens(func(f *Faults) *int { return &f.PlacementFailed }):
		return &apiError{Status: http.StatusInternalServerError, Message: "Failed to place sandbox", Code: "sandbox_create_failed"}
	}
	return nil
}

// changing refuses to touch a sandbox if a fault says that it is between two states.
func (s *Server) changing(b *sandbox) error {
	if s.happens(func(f *Faults) *int { return &f.Changing }) {
		return refuse(http.StatusConflict, "sandbox %q is still transitioning", b.id)
	}
	return nil
}

// wayFault answers a request for a port of a sandbox in place of what listens there, if a fault says so. Otherwise it returns where the
// answer is to go.
func (s *Server) wayFault(w http.ResponseWriter, to address) (http.ResponseWriter, bool) {
	f := s.faults()
	if f == (Faults{}) {
		return w, false
	}
	kind := f.BadGateway
	if kind != "" && f.BadGateways != 0 {
		if !s.happens(func(f *Faults) *int { return &f.BadGateways }) {
			kind = ""
		} else if f.BadGateways == 1 { // zero would be all that follow
			s.faulty.mu.Lock()
			s.faulty.now.BadGateway = ""
			s.faulty.mu.Unlock()
		}
	}
	switch {
	case kind == "" && to.port == envdPort && s.happens(func(f *Faults) *int { return &f.LateEnvd }):
		kind = PortNotOpen
	case kind == "" && s.happens(func(f *Faults) *int { return &f.TooManyOpen }):
		writeJSON(w, http.StatusTooManyRequests, proxyError{
			SandboxID: to.sandbox, Message: "too many concurrent incoming connections (limit: 1)", Code: http.StatusTooManyRequests,
		})
		return w, true
	}
	if kind != "" {
		badGateway(w, kind, to)
		return w, true
	}
	if f.CutAfter > 0 && (f.CutPort == 0 || f.CutPort == to.port) {
		if f.Cuts > 0 && s.happens(func(f *Faults) *int { return &f.Cuts }) && f.Cuts == 1 {
			s.faulty.mu.Lock()
			s.faulty.now.CutAfter = 0
			s.faulty.mu.Unlock()
		}
		return &cutWriter{ResponseWriter: w, left: f.CutAfter, inOrder: f.CutInGoodOrder}, false
	}
	return w, false
}

// badGateway answers that there is no way to a port.
func badGateway(w http.ResponseWriter, kind BadGateway, to address) {
	e := proxyError{SandboxID: to.sandbox, Code: http.StatusBadGateway}
	switch kind {
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

func (c *cutWriter) Flush() {
	if !c.broken { // what was taken over cannot be flushed
		_ = http.NewResponseController(c.ResponseWriter).Flush()
	}
}

// Header announces no length, which an end in good order could not have.
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
