package docker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/missing"
)

// Doctor examines what the backend needs: the engine, what it can enforce, the images. It changes
// nothing, so it pulls nothing.
func Doctor(ctx context.Context, env driver.Env, cfg Config) []driver.Check {
	b, err := newBackend(env, cfg)
	if err != nil {
		return []driver.Check{{Name: "engine", Detail: err.Error(), Fix: "correct host, context or the environment of the docker command"}}
	}
	defer b.Close()
	e := b.engine
	f, err := e.facts(ctx)
	if err != nil {
		return []driver.Check{missing.Check("engine", err, "start Docker, or say where it is with host or context")}
	}
	i := &f.info
	checks := []driver.Check{{
		Name: "engine", OK: true,
		Detail: fmt.Sprintf("%s, API %s, at %s (%s)", i.ServerVersion, f.apiVersion, e.at.host, e.at.from),
	}}
	enforce := driver.Check{Name: "limits and system calls", OK: true, Detail: fmt.Sprintf("cgroup v%s, %s", i.CgroupVersion, strings.Join(i.SecurityOptions, " "))}
	if err := f.refuse(&cfg); err != nil {
		enforce.OK, enforce.Detail = false, err.Error()
		enforce.Fix = "use an engine of version 20.10 or later that manages control groups and has seccomp"
	}
	if !f.countsSockets(cfg.Runtime) {
		enforce.Detail += "; the limit of memory leaves out what waits in sockets, see strict_memory"
	}
	checks = append(checks, enforce)
	isolation := driver.Check{Name: "isolation", OK: true, Detail: string(isolationOf(cfg.Runtime))}
	if isolation.Detail == string(executor.IsolationContainer) {
		isolation.Detail += ": the kernel of the host is shared"
	}
	checks = append(checks, isolation)
	checks = append(checks, cfg.sources().Examine()...)
	for _, name := range append([]string{""}, slices.Sorted(maps.Keys(cfg.Templates))...) {
		c := driver.Check{Name: "image", OK: true, Detail: cfg.image(name)}
		if name != "" {
			c.Name = "image of template " + name
		}
		switch _, err := e.inspect(ctx, c.Detail, f); {
		case errdefs.IsNotFound(err) && cfg.Pull == PullNever:
			c.OK, c.Fix = false, "docker pull "+c.Detail
			c.Detail += " is not there, and pull is never"
		case errdefs.IsNotFound(err):
			c.Detail += ": will be pulled by the first session"
		case err != nil:
			c.OK, c.Detail, c.Fix = false, err.Error(), "name an image for the architecture of the engine"
		}
		checks = append(checks, c)
	}
	return checks
}
