package driver

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/engine"
)

// Env is what a program gives to every adapter. Only Owner is required.
type Env struct {
	Name     string       // of the backend in the configuration; empty: the type
	Owner    string       // whose sandboxes these are: a deployment. Sandboxes of another owner do not exist for this one
	Instance string       // this process; empty: one is made
	CacheDir string       // for what can be made again; empty: a directory in the user's cache directory. See Cache
	Log      *slog.Logger // nil: none. See Logger
	Hooks    executor.Hooks
	OneShot  bool                // the program makes few sandboxes and ends: nothing is started in advance
	Wrap     func(Driver) Driver // if not nil, New uses what it returns; for fault injection in tests
	// Elsewhere says that the configuration is for another machine, and only examined here. Open
	// needs nothing of this machine or process then: no file, variable, engine or kernel. It
	// declares what the backend has where all of that is there. The Executor has its Info and
	// refuses everything else but Close.
	Elsewhere bool
}

// Cache returns CacheDir or its default. It makes nothing.
func (e Env) Cache() (string, error) {
	if e.CacheDir != "" {
		return e.CacheDir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache directory: %w; set it in the environment or the configuration", err)
	}
	return filepath.Join(dir, "execbroker"), nil
}

// WithInstance returns e with an Instance: its own, or one that is made now. New does that too; an
// adapter that makes sandboxes which are no sessions does it before, so that both carry the same.
func (e Env) WithInstance() Env {
	if e.Instance == "" {
		e.Instance = engine.NewID()
	}
	return e
}

// Logger returns Log, or one that drops everything.
func (e Env) Logger() *slog.Logger {
	if e.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return e.Log
}

// Options are the adapter's, by what is known of its backend. Zero fields mean the defaults.
type Options struct {
	Type           string        // of the adapter: "docker". Required
	CreateTimeout  time.Duration // an attempt to create or attach; then ErrUnavailable. Default 60 s
	StartTimeout   time.Duration // from the call of Run to EventStarted; then ErrUnavailable. Default 30 s
	Grace          time.Duration // after WallTime, for the sandbox to stop the code; then New cancels the run. Default 5 s
	StopTimeout    time.Duration // after the end of ctx, to stop the code and drain; see StopContext. Default 10 s
	InstallTimeout time.Duration // the wall time of Install. Default 10 min
	CleanupTimeout time.Duration // of Close and of Destroy within it. Default 30 s
	Suspends       bool          // sessions of the usual size are Suspenders that can be suspended: executor.Info.Suspends
	SuspendsRuns   bool          // Suspend may be called while something runs, which then goes on when the sandbox is woken
}
