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

// Faults are traits of E2B, or of older versions of it, that clients stumble over. The server has
// none of them. Tests of clients turn them on here. A number says how often a fault happens, and
// counts down. The zero value has no faults.
type Faults struct {
	// Control plane.

	// RateLimited requests are answered with 429, RetryAfter and the headers RateLimit-*.
	RateLimited int
	// RetryAfter is the Retry-After of RateLimited. Zero: without that header.
	RetryAfter time.Duration
	// QuotaExceeded creates are refused with 429 because the key has too many sandboxes. That
	// answer never has Retry-After.
	QuotaExceeded int
	// NoCapacity creates are refused with 503. Nothing has changed, and the client may try again.
	NoCapacity int
	// PlacementFailed creates are refused with 500: the sandbox could not be placed.
	PlacementFailed int
	// LostAnswers requests are carried out, and the connection breaks before the answer.
	LostAnswers int
	// ForeignErrors requests are answered by a proxy with 504, in plain text.
	ForeignErrors int
	// Changing requests for a sandbox are answered with 409: it is between two states.
	Changing int
	// OldPaths answers all paths below /v2 with 404.
	OldPaths bool
	// NoIdempotency ignores the header Idempotency-Key.
	NoIdempotency bool
	// ClampedTimeouts shortens, without an error, a timeout beyond the longest life to what is left
	// of that since the start.
	ClampedTimeouts bool

	// Proxy in front of sandboxes.

	// BadGateway answers requests with this kind of 502.
	BadGateway BadGateway
	// BadGateways bounds how many. Zero: all.
	BadGateways int
	// TooManyOpen requests are answered with 429, because too many connections are open.
	TooManyOpen int
	// CutAfter breaks answers after so many bytes of the body. Zero: none.
	CutAfter int64
	// CutInGoodOrder makes a cut look like the regular end of the body.
	CutInGoodOrder bool
	// CutPort cuts answers of one port only. Zero: of all.
	CutPort int
	// Cuts bounds how many are cut. Zero: all.
	Cuts int

	// Daemon, envd.

	// TornUploads empties a file when its upload begins. What has arrived of an upload that breaks
	// remains.
	TornUploads bool
	// PackedDownloads sends gzip, without a length, to clients that accept it. If reading the file
	// fails, the body ends as if it were complete.
	PackedDownloads bool
	// DetachedOutput loses what a command writes while no client is connected to it, and its end
	// after a client was told.
	DetachedOutput bool
	// OneTag finds a process by its tag only if no other process has a tag.
	OneTag bool
	// FatalPings ends the daemon and all commands when a Keepalive-Ping-Interval is below one.
	FatalPings bool
	// LateEnvd requests find that the daemon does not listen yet.
	LateEnvd int

	// Code interpreter.

	// StuckAfterAbandon is how soon after code whose client has left the next run has to begin to
	// be never executed, and never end. At E2B that is about 50 ms. Zero: never.
	StuckAfterAbandon time.Duration
	// UnseenDisconnects lets code go on when its client leaves. The next run waits for it.
	UnseenDisconnects bool
	// PastedEnvironment makes source text of env_vars in Python, without quoting.
	PastedEnvironment bool
	// LostDirectory restarts a context in another directory than its own.
	LostDirectory bool
	// BlankLines sends empty lines between events.
	BlankLines bool
	// SilentExecution counts an execution of the service itself, which sets the directory of a
	// context. Not in Python.
	SilentExecution bool
	// ReplacedProcesses replaces the process, which loses its state, when code is stopped. The
	// numbers of executions go on. Not in Python.
	ReplacedProcesses bool
	// EndlessExit never ends the stream of code that ends its process. Not in Python.
	EndlessExit bool
	// LateNumbers sends the number of an execution at its end, as for code that holds the lock of
	// the interpreter.
	LateNumbers bool
	// SlowDeletes is how long it takes to remove or restart a context. At E2B that is up to 3 s.
	SlowDeletes time.Duration
	// SlowContexts is how long it takes to make a context besides.
	SlowContexts time.Duration
}

// BadGateway is a kind of the status 502, which has several meanings. The zero value is none.
type BadGateway string

// The kinds of 502.
const (
	SandboxNotFound  BadGateway = "sandbox-not-found" // it has ended, was killed or never existed
	PortNotOpen      BadGateway = "port-not-open"     // the sandbox runs, the service in it does not
	RouteFailed      BadGateway = "route-failed"      // in plain text; the sandbox may run
	BrokenInBrowsers BadGateway = "html"              // a page, for browsers and what looks like one
)

// The ports of a sandbox that something listens on.
const (
	envdPort        = 49983
	interpreterPort = 49999
)

// faulty is in front of a server, and between the server and its backend. Without faults it changes
// nothing.
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

// address names a port of a sandbox. The zero value is the control plane. Of a signed URL the
// sandbox is not known.
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
