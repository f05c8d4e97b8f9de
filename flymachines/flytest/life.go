package flytest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// command is what a request wants of a Machine's goroutine. The handler has changed the state
// already.
type command struct {
	kind    commandKind
	signal  int
	timeout time.Duration
	next    *revision // of an update
}

type commandKind int

const (
	doBoot commandKind = iota
	doPrepare
	doStop
	doRestart
	doSuspend
	doResume
	doUpdate
	doDestroy
)

// revision is what an update changes.
type revision struct {
	launch bool
}

const (
	restartPause = 500 * time.Millisecond // times the number of restarts
	defaultStop  = 5 * time.Second
	engineTime   = 2 * time.Minute // for one question to the engine
)

// running is the container of a Machine, as its goroutine sees it.
type running struct {
	id        string
	exit      <-chan exit
	paused    bool
	requested bool        // it is being stopped
	then      commandKind // what follows the stop: doStop (nothing), doRestart, doUpdate or doDestroy
	next      *revision
	deadline  <-chan time.Time // of a stop; nil: none
	timer     *time.Timer
	again     <-chan time.Time // when the restart policy starts it anew; nil: not
}

// exit is how a container has ended.
type exit struct {
	code int
	oom  bool
	at   time.Time
	err  error // it could not be found out, or the container could not be started
}

// begin starts the goroutine of a Machine. The caller holds Server.mu and has made sure that the
// Server is not closed.
func (m *machine) begin() {
	m.s.work.Go(m.live)
}

// live serves a Machine until it is destroyed or the Server is closed.
func (m *machine) live() {
	defer close(m.done)
	var r running
	for {
		select {
		case <-m.s.life.Done():
			return
		case c := <-m.commands:
			m.execute(&r, c)
		case e := <-r.exit:
			m.exited(&r, e)
		case <-r.deadline:
			r.deadline = nil
			m.kill(&r, 9)
		case <-r.again:
			r.again = nil
			m.start(&r)
		}
		if m.is(stateDestroyed) {
			return
		}
	}
}

func (m *machine) is(state string) bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.state == state
}

// to changes the state, unless the Machine is being destroyed and the new state is not the end of
// that.
func (m *machine) to(state, eventType, source string, request *eventRequest) bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.state == stateDestroying && state != stateDestroyed {
		return false
	}
	m.set(state, eventType, source, request)
	return true
}

func (m *machine) execute(r *running, c command) {
	switch c.kind {
	case doBoot:
		m.start(r)
	case doPrepare:
		if m.pull() == nil {
			m.to(stateStopped, "launch", "flyd", nil)
		}
	case doResume:
		m.resume(r)
	case doSuspend:
		m.suspend(r)
	case doStop, doRestart, doUpdate, doDestroy:
		if r.exit == nil {
			r.then, r.next = c.kind, c.next
			m.after(r)
			return
		}
		m.stop(r, c)
	}
}

// stop asks the main process to end, and makes it end when its time is over.
func (m *machine) stop(r *running, c command) {
	r.requested, r.then, r.next = true, c.kind, c.next
	if r.paused {
		ctx, cancel := m.asking()
		_ = settle(ctx, r, func() (client.ContainerUnpauseResult, error) { // what is gone is found out by its end
			return m.s.engine.ContainerUnpause(ctx, r.id, client.ContainerUnpauseOptions{})
		})
		cancel()
		r.paused = false
	}
	c.timeout = cmp.Or(c.timeout, defaultStop)
	if r.timer != nil {
		r.timer.Stop()
	}
	if c.kind != doDestroy {
		ctx, cancel := m.interruptible()
		defer cancel()
		if m.s.hold(ctx, m, holdStop) != nil {
			return // what has interrupted it comes next
		}
	}
	m.kill(r, c.signal)
	r.timer = time.NewTimer(c.timeout)
	r.deadline = r.timer.C
}

