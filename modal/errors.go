package modal

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
)

// maxWords bounds what Modal says and people are shown.
const maxWords = 600

// words returns what an error of the SDK says.
func words(err error) string {
	if st, ok := status.FromError(err); ok {
		return remote.Words(st.Code().String()+": "+st.Message(), maxWords)
	}
	return remote.Words(err.Error(), maxWords)
}

// What can be done where several errors of the SDK mean the same.
const (
	adviceGone    = "it has ended or was deleted, or is in another environment or workspace"
	adviceInvalid = "Modal does not take it: correct what the configuration asks for"
)

// fail classifies an error of the SDK about a thing of Modal. No code of the user runs in the calls
// that it is for.
func fail(ctx context.Context, thing string, err error) error {
	if errors.As(err, new(*executor.Error)) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%s: %w", thing, cause)
	}
	out := &executor.Error{Kind: executor.ErrUnavailable, Ran: executor.RanNo, RetryAfter: retryAfter(err)}
	advice := "try again; Modal may be down, or not be reached from here"
	switch {
	case errors.As(err, new(sdk.ResourceExhaustedError)):
		out.Kind, advice = executor.ErrExhausted, "Modal has no room for it: try other regions, another cloud or a smaller size"
	case errors.As(err, new(sdk.NotFoundError)):
		out.Kind, advice = executor.ErrNotFound, adviceGone
	case errors.As(err, new(sdk.RemoteError)):
		advice = "try the image with the modal command, and read what its build says"
	case errors.As(err, new(sdk.InvalidError)), errors.As(err, new(sdk.AlreadyExistsError)):
		out.Kind, advice = executor.ErrInvalid, adviceInvalid
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		out.Kind, advice = executor.ErrAuth, "make a token with modal token new, for the workspace of the app, and put it where token_id and token_secret say"
	case codes.ResourceExhausted:
		out.Kind, advice = executor.ErrExhausted, "a quota or a rate of the workspace: wait, or ask Modal for more"
	case codes.NotFound:
		out.Kind, advice = executor.ErrNotFound, adviceGone
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		out.Kind, advice = executor.ErrInvalid, adviceInvalid
	case codes.Unimplemented:
		out.Kind, out.Missing, advice = executor.ErrUnsupported, []string{"modal"}, "this workspace or this server does not have it"
	}
	// The text is bounded, so the error of the SDK is not wrapped.
	out.Err = fmt.Errorf("%s: %s; %s", thing, words(err), advice)
	return out
}

// maxRetryAfter is the longest wait that Modal is believed to ask for.
const maxRetryAfter = time.Hour

// retryAfter returns after how long Modal wants to be asked again.
func retryAfter(err error) time.Duration {
	st, ok := status.FromError(err)
	if !ok {
		return 0
	}
	for _, d := range st.Details() {
		if p, ok := d.(*pb.RPCRetryPolicy); ok && p.GetRetryAfterSecs() > 0 {
			return time.Duration(min(float64(p.GetRetryAfterSecs()), maxRetryAfter.Seconds()) * float64(time.Second))
		}
	}
	return 0
}

// missing reports whether an error says that there is no such thing.
func missing(err error) bool {
	return status.Code(err) == codes.NotFound || errors.As(err, new(sdk.NotFoundError))
}

// notThere makes a mistake of the configuration of an app or image that is not there: there is no
// session yet that could be missing.
func notThere(err error) error {
	var e *executor.Error
	if errors.As(err, &e) && e.Kind == executor.ErrNotFound {
		e.Kind = executor.ErrInvalid
	}
	return err
}

// errNoSandbox says that there is no Sandbox of a session.
var errNoSandbox = errors.New("no such Sandbox")

// notFound is the error about a session whose Sandbox is not there.
func notFound() error { return driver.Fail(executor.ErrNotFound, executor.RanNo, errNoSandbox) }
