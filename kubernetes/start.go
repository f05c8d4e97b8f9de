package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/handover"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/runner"
)

// Start implements runner.Transport.
func (b *backend) Start(ctx context.Context, s *runner.Start) (runner.Sandbox, io.ReadWriteCloser, error) {
	b.sweep()
	x := &box{
		cfg: &b.cfg, id: s.ID, image: b.cfg.image(s.Spec.Template), labels: s.Labels, network: s.Spec.Network.Mode,
		want: b.cfg.limits(&s.Spec), life: s.Spec.MaxLife, uid: b.cfg.userID(s.ID), command: s.Command,
	}
	if s.Base != "" {
		x.image, x.fetches = s.Base, true
	} else {
		x.installs, s.Preinstall = b.cfg.installs(), b.cfg.Templates[s.Spec.Template].Packages
	}
	s.Info.Limits = x.limits()
	x.note = s.Note()
	c := &s.Config
	c.UID, c.GID, c.Names, c.AllowWeak = x.uid, x.uid, namesDir+"/socket", b.cfg.AllowWeak
	c.Rlimits["memlock"], c.Rlimits["msgqueue"] = locked, 0 // which would be memory of the kernel beside the sized directories
	c.CodeFilters = b.cfg.AllowCodeFilters || isolationOf(b.cfg.RuntimeClass) != executor.IsolationContainer
	if isolationOf(b.cfg.RuntimeClass) == executor.IsolationGVisor {
		delete(c.Rlimits, "nproc")
	} else {
		c.Rlimits["nproc"] = int64(x.want.Processes)
	}
	if x.takes() == takesPolicies {
		if err := b.ensurePolicy(ctx); err != nil {
			return nil, nil, err
		}
	}
	box := &sandbox{b: b, id: s.ID, image: x.image}
	made, err := b.api.create(ctx, x.pod(), false)
	switch {
	case err == nil:
		box.uid = made.UID
	case s.Attempt > 0 && apierrors.IsAlreadyExists(err): // the first one is on its way out
		return box, nil, &runner.LostError{Err: err}
	case answered(err):
		return nil, nil, b.api.fail(ctx, err) // nothing was made
	default:
		return box, nil, b.api.fail(ctx, err) // it may have been
	}
	box.main, err = b.open(ctx, box, made)
	if err != nil {
		return box, nil, err
	}
	return box, box.main, nil
}

// answered reports whether an error is the word of the API server, and not of something in between.
func answered(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && s.Status().Code < 500 && !apierrors.IsTimeout(err)
}

// How often a pod whose node should know it is asked for a process.
const (
	firstAsk = 40 * time.Millisecond
	lastAsk  = time.Second
	askMore  = 1.25
	lookIf   = 250 * time.Millisecond // how often its status is read meanwhile
)

// open connects to the prelude of a new pod.
func (b *backend) open(ctx context.Context, box *sandbox, pod *corev1.Pod) (*stream, error) {
	s, err := b.openEarly(ctx, box, pod)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, b.late(ctx, box)
	case errors.Is(err, executor.ErrNotFound):
		return nil, driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("pod %s was deleted by somebody while it started", podName(box.id)))
	}
	return s, err
}

// early is how often a node is asked for a process before the API server says that the pod runs.
const early = 2

