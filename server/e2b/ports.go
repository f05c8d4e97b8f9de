package e2b

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/front"
)

// Ports says whether clients reach servers in sandboxes, by the host name that the SDKs' getHost
// gives.
type Ports string

// Who reaches servers in sandboxes.
const (
	PortsOff     Ports = ""        // nobody: the answer says that this server forwards none
	PortsPrivate Ports = "private" // who has the traffic token of the sandbox, which each has
	PortsPublic  Ports = "public"  // everybody, as at E2B, but for sandboxes with allowPublicTraffic: false
)

// The bounds of what a server in a sandbox answers, besides those of executor.Session.Dial.
const (
	maxAnswerHead = 64 << 10        // bytes of its header
	answerTime    = 5 * time.Minute // until it comes
)

// withheld are the headers of requests that are for this server, not for one in a sandbox.
var withheld = []string{
	"X-Api-Key", "X-Access-Token", "E2b-Traffic-Access-Token", "E2b-Sandbox-Id", "E2b-Sandbox-Port", "Proxy-Authorization",
}

var errPaused = errors.New("the sandbox is paused")

// awakened returns a context that ends when b is paused, or ends.
func (b *sandbox) awakened() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.awake == nil || b.awake.Err() != nil && !b.paused {
		b.awake, b.sleep = context.WithCancelCause(b.life)
	}
	if b.paused {
		b.sleep(errPaused)
	}
	return b.awake
}

// serveForward lets a request through to a server in b.
func (s *Server) serveForward(w http.ResponseWriter, r *http.Request, b *sandbox, to address) {
	switch {
	case b.forward == nil:
		portClosed(w, to, ": this server forwards no ports")
	case !to.named: // by headers, at a name of the control plane
		portClosed(w, to, "")
	default:
		ctx, stop := front.Both(r.Context(), b.awakened())
		defer stop()
		b.forward.ServeHTTP(w, r.WithContext(ctx))
	}
}

// newForward makes the handler of requests for servers in b.
func (s *Server) newForward(b *sandbox) http.Handler {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			n, err := strconv.Atoi(port)
			if err != nil {
				return nil, err
			}
			return b.session.Dial(ctx, n)
		},
		DisableKeepAlives:  true, // connections are bounded, and end with the request
		DisableCompression: true, MaxResponseHeaderBytes: maxAnswerHead, ResponseHeaderTimeout: answerTime,
	}
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			to, _ := s.address(r.In) // it has been seen to be one
			r.Out.URL = &url.URL{Scheme: "http", Host: net.JoinHostPort("sandbox", strconv.Itoa(to.port)), Path: r.In.URL.Path, RawPath: r.In.URL.RawPath, RawQuery: r.In.URL.RawQuery}
			r.Out.Host = r.In.Host
			for _, name := range withheld {
				r.Out.Header.Del(name)
			}
			if _, credential, _ := strings.Cut(r.In.Header.Get("Authorization"), " "); s.owners[sha256.Sum256([]byte(credential))] {
				r.Out.Header.Del("Authorization")
			}
		},
		ModifyResponse: func(res *http.Response) error {
			ownCookies(res.Header)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			to, _ := s.address(r)
			s.unforwarded(w, r, b, to, err)
		},
	}
}

// ownCookies makes the cookies of an answer those of its host name alone: another sandbox, and the
// control plane, have names below the same domain.
func ownCookies(h http.Header) {
	lines := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, line := range lines {
		if c, err := http.ParseSetCookie(line); err == nil {
			c.Domain = ""
			if text := c.String(); text != "" {
				h.Add("Set-Cookie", text)
			}
		}
	}
}

// unforwarded answers a request that no server in the sandbox has answered.
func (s *Server) unforwarded(w http.ResponseWriter, r *http.Request, b *sandbox, to address, err error) {
	switch {
	case errors.Is(err, executor.ErrNoServer), errors.Is(err, executor.ErrDenied), errors.Is(err, executor.ErrInvalid):
		portClosed(w, to, "")
	case errors.Is(err, executor.ErrNotFound), errors.Is(err, executor.ErrClosed), b.life.Err() != nil, b.isPaused():
		_ = b.seen(err)
		noSandbox(w, to)
	case errors.Is(err, executor.ErrExhausted):
		writeJSON(w, http.StatusTooManyRequests, proxyError{SandboxID: to.sandbox, Message: "too many connections to this sandbox are open", Code: http.StatusTooManyRequests, Port: to.port})
	default:
		s.cfg.Log.DebugContext(r.Context(), "a request to a port was not answered", "sandbox", b.id, "port", to.port, "err", err)
		writeJSON(w, http.StatusBadGateway, proxyError{SandboxID: to.sandbox, Message: "the server in the sandbox gave no answer", Code: http.StatusBadGateway, Port: to.port})
	}
}
