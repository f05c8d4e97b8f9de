package docker

import (
	"context"
	"errors"
	"iter"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// labelSpec holds what a process that did not create the session has to know of it. It does not change, as no label does.
const labelSpec = executor.ReservedPrefix + "docker.spec"

// sessionInfo describes a container. The labels are those of the engine, so only who may make containers there, and is root by that,
// could forge them.
func sessionInfo(id, state string, labels map[string]string) (executor.SessionInfo, error) {
	info, err := runner.Recall(id, labels[labelSpec])
	if state != string(container.StateRunning) {
		info.State = executor.SessionDead
	}
	if info.Labels == nil { // of an earlier version
		info.Labels = maps.Clone(labels)
		delete(info.Labels, labelSpec)
	}
	return info, err
}

var sessionID = regexp.MustCompile(`^[a-z0-9]{26}$`)

var errGone = errors.New("no such container")

// Find implements runner.Finder. Nothing in the handle is an address but the name, and the engine says whose that is.
func (b *backend) Find(ctx context.Context, h executor.Handle) (runner.Sandbox, executor.SessionInfo, error) {
	ctx, cancel := b.engine.answer(ctx)
	defer cancel()
	c, err := b.engine.container(ctx, h.Session)
	if err != nil {
		return nil, executor.SessionInfo{}, err
	}
	info, err := sessionInfo(h.Session, string(c.State.Status), c.Config.Labels)
	return &sandbox{b: b, id: h.Session, container: c.ID, image: c.Image}, info, err
}

// container inspects the container of a session. The name comes from a handle, so it is checked before it becomes part of a path.
func (e *engine) container(ctx context.Context, id string) (container.InspectResponse, error) {
	if !sessionID.MatchString(id) {
		return container.InspectResponse{}, driver.Fail(executor.ErrNotFound, executor.RanNo, errGone)
	}
	res, err := e.ContainerInspect(ctx, containerName(id), client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return container.InspectResponse{}, driver.Fail(executor.ErrNotFound, executor.RanNo, errGone)
	case err != nil:
		return container.InspectResponse{}, e.fail(ctx, err)
	case res.Container.Config == nil || res.Container.State == nil:
		return container.InspectResponse{}, driver.Fail(executor.ErrInternal, executor.RanNo, errors.New("the engine describes a container without configuration or state"))
	}
	return res.Container, nil
}

// Sessions implements driver.Lister. Containers that were created and never started are listed, too: as dead.
func (b *backend) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		ctx, cancel := b.engine.answer(ctx)
		defer cancel()
		f := client.Filters{}
		for k, v := range labels {
			f.Add("label", k+"="+v)
		}
		list, err := b.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: f})
		if err != nil {
			yield(executor.SessionInfo{}, b.engine.fail(ctx, err))
			return
		}
		for _, c := range list.Items {
			id := c.Labels[driver.LabelID]
			if !sessionID.MatchString(id) || len(c.Names) == 0 || strings.TrimPrefix(c.Names[0], "/") != containerName(id) {
				continue // it carries our labels and is not ours: Destroy could not find it by that ID
			}
			if !yield(sessionInfo(id, string(c.State), c.Labels)) {
				return
			}
		}
	}
}

// destroy removes the container of a session and waits until it is gone.
func (e *engine) destroy(ctx context.Context, id string) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for begin := time.Now(); ; {
		err := e.remove(ctx, containerName(id))
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err):
			return err
		case time.Since(begin) > e.timeout:
			return e.fail(ctx, err)
		}
		// It is being removed already, because it has ended or by another process.
		select {
		case <-ctx.Done():
			return e.fail(ctx, err)
		case <-poll.C:
		}
	}
}

// remove asks for a container to be removed, when it is its turn.
func (e *engine) remove(ctx context.Context, name string) error {
	select {
	case e.removals <- struct{}{}:
		defer func() { <-e.removals }()
	case <-ctx.Done():
		return e.fail(ctx, context.Cause(ctx))
	}
	ctx, cancel := e.answer(ctx)
	defer cancel()
	_, err := e.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return err
	}
	return e.fail(ctx, err)
}

// unansweredError is the failure of a request to make a container of which nobody knows whether it was heard.
type unansweredError struct {
	error
	asked client.ContainerCreateOptions
}

// Unwrap returns the error of the request.
func (e *unansweredError) Unwrap() error { return e.error }

// answered reports whether an error is the word of the engine.
func answered(err error) bool {
	kind := errdefs.Resolve(err) // of what nobody has classified: unknown
	return kind != errdefs.ErrUnknown && kind != context.Canceled && kind != context.DeadlineExceeded
}

// undo removes what a launch has made, or may yet make, that failed with an error. An engine that is making a container does not find
// it yet, also for the one that asked for it and was cut off, but its name is taken. So when the name can be taken again, nothing more
// comes.
func (e *engine) undo(ctx context.Context, id string, failure error) error {
	var u *unansweredError
	if !errors.As(failure, &u) {
		return e.destroy(ctx, id)
	}
	ctx, cancel := e.answer(ctx)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		if err := e.destroy(ctx, id); err != nil {
			return err
		}
		_, err := e.ContainerCreate(ctx, u.asked)
		switch {
		case errdefs.IsConflict(err):
		case err == nil, answered(err):
			return e.destroy(ctx, id)
		default:
			return e.fail(ctx, err)
		}
		select {
		case <-ctx.Done():
			return e.fail(ctx, err)
		case <-poll.C:
		}
	}
}
