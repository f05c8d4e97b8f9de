package backends

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// follower watches what a user does with a session, and has it repeated in order. Its methods that
// a session calls do no I/O and never wait. A nil follower does nothing.
type follower struct {
	s          *shadows
	sh         *shadow
	control    bool
	to         string // the backend of the repetition
	spec       executor.Spec
	subject    string
	attributes map[string]string
	original   string // session
	wake       chan struct{}

	mu    sync.Mutex
	busy  int // operations of the user in progress
	queue []step
	bytes int64 // in the queue
	begun bool
	over  bool   // the user's session has ended
	left  string // why no more steps are taken
}

// step is an operation of the user that has ended and is to be repeated.
type step struct {
	size int64
	do   func(ctx context.Context, x executor.Session) error // what changes the sandbox; nil for a run
	file *file                                               // what do writes
	run  *pastRun
}

// file is a file that a user has written.
type file struct {
	name string
	data []byte
}

// pastRun is a run that has ended.
type pastRun struct {
	language executor.Language
	req      executor.Request
	stdin    []byte
	result   executor.Result
	wall     time.Duration // the limit that it had
}

// enter begins an operation of the user. The caller calls exit if it returns true.
func (f *follower) enter() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left != "" {
		return false
	}
	if f.busy++; f.busy > 1 {
		f.leaveLocked(leftConcurrent, false)
	}
	return true
}

// exit ends an operation: with the step that repeats it, with the reason why the conversation
// leaves, or with neither if it has changed nothing.
func (f *follower) exit(st *step, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy--
	switch {
	case f.left != "":
	case why != "":
		f.leaveLocked(why, false)
	case st != nil:
		f.push(*st)
	}
}

// push adds a step. The caller holds the lock.
func (f *follower) push(st step) {
	switch {
	case len(f.queue) >= maxShadowQueue:
		f.leaveLocked(leftSlow, true)
		return
	case f.bytes+st.size > maxFollowBytes || !f.s.hold(st.size):
		f.leaveLocked(leftMemory, true)
		return
	}
	f.queue, f.bytes = append(f.queue, st), f.bytes+st.size
	if st.run != nil && !f.begun { // the conversation is chosen at its first run
		f.begun = true
		if why := f.s.begin(f); why != "" {
			f.begun = false
			f.leaveLocked(why, true)
			return
		}
	}
	f.signal()
}

func (f *follower) signal() {
	select {
	case f.wake <- struct{}{}:
	default: // it is awake already
	}
}

// leave takes the conversation out of the sample. What is in the queue is still repeated, unless
// drop is set.
func (f *follower) leave(why string, drop bool) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaveLocked(why, drop)
}

func (f *follower) leaveLocked(why string, drop bool) {
	if f.left == "" {
		f.left = why
		f.sh.add(func(c *ShadowCounts) { c.leave(why) })
	}
	if drop || !f.begun {
		f.drop()
	}
	f.signal()
}

// drop empties the queue. The caller holds the lock.
func (f *follower) drop() {
	f.s.hold(-f.bytes)
	f.queue, f.bytes = nil, 0
}

// ended is called when the user's session has ended. What is in the queue is still repeated.
func (f *follower) ended() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if !f.begun {
		f.left = leftEnded // it was never in the sample, so it is not counted
		f.drop()
	}
	f.signal()
}

// next returns the next step, if there is one now. more is false when there will be none.
func (f *follower) next() (st step, ok, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) > 0 {
		st = f.queue[0]
		f.queue = f.queue[1:]
		f.bytes -= st.size
		f.s.hold(-st.size)
		return st, true, true
	}
	if f.over && f.left == "" {
		f.leaveLocked(leftEnded, false)
	}
	return st, false, f.left == ""
}

// runWatch is a run of the user in progress.
type runWatch struct {
	f     *follower
	run   pastRun
	input *heard
	why   string
}

// running begins a run of the user, and returns the request with what it needs to be repeated. The
// caller calls ended on what it returns.
func (f *follower) running(s *session, req executor.Request, wall time.Duration) (executor.Request, *runWatch) {
	if !f.enter() {
		return req, nil
	}
	w := &runWatch{f: f, run: pastRun{language: s.language(req.Language), req: req, wall: wall}}
	_, typed := req.Stdin.(executor.InputCounter)
	switch {
	case req.Terminal != nil:
		w.why = leftTerminal
	case len(req.Env) > 0:
		w.why = leftEnv
	case wall <= 0:
		w.why = leftNoWall
	case typed:
		w.why = leftInput
	case req.Stdin != nil:
		w.input = &heard{r: req.Stdin, most: maxHeard}
		req.Stdin = w.input
	}
	return req, w
}

