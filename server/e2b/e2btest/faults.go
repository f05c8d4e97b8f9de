package e2btest

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/server/e2b"
)

// Faults are what E2B does, or older versions of it, that clients trip over. The server does none of
// it. Tests of clients turn it on here; clients cannot. The zero value is none. Numbers count down
// as they happen.
type Faults struct {
	// Of the control plane.

	RateLimited     int           // so many requests are answered with 429, a time to wait in RetryAfter, and the headers RateLimit-*
	RetryAfter      time.Duration // of RateLimited. Zero: the header is missing
	QuotaExceeded   int           // so many sandboxes are refused with 429 for the number that there is; this one never has Retry-After
	NoCapacity      int           // so many sandboxes are refused with 503: nothing has changed and the request may be repeated
	PlacementFailed int           // so many sandboxes are refused with 500, whose message says that they could not be placed
	LostAnswers     int           // so many requests are carried out, and the connection breaks instead of an answer
	ForeignErrors   int           // so many requests are answered with 504 by something that stands before and speaks plain text
	Changing        int           // so many requests for a sandbox are answered with 409: it is between two states
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

	// StuckAfterAbandon: a run that begins so soon after the end of one whose client has gone is never
	// executed, and never ends. E2B's does so for about 50 ms. Zero: none.
	StuckAfterAbandon time.Duration
	UnseenDisconnects bool // code whose client has gone goes on, and the next waits for it
	PastedEnvironment bool // env_vars become source text in Python, without quoting
	LostDirectory     bool // a context that is restarted does not begin in its directory
	BlankLines        bool // the stream has empty lines between events
	// SilentExecution: an execution of the service itself, in which it changes the directory of a
	// context, counts where the language is not Python.
	SilentExecution bool
	// ReplacedProcesses: where the language is not Python, stopping code replaces the process, with its
	// state, and the numbers of executions go on.
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

// The ports of a sandbox that something listens on.
const (
	envdPort        = 49983
	interpreterPort = 49999
)

// faulty stands before a server, and between it and its backend. Without faults it changes nothing.
type faulty struct {
	server  http.Handler
	longest time.Duration // the longest life of a sandbox

	mu  sync.Mutex
	now Faults

	unheard atomic.Int64 // bytes of answers whose clients had left
}

// newFaulty makes a server over x that has faults.
func newFaulty(x executor.Executor, cfg e2b.Config, now Faults) (*faulty, *e2b.Server, error) {
	f := &faulty{now: now, longest: cfg.MaxTimeout}
	if f.longest == 0 {
		f.longest = e2b.DefaultMaxTimeout
	}
	if life := x.Info().Capabilities.MaxLife; life > 0 {
		f.longest = min(f.longest, life)
	}
	s, err := e2b.New(faultyExecutor{x, f}, cfg)
	if err != nil {
		return nil, nil, err
	}
	f.server = s
	return f, s, nil
}

func (f *faulty) set(now Faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = now
}

// faults returns what is turned on.
func (f *faulty) faults() Faults {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// happens reports whether a counted fault is to happen, and counts it.
func (f *faulty) happens(which func(*Faults) *int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := which(&f.now)
	if *n <= 0 {
		return false
	}
	*n--
	return true
}

// ServeHTTP implements http.Handler.
func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := f.faults()
	to := addressOf(r)
	switch {
	case now == Faults{}:
		f.server.ServeHTTP(w, r)
	case to.port == 0:
		f.servePlane(w, r, now)
	default:
		f.serveWay(w, r, now, to)
	}
}

// address names a port of a sandbox. The zero value is the control plane. Of a signed URL the sandbox
// is not known.
type address struct {
	sandbox string
	port    int
}

var sandboxHost = regexp.MustCompile(`^([0-9]{1,5})-([a-z0-9]{1,64})\.`)

// addressOf finds out who a request is for, as far as it is well-formed.
func addressOf(r *http.Request) address {
	id, port := r.Header.Get("E2b-Sandbox-Id"), r.Header.Get("E2b-Sandbox-Port")
	if m := sandboxHost.FindStringSubmatch(r.Host); m != nil {
		id, port = m[2], m[1]
	}
	if port == "" && r.URL.Path == "/files" {
		return address{"", envdPort}
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return address{}
	}
	id, _, _ = strings.Cut(id, "-") // without the client ID that old SDKs append
	return address{id, n}
}
