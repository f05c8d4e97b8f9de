package executor

import "time"

// EventKind says which fields of an Event are set.
type EventKind string

// The event kinds. Consumers ignore those that they do not know. Stream makes EventDone from the
// Result that Run returned, so that a wrapper has to change a Result in one place only.
const (
	EventStarted EventKind = "started" // Cell; once, first: the sandbox has accepted the code and its clock runs
	EventStdout  EventKind = "stdout"  // Data
	EventStderr  EventKind = "stderr"  // Data
	EventOutput  EventKind = "output"  // Output
	EventDone    EventKind = "done"    // Result; only from Stream, last
)

// Event is a step of a run. Data never ends in the middle of a valid UTF-8 character: the whole
// character is in one event. The receiver may keep Data. Kind determines which fields other than
// Seq, Time and Kind are set.
type Event struct {
	Seq    int       `json:"seq"` // from 0, without gaps
	Time   time.Time `json:"time"`
	Kind   EventKind `json:"kind"`
	Cell   int       `json:"cell,omitempty"` // see Result.Cell
	Data   Bytes     `json:"data,omitempty"`
	Output *Output   `json:"output,omitempty"`
	Result *Result   `json:"result,omitempty"`
}
