package flytest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// apiError is an answer that is not what was asked for. Its texts are Fly's, word by word, where
// Fly's are known; those that begin with "flytest:" are the emulator's own.
type apiError struct {
	status int
	body   any    // JSON
	text   string // instead of body, as it is
	header http.Header
}

func (e *apiError) Error() string {
	if e.body == nil {
		return fmt.Sprintf("%d: %s", e.status, e.text)
	}
	b, err := json.Marshal(e.body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d: %s", e.status, b)
}

// errorBody is the most common form of errors.
type errorBody struct {
	Error  string `json:"error"`
	Status string `json:"status,omitempty"`
}

// leaseBody is the form of errors about leases.
type leaseBody struct {
	Status  string `json:"status"`
	Message string `json:"message"`
	Code    string `json:"code"`
}

func fail(status int, format string, args ...any) *apiError {
	return &apiError{status: status, body: errorBody{Error: fmt.Sprintf(format, args...)}}
}

func failStatus(status int, code, format string, args ...any) *apiError {
	return &apiError{status: status, body: errorBody{Error: fmt.Sprintf(format, args...), Status: code}}
}

// ours is a mistake that Fly might not see, or something that the emulator cannot do.
func ours(format string, args ...any) *apiError {
	return fail(http.StatusBadRequest, "flytest: "+format, args...)
}

// What Fly answers.

func errToken() *apiError {
	return fail(http.StatusUnauthorized, "Authenticate: token validation error")
}

func errUnauthorized() *apiError { return fail(http.StatusForbidden, "unauthorized") }

func errAppNotFound() *apiError { return fail(http.StatusNotFound, "app not found") }

func errAppTaken() *apiError {
	return failStatus(http.StatusUnprocessableEntity, "name_taken", "Validation failed: Name has already been taken")
}

func errMachineNotFound() *apiError { return fail(http.StatusNotFound, "not_found: machine not found") }

func errNameTaken(id, name string) *apiError {
	return fail(http.StatusConflict, "already_exists: unique machine name violation, machine ID %s already exists with name %q", id, name)
}

func errRegionFull() *apiError {
	return failStatus(http.StatusUnprocessableEntity, "insufficient_capacity", "could not find a candidate host")
}

func errRegionConflict() *apiError {
	return fail(http.StatusConflict, "aborted: insufficient resources available to fulfill request")
}

func errHostFull(what string) *apiError {
	return fail(http.StatusConflict, "aborted: could not reserve resource for machine: insufficient %s available to fulfill request on the current host", what)
}

func errQuota(org, region string, mb int64) *apiError {
	return fail(http.StatusForbidden, "organization %q is using %d MB of memory in %s which is over the allowed quota", org, mb, region)
}

func errState(what, state string) *apiError {
	return fail(http.StatusPreconditionFailed, "failed_precondition: unable to %s machine from current state: '%s'", what, state)
}

func errStillActive() *apiError {
	return fail(http.StatusPreconditionFailed, "failed_precondition: machine still active, refusing to start")
}

func errConcurrent() *apiError {
	return fail(http.StatusConflict, "aborted: machine update failed due to concurrent update")
}

func errLeaseHeld(id, owner, expires string) *apiError {
	return &apiError{status: http.StatusConflict, body: leaseBody{
		Status: "error", Code: "invalid",
		Message: fmt.Sprintf("machine ID %s lease currently held by %s, expires at %s", id, owner, expires),
	}}
}

func errNoLease() *apiError {
	return &apiError{status: http.StatusNotFound, body: leaseBody{Status: "error", Message: "no active lease", Code: "invalid"}}
}

func errWaitRange() *apiError {
	return fail(http.StatusBadRequest, "invalid_argument: invalid WaitMachineRequest.Timeout: value must be inside range [1s, 1m0s]")
}

func errWaitExpired(want []string, state string) *apiError {
	return fail(http.StatusRequestTimeout, "deadline_exceeded: machine failed to reach desired state, %s, currently %s", strings.Join(want, ", "), state)
}

func errCreateTimeout() *apiError {
	return fail(http.StatusRequestTimeout, "deadline_exceeded: request timed out")
}

func errExecRange() *apiError {
	return fail(http.StatusBadRequest, "timeout must not exceed 60 seconds")
}

func errExecExpired() *apiError {
	return fail(http.StatusRequestTimeout, `deadline_exceeded: Post "http://unix/v1/exec": net/http: request canceled (Client.Timeout exceeded while awaiting headers)`)
}

func errRate() *apiError { return fail(http.StatusTooManyRequests, "rate limit exceeded") }

func errHostDisabled() *apiError {
	return fail(http.StatusServiceUnavailable, "unavailable: deploys to this host are temporarily disabled")
}

func errEOF() *apiError { return fail(http.StatusBadRequest, "EOF") }