// ended ends a run of the user.
func (w *runWatch) ended(res *executor.Result, err error) {
	if w == nil {
		return
	}
	why := w.why
	if e := (*executor.Error)(nil); err != nil && errors.As(err, &e) && e.Ran == executor.RanNo {
		w.f.exit(nil, "")
		return
	}
	switch {
	case err != nil && res != nil && res.Status == executor.StatusCanceled, errors.Is(err, context.Canceled):
		why = leftCanceled
	case err != nil || res == nil:
		why = leftError
	}
	var ok bool
	if w.run.stdin, ok = w.input.bytes(); !ok {
		why = leftInput
	}
	if why != "" {
		w.f.exit(nil, why)
		return
	}
	w.run.result = outline(res)
	w.run.req.Stdin, w.run.req.ID = nil, ""
	w.run.req.Command = slices.Clone(w.run.req.Command)
	if a := w.run.req.Artifacts; a != nil {
		names := *a
		names.Globs, names.Contents = slices.Clone(a.Globs), false
		w.run.req.Artifacts = &names
	}
	size := len(w.run.stdin) + len(w.run.req.Code) + len(res.Stdout) + len(res.Stderr)
	for _, o := range w.run.result.Outputs {
		for _, data := range o.Data {
			size += len(data)
		}
	}
	w.f.exit(&step{size: int64(size), run: &w.run}, "")
	if res.Status == executor.StatusTimedOut || res.Status == executor.StatusKilled {
		w.f.leave(leftStopped, false)
	}
}

// outline is a result without what is not compared. The caller may change the original.
func outline(res *executor.Result) executor.Result {
	r := *res
	if e := res.Exception; e != nil {
		clone := *e
		r.Exception = &clone
	}
	r.Outputs = slices.Clone(res.Outputs)
	for i, o := range r.Outputs {
		data := executor.MIMEBundle{}
		for mime, content := range o.Data {
			if mime != "text/plain" {
				content = nil
			}
			data[mime] = content
		}
		r.Outputs[i].Data = data
	}
	r.Artifacts = slices.Clone(res.Artifacts)
	for i := range r.Artifacts {
		r.Artifacts[i].Data = nil
	}
	return r
}

// heard remembers what is read through it, unless it is longer than most.
type heard struct {
	r    io.Reader
	most int

	mu   sync.Mutex
	text []byte
	long bool
}

// maxHeard bounds the input of a run that is repeated.
const maxHeard = 1 << 20

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.long = h.long || len(h.text)+n > h.most; h.long {
		h.text = nil
	} else {
		h.text = append(h.text, p[:n]...)
	}
	return n, err
}

// bytes returns what was read so far. A Read may still be in progress.
func (h *heard) bytes() (text []byte, ok bool) {
	if h == nil {
		return nil, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text[:len(h.text):len(h.text)], !h.long
}

// carried are the files of a session whose changes are repeated.
type carried struct {
	executor.Files
	f *follower
}

// files returns the files of a session that f follows.
func (f *follower) files(of executor.Files) executor.Files {
	if f == nil {
		return of
	}
	return &carried{of, f}
}

// operation makes a change of the sandbox, and has it repeated by what repeat returns, or says why
// it cannot be. failed is the reason to leave if the change fails and may have been made in part.
func (f *follower) operation(failed string, do func() error, repeat func() (st *step, why string)) error {
	if !f.enter() {
		return do()
	}
	err := do()
	f.made(err, failed, repeat)
	return err
}

// made ends a change that has ended with err.
func (f *follower) made(err error, failed string, repeat func() (st *step, why string)) {
	switch {
	case err == nil:
		f.exit(repeat())
	case unchanged(err):
		f.exit(nil, "")
	default:
		f.exit(nil, failed)
	}
}

// unchanged reports whether a change that failed has changed nothing.
func unchanged(err error) bool {
	return slices.ContainsFunc([]error{
		fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid,
		executor.ErrTooLarge, executor.ErrBusy, executor.ErrInvalid, executor.ErrUnsupported, executor.ErrClosed,
	}, func(kind error) bool { return errors.Is(err, kind) })
}

// change makes a change of files, and has it repeated.
func (c *carried) change(ctx context.Context, do func(ctx context.Context, to executor.Files) error) error {
	return c.f.operation(leftFiles, func() error { return do(ctx, c.Files) }, func() (*step, string) {
		return &step{do: func(ctx context.Context, x executor.Session) error { return do(ctx, x.Files()) }}, ""
	})
}

// Write implements executor.Files.
func (c *carried) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	if !c.f.enter() {
		return c.Files.Write(ctx, name, r, mode)
	}
	h := &heard{r: r, most: maxFollowBytes}
	err := c.Files.Write(ctx, name, h, mode)
	c.f.made(err, leftFiles, func() (*step, string) {
		data, whole := h.bytes()
		if !whole {
			return nil, leftMemory
		}
		return &step{size: int64(len(data)), file: &file{name, data}, do: func(ctx context.Context, x executor.Session) error {
			return x.Files().Write(ctx, name, bytes.NewReader(data), mode)
		}}, ""
	})
	return err
}

// Mkdir implements executor.Files.
func (c *carried) Mkdir(ctx context.Context, name string) error {
	return c.change(ctx, func(ctx context.Context, to executor.Files) error { return to.Mkdir(ctx, name) })
}

// Rename implements executor.Files.
func (c *carried) Rename(ctx context.Context, from, name string) error {
	return c.change(ctx, func(ctx context.Context, to executor.Files) error { return to.Rename(ctx, from, name) })
}

// Remove implements executor.Files.
func (c *carried) Remove(ctx context.Context, name string) error {
	return c.change(ctx, func(ctx context.Context, to executor.Files) error { return to.Remove(ctx, name) })
}
