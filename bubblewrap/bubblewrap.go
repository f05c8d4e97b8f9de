// Package bubblewrap is the adapter of type "bubblewrap": sandboxes are processes of this machine
// behind namespaces that the program bwrap makes. It runs native CPython and Node.js on Linux and
// needs no engine, no image and no network.
//
// # Configuration
//
// See [Config]. The zero configuration runs the Python of this machine. It needs bwrap 0.8 or
// later, and Python 3.9 or later below /usr. It works as root, and as another user who has a range
// of subordinate users and may make user namespaces.
//
// # Features
//
// Those of package runner: languages, state, files, commands, terminals, ports. Sandboxes outlive
// the program that made them until their idle TTL, and another program of the same owner and user
// finds them: the table of processes is the register, so nothing is stored. Limits of memory, CPU
// and processes are declared if the program can make a control group when the backend is opened, of
// version 1 or 2; version 2 is not tested here. Networks are refused, and so are packages: name a
// root that has them.
//
// # Isolation
//
// A container: the kernel is shared with the host, and a mistake in it is a way out. Code has no
// network, no capability and no way to gain one, a short list of system calls, and a root of its
// own that is read-only. It has nothing of /home, /root, /run, /var and /tmp of the machine, no
// process of it, and neither the user of the machine's root nor that of this program.
// docs/security/bubblewrap.md tells layer by layer what stops what and what remains.
//
// # As
//
// executor.As(s, &p) with p of type Process gives the number of the sandbox's first process.
package bubblewrap

import (
	"context"
	"maps"
	"slices"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// Type is the name of this adapter in configurations and handles.
const Type = "bubblewrap"

// Process is what executor.As finds in a session of this adapter.
type Process struct {
	PID int // of the supervisor, which is the first process of the sandbox, as this program sees it
}

// Factory is for registries.
func Factory() driver.Factory { return driver.NewFactory(Type, Open, Doctor) }

// Open opens the backend. It looks for a control group that it can use, and does no remote I/O.
func Open(_ context.Context, env driver.Env, cfg Config) (executor.Executor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m, err := newMachine(env, cfg)
	if err != nil {
		return nil, err
	}
	limited := m.limits() || env.Elsewhere && cfg.Cgroup != noCgroup
	return runner.Open(env, m, cfg.options(limited))
}

// options are those of a machine with or without control groups.
func (c *Config) options(limited bool) runner.Options {
	return runner.Options{
		Options:      driver.Options{Type: Type, Suspends: true, SuspendsRuns: true},
		Capabilities: c.capabilities(limited), Python: python, Socket: socket,
	}
}

// python runs the supervisor and the Python of sessions. The root says where it is.
const python = "python3"

// socket is where further holders find the supervisor: an abstract name, in the network namespace
// of the sandbox. Code can connect to it and is sent away by its user.
const socket = "@execbroker"

// counted are the features that need a control group.
var counted = []executor.Feature{
	executor.FeatureLimitCPU, executor.FeatureLimitMemory, executor.FeatureLimitProcesses,
}

// capabilities are those of a configuration, with or without a control group. The others are the
// runner's.
func (c *Config) capabilities(limited bool) executor.Capabilities {
	caps := executor.Capabilities{
		Features:      []executor.Feature{executor.FeatureLimitDisk, executor.FeatureNetworkNone, executor.FeatureAliases},
		Templates:     slices.Sorted(maps.Keys(c.Templates)),
		Isolation:     executor.IsolationContainer,
		MaxLimits:     c.MaxLimits.Executor(),
		DefaultLimits: c.limits(&executor.Spec{}, limited, 0), // the file may be for a machine with other processors
		MaxLife:       c.MaxLife.Max(),
	}
	if limited {
		caps.Features = append(caps.Features, counted...)
	}
	if c.Ports {
		caps.Features = append(caps.Features, executor.FeaturePorts)
	}
	for _, l := range c.languages() {
		caps.Languages = append(caps.Languages, executor.Runtime{Language: l})
	}
	return caps
}