// openEarly watches a pod until it runs or will not. That it runs, the API server says late: a node
// looks once a second for what has started. So the node is asked before, when pods have started
// lately. That is four requests, and one more for each half minute without a word.
func (b *backend) openEarly(ctx context.Context, box *sandbox, pod *corev1.Pod) (*stream, error) {
	begun := time.Now()
	failure := func(pod *corev1.Pod) error { return b.cfg.startFailure(pod, time.Since(begun)) }
	w, err := b.api.watch(ctx, pod.Name, pod.ResourceVersion)
	if err != nil {
		return nil, b.api.fail(ctx, err)
	}
	defer func() { w.Stop() }()
	var ask <-chan time.Time
	asked := -1 // times; negative until the pod has a node
	for overdue := time.After(b.cfg.scheduleTimeout()); ; {
		cut := false
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-overdue: // it may have no node
		case <-time.After(requestTimeout):
			cut = true // perhaps, without a word
		case <-ask:
			s, err := b.api.opened(ctx, pod.Name, handover.OpenerCommand(python))
			if asked == 0 {
				b.starts.learn(err == nil)
			}
			switch {
			case err == nil:
				return s, nil
			case ctx.Err() == nil && !notYet(err):
				return nil, b.api.fail(ctx, err)
			}
			if asked++; asked < early {
				ask = time.After(b.starts.guess() / 4)
			}
			continue
		case e, ok := <-w.ResultChan():
			now, is := e.Object.(*corev1.Pod)
			switch {
			case !ok, e.Type == watch.Error: // the API server ends what takes long
				cut = true
			case e.Type == watch.Deleted:
				return nil, notFound()
			case is:
				pod = now
			}
		}
		if cut {
			w.Stop()
			if err := remote.Pause(ctx, lookIf); err != nil {
				return nil, err
			}
			again, err := b.api.watch(ctx, pod.Name, "")
			if err != nil {
				return nil, b.api.fail(ctx, err)
			}
			w = again
			continue
		}
		if err := failure(pod); err != nil {
			return nil, err
		}
		if runs(pod) {
			return b.started(ctx, box, handover.OpenerCommand(python), 0, func(pod *corev1.Pod, _ error) error {
				if pod == nil {
					return nil
				}
				return failure(pod)
			})
		}
		if asked < 0 && pod.Spec.NodeName != "" {
			asked, ask = 0, time.After(b.starts.guess())
		}
	}
}

// runs reports whether a node says that the container of a pod runs.
func runs(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}

// startTimes guesses how long a node takes to start a pod: as long as two of three have lately. The
// zero value is ready.
type startTimes struct {
	mu   sync.Mutex
	took time.Duration // zero: firstGuess
}

const (
	firstGuess = 400 * time.Millisecond
	leastGuess = 20 * time.Millisecond
	mostGuess  = 5 * time.Second // then the API server knows as early
	guessStep  = 24              // a part of the guess
)

func (s *startTimes) guess() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.took, firstGuess)
}

// learn is told whether a pod had started after as long as was guessed.
func (s *startTimes) learn(had bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := cmp.Or(s.took, firstGuess)
	if had {
		g -= g / guessStep
	} else {
		g += 2 * g / guessStep
	}
	s.took = min(max(g, leastGuess), mostGuess)
}

// started starts a process in a pod, again and again as long as its node says that it cannot yet.
// It first waits for a while. failed says, given each refusal and now and then the pod, whether to
// give up.
func (b *backend) started(ctx context.Context, box *sandbox, command []string, wait time.Duration, failed func(*corev1.Pod, error) error) (*stream, error) {
	looked := time.Now()
	for ; ; wait = min(max(firstAsk, time.Duration(float64(wait)*askMore)), lastAsk) {
		if err := remote.Pause(ctx, wait); err != nil {
			return nil, err
		}
		s, err := b.api.opened(ctx, podName(box.id), command)
		switch {
		case err == nil:
			return s, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !notYet(err):
			return nil, b.api.fail(ctx, err)
		}
		var pod *corev1.Pod
		if time.Since(looked) >= lookIf {
			looked = time.Now()
			var perr error
			if pod, perr = b.api.get(ctx, podName(box.id)); perr != nil {
				return nil, b.api.fail(ctx, perr)
			}
		}
		if err := failed(pod, err); err != nil {
			return nil, err
		}
	}
}

// late returns the cause of the end of ctx, and if that is a time limit, what the pod waits for.
func (b *backend) late(ctx context.Context, box *sandbox) error {
	cause := context.Cause(ctx)
	lctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	if pod, err := b.api.get(lctx, podName(box.id)); err == nil {
		return fmt.Errorf("%w: %s", cause, waitsFor(pod))
	}
	return cause
}

