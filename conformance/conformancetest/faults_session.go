package conformancetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// onCreate makes a fault of a function that changes what a driver is asked to create.
func onCreate(change func(*executor.Spec)) func(driver.Driver) driver.Driver {
	return plant(tamper{create: func(c *driver.Create) { change(&c.Spec) }})
}

// onRequest makes a fault of a function that changes what a driver is asked to run.
func onRequest(change func(*executor.Request)) func(driver.Driver) driver.Driver {
	return plant(tamper{run: func(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
		changed := *req
		change(&changed)
		return next(ctx, &changed, emit)
	}})
}

// undeclared makes a fault of features that are there, but not declared.
func undeclared(features ...executor.Feature) func(driver.Driver) driver.Driver {
	drop := func(fs []executor.Feature) []executor.Feature {
		return slices.DeleteFunc(fs, func(f executor.Feature) bool { return slices.Contains(features, f) })
	}
	return plant(tamper{capabilities: func(c executor.Capabilities) executor.Capabilities {
		c.Features = drop(c.Features)
		for i := range c.Languages {
			c.Languages[i].Features = drop(c.Languages[i].Features)
		}
		return c
	}})
}

func cloneCapabilities(c executor.Capabilities) executor.Capabilities {
	c.Features, c.Languages = slices.Clone(c.Features), slices.Clone(c.Languages)
	for i := range c.Languages {
		c.Languages[i].Features = slices.Clone(c.Languages[i].Features)
	}
	return c
}

// stateFaults are about what survives a run.
func stateFaults() []Fault {
	return []Fault{
		{
			Name: "state-kept-undeclared", Doc: "Variables survive from run to run, although that is not declared.",
			Needs: []executor.Feature{executor.FeatureState}, Plant: undeclared(executor.FeatureState),
		},
		{
			Name: "state-lost-untold", Doc: "A run does not say that it cost the state.",
			Needs: []executor.Feature{executor.FeatureState}, Plant: onExit(func(e *driver.Exit) { e.StateLost = false }),
		},
		{
			Name: "state-fresh-untold", Doc: "A run does not say that it began without earlier variables.",
			Needs: []executor.Feature{executor.FeatureState}, Plant: onExit(func(e *driver.Exit) { e.StateFresh = false }),
		},
		{
			Name: "interrupt-kills", Doc: "Code that is stopped loses its state, although the opposite is promised.",
			Needs: []executor.Feature{executor.FeatureInterrupt, executor.FeatureState},
			Plant: plant(tamper{run: func(s *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
				exit, err := next(ctx, req, emit)
				if r, ok := s.Session.(driver.Resetter); ok && len(req.Command) == 0 && (err != nil || exit.Reason != "") && !exit.StateLost {
					stop, cancel := driver.StopContext(ctx)
					defer cancel()
					exit.StateLost = r.Reset(stop, executor.Interpreter{Language: req.Language, Context: req.Context}) == nil
				}
				return exit, err
			}}),
		},
		{
			Name: "reset-ignored", Doc: "Reset does nothing.",
			Needs: []executor.Feature{executor.FeatureState},
			Plant: plant(tamper{reset: func(*faultySession, context.Context, executor.Interpreter) error { return nil }}),
		},
		{
			Name: "exit-codes-undeclared", Doc: "Code can end with an exit code of its choice, although that is not declared.",
			Needs: []executor.Feature{executor.FeatureExitCode}, Plant: undeclared(executor.FeatureExitCode),
		},
		{
			Name: "values-undeclared", Doc: "Values are shown, although that is not declared.",
			Needs: []executor.Feature{executor.FeatureRichOutput}, Plant: undeclared(executor.FeatureRichOutput),
		},
		{
			Name: "install-ignored", Doc: "Install says that packages are there and does nothing.",
			Needs: []executor.Feature{executor.FeaturePackages},
			Plant: plant(tamper{install: func(_ *faultySession, _ context.Context, _ executor.Packages, emit emitFunc) (driver.Exit, error) {
				return driver.Exit{}, emit(executor.Event{Kind: executor.EventStarted})
			}}),
		},
	}
}

