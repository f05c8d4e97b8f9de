package engine

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Backend is a driver.Driver.
type Backend struct {
	Capabilities executor.Capabilities
	Create       func(ctx context.Context, c *Create) (*Sandbox, error)
	Close        func() error

	// All of driver.Attacher, or none.
	Lookup  func(ctx context.Context, h executor.Handle) (executor.SessionInfo, error)
	Attach  func(ctx context.Context, h executor.Handle) (*Sandbox, error)
	Destroy func(ctx context.Context, h executor.Handle) error

	LastContact func(ctx context.Context, h executor.Handle) (time.Time, error) // nil: no driver.Observer

	Sessions func(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] // nil: no driver.Lister
}

// Sandbox is a driver.Session. Of the functions after Destroy each may be nil.
type Sandbox struct {
	Type    string // the Go type of the session, for errors about it
	Info    func() executor.SessionInfo
	Run     func(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (Exit, error)
	Destroy func(ctx context.Context) error

	Detach    func() error
	Refresh   func(ctx context.Context) (executor.SessionInfo, error)
	Reset     func(ctx context.Context, which executor.Interpreter) error
	KeepAlive func(ctx context.Context, idle time.Duration) (expires time.Time, err error)
	Suspend   func(ctx context.Context) error
	Install   func(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (Exit, error)
	Files     func() executor.Files
	Dial      func(ctx context.Context, port int) (executor.Conn, error)
	As        func(target any) bool
}

// Create is driver.Create.
type Create struct {
	ID     string
	Labels map[string]string
	Spec   executor.Spec
}

// The reserved labels: see package driver.
const (
	LabelOwner     = executor.ReservedPrefix + "owner"
	LabelInstance  = executor.ReservedPrefix + "instance"
	LabelID        = executor.ReservedPrefix + "id"
	LabelLanguages = executor.ReservedPrefix + "languages"
	LabelAliases   = executor.ReservedPrefix + "aliases"
	LabelPorts     = executor.ReservedPrefix + "ports"
)

// Exit is driver.Exit.
type Exit struct {
	Code             int
	Exception        *executor.Exception
	Reason           executor.Reason
	Signal           string
	StateFresh       bool
	StateLost        bool
	FilesLost        bool
	Artifacts        []executor.Artifact
	ArtifactsOmitted int
	LeftRunning      []string
	Usage            executor.Usage
}

// Env is the part of driver.Env that the engine needs. Log is not nil.
type Env struct {
	Name, Owner, Instance string
	Log                   *slog.Logger
	Hooks                 executor.Hooks
}

// Options is driver.Options.
type Options struct {
	Type           string
	CreateTimeout  time.Duration
	StartTimeout   time.Duration
	Grace          time.Duration
	StopTimeout    time.Duration
	InstallTimeout time.Duration
	CleanupTimeout time.Duration
	Suspends       bool
	SuspendsRuns   bool
}

// stopTimeout is the default of Options.StopTimeout.
const stopTimeout = 10 * time.Second

// withDefaults fills in the defaults. It refuses negative timeouts.
func (o Options) withDefaults() (Options, error) {
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"CreateTimeout", &o.CreateTimeout, time.Minute},
		{"StartTimeout", &o.StartTimeout, 30 * time.Second},
		{"Grace", &o.Grace, 5 * time.Second},
		{"StopTimeout", &o.StopTimeout, stopTimeout},
		{"InstallTimeout", &o.InstallTimeout, 10 * time.Minute},
		{"CleanupTimeout", &o.CleanupTimeout, 30 * time.Second},
	} {
		if *f.value < 0 {
			return o, fmt.Errorf("options: %s is negative", f.name)
		}
		*f.value = cmp.Or(*f.value, f.def)
	}
	return o, nil
}
