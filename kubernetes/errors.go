package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
)

var (
	errNoAnswer = errors.New("the API server does not answer")
	errGone     = errors.New("no such pod")
)

// podSecurity is what a namespace lacks that does not admit sandboxes.
const podSecurity = "pod-security:privileged"

// maxWords bounds what a cluster says and people are shown.
const maxWords = 600

// cut replaces what client-go makes of the end of a context by its cause.
func cut(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// missing reports whether an error says that there is no such pod. Of a namespace that is not there
// the API server says the same with another kind of object.
func missing(err error) bool {
	var s apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &s) {
		return false
	}
	d := s.Status().Details
	return d == nil || d.Kind == "" || d.Kind == "pods"
}

// fail classifies an error of a request. No code of the user runs in the calls that it is for.
func (c *client) fail(ctx context.Context, err error) error {
	if errors.As(err, new(*executor.Error)) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause // the caller's
	}
	out := &executor.Error{Kind: executor.ErrUnavailable, Ran: executor.RanNo, Err: err}
	explain := func(kind error, format string) {
		out.Kind, out.Err = kind, fmt.Errorf(format+": %w", err)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		out.RetryAfter = time.Duration(seconds) * time.Second
	}
	said := strings.ToLower(remote.Words(err.Error(), maxWords))
	says := func(s string) bool { return strings.Contains(said, s) }
	switch {
	case errors.Is(err, errNoAnswer):
		out.Err = fmt.Errorf("%w within %v (%s)", errNoAnswer, requestTimeout, c.from)
	case errors.As(err, new(*tokenError)):
		out.Kind = executor.ErrAuth
	case apierrors.IsUnauthorized(err):
		explain(executor.ErrAuth, "the API server does not take the credentials of "+c.from+", or they have expired")
	case missing(err):
		explain(executor.ErrNotFound, "gone")
	case apierrors.IsNotFound(err):
		explain(executor.ErrUnavailable, fmt.Sprintf("namespace %s of %s", c.namespace, c.from))
	case apierrors.IsTooManyRequests(err):
		explain(executor.ErrExhausted, "the API server is busy")
	// Of admission there are only words: quotas, Pod Security and webhooks say Forbidden, as
	// missing rights do.
	case apierrors.IsForbidden(err) && says("exceeded quota"):
		explain(executor.ErrExhausted, "a quota of namespace "+c.namespace)
	case apierrors.IsForbidden(err) && says("violates podsecurity"):
		out.Missing = []string{podSecurity}
		explain(executor.ErrUnsupported, fmt.Sprintf("namespace %s does not admit sandboxes; its label pod-security.kubernetes.io/enforce has to allow them", c.namespace))
	case says("admission webhook"), says("validatingadmissionpolicy"):
		out.Missing = []string{"admission"}
		explain(executor.ErrUnsupported, "an admission rule of the cluster refuses the pod")
	case apierrors.IsForbidden(err):
		explain(executor.ErrAuth, "a right is missing in namespace "+c.namespace+"; execbroker kubernetes rbac prints the role")
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		explain(executor.ErrInvalid, "the cluster does not take the pod that the configuration asks for")
	case errors.As(err, new(*net.OpError)):
		explain(executor.ErrUnavailable, c.from)
	}
	return out
}

// unsupported refuses what the cluster or the image lacks, though the configuration declares it.
func unsupported(cause error, missing ...string) error {
	return &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: missing, Err: cause}
}

// notFound is the error about a session whose pod is not there.
func notFound() error { return driver.Fail(executor.ErrNotFound, executor.RanNo, errGone) }
