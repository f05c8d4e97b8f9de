package docker

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"github.com/moby/moby/client/pkg/versions"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// minAPI is the version of Engine 20.10, the oldest that has private cgroup namespaces.
const minAPI = "1.41"

// factsAge is how long what an engine says of itself is believed. It changes only with its
// configuration.
const factsAge = time.Minute

// podman is what Podman calls itself where Docker says "Engine".
const podman = "Podman Engine"

// facts is what an engine says of itself, as far as it decides what can be enforced.
type facts struct {
	info       system.Info
	components []string // "Engine", "containerd", ...
	apiVersion string
	at         time.Time
}

// engine is the connection to one engine.
type engine struct {
	*client.Client
	at      endpoint
	timeout time.Duration

	removals chan struct{} // holds a value for each that is under way

	mu       sync.Mutex
	known    *facts
	contents map[content]string // what was found in images; empty: nothing
}

// maxRemovals bounds how many containers are removed at once. More are hardly faster. And up to
// 20.10.26 the more containers end together, the likelier it is that an engine never answers again:
// https://github.com/moby/moby/pull/42545.
const maxRemovals = 4

func newEngine(c *client.Client, at endpoint, timeout time.Duration) *engine {
	return &engine{Client: c, at: at, timeout: timeout, removals: make(chan struct{}, maxRemovals), contents: map[content]string{}}
}

// facts asks the engine what it is, unless it has said so lately.
func (e *engine) facts(ctx context.Context) (*facts, error) {
	e.mu.Lock()
	f := e.known
	e.mu.Unlock()
	if f != nil && time.Since(f.at) < factsAge {
		return f, nil
	}
	ctx, cancel := e.answer(ctx)
	defer cancel()
	res, err := e.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, e.fail(ctx, err)
	}
	v, err := e.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return nil, e.fail(ctx, err)
	}
	f = &facts{info: res.Info, apiVersion: e.ClientVersion(), at: time.Now()}
	for _, c := range v.Components {
		f.components = append(f.components, c.Name)
	}
	e.mu.Lock()
	e.known = f
	e.mu.Unlock()
	return f, nil
}

// forget makes the next use ask again: after an error another engine may answer at the same
// address.
func (e *engine) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = nil
}

var errNoAnswer = errors.New("the engine does not answer")

// answer bounds one question to the engine. A frozen engine takes connections and never answers.
func (e *engine) answer(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, e.timeout, errNoAnswer)
}

// refuse returns an error if the engine cannot enforce what every session has, or is not one that
// this adapter knows.
func (f *facts) refuse(cfg *Config) error {
	i, runtime := &f.info, cfg.Runtime
	if versions.LessThan(f.apiVersion, minAPI) {
		return unsupported(fmt.Errorf("the engine speaks API %s; %s (Engine 20.10) or later is needed", f.apiVersion, minAPI), "api>="+minAPI)
	}
	if slices.Contains(f.components, podman) {
		return unsupported(errors.New("the engine is Podman, whose Docker API takes no owner of a tmpfs, no limit on the number of its files and no seccomp profile; Docker's engine is needed"), "engine")
	}
	if i.OSType != "linux" {
		return unsupported(fmt.Errorf("the engine runs %s containers; linux is needed", i.OSType), "linux")
	}
	var lacks []string
	for _, l := range []struct {
		has bool
		f   executor.Feature
	}{
		{i.MemoryLimit, executor.FeatureLimitMemory},
		{i.CPUCfsQuota, executor.FeatureLimitCPU},
		{i.PidsLimit, executor.FeatureLimitProcesses},
	} {
		if !l.has {
			lacks = append(lacks, string(l.f))
		}
	}
	if len(lacks) > 0 {
		return unsupported(errors.New("the engine cannot enforce the limits of a sandbox: its control groups are missing or not delegated to it"), lacks...)
	}
	if !slices.ContainsFunc(i.SecurityOptions, func(s string) bool { return securityName(s) == "seccomp" && !strings.Contains(s, "profile=unconfined") }) {
		return unsupported(errors.New("the engine filters no system calls: its seccomp support is missing or its default profile is unconfined"), "seccomp")
	}
	if cfg.StrictMemory && !f.countsSockets(runtime) {
		return unsupported(errors.New("strict_memory: the engine has control groups of version 1, whose limit of memory leaves out what waits in sockets; version 2 is needed"),
			string(executor.FeatureLimitMemory))
	}
	if _, ok := i.Runtimes[runtime]; runtime != "" && !ok {
		var names []string
		for n := range i.Runtimes {
			names = append(names, n)
		}
		return unsupported(driver.Unknown("runtime", runtime, names), "runtime:"+runtime)
	}
	return nil
}

// countsSockets reports whether the limit of memory is also one of what waits in sockets. Control
// groups of version 1 have a limit of its own for that, which the client has no field for. gVisor
// keeps it in the memory of its process.
func (f *facts) countsSockets(runtime string) bool {
	return f.info.CgroupVersion != "1" || isolationOf(runtime) == executor.IsolationGVisor
}

// securityName returns the name in "name=seccomp,profile=default".
func securityName(option string) string {
	for part := range strings.SplitSeq(option, ",") {
		if name, ok := strings.CutPrefix(part, "name="); ok {
			return name
		}
	}
	return ""
}

// architecture translates what the engine calls its processor to what images call it.
func (f *facts) architecture() string {
	switch a := f.info.Architecture; a {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	case "armv7l", "armv6l":
		return "arm"
	case "i686", "i386":
		return "386"
	default:
		return a
	}
}

// isolationOf returns the boundary that a runtime gives. The name is the administrator's; what does
// not look like a stronger one is a container.
func isolationOf(runtime string) executor.Isolation {
	name := path.Base(runtime)
	switch {
	case strings.HasPrefix(name, "runsc"), strings.HasPrefix(name, "gvisor"), strings.HasPrefix(name, "io.containerd.runsc."):
		return executor.IsolationGVisor
	case strings.HasPrefix(name, "kata"), strings.HasPrefix(name, "io.containerd.kata"):
		return executor.IsolationMicroVM
	}
	return executor.IsolationContainer
}
