package executor

import (
	"fmt"
	"time"
)

// NoLimit as a RunLimits.WallTime says that there is none: the run ends by itself, by its context
// or with the sandbox. It has to be said; zero is the default.
const NoLimit time.Duration = -1

// Limits bounds a sandbox. Zero means that of the template. The sandbox gets at least this and is
// stopped at this or at the next step of the backend's grain; SessionInfo.Limits says what is in
// force. What cannot be enforced is refused.
type Limits struct {
	CPUs        float64 `json:"cpus,omitempty"`         // requires FeatureLimitCPU
	MemoryBytes int64   `json:"memory_bytes,omitempty"` // requires FeatureLimitMemory
	DiskBytes   int64   `json:"disk_bytes,omitempty"`   // requires FeatureLimitDisk
	Processes   int     `json:"processes,omitempty"`    // requires FeatureLimitProcesses
}

// RunLimits bounds a run. Zero means the default: in a Request that of the session, in a Spec
// DefaultWallTime and DefaultOutputBytes.
//
// OutputBytes stops the code and Request.Keep cuts the Result, because an endless print must not reach clients as gigabytes and a
// short Result must not shorten the stream.
type RunLimits struct {
	// WallTime counts from EventStarted. It may be NoLimit.
	WallTime time.Duration `json:"wall_time_ns,omitempty"`
	// OutputBytes is what a run may write to stdout, stderr and its outputs together. What goes beyond it is dropped and stops the
	// code: StatusKilled, ReasonOutput. A character that does not fit is dropped whole. An Output
	// counts with its media types, and a little for itself, so that many empty ones have an end
	// too.
	OutputBytes int64 `json:"output_bytes,omitempty"`
}

// Exceeds returns the bounds that l breaks, as "wall-time<=30s" and "output<=1024". A zero field of
// ceiling is no bound. Zero fields of l ask for nothing.
func (l RunLimits) Exceeds(ceiling RunLimits) (bounds []string) {
	if c := ceiling.WallTime; c > 0 && (l.WallTime == NoLimit || l.WallTime > c) {
		bounds = append(bounds, fmt.Sprintf("wall-time<=%v", c))
	}
	if c := ceiling.OutputBytes; c > 0 && l.OutputBytes > c {
		bounds = append(bounds, fmt.Sprintf("output<=%d", c))
	}
	return bounds
}

// Or returns l with its zero fields taken from d.
func (l RunLimits) Or(d RunLimits) RunLimits {
	if l.WallTime == 0 {
		l.WallTime = d.WallTime
	}
	if l.OutputBytes == 0 {
		l.OutputBytes = d.OutputBytes
	}
	return l
}

// atMost returns l lowered to ceiling, whose zero fields are no bound.
func (l RunLimits) atMost(ceiling RunLimits) RunLimits {
	if c := ceiling.WallTime; c > 0 && (l.WallTime == NoLimit || l.WallTime > c) {
		l.WallTime = c
	}
	if c := ceiling.OutputBytes; c > 0 {
		l.OutputBytes = min(l.OutputBytes, c)
	}
	return l
}
