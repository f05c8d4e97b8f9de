package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// The kinds of failure, for errors.Is. What the submitted code did wrong is never one of them.
// ErrNotFound is about sessions only, and fs.ErrNotExist is about files. If they were one kind, a
// missing file could make a caller give up a whole conversation.
var (
	ErrInvalid     = errors.New("invalid argument")
	ErrUnsupported = fmt.Errorf("not supported by this backend: %w", errors.ErrUnsupported)
	ErrDenied      = errors.New("refused by policy") // by a guard, a budget or a rate limit of the subject; do not try another backend
	ErrNotFound    = errors.New("session not found") // gone, expired, of another owner, or it never existed; never about a file
	ErrClosed      = errors.New("closed")            // this Executor or Session value is closed, or a later holder has taken over
	ErrBusy        = errors.New("busy")              // the interpreter or session is running something
	ErrTooLarge    = errors.New("too large")
	ErrAuth        = errors.New("not authorized by the provider")
	ErrExhausted   = errors.New("quota, rate or capacity of the provider exhausted")
	ErrUnavailable = errors.New("backend unavailable")
	ErrNoServer    = errors.New("no server takes the connection") // from Dial: nothing listens on the port, or the server does not accept
	ErrInternal    = errors.New("internal error")                 // a bug here, or a reply that breaks the protocol
)

// kinds maps each kind to its name in logs, statistics and JSON.
var kinds = []struct {
	kind error
	word string
}{
	{ErrInvalid, "invalid"},
	{ErrUnsupported, "unsupported"},
	{ErrDenied, "denied"},
	{ErrNotFound, "not-found"},
	{ErrClosed, "closed"},
	{ErrBusy, "busy"},
	{ErrTooLarge, "too-large"},
	{ErrAuth, "auth"},
	{ErrExhausted, "exhausted"},
	{ErrUnavailable, "unavailable"},
	{ErrNoServer, "no-server"},
	{ErrInternal, "internal"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline-exceeded"},
	{fs.ErrNotExist, "file-not-found"},
	{fs.ErrExist, "file-exists"},
	{fs.ErrPermission, "file-permission"},
	{fs.ErrInvalid, "file-invalid"},
}

// KindName returns the name of the Kind of the [*Error] in err, or of err itself: "unavailable",
// "denied", "canceled". For any other error, and for nil, it is "other".
func KindName(err error) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		err = e.Kind // the kind of the error, not of its cause
	}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return k.word
		}
	}
	return "other"
}

// Ran says whether the code of a failed call may have run.
type Ran uint8

// The zero value is the cautious one. RanNo is used only if it is known to be true: the request was
// refused before it was sent, or it was withdrawn and the backend confirmed that.
const (
	RanMaybe Ran = iota // not known, for example because a reply was lost
	RanNo               // safe to repeat, also on another backend
	RanYes              // the code started
)

// String returns "maybe", "no" or "yes".
func (r Ran) String() string { return [...]string{"maybe", "no", "yes"}[min(r, RanYes)] }

// Error is a failure of the infrastructure, a refusal, or a misuse of the API. It unwraps to Kind
// and Err.
type Error struct {
	Op      string // "create", "attach", "destroy", "sessions", "run", "install", "reset", "files.read", "dial", "close", ...
	Backend string // Info.Name
	Session string // Handle.Session; may be empty
	// Kind is one of the Err variables. It is context.Canceled or context.DeadlineExceeded if the
	// caller's context ended. For Files it can also be fs.ErrNotExist, fs.ErrExist,
	// fs.ErrPermission or fs.ErrInvalid.
	Kind       error
	Ran        Ran
	Missing    []string      // for ErrUnsupported: see Capabilities.MissingFor
	Denied     Denial        // for ErrDenied: the rule
	RetryAfter time.Duration // hint of the provider, or zero
	Err        error         // the cause, as the provider reported it; contains no secret
}

// Error returns "backend: op session: kind: needs what is missing: cause" and leaves out empty
// parts.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Backend != "" {
		b.WriteString(e.Backend + ": ")
	}
	if op := strings.TrimSpace(e.Op + " " + e.Session); op != "" {
		b.WriteString(op + ": ")
	}
	fmt.Fprint(&b, e.Kind)
	if len(e.Missing) > 0 {
		fmt.Fprintf(&b, ": needs %s", strings.Join(e.Missing, ", "))
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap supports errors.Is and errors.As. It returns Kind and Err, without those that are nil.
func (e *Error) Unwrap() (parts []error) {
	if e.Kind != nil {
		parts = append(parts, e.Kind)
	}
	if e.Err != nil {
		parts = append(parts, e.Err)
	}
	return parts
}

// Retryable reports whether err is a failure of the backend that cannot have run any code. It looks
// at the outermost Error only: a refusal stays a refusal, whatever caused it. If the caller's own
// context ended, the error is not retryable.
func Retryable(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Ran != RanNo {
		return false
	}
	return e.Kind == ErrUnavailable || e.Kind == ErrExhausted
}

// ExitError is what Result.Err returns.
type ExitError struct{ Result *Result }

// Error says in one line how the code ended: its exception, its signal, what stopped it, or its
// exit status.
func (e *ExitError) Error() string {
	r := e.Result
	switch {
	case r.Exception != nil:
		return strings.TrimSuffix(r.Exception.Type+": "+r.Exception.Message, ": ")
	case r.Signal != "":
		return string(r.Status) + ": " + r.Signal
	case r.Reason != "":
		return string(r.Status) + ": " + string(r.Reason)
	case r.Status == StatusFailed:
		return fmt.Sprintf("exit status %d", r.ExitCode)
	}
	return string(r.Status)
}
