package executor

import (
	"cmp"
	"fmt"
	"time"
)

// NoLimit as a RunLimits.WallTime means that there is no limit: the run ends by itself, by its
// context or with the sandbox. It must be set explicitly, because zero means the default.
const NoLimit time.Duration = -1

// Limits bounds a sandbox. Zero means the limit of the template. The sandbox gets at least this
// much. It is stopped at exactly this much, or at the next step if the backend rounds up;
// SessionInfo.Limits has the limits in force. A limit that the backend cannot enforce is refused.
type Limits struct {
	CPUs        float64 `json:"cpus,omitempty"`         // requires FeatureLimitCPU
	MemoryBytes int64   `json:"memory_bytes,omitempty"` // requires FeatureLimitMemory
	DiskBytes   int64   `json:"disk_bytes,omitempty"`   // requires FeatureLimitDisk
	Processes   int     `json:"processes,omitempty"`    // requires FeatureLimitProcesses
}

// RunLimits bounds a run. Zero means the default: in a Request that of the session, in a Spec
// DefaultWallTime and DefaultOutputBytes.
//
// OutputBytes stops the code, and Request.Keep shortens the Result. They are separate because an
// endless print must not send gigabytes to clients, and a short Result must not shorten the stream.
type RunLimits struct {
	// WallTime counts from EventStarted. It may be NoLimit.
	WallTime time.Duration `json:"wall_time_ns,omitempty"`
	// OutputBytes is how much a run may write to stdout, stderr and its outputs together. More than
	// that is dropped and stops the code: StatusKilled, ReasonOutput. A character that does not fit
	// is dropped whole. An Output also counts its media types and a small constant, so that the
	// number of empty outputs is bounded too.
	OutputBytes int64 `json:"output_bytes,omitempty"`
}

// Exceeds returns the limits of ceiling that l exceeds, as "wall-time<=30s" and "output<=1024". A
// zero field of ceiling is no limit. Zero fields of l exceed nothing.
func (l RunLimits) Exceeds(ceiling RunLimits) (bounds []string) {
	if c := ceiling.WallTime; c > 0 && (l.WallTime == NoLimit || l.WallTime > c) {
		bounds = append(bounds, fmt.Sprintf("wall-time<=%v", c))
	}
	if c := ceiling.OutputBytes; c > 0 && l.OutputBytes > c {
		bounds = append(bounds, fmt.Sprintf("output<=%d", c))
	}
	return bounds
}

// Or returns l with its zero fields replaced by those of d.
func (l RunLimits) Or(d RunLimits) RunLimits {
	l.WallTime = cmp.Or(l.WallTime, d.WallTime)
	l.OutputBytes = cmp.Or(l.OutputBytes, d.OutputBytes)
	return l
}

// atMost returns l with its fields lowered to those of ceiling. A zero field of ceiling is no
// limit.
func (l RunLimits) atMost(ceiling RunLimits) RunLimits {
	if c := ceiling.WallTime; c > 0 && (l.WallTime == NoLimit || l.WallTime > c) {
		l.WallTime = c
	}
	if c := ceiling.OutputBytes; c > 0 {
		l.OutputBytes = min(l.OutputBytes, c)
	}
	return l
}

// Or returns l with its zero fields replaced by those of d.
func (l Limits) Or(d Limits) Limits {
	l.CPUs = cmp.Or(l.CPUs, d.CPUs)
	l.MemoryBytes = cmp.Or(l.MemoryBytes, d.MemoryBytes)
	l.DiskBytes = cmp.Or(l.DiskBytes, d.DiskBytes)
	l.Processes = cmp.Or(l.Processes, d.Processes)
	return l
}
