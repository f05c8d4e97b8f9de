package executor

import (
	"crypto/sha256"
	"time"
)

// Status is the outcome of code that was started. Canceled is not lost: a stop button is the
// commonest thing in a chat, and "stopped, the state is kept" has to be told from "unknown, it may
// still run".
type Status string

// The statuses.
const (
	StatusOK       Status = "ok"        // ended without an error
	StatusFailed   Status = "failed"    // uncaught exception or non-zero exit
	StatusTimedOut Status = "timed_out" // stopped at RunLimits.WallTime
	StatusKilled   Status = "killed"    // stopped otherwise; Reason says by what
	StatusCanceled Status = "canceled"  // stopped because the context ended or emit failed; known to have stopped. With an error
	StatusLost     Status = "lost"      // unknown, it may still run. With an error
)

// Reason says what stopped code with StatusTimedOut or StatusKilled.
type Reason string

// The reasons. Drivers use no others.
const (
	ReasonWallTime  Reason = "wall-time"
	ReasonMemory    Reason = "memory"
	ReasonProcesses Reason = "processes"
	ReasonDisk      Reason = "disk"
	ReasonOutput    Reason = "output"   // RunLimits.OutputBytes
	ReasonSignal    Reason = "signal"   // Result.Signal, from the code itself
	ReasonReset     Reason = "reset"    // Session.Reset
	ReasonLifetime  Reason = "lifetime" // Spec.MaxLife, or the sandbox was destroyed
	ReasonCode      Reason = "code"     // what the code said in the name of its interpreter, or did to what is collected from it, is refused
	ReasonSandbox   Reason = "sandbox"  // the sandbox ended: by itself, by what the code did to it, or because the code could not be ended
)

// Result describes an execution that took place. Without EventStarted there is none.
//
// StateFresh, StateLost and FilesLost are three facts: that this run began anew (a restart while
// idle, another holder's Reset) and that it destroyed what was there need different words to the
// user, and a killed interpreter may or may not take the files with it.
type Result struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	Reason Reason `json:"reason,omitempty"`
	Signal string `json:"signal,omitempty"` // "SIGSEGV"

	// ExitCode is what a script with this code would exit with: 0, 1 after an uncaught exception, n
	// after sys.exit(n). It is -1 if the code was stopped, if the outcome is unknown, and where
	// FeatureExitCode is missing and the code did not end normally.
	ExitCode  int        `json:"exit_code"`
	Exception *Exception `json:"exception,omitempty"`

	Stdout           Bytes      `json:"stdout,omitempty"`
	Stderr           Bytes      `json:"stderr,omitempty"`
	Dropped          []Gap      `json:"dropped,omitempty"` // what Keep cut out; at most one for each stream
	Outputs          []Output   `json:"outputs,omitempty"` // in order; the value of the last expression has Main set
	Artifacts        []Artifact `json:"artifacts,omitempty"`
	ArtifactsOmitted int        `json:"artifacts_omitted,omitempty"` // matched, but beyond MaxFiles

	// LeftRunning names what goes on in the interpreter after this run, whichever run has started
	// it: "timer", "interval", "thread Thread-1", "server 127.0.0.1:8080", "process 42 sleep". At
	// most 20 names, in words that the code may have chosen; a last one may say how many more there
	// are. It needs FeatureLinger.
	LeftRunning []string `json:"left_running,omitempty"`

	Cell       int  `json:"cell,omitempty"`        // execution count of the interpreter, from 1
	StateFresh bool `json:"state_fresh,omitempty"` // this run began without earlier variables
	StateLost  bool `json:"state_lost,omitempty"`  // the variables as of the end of this run are gone
	FilesLost  bool `json:"files_lost,omitempty"`  // the files too

	Started  time.Time     `json:"started"`
	Queued   time.Duration `json:"queued_ns"`   // from the call to EventStarted
	Duration time.Duration `json:"duration_ns"` // from EventStarted to the end
	Usage    Usage         `json:"usage,omitzero"`
	Origin   Origin        `json:"origin"`
}

// Err returns nil if r is StatusOK and otherwise an *ExitError, for callers that want failures of
// the code to be errors.
func (r *Result) Err() error {
	if r.Status == StatusOK {
		return nil
	}
	return &ExitError{Result: r}
}

// Shown says which artifacts were displayed as well: for each of Artifacts the index of the first
// of Outputs that has the same bytes under the same media type, or -1. An artifact without Data is
// never one of them. Who passes on both passes on such a file once.
func (r *Result) Shown() []int {
	type content struct {
		mime string
		hash [sha256.Size]byte
	}
	first := map[content]int{}
	sizes := map[int]bool{} // others need not be looked at
	for _, a := range r.Artifacts {
		if len(a.Data) > 0 {
			sizes[len(a.Data)] = true
		}
	}
	for i, o := range r.Outputs {
		for mime, data := range o.Data {
			if !sizes[len(data)] {
				continue
			}
			c := content{mime, sha256.Sum256(data)}
			if _, ok := first[c]; !ok {
				first[c] = i
			}
		}
	}
	shown := make([]int, len(r.Artifacts))
	for i, a := range r.Artifacts {
		shown[i] = -1
		if len(a.Data) == 0 || len(first) == 0 {
			continue
		}
		if at, ok := first[content{a.MIME, sha256.Sum256(a.Data)}]; ok {
			shown[i] = at
		}
	}
	return shown
}

// Exception is an uncaught error of the language.
type Exception struct {
	Type      string `json:"type"` // "ZeroDivisionError"
	Message   string `json:"message,omitempty"`
	Traceback string `json:"traceback,omitempty"` // plain text, the user's frames only, no escape sequences
	Line      int    `json:"line,omitempty"`      // in Request.Code, from 1; 0: not known
}

// Gap is a hole in kept output. No character is split at it.
type Gap struct {
	Stream EventKind `json:"stream"` // EventStdout or EventStderr
	At     int       `json:"at"`     // where in the kept bytes
	Bytes  int64     `json:"bytes"`  // how many are missing there
}

// Output is one value in one or more representations.
type Output struct {
	Main bool       `json:"main,omitempty"`
	Data MIMEBundle `json:"data"`
}

// MIMEBundle maps lower-case media types without parameters to the decoded content: images are
// bytes, not base64, JSON is its text.
type MIMEBundle map[string]Bytes

// Best returns the first of the wanted types that b holds.
func (b MIMEBundle) Best(want ...string) (mime string, data Bytes, ok bool) {
	for _, m := range want {
		if d, ok := b[m]; ok {
			return m, d, true
		}
	}
	return "", nil, false
}

// Artifact is a file that a run made or changed.
type Artifact struct {
	Name    string    `json:"name"` // relative to Workdir
	MIME    string    `json:"mime"` // by content; application/octet-stream if unknown
	Size    int64     `json:"size"`
	ModTime time.Time `json:"mod_time"`
	Data    Bytes     `json:"data,omitempty"` // if ArtifactRequest.Contents and within MaxBytes; else nil
}

// Usage is what a run consumed. Zero means unknown.
type Usage struct {
	CPU        time.Duration `json:"cpu_ns,omitempty"`
	PeakMemory int64         `json:"peak_memory,omitempty"`
}

// Origin says where code ran and why there, for experiments and audit.
type Origin struct {
	Backend  string `json:"backend"`            // where it ran
	Session  string `json:"session"`            // Handle.Session
	Route    string `json:"route,omitempty"`    // the rule that decided
	Assigned string `json:"assigned,omitempty"` // the backend that the split names; differs from Backend after a fallback
}
