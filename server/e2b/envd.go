package e2b

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/envd/filesystempb"
	"github.com/execbroker/execbroker/internal/envd/processpb"
	"github.com/execbroker/execbroker/internal/front"
)

const (
	maxMessage   = 4 << 20          // of the Connect protocol
	pingInterval = 90 * time.Second // of streams, unless the client asks for another
)

// newEnvd makes the handler of the daemon that runs in every sandbox of E2B: commands, files, and
// the transfer of files.
func (b *sandbox) newEnvd() http.Handler {
	bounded := connect.WithHandlerOptions(connect.WithReadMaxBytes(maxMessage), connect.WithInterceptors(streams{b.life}))
	m := http.NewServeMux()
	b.processes = &processService{b: b}
	m.Handle(processpb.NewProcessHandler(b.processes, bounded, connect.WithInterceptors(users{root: b.root != nil})))
	m.Handle(filesystempb.NewFilesystemHandler(&filesystemService{b: b, watchers: map[string]*watcher{}}, bounded, connect.WithInterceptors(users{})))
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, refuse(http.StatusNotFound, "%s %s: there is no such operation here", r.Method, r.URL.Path))
	})
	guarded := http.NewServeMux()
	guarded.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	// Transfers may come with a signature instead of the token.
	guarded.HandleFunc("GET /files", b.download)
	guarded.HandleFunc("POST /files", b.upload)
	guarded.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !sameToken(r.Header.Get("X-Access-Token"), b.token) {
			writeError(w, refuse(http.StatusUnauthorized, "the header X-Access-Token is missing or wrong"))
			return
		}
		front.Admit(r.Context())
		m.ServeHTTP(w, r)
	})
	return guarded
}

// streams lets a client that streams send whenever it likes when its first message has come, and
// aborts the streams of a sandbox that has ended. The SDKs tell a dead sandbox by an aborted
// stream.
type streams struct{ life context.Context }

var _ connect.Interceptor = streams{}

func (streams) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

func (streams) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (a streams) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, c connect.StreamingHandlerConn) error {
		err := next(ctx, arriving{c, func() { front.Lift(ctx) }})
		if err != nil && a.life.Err() != nil && c.Spec().StreamType == connect.StreamTypeServer {
			panic(http.ErrAbortHandler)
		}
		return err
	}
}

// arriving is a stream that says when a message has come.
type arriving struct {
	connect.StreamingHandlerConn
	arrived func()
}

func (a arriving) Receive(m any) error {
	err := a.StreamingHandlerConn.Receive(m)
	a.arrived()
	return err
}

// users refuses to act as somebody else: the contract knows one user, the one that code runs as.
type users struct {
	root bool // is another
}

var _ connect.Interceptor = users{}

func (u users) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if err := u.check(r.Header()); err != nil {
			return nil, connect.NewError(connect.CodeUnauthenticated, err)
		}
		return next(ctx, r)
	}
}

func (users) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (u users) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, c connect.StreamingHandlerConn) error {
		if err := u.check(c.RequestHeader()); err != nil {
			return connect.NewError(connect.CodeUnauthenticated, err)
		}
		return next(ctx, c)
	}
}

func (u users) check(h http.Header) error { return u.known(userOf(h)) }

// userOf returns the user that a client wants to be. Empty: the default one.
func userOf(h http.Header) string {
	r := http.Request{Header: h}
	name, _, _ := r.BasicAuth()
	return name
}

func (u users) known(name string) error {
	if name == "" || name == "user" || name == rootUser && u.root {
		return nil
	}
	if name == rootUser {
		return refuse(http.StatusUnauthorized, "user %q: %s", name, noRoot)
	}
	return refuse(http.StatusUnauthorized, "user %q: not supported by this server, which has only the default one", name)
}

// rpcCodes are the codes of failures in the Connect protocol. To the SDKs unavailable means that
// the sandbox is gone.
var rpcCodes = []struct {
	kind error
	code connect.Code
}{
	{executor.ErrInvalid, connect.CodeInvalidArgument},
	{executor.ErrUnsupported, connect.CodeUnimplemented},
	{executor.ErrDenied, connect.CodePermissionDenied},
	{executor.ErrNotFound, connect.CodeUnavailable},
	{executor.ErrClosed, connect.CodeUnavailable},
	{executor.ErrBusy, connect.CodeFailedPrecondition},
	{executor.ErrTooLarge, connect.CodeResourceExhausted},
	{executor.ErrExhausted, connect.CodeResourceExhausted},
	{executor.ErrUnavailable, connect.CodeInternal},
	{context.Canceled, connect.CodeCanceled},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded},
	{fs.ErrNotExist, connect.CodeNotFound},
	{fs.ErrExist, connect.CodeAlreadyExists},
	{fs.ErrPermission, connect.CodePermissionDenied},
	{fs.ErrInvalid, connect.CodeInvalidArgument},
}

// rpcError returns what a client is told about err, an error of b's session.
func (b *sandbox) rpcError(err error) error {
	if b.seen(err); b.life.Err() != nil {
		return connect.NewError(connect.CodeUnavailable, errors.New("the sandbox is gone"))
	}
	if err == nil {
		return nil
	}
	kind := err
	if e := (*executor.Error)(nil); errors.As(err, &e) {
		kind = e.Kind // not what it was caused by
	}
	for _, c := range rpcCodes {
		if errors.Is(kind, c.kind) {
			return connect.NewError(c.code, err)
		}
	}
	return connect.NewError(connect.CodeInternal, err)
}

// ping returns how often a client wants to hear of a stream.
func ping(h http.Header) time.Duration {
	if n, err := strconv.Atoi(h.Get("Keepalive-Ping-Interval")); err == nil && n > 0 {
		return time.Duration(min(n, 3600)) * time.Second
	}
	return pingInterval
}

// signed reports whether a URL was signed for an operation on a file, and whether the signature has
// expired. Signing needs the token.
func (b *sandbox) signed(q url.Values, operation string) (signed, expired bool) {
	raw := strings.Join([]string{q.Get("path"), operation, q.Get("username"), b.token}, ":")
	if exp := q.Get("signature_expiration"); exp != "" {
		n, err := strconv.ParseInt(exp, 10, 64)
		if err != nil {
			return false, false
		}
		expired = time.Now().Unix() > n
		raw += ":" + exp
	}
	sum := hash(raw)
	return sameToken(q.Get("signature"), "v1_"+base64.RawStdEncoding.EncodeToString(sum[:])), expired
}
