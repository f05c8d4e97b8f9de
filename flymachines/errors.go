package flymachines

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/remote"
)

// APIError is an error that the Machines API has answered, or a failed connection to it. errors.As
// finds it in errors of this adapter.
type APIError struct {
	Action     string // "create", "get", ...
	Status     int    // of HTTP; 0: there was no answer
	Code       string // status of the body, such as "insufficient_capacity"; mostly empty
	Text       string // in the words of Fly
	RequestID  string // to tell Fly's support
	RetryAfter time.Duration
	Scope      Scope // of what is missing, with ErrExhausted
	Err        error // of the connection, with Status 0

	class   class
	id      string // of the Machine that has the name
	unknown bool   // whether it was done, and the API does not tell
}

// Scope says where capacity is missing.
type Scope string

// The scopes.
const (
	ScopeRegion Scope = "region" // another region may have it
	ScopeHost   Scope = "host"   // another Machine, on another host, may be started
	ScopeQuota  Scope = "quota"  // of the organization in a region
	ScopeRate   Scope = "rate"
)

// Error implements error. It holds no secret: answers of the API to what is sent here have none.
func (e *APIError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "machines API: %s: ", e.Action)
	if e.Status == 0 {
		fmt.Fprintf(&b, "no answer: %v", e.Err)
	} else {
		fmt.Fprintf(&b, "%d %s", e.Status, http.StatusText(e.Status))
	}
	if e.Text != "" {
		fmt.Fprintf(&b, ": %s", e.Text)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " (fly-request-id %s)", e.RequestID)
	}
	return b.String()
}

// Unwrap returns the error of the connection.
func (e *APIError) Unwrap() error { return e.Err }

// class says how to treat an answer.
type class int

const (
	classOther    class = iota
	classLost           // no answer, or one from something in between: what was asked for may have been done
	classUnsent         // there was no connection to ask on: not done
	classRate           // not done; may be asked again
	classCapacity       // not done; elsewhere perhaps
	classTaken          // the name is taken
	classMissing        // there is no such Machine, or not yet
	classNotYet         // its state does not allow it now
	classAuth
	classInvalid
)

var takenBy = regexp.MustCompile(`machine ID ([a-z0-9]{1,32}) already exists`)

// classify reads an answer. Fly's bodies have a code in few cases; the rest is told by the status
// of HTTP, and by text only where one status has several meanings.
func classify(action string, a *attempt) *APIError {
	e := &APIError{Action: action, Status: a.status, RequestID: a.requestID, RetryAfter: a.retryAfter, Err: a.err}
	var body struct{ Error, Message, Status string }
	if json.Unmarshal(a.body, &body) == nil {
		e.Text, e.Code = body.Error, body.Status
		e.Text = cmp.Or(e.Text, body.Message)
	} else {
		e.Text = string(a.body) // text, or a page of something in between
	}
	e.Text, e.Code = remote.Words(e.Text, 500), remote.Words(e.Code, 60)
	says := func(s string) bool { return strings.Contains(e.Text, s) }
	capacity := func(s Scope) { e.class, e.Scope = classCapacity, s }
	var te *tokenError
	switch {
	case errors.As(a.err, &te):
		e.class = classAuth
	case a.status == 0 && unsent(a.err):
		e.class = classUnsent
	case a.status == 0, a.status == http.StatusRequestTimeout, a.status == http.StatusInternalServerError,
		a.status == http.StatusBadGateway, a.status == http.StatusServiceUnavailable, a.status == http.StatusGatewayTimeout:
		e.class = classLost
	case a.status == http.StatusTooManyRequests:
		e.class, e.Scope = classRate, ScopeRate
	case e.Code == "insufficient_capacity", a.status == http.StatusUnprocessableEntity && says("could not find a candidate host"),
		a.status == http.StatusBadRequest && says("no capacity"):
		capacity(ScopeRegion)
	case a.status == http.StatusForbidden && (says("quota") || says("limit")):
		capacity(ScopeQuota)
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		e.class = classAuth
	case a.status == http.StatusNotFound:
		e.class = classMissing
	case a.status == http.StatusConflict && says("current host"):
		capacity(ScopeHost)
	case a.status == http.StatusConflict && (says("insufficient ") || says("no capacity")):
		capacity(ScopeRegion)
	case a.status == http.StatusConflict && says("already_exists"):
		e.class = classTaken
		if m := takenBy.FindStringSubmatch(e.Text); m != nil {
			e.id = m[1]
		}
	case a.status == http.StatusPreconditionFailed && says("insufficient resources"):
		capacity(ScopeHost)
	case a.status == http.StatusConflict, a.status == http.StatusPreconditionFailed:
		e.class = classNotYet
	case a.status == http.StatusBadRequest, a.status == http.StatusUnprocessableEntity, a.status == http.StatusRequestEntityTooLarge,
		a.status == http.StatusPaymentRequired:
		e.class = classInvalid
	}
	return e
}

// unsent reports whether an error of a connection says that there was none: nothing of the request
// has left this program.
func unsent(err error) bool {
	var e *net.OpError
	return errors.As(err, &e) && (e.Op == "dial" || e.Op == "proxyconnect")
}

// patience is the longest Retry-After that this adapter waits for. Callers can go elsewhere
// instead.
const patience = 5 * time.Second

// tooLong reports whether Retry-After is longer than patience.
func (e *APIError) tooLong() bool { return e.RetryAfter > patience }

// after adds the last known error to the end of a context, which alone says nothing about Fly.
func after(err error, known string) error {
	if known == "" {
		return err
	}
	return fmt.Errorf("%w; last: %s", err, known)
}

// tokenError says that there is no token to send.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return "token: " + e.err.Error() }

// fail makes an error for driver.New of an error of the API. The calls that it is for run no code
// of the user.
func fail(ctx context.Context, err error) error {
	var done *executor.Error
	if errors.As(err, &done) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(err, cause) {
			return err // and it may say what was known before
		}
		return cause // the caller's; what fly-go makes of it says nothing more
	}
	out := &executor.Error{Kind: executor.ErrUnavailable, Ran: executor.RanNo, Err: err}
	var e *APIError
	if !errors.As(err, &e) {
		return out
	}
	out.RetryAfter = e.RetryAfter
	creates := e.Action == actionCreate
	switch e.class {
	case classRate, classCapacity:
		out.Kind = executor.ErrExhausted
	case classLost:
		if e.tooLong() {
			out.Kind = executor.ErrExhausted
		}
	case classAuth:
		out.Kind = executor.ErrAuth
	case classMissing:
		if out.Kind = executor.ErrNotFound; creates || e.Action == actionList { // there is no session yet that could be missing
			out.Kind = executor.ErrUnavailable
			out.Err = fmt.Errorf("there is no such app, or no such image: %w", err)
		}
	case classInvalid:
		if out.Kind = executor.ErrInternal; creates { // image, region, size and account are those of the configuration; the rest was checked
			out.Kind = executor.ErrInvalid
			out.Err = fmt.Errorf("Fly does not take the image, region or size of the configuration, or the account: %w", err)
		}
	case classTaken:
		out.Kind = executor.ErrInternal // names are random
	}
	return out
}
