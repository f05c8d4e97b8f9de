package jupyter

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/server"
)

const (
	maxQueued  = 1000             // requests that wait for a kernel
	startTime  = 2 * time.Minute  // for a sandbox to start
	hiddenTime = 10 * time.Second // for code that the server runs, not the user
)

// The states of a kernel.
const (
	idle       = "idle"
	busy       = "busy"
	restarting = "restarting"
)

// kernel is an interpreter in a sandbox of its own. It does one thing after the other, in the order
// in which clients ask.
type kernel struct {
	s       *Server
	id      string
	about   kernelspec
	created time.Time
	spec    executor.Spec
	key     string // in the Manager
	session string // in the headers of its messages

	ctx  context.Context // ends with the kernel
	stop context.CancelFunc
	turn chan struct{} // a lock: contains a value while something uses the sandbox or waits for it

	ends  sync.Once
	ended error // result of end

	mu       sync.Mutex
	queue    []*task
	bytes    int // of the requests in queue
	working  bool
	cancel   context.CancelCauseFunc // of what it does now
	conns    map[*conn]bool
	away     *conn // that was the last, if there is none now
	state    string
	activity time.Time
	asking   *asking // for input; nil: the code has not asked

	// Only what has its turn uses these.
	made  bool        // it has had a sandbox
	ready bool        // the interpreter can ask for input
	lost  string      // what the user has to know of a new sandbox
	count int         // of the cells
	cells map[int]int // the number of each cell, by the number that the interpreter gave it
	past  past
}

// task is something for which a kernel has a turn.
type task struct {
	conn  *conn // of the client that has asked; nil: the server
	q     request
	do    func(context.Context) // nil: q says it
	abort bool                  // a request before it has failed
	lost  bool                  // the interpreter was restarted
}

var errEnded = refuse(http.StatusNotFound, "the kernel has ended")

// errInterrupted is why a run has been stopped by its user.
var errInterrupted = errors.New("the kernel was interrupted")

func (s *Server) newKernel(about kernelspec, client server.Client) *kernel {
	k := &kernel{
		s: s, id: newID(), about: about, session: newID(), created: time.Now(), activity: time.Now(), state: "starting",
		turn: make(chan struct{}, 1), conns: map[*conn]bool{}, cells: map[int]int{}, spec: s.cfg.Spec,
	}
	k.key = "jupyter/" + url.PathEscape(client.Subject) + "/" + k.id
	k.spec.Subject, k.spec.Attributes, k.spec.Languages = client.Subject, client.Attributes, []executor.Language{about.language}
	k.ctx, k.stop = context.WithCancel(s.ctx)
	return k
}

// put queues a task, first or last.
func (k *kernel) put(t *task, first bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.ctx.Err() != nil:
		return errEnded
	case len(k.queue) >= maxQueued || k.bytes > 0 && k.bytes+len(t.q.content) > int(k.s.cfg.MaxBody):
		return refuse(http.StatusTooManyRequests, "too many requests wait for this kernel")
	}
	if !k.working {
		leave, ok := k.s.live.Enter()
		if !ok {
			return errShutdown
		}
		k.working = true
		go func() { // Server.Close waits for it
			defer leave()
			k.work()
		}()
	}
	at := len(k.queue)
	if first {
		at = 0
	}
	k.queue = slices.Insert(k.queue, at, t)
	k.bytes += len(t.q.content)
	return nil
}

// work does what is queued.
func (k *kernel) work() {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-k.ctx.Done(): // all that is queued fails
	}
	for {
		k.mu.Lock()
		if len(k.queue) == 0 {
			k.working = false
			k.mu.Unlock()
			return
		}
		t := k.queue[0]
		k.queue = k.queue[1:]
		k.bytes -= len(t.q.content)
		ctx, cancel := context.WithCancelCause(k.ctx)
		k.cancel, k.activity = cancel, time.Now()
		k.mu.Unlock()
		if t.do != nil {
			t.do(ctx)
		} else {
			k.answer(ctx, t)
		}
		k.mu.Lock()
		k.cancel, k.activity = nil, time.Now()
		k.mu.Unlock()
		cancel(nil)
	}
}

// call does something when it is its turn, and returns its error.
func (k *kernel) call(ctx context.Context, first bool, f func(context.Context, *sessions.Lease) error) error {
	done := make(chan error, 1)
	t := &task{do: func(own context.Context) {
		both, stop := front.Both(ctx, own)
		defer stop()
		done <- k.with(both, func(l *sessions.Lease) error { return f(both, l) })
	}}
	if err := k.put(t, first); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if k.drop(t) {
			return ctx.Err()
		}
		return <-done
	}
}

