package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/front"
)

// Problem is the answer to a request that failed.
type Problem struct {
	Status  int             `json:"status"`
	Kind    string          `json:"kind"` // "unauthorized", "draining", "origin", "method", "upgrade", "no-input", "no-terminal", "repeated", "elsewhere", or a word of executor.KindName
	Message string          `json:"message"`
	Ran     string          `json:"ran"` // whether the code may have run: "no", "maybe", "yes"
	Missing []string        `json:"missing,omitempty"`
	Denied  executor.Denial `json:"denied,omitzero"` // for the kind "denied": the rule and its numbers
	// Instance is the server that has the conversation, for the kind "elsewhere": see driver.Env. A
	// front end sends the request there.
	Instance string `json:"instance,omitempty"`
	Request  string `json:"request_id"`

	retry time.Duration
}

// Error returns the message.
func (p *Problem) Error() string { return p.Message }

func refuse(status int, kind, format string, args ...any) *Problem {
	return &Problem{Status: status, Kind: kind, Ran: "no", Message: fmt.Sprintf(format, args...)}
}

// statuses maps the kinds of failure to HTTP statuses.
var statuses = []struct {
	kind   error
	status int
}{
	{executor.ErrInvalid, http.StatusBadRequest},
	{executor.ErrUnsupported, http.StatusNotImplemented},
	{executor.ErrDenied, http.StatusForbidden},
	{executor.ErrNotFound, http.StatusNotFound},
	{executor.ErrClosed, http.StatusNotFound},
	{executor.ErrBusy, http.StatusConflict},
	{executor.ErrTooLarge, http.StatusRequestEntityTooLarge},
	{executor.ErrExhausted, http.StatusTooManyRequests},
	{executor.ErrNoServer, http.StatusBadGateway},
	{executor.ErrUnavailable, http.StatusServiceUnavailable},
	{fs.ErrNotExist, http.StatusNotFound},
	{fs.ErrExist, http.StatusConflict},
	{fs.ErrPermission, http.StatusForbidden},
	{fs.ErrInvalid, http.StatusBadRequest},
	{context.DeadlineExceeded, http.StatusGatewayTimeout},
	{context.Canceled, 499}, // the client does not read it
}

// inWords has the messages for failures whose causes are not for clients.
var inWords = map[int]string{
	http.StatusNotFound:            "there is no such session or file; it has ended or never existed",
	http.StatusTooManyRequests:     "no sandbox is free at the moment",
	http.StatusServiceUnavailable:  "the backend is not available at the moment",
	http.StatusGatewayTimeout:      "it took too long",
	http.StatusInternalServerError: "internal error",
	499:                            "canceled",
}

// ProblemOf returns err in the form for clients, without causes that may name the host. If err is a
// Problem, it returns that.
func ProblemOf(err error) *Problem {
	if p := (*Problem)(nil); errors.As(err, &p) {
		return p
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return refuse(http.StatusRequestEntityTooLarge, "too-large", "the body has more than %d bytes", large.Limit)
	}
	if e := (*sessions.ElsewhereError)(nil); errors.As(err, &e) {
		p := refuse(http.StatusMisdirectedRequest, "elsewhere", "another server has this conversation, and its backend cannot be used from here")
		p.Instance = e.Instance
		return p
	}
	p := &Problem{Status: http.StatusInternalServerError, Kind: executor.KindName(err), Ran: executor.RanMaybe.String()}
	kind, cause, op := err, error(nil), "create"
	if e := (*executor.Error)(nil); errors.As(err, &e) {
		kind, cause, op = e.Kind, e.Err, cmp.Or(e.Op, op)
		p.Ran, p.Missing, p.Denied, p.retry = e.Ran.String(), e.Missing, e.Denied, e.RetryAfter
	}
	for _, s := range statuses {
		if errors.Is(kind, s.kind) {
			p.Status = s.status
			break
		}
	}
	if words, ok := inWords[p.Status]; ok {
		p.Message = words
		if errors.Is(kind, executor.ErrExhausted) && op != "create" {
			p.Message = "the session has as many processes, terminals or requests as it may have at once"
		}
	} else {
		p.Message = fmt.Sprint(kind)
		if cause != nil {
			p.Message += ": " + cause.Error()
		}
		if len(p.Missing) > 0 {
			p.Message += ": the backend lacks " + strings.Join(p.Missing, ", ")
		}
	}
	return p
}

// answerError writes err, and logs what the client is not told.
func (s *Server) answerError(w http.ResponseWriter, r *http.Request, err error) {
	p := *ProblemOf(err) // a copy, because Problems may be shared
	p.Request = requestID(r)
	if p.Status >= 500 {
		s.cfg.Log.WarnContext(r.Context(), "request failed", "id", p.Request, "path", r.Pattern, "err", err)
	}
	if p.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retry.Seconds()))))
	}
	answer(w, p.Status, p)
}

func answer(w http.ResponseWriter, status int, v any) {
	front.Answer(w, status, v, `{"status":500,"kind":"internal","message":"internal error","ran":"maybe"}`)
}