// optionFaults ignore what they were asked for, without a word.
func optionFaults() []Fault {
	return []Fault{
		{
			Name: "stdin-ignored", Doc: "Standard input is closed and always empty.",
			Needs: []executor.Feature{executor.FeatureStdin},
			Plant: onRequest(func(r *executor.Request) {
				if c, ok := r.Stdin.(io.Closer); ok {
					c.Close()
				}
				r.Stdin = nil
			}),
		},
		{
			Name: "terminal-ignored", Doc: "A command has pipes where it was to have a terminal.",
			Needs: []executor.Feature{executor.FeaturePTY}, Plant: onRequest(func(r *executor.Request) { r.Terminal = nil }),
		},
		{
			Name: "resize-ignored", Doc: "A terminal keeps the size that it began with.",
			Needs: []executor.Feature{executor.FeaturePTY},
			Plant: onRequest(func(r *executor.Request) {
				if size := r.Terminal; size != nil {
					r.Terminal = new(executor.Terminal)
					_ = r.Terminal.Resize(size.Size()) // a valid size
				}
			}),
		},
		{
			Name: "terminal-ends-with-input", Doc: "A terminal is hung up when nothing more is typed.",
			Needs: []executor.Feature{executor.FeaturePTY},
			Plant: onRequest(func(r *executor.Request) {
				if r.Terminal == nil {
					return
				}
				if r.Stdin == nil {
					r.Stdin = strings.NewReader("")
				}
				r.Stdin = io.MultiReader(r.Stdin, strings.NewReader("\x04"))
			}),
		},
		{
			Name: "env-ignored", Doc: "The environment of a request is dropped.",
			Needs: []executor.Feature{executor.FeatureEnv}, Plant: onRequest(func(r *executor.Request) { r.Env = nil }),
		},
		{
			Name: "session-env-ignored", Doc: "The environment of a session is dropped.",
			Needs: []executor.Feature{executor.FeatureEnv}, Plant: onCreate(func(s *executor.Spec) { s.Env = nil }),
		},
		{
			Name: "dir-ignored", Doc: "Code starts in the working directory, whatever the request says.",
			Needs: []executor.Feature{executor.FeatureDir}, Plant: onRequest(func(r *executor.Request) { r.Dir = "" }),
		},
		{
			Name: "aliases-ignored", Doc: "A session has no alias of the working directory, whatever its spec says.",
			Needs: []executor.Feature{executor.FeatureAliases}, Plant: onCreate(func(s *executor.Spec) { s.Aliases = nil }),
		},
		{
			Name: "aliases-forgotten", Doc: "Nobody is told the aliases that a session was created with.",
			Needs: []executor.Feature{executor.FeatureAliases}, Plant: plant(tamper{create: func(c *driver.Create) { delete(c.Labels, driver.LabelAliases) }}),
		},
		{
			Name: "alias-left-out", Doc: "An alias with the name of something is left out, without a word.",
			Needs: []executor.Feature{executor.FeatureAliases}, Plant: onCreate(func(s *executor.Spec) {
				s.Aliases = slices.DeleteFunc(s.Aliases, func(a string) bool { return !strings.HasPrefix(a, "/mnt/") })
			}),
		},
		{
			Name: "artifacts-ignored", Doc: "A run has no artifacts.",
			Needs: []executor.Feature{executor.FeatureArtifacts}, Plant: onExit(func(e *driver.Exit) { e.Artifacts = nil }),
		},
		{
			Name: "context-shared", Doc: "All contexts of a language are one interpreter.",
			Needs: []executor.Feature{executor.FeatureContexts}, Plant: onRequest(func(r *executor.Request) { r.Context = "" }),
		},
		{
			Name: "time-zone-of-the-host", Doc: "Code runs in another time zone than UTC.",
			Needs: []executor.Feature{executor.FeatureEnv},
			Plant: onCreate(func(s *executor.Spec) { s.Env = merged(s.Env, "TZ", "Asia/Tokyo") }),
		},
		{
			Name: "host-environment", Doc: "Variables of the host reach the code.",
			Needs: []executor.Feature{executor.FeatureEnv},
			Plant: onRequest(func(r *executor.Request) {
				for _, v := range os.Environ() {
					if name, value, _ := bytes.Cut([]byte(v), []byte("=")); string(name) != "HOME" && string(name) != "PATH" {
						r.Env = merged(r.Env, string(name), string(value))
					}
				}
			}),
		},
		{
			Name: "fence-ignored", Doc: "A later holder does not shut out the earlier ones.",
			Needs: []executor.Feature{executor.FeatureFencing},
			Plant: plant(tamper{attach: func(h executor.Handle) executor.Handle { h.Fence = 0; return h }}),
		},
		{
			Name: "label-filter-ignored", Doc: "A listing has all sandboxes of the owner, whatever labels were asked for.",
			Needs: []executor.Feature{executor.FeatureList},
			Plant: plant(tamper{sessions: func(labels map[string]string, next func(map[string]string) iter.Seq2[executor.SessionInfo, error]) iter.Seq2[executor.SessionInfo, error] {
				return func(yield func(executor.SessionInfo, error) bool) {
					for i, err := range next(map[string]string{driver.LabelOwner: labels[driver.LabelOwner]}) {
						i.Labels = mergedAll(i.Labels, labels) // driver.New looks at them as well
						if !yield(i, err) {
							return
						}
					}
				}
			}}),
		},
	}
}

