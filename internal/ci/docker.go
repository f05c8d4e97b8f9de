package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// enginePackages have the programs that a Docker engine consists of.
var enginePackages = []string{"docker.io", "containerd", "runc", "iptables"}

var (
	// engine is the one that this process has started, if it has: the test run that began with it
	// ends it.
	engine *dockertest.Engine
	// using keeps another test run from ending an engine between two packages of this one.
	using io.Closer
)

// enginePrograms finds the programs of an engine, which a machine whose engine answers does not
// need.
func enginePrograms(ctx context.Context) (string, error) {
	if host, _, err := dockertest.Find(ctx); err == nil {
		return "an engine answers at " + host, nil
	}
	return command("dockerd")(ctx)
}

// ensureEngine finds a Docker engine, or starts one that disturbs no other: everything of it is
// below one directory.
func ensureEngine(ctx context.Context) (string, error) {
	dir, err := dockertest.Dir()
	if err != nil {
		return "", err
	}
	host, ours, err := dockertest.Find(ctx)
	if err == nil {
		if ours {
			if using, err = dockertest.Use(dir); err != nil {
				return "", err
			}
		}
		return describeEngine(ctx, "found", host)
	}
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("start Docker: %w", err)
	}
	did := "started"
	e, err := dockertest.Start(ctx, dockertest.Options{Dir: dir, Bridge: true, Detach: true})
	if err != nil {
		return "", err
	}
	if !e.Started() {
		did = "found"
	} else {
		engine = e
	}
	if using, err = dockertest.Use(dir); err != nil {
		return "", err
	}
	return describeEngine(ctx, did, e.Host)
}

// stopEngine ends the engine that ensureEngine has started. Another test run that uses it keeps it.
func stopEngine(ctx context.Context) (did string, err error) {
	if using != nil {
		if err := using.Close(); err != nil {
			return "", err
		}
	}
	if engine == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err = engine.Stop(ctx); errors.Is(err, dockertest.ErrInUse) {
		return "left running: " + err.Error(), nil
	}
	return "stopped", err
}

// describeEngine says what the engine is, and what of it makes tests slower or weaker than
// elsewhere.
func describeEngine(ctx context.Context, did, host string) (string, error) {
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return "", err
	}
	defer c.Close()
	info, err := c.Info(ctx, client.InfoOptions{})
	if err != nil {
		return "", err
	}
	i := info.Info
	did = fmt.Sprintf("%s Docker %s (%s, cgroup v%s) at %s", did, i.ServerVersion, i.Driver, i.CgroupVersion, host)
	if i.Driver == "vfs" {
		did += "; vfs copies an image for each container"
	}
	return did, nil
}