// kill signals the main process, through the init that passes signals on. SIGKILL ends both.
func (m *machine) kill(r *running, signal int) {
	ctx, cancel := m.asking()
	defer cancel()
	err := settle(ctx, r, func() (client.ContainerKillResult, error) {
		return m.s.engine.ContainerKill(ctx, r.id, client.ContainerKillOptions{Signal: strconv.Itoa(signal)})
	})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
		m.s.cfg.Log.Warn("machine: signal", "id", m.id, "error", err)
	}
}

// How long, and how often, an engine is asked for what it refuses at first.
const (
	settleTime  = 3 * time.Second
	settlePause = 20 * time.Millisecond
)

// settle calls f until the engine does what it is asked for, the container has ended, or that has
// taken too long. Docker hears of every pause and of every end of one a second time, later: until
// then it may take a container that runs for a paused one and refuse to pause or to signal it, or
// the other way round.
func settle[V any](ctx context.Context, r *running, f func() (V, error)) error {
	begin := time.Now()
	for {
		_, err := f()
		if err == nil || errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) || len(r.exit) > 0 || time.Since(begin) > settleTime {
			return err
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return err
		}
	}
}

// asking bounds one question to the engine.
func (m *machine) asking() (context.Context, context.CancelFunc) {
	return context.WithTimeout(m.s.life, engineTime)
}

// keeping bounds one question that the end of the Server does not cut off: an engine goes on with
// what it makes or removes, and whoever looks for it meanwhile does not see it yet, or sees it
// still.
func (m *machine) keeping() (context.Context, context.CancelFunc) {
	return context.WithTimeout(m.s.hands, engineTime)
}

// interruptible returns a context that the destruction of the Machine ends.
func (m *machine) interruptible() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(m.s.life)
	m.s.mu.Lock()
	m.interrupt = cancel
	if m.state == stateDestroying {
		cancel()
	}
	m.s.mu.Unlock()
	return ctx, cancel
}

// pull gets the image.
func (m *machine) pull() error {
	ctx, cancel := m.interruptible()
	defer cancel()
	err := m.s.hold(ctx, m, holdPull)
	if err == nil {
		m.s.mu.Lock()
		ref := m.cfg.Image
		m.s.mu.Unlock()
		_, err = m.s.findImage(ctx, ref, m.s.cfg.Pull)
	}
	if err != nil && ctx.Err() == nil {
		m.broken(err)
	}
	return err
}

// broken records that a Machine could not be started for a reason that is not its program's.
func (m *machine) broken(err error) {
	m.s.cfg.Log.Warn("machine: cannot be started", "app", m.app.Name, "id", m.id, "error", err)
	m.to(stateFailed, "launch", "flyd", &eventRequest{ExitEvent: &exitEvent{GuestSignal: -1, Signal: -1, Error: err.Error(), ExitedAt: stamp(time.Now())}})
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// start makes a new container and starts it.
func (m *machine) start(r *running) {
	if m.pull() != nil {
		return
	}
	if !m.starting() {
		return
	}
	ctx, cancel := m.interruptible()
	defer cancel()
	if m.s.hold(ctx, m, holdStart) != nil {
		return
	}
	id, err := m.launched()
	*r = running{id: id}
	if errdefs.IsInvalidArgument(err) || errdefs.IsNotFound(err) { // so says the engine of a program that cannot be executed
		m.started()
		m.exited(r, exit{code: 127, at: time.Now(), err: err})
		return
	}
	if err != nil {
		m.discard(r)
		m.broken(err)
		return
	}
	ended := make(chan exit, 1)
	r.exit = ended
	m.s.work.Go(func() { ended <- m.s.outcome(id) })
	m.started()
}

// starting says that a Machine is being started, unless it is being stopped or destroyed meanwhile.
func (m *machine) starting() bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	switch m.state {
	case stateDestroying, stateStopping:
		return false
	case stateStarting:
	default:
		m.set(stateStarting, "start", "flyd", nil)
	}
	return true
}

// started says that a Machine has been started, unless somebody has asked for something else
// meanwhile.
func (m *machine) started() {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.state == stateStarting {
		m.set(stateStarted, "start", "flyd", nil)
	}
}

