package executor

import (
	"crypto/sha256"
	"time"
)

// Status is the outcome of code that was started. StatusCanceled and StatusLost are two statuses
// because a stop button is common in a chat: "stopped, the state is kept" must differ from "not
// known, it may still run".
type Status string

// The statuses.
const (
	StatusOK       Status = "ok"        // ended without an error
	StatusFailed   Status = "failed"    // uncaught exception or non-zero exit
	StatusTimedOut Status = "timed_out" // stopped at RunLimits.WallTime
	StatusKilled   Status = "killed"    // stopped by something else: see Reason
	StatusCanceled Status = "canceled"  // known to have stopped, because the context ended or emit failed. Comes with an error
	StatusLost     Status = "lost"      // not known; the code may still run. Comes with an error
)

// Reason says what stopped code with StatusTimedOut or StatusKilled.
type Reason string

// The reasons. Adapters use no others.
const (
	ReasonWallTime  Reason = "wall-time"
	ReasonMemory    Reason = "memory"
	ReasonProcesses Reason = "processes" // more of them than it may have, or of the terminals that they make
	ReasonDisk      Reason = "disk"
	ReasonOutput    Reason = "output"   // RunLimits.OutputBytes
	ReasonSignal    Reason = "signal"   // Result.Signal, which the code caused itself
	ReasonReset     Reason = "reset"    // Session.Reset
	ReasonLifetime  Reason = "lifetime" // Spec.MaxLife, or the sandbox was destroyed
	ReasonCode      Reason = "code"     // the code forged messages of its interpreter or tampered with data that is collected from it
	ReasonSandbox   Reason = "sandbox"  // the sandbox ended: by itself, by an action of the code, or because the code could not be stopped
)

// Result describes an execution that took place. Before EventStarted there is no Result.
//
// StateFresh, StateLost and FilesLost are separate facts. StateFresh: this run began with a new
// interpreter, after a restart while idle or a Reset by another holder. StateLost: this run
// destroyed the state. FilesLost: it destroyed the files as well, which a killed interpreter may or
// may not do. A program has to tell its user different things about them.
type Result struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	Reason Reason `json:"reason,omitempty"`
	Signal string `json:"signal,omitempty"` // "SIGSEGV"

	// ExitCode is the exit code of a script with this code: 0, 1 after an uncaught exception, n
	// after sys.exit(n). It is -1 if the code was stopped, if the outcome is not known, and,
	// without FeatureExitCode, if the code did not end normally.
	ExitCode  int        `json:"exit_code"`
	Exception *Exception `json:"exception,omitempty"`

	Stdout           Bytes      `json:"stdout,omitempty"`
	Stderr           Bytes      `json:"stderr,omitempty"`
	Dropped          []Gap      `json:"dropped,omitempty"` // what Keep left out; at most one for each stream
	Outputs          []Output   `json:"outputs,omitempty"` // in order; Main is set for the value of the last expression
	Artifacts        []Artifact `json:"artifacts,omitempty"`
	ArtifactsOmitted int        `json:"artifacts_omitted,omitempty"` // number of files that matched but exceed MaxFiles

	// LeftRunning names what still runs in the interpreter after this run, even if an earlier run
	// started it: "timer", "interval", "thread Thread-1", "server 127.0.0.1:8080", "process 42
	// sleep". It has at most 20 names, and the code may have chosen their text. A last entry may
	// say how many more there are. It requires FeatureLinger.
	LeftRunning []string `json:"left_running,omitempty"`

	Cell       int  `json:"cell,omitempty"`        // execution count of the interpreter, from 1
	StateFresh bool `json:"state_fresh,omitempty"` // this run began without the variables of earlier runs
	StateLost  bool `json:"state_lost,omitempty"`  // the variables were lost in this run
	FilesLost  bool `json:"files_lost,omitempty"`  // the files were lost too

	// Notices are for the user of the program, in words: a soft quota that is exceeded. A broker
	// sets them.
	Notices []string `json:"notices,omitempty"`

	Started  time.Time     `json:"started"`
	Queued   time.Duration `json:"queued_ns"`   // time from the call to EventStarted
	Duration time.Duration `json:"duration_ns"` // time from EventStarted to the end
	Usage    Usage         `json:"usage,omitzero"`
	Origin   Origin        `json:"origin"`
}

// Err returns nil if r is StatusOK and otherwise an *ExitError. It is for callers that treat
// failures of the code as errors.
func (r *Result) Err() error {
	if r.Status == StatusOK {
		return nil
	}
	return &ExitError{Result: r}
}

// Shown says which artifacts were also displayed. For each of Artifacts it returns the index of the
// first of Outputs that has the same bytes and the same media type, or -1. An artifact without Data
// is always -1. A program that passes on both lists can use it to pass on such a file only once.
func (r *Result) Shown() []int {
	type content struct {
		mime string
		hash [sha256.Size]byte
	}
	first := map[content]int{}
	sizes := map[int]bool{} // outputs of other sizes cannot be equal
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
	Traceback string `json:"traceback,omitempty"` // plain text without escape sequences, only frames of the user's code
	Line      int    `json:"line,omitempty"`      // in Request.Code, from 1; 0: not known
}

// Gap is a part that is missing in kept output. No character is split at a Gap.
type Gap struct {
	Stream EventKind `json:"stream"` // EventStdout or EventStderr
	At     int       `json:"at"`     // offset in the kept bytes
	Bytes  int64     `json:"bytes"`  // number of bytes that are missing there
}

// Output is one value in one or more representations.
type Output struct {
	Main bool       `json:"main,omitempty"`
	Data MIMEBundle `json:"data"`
}

// MIMEBundle maps media types, in lower case and without parameters, to the decoded content: an
// image is its bytes, not base64, and JSON is its text.
type MIMEBundle map[string]Bytes

// Best returns the first of the wanted types that b contains.
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
	MIME    string    `json:"mime"` // from the content; application/octet-stream if unknown
	Size    int64     `json:"size"`
	ModTime time.Time `json:"mod_time"`
	Data    Bytes     `json:"data,omitempty"` // set if ArtifactRequest.Contents is set and the file is within MaxBytes
}

// Usage is what a run consumed. Zero means not known.
type Usage struct {
	CPU        time.Duration `json:"cpu_ns,omitempty"`
	PeakMemory int64         `json:"peak_memory,omitempty"`
	Cost       Money         `json:"cost,omitempty"` // of the run and of the sandbox meanwhile, if a broker knows prices
}

// Origin says where code ran and why it ran there. It is for experiments and audit logs.
type Origin struct {
	Backend  string `json:"backend"`            // where it ran
	Session  string `json:"session"`            // Handle.Session
	Route    string `json:"route,omitempty"`    // the route that matched
	Assigned string `json:"assigned,omitempty"` // the backend that the split selected; differs from Backend after a fallback
}
