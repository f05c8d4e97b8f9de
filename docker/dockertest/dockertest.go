// Package dockertest finds a Docker engine for tests, starts engines that tests may break, and
// names the images that tests use.
//
// Tests ask [Host] for the engine of the machine: the one that DOCKER_HOST names, or that
// internal/ci has started, or that listens on the default socket. A test that stops, kills or
// freezes an engine starts its own with [Start].
package dockertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// The images of the tests. internal/ci makes them from Debian's packages; they are never pulled.
const (
	Python   = "execbroker-test/python:trixie"    // Python 3.13 with pip, numpy, pandas and matplotlib; Node.js 20
	Bullseye = "execbroker-test/plain:bullseye"   // Python 3.9 and nothing else
	Bookworm = "execbroker-test/plain:bookworm"   // Python 3.11 and nothing else
	Trixie   = "execbroker-test/plain:trixie"     // Python 3.13 and nothing else: no node, no pip
	NoPython = "execbroker-test/plain:no-python"  // Trixie without Python
	NoCtypes = "execbroker-test/plain:no-ctypes"  // Trixie without Python's ctypes
	RootOnly = "execbroker-test/plain:root-only"  // Trixie with no user and no group but root
	Jupyter  = "execbroker-test/jupyter:trixie"   // Trixie with Jupyter's kernel of Python; only make exhaustive makes it
	Bare     = "execbroker-test/bare:bookworm"    // the essential packages of Debian and nothing else; only make exhaustive makes it
	Systemd  = "execbroker-test/systemd:bookworm" // Bare with systemd, bubblewrap, rpm and curl; only make exhaustive makes it
	Npm      = "execbroker-test/plain:npm"        // npm and nothing else; likewise
)

// The runtimes that the engine of internal/ci has besides its own.
const (
	GVisor = "runsc" // a kernel in a process
	Crun   = "crun"  // runc's work in another language
)

// defaultHost is where the engine of an operating system listens.
const defaultHost = "unix:///var/run/docker.sock"

// Dir is the directory of the engine that internal/ci starts.
func Dir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "execbroker", "engine"), nil
}

// hostOf is the address of the engine in a directory.
func hostOf(dir string) string { return "unix://" + filepath.Join(dir, socketFile) }

const socketFile = "docker.sock"

// Options says how an engine runs.
type Options struct {
	// Dir holds everything of the engine: images, sockets, log. It is made if it is not there.
	Dir string
	// Bridge gives the engine the default network of containers, which changes the machine's
	// firewall. Without it the engine has a network of its own that leads nowhere, so that any
	// number of engines run side by side.
	Bridge bool
	// Detach lets the engine outlive this process. Without it the engine ends with this process,
	// even by SIGKILL.
	Detach bool
}

// ErrInUse says that other processes use the engine.
var ErrInUse = errors.New("in use by another test run")

// Find returns the address of an engine that answers, and whether it is the one that internal/ci
// starts.
func Find(ctx context.Context) (host string, ours bool, err error) {
	if h := os.Getenv(client.EnvOverrideHost); h != "" {
		return h, false, Ping(ctx, h)
	}
	dir, err := Dir()
	if err != nil {
		return "", false, err
	}
	if h := hostOf(dir); Ping(ctx, h) == nil {
		return h, true, nil
	}
	return defaultHost, false, Ping(ctx, defaultHost)
}

// Ping returns nil if an engine answers at host.
func Ping(ctx context.Context, host string) error {
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = c.Ping(ctx, client.PingOptions{})
	return err
}

// Host returns the address of the engine for tests, and an error that says what to do if there is
// none.
//
// The first call registers this process as a user of the engine that internal/ci started, see Use.
var Host = sync.OnceValues(func() (string, error) {
	h, ours, err := Find(context.Background())
	if err != nil {
		return "", fmt.Errorf("no Docker engine answers: %w\n\tto prepare one: go run ./internal/ci prepare", err)
	}
	if ours {
		dir, err := Dir()
		if err != nil {
			return "", err
		}
		if _, err := Use(dir); err != nil { // until this process ends
			return "", err
		}
	}
	return h, nil
})

// Containers returns the names of the containers at host, dead ones too, that carry all of the
// given labels ("key=value").
func Containers(ctx context.Context, host string, labels ...string) ([]string, error) {
	list, err := List(ctx, host, labels...)
	var names []string
	for _, i := range list {
		name := i.ID
		if len(i.Names) > 0 {
			name = strings.TrimPrefix(i.Names[0], "/")
		}
		names = append(names, name)
	}
	return names, err
}

// HasImage reports whether the engine at host has an image.
func HasImage(ctx context.Context, host, image string) (bool, error) {
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return false, err
	}
	defer c.Close()
	if _, err = c.ImageInspect(ctx, image); errdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// List returns the containers at host, dead ones too, that carry all of the given labels
// ("key=value" or "key"). One that the engine has removed is none, although an engine that was told
// of its end twice may list it until it is restarted: without a name, and asked for it the engine
// says that there is no such container.
func List(ctx context.Context, host string, labels ...string) ([]container.Summary, error) {
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	list, err := c.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labels...)})
	if err != nil {
		return nil, err
	}
	var there []container.Summary
	for _, i := range list.Items {
		if len(i.Names) == 0 {
			_, err := c.ContainerInspect(ctx, i.ID, client.ContainerInspectOptions{})
			if errdefs.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		there = append(there, i)
	}
	return there, nil
}
