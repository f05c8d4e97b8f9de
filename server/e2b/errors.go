package e2b

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/front"
)

// apiError is an error of the control plane. The SDKs choose their type of error by Status.
type apiError struct {
	Status     int           `json:"code"`
	Message    string        `json:"message"`
	Code       string        `json:"error_code,omitempty"`
	RetryAfter time.Duration `json:"-"` // rounded up; zero: the client is not told when
}

func (e *apiError) Error() string { return e.Message }

func refuse(status int, format string, args ...any) *apiError {
	return &apiError{Status: status, Message: fmt.Sprintf(format, args...)}
}

func notFound(id string) *apiError { return refuse(http.StatusNotFound, "sandbox %q not found", id) }

// statuses are the statuses of failures of a backend. The first that matches counts.
var statuses = []struct {
	kind   error
	status int
	code   string
}{
	{executor.ErrInvalid, http.StatusBadRequest, ""},
	{executor.ErrUnsupported, http.StatusNotImplemented, ""},
	{executor.ErrDenied, http.StatusForbidden, ""},
	{executor.ErrNotFound, http.StatusNotFound, ""},
	{executor.ErrClosed, http.StatusNotFound, ""},
	{executor.ErrBusy, http.StatusConflict, ""},
	{executor.ErrTooLarge, http.StatusRequestEntityTooLarge, ""},
	{executor.ErrExhausted, http.StatusTooManyRequests, ""},
	{executor.ErrUnavailable, http.StatusServiceUnavailable, "sandbox_capacity_unavailable"},
	{executor.ErrNoServer, http.StatusBadGateway, ""},
	{executor.ErrAuth, http.StatusInternalServerError, "internal_server_error"},
	{executor.ErrInternal, http.StatusInternalServerError, "internal_server_error"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, ""},
	{context.Canceled, 499, ""}, // nobody reads it
	{fs.ErrNotExist, http.StatusNotFound, ""},
	{fs.ErrExist, http.StatusConflict, ""},
	{fs.ErrPermission, http.StatusForbidden, ""},
	{fs.ErrInvalid, http.StatusBadRequest, ""},
}

// asAPIError says what err is to a client.
func asAPIError(err error) *apiError {
	if e := (*apiError)(nil); errors.As(err, &e) {
		return e
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", tooLarge.Limit)
	}
	kind := err
	answer := &apiError{Status: http.StatusInternalServerError, Message: err.Error(), Code: "internal_server_error"}
	if e := (*executor.Error)(nil); errors.As(err, &e) {
		kind, answer.RetryAfter = e.Kind, e.RetryAfter // not what it was caused by
	}
	for _, s := range statuses {
		if errors.Is(kind, s.kind) {
			answer.Status, answer.Code = s.status, s.code
			break
		}
	}
	return answer
}

// fail writes err, and logs what is the server's or the backend's.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if e := asAPIError(err); e.Status >= 500 && e.Status != http.StatusNotImplemented {
		s.cfg.Log.WarnContext(r.Context(), "request failed", "id", front.RequestID(r.Context()), "path", r.URL.Path, "kind", executor.KindName(err), "err", err)
	}
	writeError(w, err)
}

func writeError(w http.ResponseWriter, err error) {
	e := asAPIError(err)
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	writeJSON(w, e.Status, e)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	front.Answer(w, status, v, `{"code":500,"message":"internal error"}`)
}
