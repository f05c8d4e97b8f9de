package podtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How late things are, as with a real cluster.
const (
	scheduling = 10 * time.Millisecond  // until a pod is on the node
	lag        = 300 * time.Millisecond // until the API server knows what the node does
	lie        = 400 * time.Millisecond // that code runs on when its pod is gone
)

// pod is an object with its container.
type pod struct {
	s *Server

	// Server.mu guards these.
	object    *corev1.Pod
	container string // while there is one; "" before and after
	gone      bool   // from the API server
	grace     time.Duration
	asked     bool          // to be deleted
	deleted   chan struct{} // closed when it is asked to be deleted
}

// newUID returns an identity.
func newUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // which never fails
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// tell says to watchers what has happened. The caller holds Server.mu.
func (p *pod) tell(kind string) {
	p.s.version++
	p.object.ResourceVersion = strconv.Itoa(p.s.version)
	for w := range p.s.watchers {
		w.add(kind, p.object)
	}
}

// change changes the object, unless it is gone.
func (p *pod) change(how func(*corev1.Pod)) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if !p.gone {
		how(p.object)
		p.tell("MODIFIED")
	}
}

// markDeleted begins the end of a pod. The caller holds Server.mu.
func (p *pod) markDeleted(seconds int64) {
	grace := time.Duration(max(seconds, 0)) * time.Second
	if !p.asked {
		p.asked, p.grace = true, grace
		now := metav1.NewTime(time.Now().Add(grace).Truncate(time.Second))
		p.object.DeletionTimestamp, p.object.DeletionGracePeriodSeconds = &now, &seconds
		p.tell("MODIFIED")
		close(p.deleted)
	}
	if seconds <= 0 {
		p.remove()
	}
}

// remove removes the object. The caller holds Server.mu.
func (p *pod) remove() {
	if !p.gone {
		p.gone = true
		delete(p.s.pods, p.object.Name)
		p.tell("DELETED")
	}
}

// live is the life of a pod at the node, until it is deleted.
func (p *pod) live() {
	ctx := p.s.life
	id := ""
	if p.wait(ctx, scheduling) {
		p.change(func(o *corev1.Pod) {
			o.Spec.NodeName = "node"
			o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		})
		id = p.run(ctx)
	}
	select {
	case <-ctx.Done():
	case <-p.deleted:
	}
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if id != "" {
		_, _ = p.s.engine.ContainerRemove(rctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}) // Close sees what is left
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.remove()
}

// wait waits, and reports whether the pod is still wanted.
func (p *pod) wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-p.deleted:
		return false
	case <-t.C:
		return true
	}
}

// waiting says why a container does not start.
func (p *pod) waiting(reason string, err error) {
	p.change(func(o *corev1.Pod) {
		o.Status.ContainerStatuses = p.status(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: err.Error()}})
	})
}

// status is that of the container.
func (p *pod) status(s corev1.ContainerState) []corev1.ContainerStatus {
	c := &p.object.Spec.Containers[0]
	return []corev1.ContainerStatus{{Name: c.Name, Image: c.Image, State: s}}
}

// run makes the container and waits until it has ended, by itself or because the pod is deleted. It
// returns the container, if there is one.
func (p *pod) run(ctx context.Context) (id string) {
	options, err := p.options()
	if err != nil {
		p.waiting("CreateContainerConfigError", err)
		return ""
	}
	made, err := p.s.engine.ContainerCreate(ctx, options)
	switch {
	case errdefs.IsNotFound(err) && p.object.Spec.Containers[0].ImagePullPolicy == corev1.PullNever:
		p.waiting("ErrImageNeverPull", err)
		return ""
	case errdefs.IsNotFound(err):
		p.waiting("ErrImagePull", err)
		return ""
	case err != nil:
		p.waiting("CreateContainerError", err)
		return ""
	}
	if _, err := p.s.engine.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		p.change(func(o *corev1.Pod) {
			o.Status.Phase = corev1.PodFailed
			o.Status.ContainerStatuses = p.status(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "StartError", Message: err.Error(), ExitCode: 128}})
		})
		return made.ID
	}
	p.s.mu.Lock()
	p.container = made.ID
	p.s.mu.Unlock()
	ended := p.until(ctx, made.ID)
	p.s.mu.Lock()
	p.container = ""
	p.s.mu.Unlock()
	if ended.Terminated != nil && p.wait(ctx, lag) {
		p.change(func(o *corev1.Pod) { p.finish(o, ended) })
	}
	return made.ID
}

// finish says in the object how the container has ended.
func (p *pod) finish(o *corev1.Pod, ended corev1.ContainerState) {
	o.Status.ContainerStatuses = p.status(ended)
	o.Status.Phase = corev1.PodSucceeded
	if ended.Terminated.ExitCode != 0 {
		o.Status.Phase = corev1.PodFailed
	}
	if ended.Terminated.Reason == deadlineExceeded {
		o.Status.Phase, o.Status.Reason = corev1.PodFailed, deadlineExceeded
		ended.Terminated.Reason = "Error"
	}
}

// deadlineExceeded is the reason of a pod whose activeDeadlineSeconds are over.
const deadlineExceeded = "DeadlineExceeded"

// until waits for the end of a container, tells of its life meanwhile, and ends it with its pod.
func (p *pod) until(ctx context.Context, id string) corev1.ContainerState {
	wait := p.s.engine.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	running := time.NewTimer(lag)
	defer running.Stop()
	var deadline <-chan time.Time
	if s := p.object.Spec.ActiveDeadlineSeconds; s != nil {
		t := time.NewTimer(time.Duration(*s) * time.Second)
		defer t.Stop()
		deadline = t.C
	}
	deleted, killed, reason := p.deleted, (<-chan time.Time)(nil), ""
	kill := func(signal string) {
		_, _ = p.s.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: signal}) // it may have ended
	}
	for {
		select {
		case <-running.C:
			p.change(func(o *corev1.Pod) {
				o.Status.Phase = corev1.PodRunning
				o.Status.ContainerStatuses = p.status(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
			})
		case <-deadline:
			reason = deadlineExceeded
			kill("KILL")
		case <-deleted:
			deleted = nil
			grace := p.grace
			if grace == 0 {
				grace = lie
			} else {
				kill("TERM")
			}
			t := time.NewTimer(grace)
			defer t.Stop()
			killed = t.C
		case <-killed:
			kill("KILL")
		case err := <-wait.Error:
			if ctx.Err() == nil {
				p.waiting("ContainerStatusUnknown", err)
			}
			return corev1.ContainerState{}
		case end := <-wait.Result:
			return p.ended(ctx, id, int32(end.StatusCode), reason)
		}
	}
}

// ended says how a container has ended.
func (p *pod) ended(ctx context.Context, id string, code int32, reason string) corev1.ContainerState {
	t := &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: metav1.Now()}
	if i, err := p.s.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{}); err == nil && i.Container.State != nil && i.Container.State.OOMKilled && code != 0 {
		t.Reason = "OOMKilled"
	}
	switch {
	case t.Reason != "":
	case code == 0:
		t.Reason = "Completed"
	default:
		t.Reason = "Error"
	}
	return corev1.ContainerState{Terminated: t}
}

// errNoMemory says that a pod has no limit of memory.
var errNoMemory = errors.New("a container without limits of memory and processors is not for tests")
