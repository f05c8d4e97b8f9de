package e2b

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// ServiceError is an error that the service has answered. It is the cause of the *executor.Error
// that callers get.
type ServiceError struct {
	Status     int           // of HTTP
	Code       string        // of the service, such as "sandbox_capacity_unavailable"; often empty
	Message    string        // in the words of the service; if it did not answer as an API does, the beginning of what it said
	Sandbox    string        // the ID; may be empty
	Trace      string        // the ID under which the service knows the request; may be empty
	RetryAfter time.Duration // zero: it did not say

	port  int    // that is not open
	retry string // header Should-Retry
	shape bool   // it answered as an API does
}

// Error returns the answer, with the IDs by which the service can find the request.
func (e *ServiceError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", e.Status)
	for _, s := range []string{e.Code, e.Message} {
		if s != "" {
			b.WriteString(" " + s)
		}
	}
	var ids []string
	if e.Sandbox != "" {
		ids = append(ids, "sandbox "+e.Sandbox)
	}
	if e.Trace != "" {
		ids = append(ids, "trace "+e.Trace)
	}
	if len(ids) > 0 {
		b.WriteString(" (" + strings.Join(ids, ", ") + ")")
	}
	return b.String()
}

// What is kept of an answer that is an error.
const (
	maxErrorBody = 64 << 10
	maxMessage   = 500
	maxTrace     = 128
)

// readError makes an error of an answer and closes its body. Proxies in front of the service answer
// in HTML or plain text.
func readError(r *http.Response, sandbox string) *ServiceError {
	defer r.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxErrorBody)) // what has arrived is what is known
	e := &ServiceError{Status: r.StatusCode, Sandbox: sandbox, Trace: printable(r.Header.Get("X-E2B-Trace-ID"), maxTrace), retry: r.Header.Get("Should-Retry")}
	if n, err := strconv.ParseUint(r.Header.Get("Retry-After"), 10, 31); err == nil {
		e.RetryAfter = time.Duration(n) * time.Second
	}
	var said struct {
		Message *string `json:"message"`
		Code    string  `json:"error_code"`
		Port    int     `json:"port"`
	}
	// Fields of other types are as good as missing: "code" is a number here and a word there.
	if err := json.Unmarshal(body, &said); said.Message != nil && (err == nil || errors.As(err, new(*json.UnmarshalTypeError))) {
		e.Message, e.Code, e.port, e.shape = printable(*said.Message, maxMessage), printable(said.Code, maxTrace), said.Port, true
		return e
	}
	e.Message = printable(string(body), maxMessage)
	e.Message = cmp.Or(e.Message, http.StatusText(r.StatusCode))
	return e
}

// printable returns at most n bytes of s in one line, as errors show them.
func printable(s string, n int) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "..."
	}
	return s
}

// quota reports whether a quota is used up. A rate, by contrast, recovers by itself.
func (e *ServiceError) quota() bool {
	return e.Status == http.StatusTooManyRequests && e.RetryAfter == 0
}

// notListening reports whether nothing in the sandbox listens at the port of the request.
func (e *ServiceError) notListening() bool { return e.Status == http.StatusBadGateway && e.port != 0 }

// early reports whether the sandbox may take the same request in a moment: nothing listens yet, or
// the sandbox is between two states.
func early(err error) bool {
	var said *ServiceError
	if errors.As(err, &said) {
		return said.notListening() || said.Status == http.StatusConflict
	}
	return unsent(err)
}

// undelivered reports whether a failed request has certainly not reached the server in the sandbox.
func undelivered(err error) bool {
	var said *ServiceError
	return early(err) || errors.As(err, &said) && said.Status == http.StatusTooManyRequests
}

// broke reports whether an established connection has failed, and not the service, which answers
// with a status or not at all.
func broke(err error) bool {
	var said *ServiceError
	if errors.As(err, &said) || errors.Is(err, errNoAnswer) || !errors.Is(err, executor.ErrUnavailable) {
		return false
	}
	for _, cut := range []error{errCut, errTruncated, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, cut) {
			return true
		}
	}
	var lost *runner.LostError
	var ce *connect.Error
	return errors.As(err, &lost) || errors.As(err, &ce) && !connect.IsWireError(err)
}

// gone reports whether the sandbox is known not to exist. Only one of the answers with status 502
// says so. Another says that nothing listens in the sandbox, and the rest are about the connection
// to it.
func (e *ServiceError) gone() bool {
	return e.Sandbox != "" && (e.Status == http.StatusNotFound ||
		e.Status == http.StatusBadGateway && e.shape && e.port == 0 && strings.Contains(e.Message, "was not found"))
}

// kind says what an answer is to callers.
func (e *ServiceError) kind() error {
	switch {
	case e.gone():
		return executor.ErrNotFound
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
		return executor.ErrAuth
	case e.Status == http.StatusTooManyRequests:
		return executor.ErrExhausted
	case e.Status == http.StatusBadRequest, e.Status == http.StatusNotFound, e.Status == http.StatusUnprocessableEntity, e.Status == http.StatusRequestEntityTooLarge:
		return executor.ErrInvalid
	case e.Status == http.StatusNotImplemented:
		return executor.ErrUnsupported
	}
	return executor.ErrUnavailable
}

var errNoAnswer = errors.New("the service does not answer")

// fail classifies an error of a request. No user code runs in the requests that it is for.
func (s *service) fail(ctx context.Context, what string, err error) error {
	if de := (*executor.Error)(nil); errors.As(err, &de) {
		return err
	}
	said := (*ServiceError)(nil)
	switch cause := context.Cause(ctx); {
	case errors.As(err, &said):
		e := &executor.Error{Kind: said.kind(), Ran: executor.RanNo, RetryAfter: said.RetryAfter, Err: fmt.Errorf("%s: %w", what, said)}
		if said.Status == http.StatusUnauthorized {
			e.Err = fmt.Errorf("%s: %w; check the key, which is %v", what, said, s.cfg.key())
		}
		return e
	case cause == errNoAnswer:
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("%s: %w within %v", what, errNoAnswer, s.cfg.timeout()))
	case cause != nil:
		return cause
	}
	if ce := (*connect.Error)(nil); errors.As(err, &ce) {
		kind, code := executor.ErrUnavailable, ce.Code()
		if !connect.IsWireError(err) {
			code = connect.CodeUnavailable // the client's own words for an answer that broke off
		}
		switch code {
		case connect.CodeUnauthenticated, connect.CodePermissionDenied:
			kind = executor.ErrAuth
		case connect.CodeInvalidArgument, connect.CodeUnimplemented, connect.CodeFailedPrecondition:
			kind = executor.ErrUnsupported
		case connect.CodeResourceExhausted:
			kind = executor.ErrExhausted
		default:
		}
		return driver.Fail(kind, executor.RanNo, fmt.Errorf("%s: %w", what, err))
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("%s: %w", what, err))
}

// errGone is the error for a sandbox that the service does not have.
func errGone(id string) error {
	return driver.Fail(executor.ErrNotFound, executor.RanNo, fmt.Errorf("the service has no sandbox %s", id))
}
