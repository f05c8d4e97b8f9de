package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// python runs the runner and the Python of sessions. The image says where it is.
const python = "python3"

// socket is where further holders find the runner: an abstract name, since a file would need a directory that only the supervisor can
// reach. Code can connect to it and is sent away by its uid.
const socket = "@execbroker"

// Create implements driver.Driver.
func (b *backend) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	e := b.engine
	f, err := e.facts(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.refuse(&b.cfg); err != nil {
		return nil, err
	}
	b.sweep(f)
	img, err := e.image(ctx, b.cfg.image(c.Spec.Template), b.cfg.Pull, f)
	if err != nil {
		return nil, err
	}
	x := &box{
		id: c.ID, image: img, command: runner.Command(python), runtime: b.cfg.Runtime, network: string(executor.NetworkNone),
		want: b.cfg.limits(&c.Spec, f), packages: b.cfg.packagesSize(), installs: b.cfg.installs(), aliases: c.Spec.Aliases, uid: f.userID(c.ID), mapped: f.mapped(),
	}
	if c.Spec.Network.Mode == executor.NetworkFull {
		if x.network, err = b.fullNetwork(ctx); err != nil {
			return nil, err
		}
	}
	if m := x.missing(f); len(m) > 0 {
		return nil, unsupported(fmt.Errorf("the machine of the engine has %d processors and %d bytes of memory", f.info.NCPU, f.info.MemTotal), m...)
	}
	note, err := json.Marshal(remembered{
		Created: time.Now().Round(0), Template: c.Spec.Template, Limits: x.limits(), Labels: slices.Sorted(maps.Keys(c.Labels)),
	})
	if err != nil {
		return nil, err
	}
	x.labels = maps.Clone(c.Labels)
	x.labels[labelSpec] = string(note)
	s, err := b.start(ctx, x, f, &c.Spec)
	if err != nil {
		// Whatever the engine did before it failed to say so is found by the name.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.timeout)
		defer cancel()
		if derr := e.undo(ctx, c.ID, err); derr != nil {
			b.env.Logger().Warn("a container may be left, and is removed when the engine answers", "container", containerName(c.ID), "error", derr)
			return nil, driver.Leftover(err, func(ctx context.Context) error { return e.undo(ctx, c.ID, err) })
		}
		return nil, err
	}
	return s, nil
}

