package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/handover"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/runner"
)

// sandbox is the pod of a session.
type sandbox struct {
	b     *backend
	id    string // of the session
	uid   types.UID
	image string  // as the pod names it
	main  *stream // of the runner; nil in a process that has attached
}

var (
	_ runner.Sandbox   = (*sandbox)(nil)
	_ runner.Base      = (*sandbox)(nil)
	_ runner.Observer  = (*sandbox)(nil)
	_ runner.Explainer = (*sandbox)(nil)
	_ driver.Aser      = (*sandbox)(nil)
)

// As implements driver.Aser.
func (s *sandbox) As(target any) bool {
	p, ok := target.(*Pod)
	if ok {
		*p = Pod{Config: rest.CopyConfig(s.b.api.cfg), Namespace: s.b.api.namespace, Name: podName(s.id)}
	}
	return ok
}

// Base implements runner.Base. What another version of Python has compiled is not used, so the name
// of the image will do.
func (s *sandbox) Base() string { return s.image }

// connectWithin is how long a node may take to start a process in a pod that it runs: one whose
// kubelet was restarted learns of its pods first.
const connectWithin = 20 * time.Second

// Connect implements runner.Sandbox, through a process of root in the container.
func (s *sandbox) Connect(ctx context.Context, command []string) (io.ReadWriteCloser, error) {
	wctx, cancel := context.WithTimeoutCause(ctx, connectWithin, errNoAnswer)
	defer cancel()
	var last error
	conn, err := s.b.started(wctx, s, handover.AnnouncedCommand(python, command), 0, func(pod *corev1.Pod, err error) error {
		var e *exitError
		switch last = err; {
		case errors.As(err, &e) && !e.notStarted(), errors.Is(err, io.EOF):
			return err // it was started, and is no bridge
		case pod != nil && (hasEnded(pod) || s.uid != "" && pod.UID != s.uid):
			return notFound()
		}
		return nil
	})
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() == nil && wctx.Err() != nil && last != nil:
		return nil, last
	}
	return nil, err
}

// Observe implements runner.Observer.
func (s *sandbox) Observe(ctx context.Context, command []string) (io.ReadWriteCloser, error) {
	return s.Connect(ctx, command)
}

// Explain implements runner.Explainer: an exec that was not started says why.
func (s *sandbox) Explain(_ context.Context, err error) error {
	var e *exitError
	if errors.As(err, &e) {
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("pod %s: %w", podName(s.id), e))
	}
	return err
}

// How long a node may take to say that a container has ended, and how often that is asked for.
const (
	endWithin = 5 * time.Second
	endEvery  = 200 * time.Millisecond
)

// Termination implements runner.Sandbox. The API server learns of the end of a container a second
// late. So a further process is started: if it can be, the container lives.
func (s *sandbox) Termination(ctx context.Context) (runner.Termination, error) {
	for begun := time.Now(); ; {
		end, err := s.status(ctx)
		if err != nil || end.Ended {
			return end, err
		}
		alive, err := s.alive(ctx)
		if err != nil || alive || time.Since(begun) > endWithin {
			return runner.Termination{}, err // or its node does not answer, and may do so again
		}
		if err := remote.Pause(ctx, endEvery); err != nil {
			return runner.Termination{}, err
		}
	}
}

// alive reports whether a process can be started in the container.
func (s *sandbox) alive(ctx context.Context) (bool, error) {
	conn, err := s.b.api.exec(ctx, podName(s.id), handover.NothingCommand(python))
	if err == nil {
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		_, err = io.Copy(io.Discard, conn)
		stop()
		conn.Close()
	}
	var e *exitError
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err == nil, errors.As(err, &e) && !e.notStarted():
		return true, nil
	case e != nil, missing(err), apierrors.IsBadRequest(err), apierrors.IsInternalError(err):
		return false, nil
	}
	return false, s.b.api.fail(ctx, err)
}

// status says how the pod has ended, as far as the API server knows.
func (s *sandbox) status(ctx context.Context) (runner.Termination, error) {
	pod, err := s.b.api.get(ctx, podName(s.id))
	switch {
	case err != nil && missing(err):
		return runner.Termination{Ended: true, Reason: executor.ReasonLifetime}, nil
	case err != nil:
		return runner.Termination{}, s.b.api.fail(ctx, err)
	case s.uid != "" && pod.UID != s.uid:
		return runner.Termination{Ended: true, Reason: executor.ReasonLifetime}, nil
	case !hasEnded(pod):
		return runner.Termination{}, nil
	}
	end := terminationOf(pod)
	if s.main != nil {
		end.Stderr = s.main.stderr()
	}
	if end.Stderr == "" {
		end.Code = 0 // nothing explains it
	}
	if end.Reason == executor.ReasonLifetime && pod.DeletionTimestamp == nil && s.b.api.evicted(ctx, pod.UID) {
		end.Reason = executor.ReasonSandbox
	}
	return end, nil
}

