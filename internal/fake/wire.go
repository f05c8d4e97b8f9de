package fake

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// A Backend and a process that uses it with Dial communicate over HTTP: one request for each call
// of the driver, with JSON in both directions. The answer to a run is a stream of wireStep, one in
// each line. The standard input of the run follows the request in the body.

// wireHolder is the answer to create and attach.
type wireHolder struct {
	Holder string
	Info   wireInfo
}

// wireInfo is the part of a SessionInfo that a driver sets. Its Handle is incomplete, so it has no
// text form.
type wireInfo struct {
	Session  string
	Hint     json.RawMessage
	State    executor.SessionState
	Template string
	Labels   map[string]string
	Created  time.Time
	Expires  time.Time
	Limits   executor.Limits
}

func toWireInfo(i executor.SessionInfo) wireInfo {
	return wireInfo{i.Handle.Session, i.Handle.State, i.State, i.Template, i.Labels, i.Created, i.Expires, i.Limits}
}

func (w wireInfo) info() executor.SessionInfo {
	return executor.SessionInfo{
		Handle: executor.Handle{Session: w.Session, State: w.Hint}, State: w.State, Template: w.Template, Labels: w.Labels,
		Created: w.Created, Expires: w.Expires, Limits: w.Limits,
	}
}

// wireRequest is a Request without its standard input.
type wireRequest struct {
	executor.Request
	Stdin bool // whether there is one
}

// wireStep is an event of a run or, as the last one, its end.
type wireStep struct {
	Event *executor.Event `json:",omitempty"`
	Exit  *driver.Exit    `json:",omitempty"`
	Err   *wireError      `json:",omitempty"`
}

// wireError is an error that keeps its kind in transit.
type wireError struct {
	Kind    int // index in wireKinds; -1: another kind
	Fail    bool
	Ran     executor.Ran
	Missing []string `json:",omitempty"`
	Text    string
}

// errCanceled represents the end of the context of a run, whatever its cause was in the other
// process.
var errCanceled = errors.New("canceled by the other process")

// wireKinds are the errors that keep their identity.
var wireKinds = []error{
	errCanceled, executor.ErrInvalid, executor.ErrUnsupported, executor.ErrDenied, executor.ErrNotFound, executor.ErrClosed,
	executor.ErrBusy, executor.ErrTooLarge, executor.ErrAuth, executor.ErrExhausted, executor.ErrUnavailable, executor.ErrInternal,
	fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid, errNoSpace, context.Canceled, context.DeadlineExceeded,
}

func toWire(err error) *wireError {
	if err == nil {
		return nil
	}
	w := &wireError{Kind: -1, Text: err.Error()}
	for i, k := range wireKinds {
		if errors.Is(err, k) {
			w.Kind = i
			break
		}
	}
	if e := (*executor.Error)(nil); errors.As(err, &e) {
		w.Fail, w.Ran, w.Missing = true, e.Ran, e.Missing
	}
	return w
}

func (w *wireError) error() error {
	switch {
	case w == nil:
		return nil
	case w.Kind < 0 || w.Kind >= len(wireKinds):
		return errors.New(w.Text)
	case w.Fail:
		return &executor.Error{Kind: wireKinds[w.Kind], Ran: w.Ran, Missing: w.Missing, Err: errors.New(w.Text)}
	}
	return &kindError{wireKinds[w.Kind], w.Text}
}

// kindError has the text and the kind of an error of the other process.
type kindError struct {
	kind error
	text string
}

func (e *kindError) Error() string { return e.text }
func (e *kindError) Unwrap() error { return e.kind }

// wireReply is the answer to all calls except runs and reads.
type wireReply struct {
	Err    *wireError      `json:",omitempty"`
	Result json.RawMessage `json:",omitempty"`
}