// fullNetwork returns the network of the full policy, which the engine may not have.
func (b *backend) fullNetwork(ctx context.Context) (string, error) {
	name := b.cfg.Network
	if name == "" {
		name = "bridge"
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

// start makes the container, starts it and sets up the runner in it.
func (b *backend) start(ctx context.Context, x *box, f *facts, spec *executor.Spec) (*session, error) {
	e := b.engine
	release, err := b.admit(ctx, f)
	if err != nil {
		return nil, err
	}
	release = sync.OnceFunc(release)
	defer release()
	actx, cancel := e.answer(ctx)
	defer cancel()
	id, conn, err := b.launch(actx, x.options(f), func(ctx context.Context, id string) error { return e.bare(ctx, id, x) })
	if err != nil {
		return nil, err
	}
	r, err := runner.SetUp(actx, conn, runner.Config{
		UID: x.uid, GID: x.uid, Workdir: executor.Workdir, Home: executor.Home, Temp: tempDir,
		Aliases: spec.Aliases, Ports: spec.Ports, Env: x.env(spec.Env), Paths: x.paths(), Languages: spec.Languages,
		MaxRun: spec.MaxRun, IdleTTL: spec.IdleTTL, MaxLife: spec.MaxLife,
		Rlimits: x.rlimits(), OOMScore: codeOOMScore, Names: namesDir + "/socket",
		Filtered: true, AllowWeak: b.cfg.AllowWeak,
	}.At(socket))
	release()
	if err != nil {
		return nil, b.notStarted(actx, x.id, conn, err)
	}
	info, err := sessionInfo(x.id, string(container.StateRunning), x.labels)
	if err != nil {
		return nil, err
	}
	for _, l := range spec.Languages {
		if !slices.Contains(r.Info().Languages, l) {
			r.Detach()
			return nil, unsupported(fmt.Errorf("the image has no interpreter of %s", l), "language:"+string(l))
		}
	}
	if d := r.Info().Degraded; len(d) > 0 {
		b.env.Logger().Warn("the image or the engine weakens sandboxes", "image", b.cfg.image(spec.Template), "how", d)
	}
	s := b.session(info, id, x.image.id, r, 0)
	if err := s.preinstall(ctx, b.cfg.Templates[spec.Template].Packages); err != nil {
		r.Detach()
		return nil, err
	}
	return s, nil
}

// launch makes a container and starts it, and connects to its main process. What it has made when it fails is the caller's to remove.
// check may refuse the container before it starts; nil: nothing is wrong with it.
func (b *backend) launch(ctx context.Context, o client.ContainerCreateOptions, check func(ctx context.Context, id string) error) (id string, conn *stdio, err error) {
	e := b.engine
	lctx, cancel := linger(ctx)
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

// lingerTime is how long a request may take that the caller has given up.
const lingerTime = 2 * time.Second

// linger returns a context that outlives ctx by a moment. An engine goes on making a container whose request is withdrawn, and as long as
// it does the container cannot be found and removed. Waiting for the answer is quicker than looking for what becomes of it.
func linger(ctx context.Context) (context.Context, context.CancelFunc) {
	l, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(lingerTime, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(l, func() { t.Stop() })
	})
	return l, func() { stop(); cancel(nil) }
}

// notStarted finds out why a runner did not come up.
func (b *backend) notStarted(ctx context.Context, id string, conn *stdio, err error) error {
	var lost *runner.LostError
	if !errors.As(err, &lost) {
		return b.engine.fail(ctx, err)
	}
	fate, ferr := b.engine.fate(ctx, containerName(id))
	if ferr != nil {
		return ferr
	}
	switch said := conn.stderr(); {
	case fate.ended && fate.code != 0 && !fate.killed && !fate.oom && said != "":
		// It is the program of the image that has ended by itself: too old, broken, or something else by the name of python3.
		return unsupported(fmt.Errorf("the %s of the image cannot run the supervisor (exit code %d): %s", python, fate.code, said), python+">=3.9")
	case fate.oom:
		return driver.Fail(executor.ErrExhausted, executor.RanNo, errors.New("the memory of the sandbox did not suffice for its interpreter"))
	case fate.ended:
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("the container ended with exit code %d while it was being set up", fate.code))
	}
	return b.engine.fail(ctx, err)
}

// Attach implements driver.Attacher. Nothing in the handle is an address but the name, and the engine says whose that is.
func (b *backend) Attach(ctx context.Context, h executor.Handle) (driver.Session, error) {
	info, id, img, err := b.lookup(ctx, h.Session)
	if err != nil {
		return nil, err
	}
	r, err := b.engine.bridge(ctx, id, h.Fence)
	if err != nil {
		return nil, err
	}
	return b.session(info, id, img, r, h.Fence), nil
}

// bridge opens a further connection to the runner in a container, through a process beside it.
func (e *engine) bridge(ctx context.Context, id string, fence int64) (*runner.Client, error) {
	ctx, cancel := e.answer(ctx)
	defer cancel()
	conn, err := e.beside(ctx, id, runner.BridgeCommand(python, socket))
	if err != nil {
		return nil, err
	}
	r, err := runner.Attach(ctx, conn, fence)
	if lost := (*runner.LostError)(nil); errors.As(err, &lost) {
		return nil, e.notBridged(ctx, id, fmt.Errorf("%w: %s", lost, conn.stderr()))
	}
	if err != nil {
		return nil, e.fail(ctx, err)
	}
	return r, nil
}

// beside starts a process of root in the container of a session.
func (e *engine) beside(ctx context.Context, id string, command []string) (*stdio, error) {
	made, err := e.ExecCreate(ctx, id, client.ExecCreateOptions{
		User: "0:0", AttachStdin: true, AttachStdout: true, AttachStderr: true, WorkingDir: "/", Cmd: command,
	})
	switch {
	case errdefs.IsNotFound(err):
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, errGone)
	case err != nil:
		return nil, e.notBridged(ctx, id, err)
	}
	a, err := e.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, e.notBridged(ctx, id, err)
	}
	return newStdio(a.Conn), nil
}

// notBridged says of a failed bridge whether there is something at its other end.
func (e *engine) notBridged(ctx context.Context, id string, err error) error {
	if fate, ferr := e.fate(ctx, id); ferr == nil && fate.ended {
		return driver.Fail(executor.ErrNotFound, executor.RanNo, errGone)
	}
	return e.fail(ctx, err)
}

// session makes the session of a container.
func (b *backend) session(info executor.SessionInfo, container, image string, r *runner.Client, fence int64) *session {
	s := &session{b: b, id: info.Handle.Session, container: container, image: image, fence: fence, info: info}
	s.Holder = runner.NewHolder(r, &place{s})
	return s
}