// drop removes a task that waits, and reports whether it did.
func (k *kernel) drop(t *task) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.queue)
	k.queue = slices.DeleteFunc(k.queue, func(q *task) bool { return q == t })
	return len(k.queue) < n
}

// with leases the sandbox of the kernel, which is a new one if the last has ended.
func (k *kernel) with(ctx context.Context, f func(*sessions.Lease) error) error {
	if k.ctx.Err() != nil {
		return errEnded
	}
	starting, cancel := context.WithTimeout(ctx, startTime)
	l, err := k.s.sessions.Acquire(starting, k.key, k.spec)
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		if err := l.Release(); err != nil { // the lease ends by itself
			k.s.cfg.Log.WarnContext(ctx, "releasing a kernel", "id", front.RequestID(ctx), "err", err)
		}
	}()
	if l.Fresh {
		k.ready = false
		if k.made {
			k.lost = replaced(l)
		}
		k.made = true
	}
	return f(l)
}

// replaced says what came of the variables and files of a sandbox that has ended.
func replaced(l *sessions.Lease) string {
	if kept := l.Kept; kept != nil && kept.Refused == "" {
		return "The sandbox was replaced. Variables and files are those of the checkpoint of " + kept.Made.UTC().Format(time.RFC3339) + ".\n"
	}
	return "The sandbox was replaced: variables and files are gone.\n"
}

// abort makes the cells that wait fail, because one before them has failed.
func (k *kernel) abort() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.queue {
		t.abort = t.abort || t.q.Type == "execute_request"
	}
}

// interrupt stops what the kernel does now. Its variables stay, where the backend can do that.
func (k *kernel) interrupt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cancel != nil {
		k.cancel(errInterrupted)
	}
}

// restart ends the interpreter, and what waits for it. Files stay.
func (k *kernel) restart(ctx context.Context) error {
	k.abort()
	k.interrupt()
	return k.call(ctx, true, func(ctx context.Context, l *sessions.Lease) (err error) {
		if l.Info().Capabilities.HasFor(k.about.language, executor.FeatureState) {
			err = l.Reset(ctx, executor.Interpreter{Language: k.about.language})
		}
		if err == nil {
			k.ready, k.lost, k.count, k.cells = false, "", 0, map[int]int{}
		}
		return err
	})
}

// end ends the kernel, its sandbox and its connections. It may be called again.
func (k *kernel) end(ctx context.Context) error {
	k.ends.Do(func() {
		k.s.mu.Lock()
		delete(k.s.kernels, k.id)
		maps.DeleteFunc(k.s.opened, func(_ string, n *notebook) bool { return n.kernel == k })
		k.s.mu.Unlock()
		k.stop()
		select {
		case k.turn <- struct{}{}: // from now on nothing makes a sandbox
		case <-ctx.Done():
		}
		k.ended = k.s.sessions.Discard(ctx, k.key)
	})
	return k.ended
}

// publish sends a message to all clients of the kernel.
func (k *kernel) publish(kind string, parent json.RawMessage, content any) {
	m, err := answer(iopub, kind, k.session, parent, content)
	if err != nil { // only hostile media types could do that
		k.s.cfg.Log.Warn("a message cannot be encoded", "type", kind, "err", err)
		return
	}
	k.mu.Lock()
	all := slices.Collect(maps.Keys(k.conns))
	if k.away != nil {
		all = append(all, k.away)
	}
	k.mu.Unlock()
	for _, c := range all {
		c.out.put(m, kind)
	}
}

// status is the content of a message about the state of a kernel.
type status struct {
	State string `json:"execution_state"`
}

// become publishes the state of the kernel.
func (k *kernel) become(state string, parent json.RawMessage) {
	k.mu.Lock()
	k.state = state
	k.mu.Unlock()
	k.publish("status", parent, status{state})
}

// cellName matches the name of a cell in a traceback.
var cellName = regexp.MustCompile(`<cell ([0-9]{1,9})>`)

// renumber gives the cells in a traceback the numbers that the user sees. The interpreter also
// counts the code that the server has run.
func (k *kernel) renumber(traceback string) string {
	return cellName.ReplaceAllStringFunc(traceback, func(name string) string {
		n, _ := strconv.Atoi(name[len("<cell ") : len(name)-1]) // matched
		if shown, ok := k.cells[n]; ok {
			return "<cell " + strconv.Itoa(shown) + ">"
		}
		return name
	})
}
