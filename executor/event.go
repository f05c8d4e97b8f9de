package executor

import "time"

// EventKind says which fields of an Event are set.
type EventKind string

// The event kinds. Consumers ignore those that they do not know. EventDone is made by Stream from
// the Result that Run returned, so that a wrapper changes a Result in one place.
const (
	EventStarted EventKind = "started" // Cell; once, first: the sandbox has accepted the code and its clock runs
	EventStdout  EventKind = "stdout"  // Data
	EventStderr  EventKind = "stderr"  // Data
	EventOutput  EventKind = "output"  // Output
	EventDone    EventKind = "done"    // Result; only from Stream, last
)

// Event is a step of a run. Data never ends within a valid UTF-8 character that goes on in the next
// event of its stream. It is the receiver's to keep. Which fields beside Seq, Time and Kind are set
// follows from Kind.
type Event struct {
	Seq    int       `json:"seq"` // from 0, without gaps
	Time   time.Time `json:"time"`
	Kind   EventKind `json:"kind"`
	Cell   int       `json:"cell,omitempty"` // see Result.Cell
	Data   Bytes     `json:"data,omitempty"`
	Output *Output   `json:"output,omitempty"`
	Result *Result   `json:"result,omitempty"`
}