// launched makes the container and starts it. What it has made when it fails goes with the Machine
// or with the Server.
func (m *machine) launched() (id string, err error) {
	ctx, cancel := m.asking()
	defer cancel()
	m.s.mu.Lock()
	ref := m.cfg.Image
	m.s.mu.Unlock()
	img, err := m.s.findImage(ctx, ref, false)
	if err != nil {
		return "", err
	}
	info, err := m.s.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return "", err
	}
	m.s.mu.Lock()
	o, err := m.options(img, info.Info.NCPU)
	cfg := m.cfg
	m.s.mu.Unlock()
	if err != nil {
		return "", err
	}
	files, err := cfg.archive()
	if err != nil {
		return "", err
	}
	making, cancel := m.keeping()
	defer cancel()
	made, err := m.s.engine.ContainerCreate(making, o)
	if err != nil {
		return "", err
	}
	m.s.mu.Lock()
	m.container = made.ID
	m.s.mu.Unlock()
	if _, err = m.s.engine.CopyToContainer(ctx, made.ID, client.CopyToContainerOptions{DestinationPath: "/", Content: bytes.NewReader(files)}); err != nil {
		return made.ID, fmt.Errorf("files: %w", errors.New(err.Error())) // of another kind than a program that cannot be executed
	}
	_, err = m.s.engine.ContainerStart(ctx, made.ID, client.ContainerStartOptions{})
	return made.ID, err
}

