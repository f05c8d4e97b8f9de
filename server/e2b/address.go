package e2b

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/execbroker/execbroker/internal/front"
)

// The ports of a sandbox that something listens on.
const (
	envdPort        = 49983
	interpreterPort = 49999
)

// address names a port of a sandbox. The zero value is the control plane.
type address struct {
	sandbox string
	port    int
	named   bool // by the host name
}

// sandboxLabel is the form of the first label of the host name of a sandbox.
const sandboxLabel = `([0-9]{1,5})-([a-z0-9]{1,64})`

var sandboxHost = regexp.MustCompile(`^` + sandboxLabel + `$`)

// address returns the port that a request is for. The host name decides if it is that of a sandbox.
// Otherwise two headers do, which come together.
func (s *Server) address(r *http.Request) (address, error) {
	first, rest, _ := strings.Cut(strings.ToLower(r.Host), ".")
	if m := sandboxHost.FindStringSubmatch(first); m != nil && rest != "" { // of this server, or the request would not be here
		port, err := strconv.ParseUint(m[1], 10, 16)
		if err != nil {
			return address{}, refuse(http.StatusBadRequest, "the host name: invalid port %s", m[1])
		}
		return address{m[2], int(port), true}, nil
	}
	id, port := r.Header.Get("E2b-Sandbox-Id"), r.Header.Get("E2b-Sandbox-Port")
	switch {
	case id == "" && port == "":
		return address{}, nil
	case id == "" || port == "":
		return address{}, refuse(http.StatusBadRequest, "missing header: E2b-Sandbox-Id and E2b-Sandbox-Port come together")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return address{}, refuse(http.StatusBadRequest, "E2b-Sandbox-Port: invalid port")
	}
	return address{id, int(n), false}, nil
}

// The bounds of the work for a request that names no sandbox and has no key.
const (
	maxSigners     = 64       // sandboxes whose signatures are computed
	maxSignedQuery = 16 << 10 // bytes of a query that are hashed for each
)

// signer finds the sandbox that a URL was signed for. A program that is given such a URL sends
// neither header, so where all sandboxes share one address only the signature tells which is meant.
// The tokens of two sandboxes never make the same signature.
//
// Anybody can send such a request, so only the sandboxes that were used last are tried, however
// many there are. tried says how many.
func (s *Server) signer(r *http.Request) (to address, tried int) {
	operation := map[string]string{http.MethodGet: "read", http.MethodHead: "read", http.MethodPost: "write"}[r.Method]
	if r.URL.Path != "/files" || operation == "" || len(r.URL.RawQuery) > maxSignedQuery {
		return address{}, 0
	}
	q := r.URL.Query()
	if !q.Has("signature") {
		return address{}, 0
	}
	for _, b := range s.recent(maxSigners) {
		tried++
		if signed, _ := b.signed(q, operation); signed {
			return address{b.id, envdPort, false}, tried
		}
	}
	return address{}, tried
}

// recent returns up to n sandboxes, the one that was used last first.
func (s *Server) recent(n int) (all []*sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.used.Front(); e != nil && len(all) < n; e = e.Next() {
		all = append(all, e.Value.(*sandbox))
	}
	return all
}

// proxyError is an error of the proxy in front of sandboxes. To the SDKs the status 502 means that
// the sandbox is gone.
type proxyError struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Code      int    `json:"code"`
	Port      int    `json:"port,omitempty"`
}

// noSandbox answers that there is no way to a sandbox: it has ended, or never was there.
func noSandbox(w http.ResponseWriter, to address) {
	writeJSON(w, http.StatusBadGateway, proxyError{SandboxID: to.sandbox, Message: "The sandbox was not found", Code: http.StatusBadGateway})
}

// portClosed answers that nothing takes connections at a port of a sandbox that runs. why may be
// empty.
func portClosed(w http.ResponseWriter, to address, why string) {
	writeJSON(w, http.StatusBadGateway, proxyError{
		SandboxID: to.sandbox, Message: "The sandbox is running but port is not open" + why, Code: http.StatusBadGateway, Port: to.port,
	})
}

// serveSandbox passes a request on to a port of a sandbox. The ID is all that a client needs,
// unless the sandbox is private. envd also wants its token.
func (s *Server) serveSandbox(w http.ResponseWriter, r *http.Request, to address) {
	to.sandbox = shortID(to.sandbox)
	b := s.lookup(to.sandbox)
	if b == nil || b.life.Err() != nil {
		noSandbox(w, to)
		return
	}
	trusted := sameToken(r.Header.Get("E2b-Traffic-Access-Token"), b.traffic)
	if to.port != envdPort && (b.private || to.port != interpreterPort) && b.traffic != "" && !trusted {
		writeJSON(w, http.StatusForbidden, proxyError{SandboxID: b.id, Message: "the header E2B-Traffic-Access-Token is missing or wrong", Code: http.StatusForbidden})
		return
	}
	if b.isPaused() {
		if b.resumes == 0 {
			noSandbox(w, to)
			return
		}
		if _, err := b.resume(r.Context(), b.resumes); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	ctx, stop := front.Both(r.Context(), b.life)
	defer stop()
	r = r.WithContext(ctx)
	defer front.Until(ctx, b.life)()
	switch to.port {
	case envdPort:
		b.envd.ServeHTTP(w, r)
	case interpreterPort:
		b.serveInterpreter(w, r)
	default:
		if front.Upload(ctx); trusted && b.traffic != "" {
			front.Admit(ctx)
			front.Lift(ctx)
		}
		s.serveForward(w, r, b, to)
	}
}