func merged(env map[string]string, name, value string) map[string]string {
	return mergedAll(env, map[string]string{name: value})
}

func mergedAll(a, b map[string]string) map[string]string {
	m := map[string]string{}
	maps.Copy(m, a)
	maps.Copy(m, b)
	return m
}

// onLimits makes a fault of a function that changes the limits of a sandbox, which claims the
// others.
func onLimits(change func(*executor.Limits)) func(driver.Driver) driver.Driver {
	return plant(tamper{asAsked: true, create: func(c *driver.Create) { change(&c.Spec.Limits) }})
}

// limitFaults let code do what it must not.
func limitFaults() []Fault {
	return []Fault{
		{
			Name: "default-memory-overstated", Doc: "The backend declares more memory for sandboxes without limits than they have.",
			Needs: []executor.Feature{executor.FeatureLimitMemory}, Plant: plant(tamper{capabilities: func(c executor.Capabilities) executor.Capabilities {
				c.DefaultLimits.MemoryBytes = max(c.DefaultLimits.MemoryBytes, 64<<20) * 2
				return c
			}}),
		},
		{
			Name: "memory-limit-ignored", Doc: "Code gets more memory than its sandbox was limited to.",
			Needs: []executor.Feature{executor.FeatureLimitMemory}, Plant: onLimits(func(l *executor.Limits) { l.MemoryBytes *= 8 }),
		},
		{
			Name: "disk-limit-ignored", Doc: "Code gets more disk than its sandbox was limited to.",
			Needs: []executor.Feature{executor.FeatureLimitDisk}, Plant: onLimits(func(l *executor.Limits) { l.DiskBytes *= 8 }),
		},
		{
			Name: "process-limit-ignored", Doc: "Code gets more processes than its sandbox was limited to.",
			Needs: []executor.Feature{executor.FeatureLimitProcesses}, Plant: onLimits(func(l *executor.Limits) { l.Processes *= 8 }),
		},
		{
			Name: "cpu-limit-ignored", Doc: "Code gets more of a processor than its sandbox was limited to.",
			Needs: []executor.Feature{executor.FeatureLimitCPU}, Plant: onLimits(func(l *executor.Limits) { l.CPUs *= 4 }),
		},
		{
			Name: "network-open", Doc: "A sandbox without network has one.",
			Needs: []executor.Feature{executor.FeatureNetworkNone, executor.FeatureNetworkFull},
			Plant: onCreate(func(s *executor.Spec) {
				if s.Network.Mode == executor.NetworkNone {
					s.Network.Mode = executor.NetworkFull
				}
			}),
		},
		{
			Name: "allow-list-ignored", Doc: "A sandbox reaches what is not on its list.",
			Needs: []executor.Feature{executor.FeatureNetworkAllowlist, executor.FeatureNetworkFull},
			Plant: onCreate(func(s *executor.Spec) {
				if s.Network.Mode == executor.NetworkAllowlist {
					s.Network = executor.NetworkPolicy{Mode: executor.NetworkFull}
				}
			}),
		},
		{
			Name: "refused-output-ignored", Doc: "The code goes on when nobody wants its output any more, as after the output limit.",
			Plant: plant(tamper{run: func(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
				return next(context.WithoutCancel(ctx), req, func(ev executor.Event) error {
					if emit(ev) != nil {
						time.Sleep(wasteTime)
					}
					return nil
				})
			}}),
		},
	}
}