// opened starts a process that is ready for what it is sent when it says so, and waits for that.
// The API server answers before it asks the node, and loses what was sent to a process that cannot
// be started.
func (c *client) opened(ctx context.Context, pod string, command []string) (*stream, error) {
	s, err := c.exec(ctx, pod, command)
	if err != nil {
		return nil, err
	}
	if err := handover.Await(ctx, s); err != nil {
		s.Close()
		if said := s.stderr(); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return nil, err
	}
	return s, nil
}

// notYet reports whether an error of an exec may mean that the container has not started yet. The
// API server refuses a pod without a node, and the node one without a container, each in its own
// words. What else it may be is seen in the status of the pod.
func notYet(err error) bool {
	var e *exitError
	if errors.As(err, &e) {
		return true
	}
	return apierrors.IsBadRequest(err) || apierrors.IsInternalError(err) || apierrors.IsConflict(err) || apierrors.IsServiceUnavailable(err) || errors.Is(err, io.EOF)
}

// startFailure returns why a pod will not start, in the words of the cluster, or nil if it may.
func (c *Config) startFailure(pod *corev1.Pod, age time.Duration) error {
	if pod.DeletionTimestamp != nil {
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("pod %s is being deleted by somebody while it starts", pod.Name))
	}
	for _, s := range pod.Status.Conditions {
		if s.Type == corev1.PodScheduled && s.Status == corev1.ConditionFalse && age > c.scheduleTimeout() {
			return driver.Fail(executor.ErrExhausted, executor.RanNo,
				fmt.Errorf("no node took pod %s within %v: %s: %s; see schedule_timeout, limits and requests", pod.Name, c.scheduleTimeout(), s.Reason, remote.Words(s.Message, maxWords)))
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if err := containerFailure(&s); err != nil {
			return err
		}
	}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("pod %s has ended while it started: %s", pod.Name, waitsFor(pod)))
	}
	return nil
}

// containerFailure is startFailure for a container.
func containerFailure(s *corev1.ContainerStatus) error {
	if w := s.State.Waiting; w != nil {
		said := fmt.Errorf("image %s: %s: %s", remote.Words(s.Image, maxWords), w.Reason, remote.Words(w.Message, maxWords))
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ErrImageNeverPull", "ImageInspectError", "SignatureValidationFailed":
			return driver.Fail(executor.ErrUnavailable, executor.RanNo, said)
		case "InvalidImageName":
			return driver.Fail(executor.ErrInvalid, executor.RanNo, said)
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff":
			return unsupported(fmt.Errorf("the node cannot make the container: %s: %s", w.Reason, remote.Words(w.Message, maxWords)), "container")
		}
	}
	t := s.State.Terminated
	if t == nil {
		return nil
	}
	switch {
	case t.Reason == "OOMKilled":
		return driver.Fail(executor.ErrExhausted, executor.RanNo, errors.New("the memory of the sandbox did not suffice for its interpreter"))
	case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		return unsupported(fmt.Errorf("the image has no %s that can be executed: %s", python, remote.Words(t.Message, maxWords)), python)
	case t.ExitCode == exitReaches:
		return unsupported(errors.New("a pod reaches the API server, its node or one of policy_targets, so the network of the cluster does not enforce NetworkPolicies; see network"), string(executor.FeatureNetworkNone))
	case t.ExitCode != 0:
		return unsupported(fmt.Errorf("the sandbox was not prepared (exit code %d): %s %s; the log of the pod has more", t.ExitCode, t.Reason, remote.Words(t.Message, maxWords)), python+">=3.9")
	}
	return nil
}

// waitsFor says in a line what the status of a pod is.
func waitsFor(pod *corev1.Pod) string {
	said := string(pod.Status.Phase)
	add := func(reason, message string) {
		if reason != "" || message != "" {
			said += ", " + reason + ": " + message
		}
	}
	add(pod.Status.Reason, pod.Status.Message)
	for _, s := range pod.Status.Conditions {
		if s.Status == corev1.ConditionFalse && s.Type == corev1.PodScheduled {
			add(s.Reason, s.Message)
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			add(w.Reason, w.Message)
		}
		if t := s.State.Terminated; t != nil {
			add(t.Reason, t.Message)
		}
	}
	return remote.Words(said, maxWords)
}
