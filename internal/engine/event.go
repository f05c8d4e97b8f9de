package engine

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/execbroker/execbroker/executor"
)

// maxEventData is how much output one event carries, so that what a driver reports in one piece
// does not reach a client as one.
const maxEventData = 64 << 10

// outputCost is what an Output counts besides its contents.
const outputCost = 64

// emitError marks what the caller's emit returned, so that it is recognized whatever it is.
type emitError struct{ error }

// event takes an event of the driver. The first one says that the code has started, whatever else
// it says.
func (r *run) event(ev executor.Event) error {
	if r.stopErr != nil {
		return r.stopErr
	}
	if r.started.IsZero() {
		r.res.Cell = max(ev.Cell, 0)
		if !r.accepted() || !r.pass(executor.Event{Kind: executor.EventStarted, Cell: r.res.Cell}) {
			return r.stopErr
		}
	}
	switch ev.Kind {
	case executor.EventStdout:
		r.text(ev.Kind, &r.stdout, ev.Data)
	case executor.EventStderr:
		r.text(ev.Kind, &r.stderr, ev.Data)
	case executor.EventOutput:
		r.output(ev.Output)
	}
	return r.stopErr
}

// text passes on data in pieces that end with whole characters. What is beyond the output limit is
// dropped.
func (r *run) text(kind executor.EventKind, s *stream, data []byte) {
	left := r.req.Limits.OutputBytes - r.written
	r.over = int64(len(data)) > left
	data = data[:min(int64(len(data)), left)]
	r.written += int64(len(data))
	for len(data) > 0 {
		n := min(len(data), maxEventData-s.n)
		whole := s.join(data[:n], r.emit == nil)
		data = data[n:]
		if len(whole) == 0 {
			continue
		}
		s.write(whole)
		if !r.pass(executor.Event{Kind: kind, Data: whole}) {
			return
		}
	}
	if r.over {
		r.halt(errOutput)
	}
}

// output passes on a value, unless it goes beyond the output limit. Half a value is none.
func (r *run) output(o *executor.Output) {
	if o == nil {
		return
	}
	data := canonicalTypes(o.Data)
	if len(data) == 0 {
		return
	}
	cost := int64(outputCost)
	for mime, d := range data {
		cost += int64(len(mime) + len(d))
	}
	if cost > r.req.Limits.OutputBytes-r.written {
		r.over = true
		r.halt(errOutput)
		return
	}
	r.written += cost
	out := executor.Output{Main: o.Main, Data: data}
	r.res.Outputs = append(r.res.Outputs, out)
	r.pass(executor.Event{Kind: executor.EventOutput, Output: &out})
}

// pass numbers and emits an event. It reports whether the run goes on.
func (r *run) pass(ev executor.Event) bool {
	if r.emit == nil {
		return true
	}
	ev.Seq, ev.Time = r.seq, time.Now()
	r.seq++
	if err := r.emit(ev); err != nil {
		r.emitErr = err
		r.halt(&emitError{err})
		return false
	}
	return true
}

// canonicalTypes returns b with lower-case media types without parameters, and without what is no
// media type. The names come from the sandbox and end up in HTTP headers.
func canonicalTypes(b executor.MIMEBundle) executor.MIMEBundle {
	clean := true
	for mime := range b {
		clean = clean && canonicalType(mime) == mime
	}
	if clean {
		return b
	}
	c := executor.MIMEBundle{}
	for mime, data := range b {
		if name := canonicalType(mime); name != "" {
			c[name] = data
		}
	}
	return c
}

// canonicalType returns the canonical form of a media type, or nothing.
func canonicalType(mime string) string {
	if len(mime) > 255 {
		return ""
	}
	name, _, _ := strings.Cut(mime, ";")
	name = strings.ToLower(strings.TrimSpace(name))
	kind, sub, ok := strings.Cut(name, "/")
	if !ok || !isToken(kind) || !isToken(sub) {
		return ""
	}
	return name
}

// isToken reports whether s is a token as in HTTP.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// The bounds of what an Exit says. The tracebacks of a deep recursion are long, those of an attack
// longer.
const (
	maxExceptionType    = 1 << 10
	maxExceptionMessage = 64 << 10
	maxTraceback        = 256 << 10
	maxSignal           = 64
	maxLeft             = 20 // of what is left running
	maxLeftName         = 100
)

// bounded returns e within its bounds.
func (e Exit) bounded() Exit {
	if e.Exception != nil {
		e.Exception = &executor.Exception{
			Type:      boundedText(e.Exception.Type, maxExceptionType),
			Message:   boundedText(e.Exception.Message, maxExceptionMessage),
			Traceback: boundedText(e.Exception.Traceback, maxTraceback),
			Line:      max(e.Exception.Line, 0),
		}
	}
	e.Signal = boundedText(e.Signal, maxSignal)
	e.Usage.CPU, e.Usage.PeakMemory = max(e.Usage.CPU, 0), max(e.Usage.PeakMemory, 0)
	e.ArtifactsOmitted = max(e.ArtifactsOmitted, 0)
	e.LeftRunning = boundedNames(e.LeftRunning)
	return e
}

// boundedNames returns at most maxLeft names, each a line of printable text, and how many there are
// besides.
func boundedNames(names []string) []string {
	var short []string
	for _, name := range names[:min(len(names), maxLeft)] {
		name = strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return -1
			}
			return r
		}, name)
		if r := []rune(name); len(r) > maxLeftName {
			name = string(r[:maxLeftName])
		}
		short = append(short, name)
	}
	if more := len(names) - maxLeft; more > 0 {
		short = append(short, fmt.Sprintf("%d more", more))
	}
	return short
}

// boundedText returns at most n bytes of UTF-8 and a note of about that size: of what is longer the
// beginning and the end.
func boundedText(s string, n int) string {
	if over := len(s) - n; over > 0 {
		s = s[:n/2] + fmt.Sprintf("\n[%d bytes are left out]\n", over) + s[len(s)-(n-n/2):]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
