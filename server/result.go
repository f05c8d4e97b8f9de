package server

import (
	"time"

	"github.com/execbroker/execbroker/executor"
)

// In this API every duration is a number of seconds, in requests and in answers. The types of the
// contract use nanoseconds, so types with durations have their own form here.

// Result is an executor.Result without the provider's name of the sandbox, which clients do not
// need to know.
type Result struct {
	ID               string              `json:"id"`
	Status           executor.Status     `json:"status"`
	Reason           executor.Reason     `json:"reason,omitempty"`
	Signal           string              `json:"signal,omitempty"`
	ExitCode         int                 `json:"exit_code"`
	Exception        *executor.Exception `json:"exception,omitempty"`
	Stdout           executor.Bytes      `json:"stdout,omitempty"`
	Stderr           executor.Bytes      `json:"stderr,omitempty"`
	Dropped          []executor.Gap      `json:"dropped,omitempty"`
	Outputs          []executor.Output   `json:"outputs,omitempty"`
	Artifacts        []executor.Artifact `json:"artifacts,omitempty"`
	ArtifactsOmitted int                 `json:"artifacts_omitted,omitempty"`
	LeftRunning      []string            `json:"left_running,omitempty"`
	Cell             int                 `json:"cell,omitempty"`
	StateFresh       bool                `json:"state_fresh,omitempty"`
	StateLost        bool                `json:"state_lost,omitempty"`
	FilesLost        bool                `json:"files_lost,omitempty"`
	Notices          []string            `json:"notices,omitempty"`
	Started          time.Time           `json:"started"`
	QueuedSeconds    float64             `json:"queued_seconds"`
	DurationSeconds  float64             `json:"duration_seconds"`
	Usage            Usage               `json:"usage,omitzero"`
	Origin           Origin              `json:"origin"`
	Conversation     *Turn               `json:"conversation,omitempty"` // of a run in a conversation
}

// Usage is an executor.Usage.
type Usage struct {
	CPUSeconds float64        `json:"cpu_seconds,omitempty"`
	PeakMemory int64          `json:"peak_memory,omitempty"`
	Cost       executor.Money `json:"cost,omitempty"`
}

// Origin is an executor.Origin.
type Origin struct {
	Backend  string `json:"backend"`
	Route    string `json:"route,omitempty"`
	Assigned string `json:"assigned,omitempty"`
}

func resultOf(r *executor.Result) *Result {
	return &Result{
		ID: r.ID, Status: r.Status, Reason: r.Reason, Signal: r.Signal, ExitCode: r.ExitCode, Exception: r.Exception,
		Stdout: r.Stdout, Stderr: r.Stderr, Dropped: r.Dropped, Outputs: r.Outputs, Artifacts: r.Artifacts, ArtifactsOmitted: r.ArtifactsOmitted,
		LeftRunning: r.LeftRunning, Cell: r.Cell, StateFresh: r.StateFresh, StateLost: r.StateLost, FilesLost: r.FilesLost,
		Notices: r.Notices, Started: r.Started, QueuedSeconds: r.Queued.Seconds(), DurationSeconds: r.Duration.Seconds(),
		Usage:  Usage{CPUSeconds: r.Usage.CPU.Seconds(), PeakMemory: r.Usage.PeakMemory, Cost: r.Usage.Cost},
		Origin: Origin{Backend: r.Origin.Backend, Route: r.Origin.Route, Assigned: r.Origin.Assigned},
	}
}

// BackendCapabilities are the executor.Capabilities of a backend or a session.
type BackendCapabilities struct {
	Features       []executor.Feature `json:"features"`
	Varies         []executor.Feature `json:"varies,omitempty"`
	Languages      []executor.Runtime `json:"languages"`
	Templates      []string           `json:"templates,omitempty"`
	Isolation      executor.Isolation `json:"isolation"`
	MaxLimits      executor.Limits    `json:"max_limits,omitzero"`
	DefaultLimits  executor.Limits    `json:"default_limits,omitzero"`
	MaxRun         RunLimits          `json:"max_run,omitzero"`
	MaxLifeSeconds float64            `json:"max_life_seconds,omitempty"`
}

// RunLimits are executor.RunLimits.
type RunLimits struct {
	WallTimeSeconds float64 `json:"wall_time_seconds,omitempty"`
	OutputBytes     int64   `json:"output_bytes,omitempty"`
}

func capabilitiesOf(c executor.Capabilities) *BackendCapabilities {
	return &BackendCapabilities{
		Features: c.Features, Varies: c.Varies, Languages: c.Languages, Templates: c.Templates, Isolation: c.Isolation, MaxLimits: c.MaxLimits, DefaultLimits: c.DefaultLimits,
		MaxRun: RunLimits{WallTimeSeconds: c.MaxRun.WallTime.Seconds(), OutputBytes: c.MaxRun.OutputBytes}, MaxLifeSeconds: c.MaxLife.Seconds(),
	}
}
