package kubernetes

import (
	"context"
	"errors"
	"iter"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/runner"
)

var sessionID = regexp.MustCompile(`^[a-z0-9]{26}$`)

// sessionInfo describes a pod. Who may change pods in the namespace could forge what its annotation
// says, and may execute programs in the pod anyway.
func sessionInfo(pod *corev1.Pod) (executor.SessionInfo, error) {
	id := pod.Labels[labelSession]
	if !sessionID.MatchString(id) || pod.Name != podName(id) || pod.Labels[labelManager] != manager {
		return executor.SessionInfo{}, notFound() // it carries our labels and is not ours
	}
	info, err := runner.Recall(id, pod.Annotations[annotationNote])
	if err != nil {
		return info, err
	}
	if l := info.Labels; l[driver.LabelID] != id || remote.OwnerHash(l[driver.LabelOwner]) != pod.Labels[labelOwner] {
		return info, driver.Fail(executor.ErrNotFound, executor.RanNo, errors.New("the pod says different things about whose it is"))
	}
	if hasEnded(pod) {
		info.State = executor.SessionDead
	}
	return info, nil
}

// Find implements runner.Finder. Nothing in the handle is an address but the name, and the
// annotation says whose the pod is. One that is being deleted is gone.
func (b *backend) Find(ctx context.Context, h executor.Handle) (runner.Sandbox, executor.SessionInfo, error) {
	if !sessionID.MatchString(h.Session) { // it becomes part of a path
		return nil, executor.SessionInfo{}, notFound()
	}
	pod, err := b.api.get(ctx, podName(h.Session))
	switch {
	case err != nil && missing(err), err == nil && pod.DeletionTimestamp != nil:
		return nil, executor.SessionInfo{}, notFound()
	case err != nil:
		return nil, executor.SessionInfo{}, b.api.fail(ctx, err)
	}
	info, err := sessionInfo(pod)
	if err != nil {
		return nil, info, err
	}
	return &sandbox{b: b, id: h.Session, uid: pod.UID, image: imageOf(pod)}, info, nil
}

// imageOf returns the image that a pod names.
func imageOf(pod *corev1.Pod) string {
	for _, c := range pod.Spec.Containers {
		return c.Image
	}
	return ""
}

// selector is that of the pods of an owner, or of all.
func selector(owner string) string {
	s := labelManager + "=" + manager
	if owner != "" {
		s += "," + labelOwner + "=" + remote.OwnerHash(owner)
	}
	return s
}

// Sessions implements driver.Lister. Pods that have ended are listed as dead, and those that are
// being deleted not at all.
func (b *backend) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		b.sweep()
		err := b.api.list(ctx, selector(labels[driver.LabelOwner]), func(pod *corev1.Pod) bool {
			if pod.DeletionTimestamp != nil {
				return true
			}
			info, err := sessionInfo(pod)
			if errors.Is(err, executor.ErrNotFound) || err == nil && !remote.Carries(info.Labels, labels) {
				return true
			}
			return yield(info, err)
		})
		if err != nil {
			yield(executor.SessionInfo{}, b.api.fail(ctx, err))
		}
	}
}

// Nothing removes a pod that has ended by itself but its session, and that may have died. So every
// program sweeps what its owner has left: pods that ended a while ago, and those that never got a
// node.
const (
	sweepEvery = time.Minute
	sweepAge   = 30 * time.Second
)

// sweep removes in the background what earlier programs of the owner have left, when it is time
// again. It is no reason to wait and none to fail: session reap removes the same, and says so.
func (b *backend) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.swept.IsZero() && time.Since(b.swept) < sweepEvery {
		return
	}
	b.swept = time.Now()
	b.sweeping.Go(func() {
		if err := b.sweepNow(b.life, time.Now()); err != nil && b.life.Err() == nil {
			b.env.Logger().Warn("removing what earlier programs have left", "error", err)
		}
	})
}

func (b *backend) sweepNow(ctx context.Context, now time.Time) error {
	var left []*corev1.Pod
	err := b.api.list(ctx, selector(b.env.Owner), func(pod *corev1.Pod) bool {
		if _, err := sessionInfo(pod); err == nil && b.cfg.abandoned(pod, now) {
			left = append(left, pod.DeepCopy())
		}
		return true
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, pod := range left {
		if err := b.api.delete(ctx, pod.Name, pod.UID); err != nil && !missing(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// abandoned reports whether nobody will use a pod any more.
func (c *Config) abandoned(pod *corev1.Pod, now time.Time) bool {
	switch {
	case pod.DeletionTimestamp != nil:
		return false
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return now.Sub(endOf(pod)) > sweepAge
	case pod.Status.Phase == corev1.PodPending, pod.Status.Phase == "":
		return now.Sub(pod.CreationTimestamp.Time) > c.timeout()+sweepAge
	}
	return false
}

// endOf returns when a pod has ended, or was made if that is not known.
func endOf(pod *corev1.Pod) time.Time {
	end := pod.CreationTimestamp.Time
	for _, s := range pod.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	return end
}
