package docker

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// python runs the runner and the Python of sessions. The image says where it is.
const python = "python3"

// socket is where further connections find the runner: an abstract name, since a file would need a
// directory that only the supervisor can reach. Code can connect to it and is sent away by its uid.
// The network namespace is the container's own.
const socket = "@execbroker"

// Start implements runner.Transport.
func (b *backend) Start(ctx context.Context, s *runner.Start) (runner.Sandbox, io.ReadWriteCloser, error) {
	e := b.engine
	f, err := e.facts(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := f.refuse(&b.cfg); err != nil {
		return nil, nil, err
	}
	b.sweep(f)
	img, err := b.imageOf(ctx, s, f)
	if err != nil {
		return nil, nil, err
	}
	x := &box{
		id: s.ID, image: img, command: s.Command, runtime: b.cfg.Runtime, network: string(executor.NetworkNone),
		want: b.cfg.limits(&s.Spec, f), aliases: s.Spec.Aliases, seccomp: b.cfg.profile(), uid: f.userID(s.ID), mapped: f.mapped(),
	}
	if s.Base == "" {
		x.packages, x.installs, s.Preinstall = b.cfg.packagesSize(), b.cfg.installs(), b.cfg.Templates[s.Spec.Template].Packages
	}
	if s.Spec.Network.Mode == executor.NetworkFull {
		if x.network, err = b.fullNetwork(ctx, s.Base != ""); err != nil {
			return nil, nil, err
		}
	}
	if m := x.missing(f); len(m) > 0 {
		return nil, nil, unsupported(fmt.Errorf("the machine of the engine has %d processors and %d bytes of memory", f.info.NCPU, f.info.MemTotal), m...)
	}
	s.Info.Limits = x.limits()
	x.labels = maps.Clone(s.Labels)
	x.labels[labelSpec] = s.Note()
	c := &s.Config
	c.UID, c.GID, c.Rlimits, c.OOMScore = x.uid, x.uid, x.rlimits(), codeOOMScore
	c.Names, c.Filtered, c.AllowWeak = namesDir+"/socket", true, b.cfg.AllowWeak
	c.CodeFilters = b.cfg.AllowCodeFilters || isolationOf(b.cfg.Runtime) != executor.IsolationContainer
	release, err := b.admit(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	actx, cancel := e.answer(ctx)
	defer cancel()
	box := &sandbox{b: b, id: s.ID, image: img.id}
	box.container, box.main, err = b.launch(actx, x.options(f), func(ctx context.Context, id string) error { return e.bare(ctx, id, x) })
	if err != nil {
		release()
		box.failure = err // whatever the engine did before it failed to say so is found by the name
		return box, nil, err
	}
	box.main.heard = release
	return box, box.main, nil
}

// imageOf returns the image of a sandbox.
func (b *backend) imageOf(ctx context.Context, s *runner.Start, f *facts) (image, error) {
	if s.Base == "" {
		return b.engine.image(ctx, b.cfg.image(s.Spec.Template), b.cfg.Pull, f)
	}
	img, err := b.engine.inspect(ctx, s.Base, f)
	if err != nil {
		err = b.engine.fail(ctx, err)
	}
	return img, err
}

// fullNetwork returns the network of the full policy, which the engine may not have.
func (b *backend) fullNetwork(ctx context.Context, fetches bool) (string, error) {
	name := cmp.Or(b.cfg.Network, "bridge")
	if fetches {
		name = cmp.Or(b.cfg.Packages.Network, "bridge")
	}
	ctx, cancel := b.engine.answer(ctx)
	defer cancel()
	_, err := b.engine.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
	if errdefs.IsNotFound(err) {
		return "", unsupported(fmt.Errorf("the engine has no network %q", name), string(executor.FeatureNetworkFull))
	}
	if err != nil {
		return "", b.engine.fail(ctx, err)
	}
	return name, nil
}

// launch makes a container and starts it, and connects to its main process. What it has made when
// it fails is the caller's to remove. check may refuse the container before it starts; nil: nothing
// is wrong with it.
func (b *backend) launch(ctx context.Context, o client.ContainerCreateOptions, check func(ctx context.Context, id string) error) (id string, conn *stdio, err error) {
	e := b.engine
	lctx, cancel := driver.Linger(ctx)
	defer cancel()
	made, err := e.ContainerCreate(lctx, o)
	switch {
	case err == nil && ctx.Err() != nil:
		return "", nil, e.fail(ctx, context.Cause(ctx))
	case err != nil && !answered(err):
		return "", nil, &unansweredError{e.fail(ctx, err), o}
	case err != nil:
		return "", nil, e.fail(ctx, err)
	}
	for _, w := range made.Warnings {
		b.env.Logger().Warn("the engine made a container with a warning", "container", o.Name, "warning", w)
	}
	if check != nil {
		if err := check(ctx, made.ID); err != nil {
			return "", nil, err
		}
	}
	// Before it starts: what the main process says to nobody is lost.
	a, err := e.ContainerAttach(ctx, made.ID, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return "", nil, e.fail(ctx, err)
	}
	conn = newStdio(a.Conn)
	if _, err = e.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		conn.Close()
		if errdefs.IsInvalidArgument(err) { // so says the engine of a command that cannot be executed
			return "", nil, unsupported(fmt.Errorf("the image has no %s that can be executed: %w", python, err), python)
		}
		return "", nil, e.fail(ctx, err)
	}
	return made.ID, conn, nil
}