// hasEnded reports whether a pod runs nothing any more, or is about to.
func hasEnded(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Terminated != nil {
			return true
		}
	}
	return false
}

// terminationOf translates the status of a pod that has ended.
func terminationOf(pod *corev1.Pod) runner.Termination {
	end := runner.Termination{Ended: true, Reason: executor.ReasonSandbox}
	var t *corev1.ContainerStateTerminated
	for _, s := range pod.Status.ContainerStatuses {
		t = s.State.Terminated
	}
	switch {
	case pod.DeletionTimestamp != nil, pod.Status.Reason == "DeadlineExceeded":
		end.Reason = executor.ReasonLifetime
	case pod.Status.Reason == "NodeLost", pod.Status.Reason == "NodeShutdown", pod.Status.Reason == "Terminated", pod.Status.Reason == "Preempting",
		t != nil && t.Reason == "ContainerStatusUnknown", t != nil && t.ExitCode == 255 && t.Reason == "Unknown", t == nil && pod.Status.Reason == "":
		end.Reason = "" // the node has ended, or was needed for another: that says nothing about the code
	case t == nil:
	case t.Reason == "OOMKilled":
		end.Reason = executor.ReasonMemory
	case t.ExitCode == 0 && pod.Status.Reason == "":
		end.Reason = executor.ReasonLifetime // the runner's clocks have ended it
	default:
		end.Code = int(t.ExitCode)
	}
	return end
}

// evicted reports whether a node has evicted a pod. One that wrote too much to the node's disk ends
// like one whose time was over, and only an event says why. Who may not read events does not learn
// it.
func (c *client) evicted(ctx context.Context, uid types.UID) bool {
	events, err := c.events(ctx, uid)
	if err != nil {
		return false
	}
	for i := range events {
		if events[i].Reason == "Evicted" {
			return true
		}
	}
	return false
}

// removeWithin is how long a node may take to end a pod before the API server is asked.
const removeWithin = (grace + 1) * time.Second

// Remove implements runner.Sandbox. The object is gone a second later than the code, so the end of
// the connection will do, too.
func (s *sandbox) Remove(ctx context.Context) error {
	name := podName(s.id)
	if s.main != nil {
		defer s.main.keep()()
	}
	err := s.b.api.delete(ctx, name, s.uid)
	switch {
	case err != nil && (missing(err) || apierrors.IsConflict(err)): // it is another one's by now
		return nil
	case err != nil:
		return s.b.api.fail(ctx, err)
	}
	var over chan struct{}
	if s.main != nil {
		if over = s.main.over; s.main.ends(ctx, removeWithin) {
			return nil
		}
	}
	for {
		gone, err := s.b.api.untilGone(ctx, name, s.uid, over)
		if gone || err != nil {
			return err
		}
	}
}

// untilGone waits until a pod is not there, or over is closed. It reports false if it should be
// asked again.
func (c *client) untilGone(ctx context.Context, name string, uid types.UID, over <-chan struct{}) (bool, error) {
	ctx, cancel := answer(ctx)
	defer cancel()
	w, err := c.watch(ctx, name, "")
	if err != nil {
		return false, c.fail(ctx, cut(ctx, err))
	}
	defer w.Stop()
	// What was gone before the watch began has no event.
	pod, err := c.get(ctx, name)
	switch {
	case err != nil && missing(err), err == nil && uid != "" && pod.UID != uid:
		return true, nil
	case err != nil:
		return false, c.fail(ctx, err)
	}
	for {
		select {
		case <-over:
			return true, nil
		case <-ctx.Done():
			return false, c.fail(ctx, context.Cause(ctx))
		case e, ok := <-w.ResultChan():
			switch {
			case !ok, e.Type == watch.Error:
				return false, nil
			case e.Type == watch.Deleted:
				return true, nil
			}
			if pod, ok := e.Object.(*corev1.Pod); ok && stopped(pod) {
				return true, nil
			}
		}
	}
}

// stopped reports whether a node says that every container of a pod has ended.
func stopped(pod *corev1.Pod) bool {
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Terminated == nil {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0 || pod.Spec.NodeName == ""
}