// outcome waits for a container to end and says how it did.
func (s *Server) outcome(id string) exit {
	for {
		w := s.engine.ContainerWait(s.life, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		var err error
		select {
		case <-w.Result:
		case err = <-w.Error:
		}
		if s.life.Err() != nil {
			return exit{err: errClosed}
		}
		ctx, cancel := context.WithTimeout(s.life, engineTime)
		i, ierr := s.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		cancel()
		switch st := i.Container.State; {
		case errdefs.IsNotFound(ierr):
			return exit{code: 137, at: time.Now(), err: errors.New("the container was removed by somebody else")}
		case ierr == nil && st != nil && !st.Running && !st.Paused && !st.Restarting:
			at, perr := time.Parse(time.RFC3339Nano, st.FinishedAt)
			if perr != nil {
				at = time.Now()
			}
			return exit{code: st.ExitCode, oom: st.OOMKilled && st.ExitCode == 137, at: at}
		}
		// The engine does not answer, or has been restarted.
		s.cfg.Log.Debug("engine: waiting again", "error", errors.Join(err, ierr))
		select {
		case <-s.life.Done():
			return exit{err: errClosed}
		case <-time.After(time.Second):
		}
	}
}

// exited records the end of the main process, and does what is to follow.
func (m *machine) exited(r *running, e exit) {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.exit, r.deadline, r.timer = nil, nil, nil
	if errors.Is(e.err, errClosed) {
		return
	}
	m.s.mu.Lock()
	policy, retries, destroys, restarts, tty := m.cfg.Restart.Policy, m.cfg.Restart.MaxRetries, m.cfg.AutoDestroy, m.restarts, m.cfg.Init.TTY
	if m.s.spentOOM(m) {
		e.oom, e.code = true, 137
	}
	again := !r.requested && m.state != stateDestroying && (policy == "always" || policy == "on-failure" && e.code != 0 && restarts < retries)
	ev := &exitEvent{
		RequestedStop: r.requested, Restarting: again, GuestExitCode: e.code, ExitCode: e.code, GuestSignal: -1, Signal: -1,
		OOMKilled: e.oom, ExitedAt: stamp(e.at),
	}
	if e.err != nil {
		ev.GuestError = e.err.Error()
	}
	state := stateStopped
	switch {
	case m.state == stateDestroying, r.requested && r.then != doStop:
		state = m.state
	case again:
		state = stateStarting
	case destroys:
		state = stateDestroying
	}
	m.set(state, "exit", "flyd", &eventRequest{ExitEvent: ev, RestartCount: restarts})
	if m.events[0].Type == "exit" {
		m.events[0].Status = stateStopped
	}
	if again {
		m.restarts++
	}
	m.s.mu.Unlock()
	if e.code != 0 && !r.requested {
		m.s.cfg.Log.Info("machine: its program has failed", "app", m.app.Name, "id", m.id, "exit_code", e.code, "oom", e.oom, "output", m.output(r.id, tty))
	}
	switch {
	case r.requested && state != stateDestroying:
		m.after(r)
	case again:
		m.discard(r)
		r.again = time.After(min(time.Duration(restarts)*restartPause, 10*restartPause))
	case state == stateDestroying:
		r.then = doDestroy
		m.after(r)
	default:
		m.discard(r)
	}
}

func (m *machine) output(id string, tty bool) string {
	if id == "" {
		return ""
	}
	ctx, cancel := m.asking()
	defer cancel()
	return m.s.tail(ctx, id, tty)
}

// after does what follows a stop. There is no main process any more.
func (m *machine) after(r *running) {
	then, next := r.then, r.next
	m.discard(r)
	switch then {
	case doRestart:
		m.start(r)
	case doUpdate:
		if next.launch {
			m.start(r)
		} else if m.pull() == nil {
			m.to(stateStopped, "update", "flyd", nil)
		}
	case doDestroy:
		ctx, cancel := context.WithCancel(m.s.life)
		defer cancel()
		if m.s.hold(ctx, m, holdDestroy) == nil {
			m.to(stateDestroyed, "destroy", "flyd", nil)
		}
	default:
		m.s.mu.Lock()
		destroys := m.cfg.AutoDestroy && m.state != stateDestroying
		if destroys {
			m.set(stateDestroying, "", "flyd", nil)
		} else if m.state == stateStopping {
			m.set(stateStopped, "", "flyd", nil)
		}
		m.s.mu.Unlock()
		if destroys {
			r.then = doDestroy
			m.after(r)
		}
	}
}

// discard removes the container. If the engine does not, the Server tries again when it is closed.
func (m *machine) discard(r *running) {
	*r = running{}
	m.s.mu.Lock()
	id := m.container
	m.container = ""
	m.s.mu.Unlock()
	if id == "" {
		return
	}
	ctx, cancel := m.keeping()
	defer cancel()
	if err := m.s.engine.Removed(ctx, id); err != nil {
		m.s.cfg.Log.Warn("machine: its container is left until the emulator ends", "id", m.id, "error", err)
	}
}

func (m *machine) suspend(r *running) {
	if r.exit == nil || !m.is(stateSuspending) {
		return
	}
	ctx, cancel := m.asking()
	defer cancel()
	err := settle(ctx, r, func() (client.ContainerPauseResult, error) {
		return m.s.engine.ContainerPause(ctx, r.id, client.ContainerPauseOptions{})
	})
	if err != nil {
		m.s.cfg.Log.Warn("machine: suspend", "id", m.id, "error", err)
		m.to(stateStarted, "start", "flyd", nil) // its end is found out elsewhere
		return
	}
	r.paused = true
	m.to(stateSuspended, "suspend", "flyd", nil)
}

func (m *machine) resume(r *running) {
	if r.exit != nil && r.paused && m.s.forgets(m) {
		m.discard(r)
	}
	if r.exit == nil || !r.paused {
		m.start(r) // with Fly, too, a snapshot may be lost: it boots
		return
	}
	ctx, cancel := m.asking()
	defer cancel()
	err := settle(ctx, r, func() (client.ContainerUnpauseResult, error) {
		return m.s.engine.ContainerUnpause(ctx, r.id, client.ContainerUnpauseOptions{})
	})
	if err != nil {
		m.s.cfg.Log.Warn("machine: resume", "id", m.id, "error", err)
		return
	}
	r.paused = false
	m.to(stateStarted, "start", "flyd", nil)
}