// changedFiles wraps the files of a session.
type changedFiles struct {
	driver.Files
	write func(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error
	read  func(ctx context.Context, name string) (io.ReadCloser, error)
	list  func(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error]
}

func (f changedFiles) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	if f.write != nil {
		return f.write(ctx, name, r, mode)
	}
	return f.Files.Write(ctx, name, r, mode)
}

func (f changedFiles) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	if f.read != nil {
		return f.read(ctx, name)
	}
	return f.Files.Read(ctx, name)
}

func (f changedFiles) List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	if f.list != nil {
		return f.list(ctx, dir)
	}
	return f.Files.List(ctx, dir)
}

// fileFaults are about files.
func fileFaults() []Fault {
	needs := []executor.Feature{executor.FeatureFiles}
	return []Fault{
		{
			Name: "file-content-changed", Doc: "Files are written as text: the ends of their lines are changed.", Needs: needs,
			Plant: plant(tamper{files: func(_ *faultySession, f driver.Files) driver.Files {
				return changedFiles{Files: f, write: func(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
					data, err := io.ReadAll(r)
					if err != nil {
						return err
					}
					return f.Write(ctx, name, bytes.NewReader(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))), mode)
				}}
			}}),
		},
		{
			Name: "file-cut", Doc: "Of a large file the first MiB is read.", Needs: needs,
			Plant: plant(tamper{files: func(_ *faultySession, f driver.Files) driver.Files {
				return changedFiles{Files: f, read: func(ctx context.Context, name string) (io.ReadCloser, error) {
					r, err := f.Read(ctx, name)
					if err != nil {
						return nil, err
					}
					return struct {
						io.Reader
						io.Closer
					}{io.LimitReader(r, 1<<20), r}, nil
				}}
			}}),
		},
		{
			Name: "file-written-in-place", Doc: "A file is emptied before its new content is there.", Needs: needs,
			Plant: plant(tamper{files: func(_ *faultySession, f driver.Files) driver.Files {
				return changedFiles{Files: f, write: func(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
					if err := f.Write(ctx, name, bytes.NewReader(nil), mode); err != nil {
						return err
					}
					return f.Write(ctx, name, r, mode)
				}}
			}}),
		},
		{
			Name: "file-mode-ignored", Doc: "Files get the default permissions.", Needs: needs,
			Plant: plant(tamper{files: func(_ *faultySession, f driver.Files) driver.Files {
				return changedFiles{Files: f, write: func(ctx context.Context, name string, r io.Reader, _ fs.FileMode) error {
					return f.Write(ctx, name, r, 0o644)
				}}
			}}),
		},
		{
			Name: "list-without-hidden", Doc: "Names that begin with a dot are left out of listings.", Needs: needs,
			Plant: plant(tamper{files: func(_ *faultySession, f driver.Files) driver.Files {
				return changedFiles{Files: f, list: func(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
					return func(yield func(executor.FileInfo, error) bool) {
						for i, err := range f.List(ctx, dir) {
							if err == nil && i.Name[0] == '.' {
								continue
							}
							if !yield(i, err) {
								return
							}
						}
					}
				}}
			}}),
		},
		{
			Name: "other-session-visible", Doc: "A file that a session does not have is read from another one that has it.", Needs: needs,
			Plant: plant(tamper{files: func(s *faultySession, f driver.Files) driver.Files {
				return changedFiles{Files: f, read: func(ctx context.Context, name string) (io.ReadCloser, error) {
					r, err := f.Read(ctx, name)
					if !errors.Is(err, fs.ErrNotExist) {
						return r, err
					}
					for _, o := range s.d.others(s) {
						if of, ok := o.Session.(driver.Filer); ok {
							if r, err := of.Files().Read(ctx, name); err == nil {
								return r, nil
							}
						}
					}
					return nil, err
				}}
			}}),
		},
	}
}

