package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Explain tells a model why a call has no result: what was wrong with it, what a guard refused and
// when to try again, or that the service failed. It says whether the code may have run. Explain
// leaves out the rest of err, which is for logs, because it may name the host. For nil it returns
// "".
func Explain(err error) string {
	if err == nil {
		return ""
	}
	if bad := (*InputError)(nil); errors.As(err, &bad) {
		return bad.Error()
	}
	var e *executor.Error
	if !errors.As(err, &e) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return stopped
		}
		return broken + " " + mayHaveRun
	}
	text := explainKind(e)
	if e.RetryAfter > 0 {
		text += " Try again in " + spoken(e.RetryAfter) + "."
	}
	if ran, ok := map[executor.Ran]string{executor.RanMaybe: mayHaveRun, executor.RanYes: "The code had started."}[e.Ran]; ok {
		text += " " + ran
	}
	return text
}

// spoken returns a time as people say it, rounded up.
func spoken(d time.Duration) string {
	unit, name := time.Second, "seconds"
	switch {
	case d >= 48*time.Hour:
		unit, name = 24*time.Hour, "days"
	case d >= 2*time.Hour:
		unit, name = time.Hour, "hours"
	case d >= 2*time.Minute:
		unit, name = time.Minute, "minutes"
	}
	return fmt.Sprintf("%d %s", (d+unit-1)/unit, name)
}

const (
	stopped     = "The run was cancelled."
	ended       = "The sandbox has ended, with its variables and files. The next call gets a new one."
	unavailable = "No sandbox is available at the moment. Try again later, or answer without running code."
	broken      = "The sandbox could not be used because of a failure of the service, which the code has not caused."
	mayHaveRun  = "The code may have run: look at what is there before you run it again."
)

func explainKind(e *executor.Error) string {
	cause := ""
	if e.Err != nil {
		cause = strings.TrimSuffix(strings.TrimPrefix(scrub(e.Err.Error()), "guard: "), ".")
	}
	with := func(text string) string {
		if cause == "" {
			return text + "."
		}
		return text + ": " + cause + "."
	}
	if p := (*executor.PackageError)(nil); errors.As(e, &p) && e.Kind == executor.ErrUnavailable {
		return with("The packages could not be fetched, so nothing was run") + " Use others, do without, or try again later."
	}
	switch e.Kind {
	case executor.ErrDenied:
		if e.RetryAfter > 0 {
			return with("Refused by a rule of this service")
		}
		return with("Refused by a rule of this service") + " The same call will be refused again."
	case executor.ErrInvalid:
		return with("The call was refused")
	case executor.ErrUnsupported:
		if len(e.Missing) > 0 {
			return fmt.Sprintf("This sandbox cannot do that; it lacks: %s. Find a way without.", strings.Join(e.Missing, ", "))
		}
		return "This sandbox cannot do that. Find a way without."
	}
	return cmp.Or(explanations[e.Kind], broken)
}

// explanations are those of the kinds that say everything.
var explanations = map[error]string{
	executor.ErrTooLarge:     "Something in the call is too large. Use less data.",
	executor.ErrBusy:         "An earlier run of this conversation is still going. Wait until it has ended.",
	executor.ErrNotFound:     ended,
	executor.ErrClosed:       ended,
	executor.ErrExhausted:    unavailable,
	executor.ErrUnavailable:  unavailable,
	context.Canceled:         stopped,
	context.DeadlineExceeded: stopped,
}

// maxCause bounds the text of a cause.
const maxCause = 1000

// hostLocations matches URLs, addresses with or without a port, and absolute paths.
var hostLocations = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"']+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9a-fA-F:]+\](?::\d+)?|(?:[A-Za-z]:\\|/)[^\s"':,;)]*`)

// scrub removes what may name the host from the text of an error. Paths that code can see anyway
// stay.
func scrub(text string) string {
	text = hostLocations.ReplaceAllStringFunc(text, func(place string) string {
		if place == executor.Workdir || strings.HasPrefix(place, executor.Workdir+"/") || place == "/" {
			return place
		}
		return "…"
	})
	return cut(strings.ToValidUTF8(text, "\ufffd"), maxCause)
}
