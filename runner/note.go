package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// note is what a process that did not create a session has to know of it. It does not change during
// the life of a sandbox.
type note struct {
	Created  time.Time       `json:"created"` // by the clock of the creator: all holders say the same
	Template string          `json:"template,omitempty"`
	Limits   executor.Limits `json:"limits"` // in force
	Labels   labels          `json:"labels,omitempty"`
}

// labels are those of a session. Earlier versions of some adapters have stored their names alone.
type labels map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (l *labels) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '[' {
		return nil
	}
	return json.Unmarshal(raw, (*map[string]string)(l))
}

// Note returns s.Info as text that a Finder stores with the sandbox, when it has filled Info in.
// Recall reads it. A Finder that stores the labels on their own takes them out of Info before.
func (s *Start) Note() string {
	text, err := json.Marshal(note{s.Info.Created, s.Info.Template, s.Info.Limits, s.Info.Labels})
	if err != nil { // a limit that is no number
		return ""
	}
	return string(text)
}

// Recall returns the info of a session from its Note, as Find does. The text comes from the provider,
// where who has the rights of the adapter could change it. An empty one says that the sandbox is no
// session: executor.ErrNotFound.
func Recall(session, text string) (executor.SessionInfo, error) {
	if text == "" {
		return executor.SessionInfo{}, driver.Fail(executor.ErrNotFound, executor.RanNo, errors.New("the sandbox of that name is no session"))
	}
	var n note
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return executor.SessionInfo{}, driver.Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("note of session %s: %w", session, err))
	}
	return executor.SessionInfo{
		Handle: executor.Handle{Session: session, Created: n.Created}, State: executor.SessionRunning,
		Created: n.Created, Template: n.Template, Limits: n.Limits, Labels: n.Labels,
	}, nil
}