// lifeFaults are about the life of sandboxes.
func lifeFaults() []Fault {
	attach := []executor.Feature{executor.FeatureAttach}
	return []Fault{
		{
			Name: "idle-ttl-ignored", Doc: "A sandbox that nobody uses lives for a day.",
			Plant: onCreate(func(s *executor.Spec) { s.IdleTTL = 24 * time.Hour }),
		},
		{
			Name: "max-life-ignored", Doc: "A sandbox lives as long as it is used.",
			Plant: onCreate(func(s *executor.Spec) { s.MaxLife = 0 }),
		},
		{
			Name: "keep-alive-ignored", Doc: "KeepAlive returns the time that was wished for and does nothing.",
			Needs: []executor.Feature{executor.FeatureKeepAlive},
			Plant: plant(tamper{keepAlive: func(_ *faultySession, _ context.Context, idle time.Duration) (time.Time, error) {
				return time.Now().Add(idle), nil
			}}),
		},
		{
			Name: "destroy-refuses-the-dead", Doc: "Destroy of a sandbox that is gone or dead is an error.", Needs: attach,
			Plant: plant(tamper{destroyByID: func(context.Context, executor.Handle, func(context.Context, executor.Handle) error) error {
				return driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
			}}),
		},
		{
			Name: "labels-lost", Doc: "A sandbox that is attached to or listed has only the labels of the library.", Needs: attach,
			Plant: plant(tamper{info: func(i executor.SessionInfo) executor.SessionInfo {
				own := map[string]string{}
				for _, k := range []string{driver.LabelOwner, driver.LabelInstance, driver.LabelID} {
					own[k] = i.Labels[k]
				}
				i.Labels = own
				return i
			}}),
		},
		{
			Name: "declares-less", Doc: "A feature that the backend has to have is missing from its declaration.",
			Needs: []executor.Feature{executor.FeatureStreaming}, Plant: undeclared(executor.FeatureStreaming),
		},
	}
}

// leakFaults leave something behind.
func leakFaults() []Fault {
	return []Fault{
		{
			Name: "session-leaked", Doc: "Close says that the sandbox is gone, and leaves it.",
			Plant: plant(tamper{destroy: func(s *faultySession, _ context.Context) error {
				if s.note("leaked", "yes") == "" {
					remain(func() { s.Session.Destroy(context.Background()) }) // the suite is over, and its context with it
				}
				return nil
			}}),
		},
		{
			Name: "goroutine-leaked", Doc: "Each session leaves a goroutine.",
			Plant: plant(tamper{created: func(*faultySession) {
				end := make(chan struct{})
				remain(func() { close(end) })
				go func() { <-end }() // that nobody waits for it is the fault
			}}),
		},
		{
			Name: "descriptor-leaked", Doc: "Each session leaves a descriptor.",
			Plant: plant(tamper{created: func(*faultySession) {
				if f, err := os.Open(os.DevNull); err == nil {
					remain(func() { f.Close() })
				}
			}}),
		},
		{
			Name: "file-leaked", Doc: "Each session leaves a temporary file.",
			Plant: plant(tamper{created: func(*faultySession) {
				if f, err := os.CreateTemp("", "leaked-"); err == nil {
					f.Close()
				}
			}}),
		},
		{
			Name: "process-leaked", Doc: "A session leaves a process.",
			Plant: plant(tamper{created: func(s *faultySession) {
				if len(s.d.others(s)) > 0 {
					return // one is enough
				}
				cmd := exec.Command("sleep", "3600")
				if cmd.Start() == nil {
					remain(func() { cmd.Process.Kill(); cmd.Wait() })
				}
			}}),
		},
	}
}
