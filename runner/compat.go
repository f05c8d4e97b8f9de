package runner

// This file goes when the adapters of this module have moved to Open.

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// Place is what an adapter knows of the sandbox that a runner is in.
type Place interface {
	// Bridge opens a further connection, with the fence of this holder, when the last one was cut.
	Bridge(ctx context.Context) (*client, error)
	// Fate asks the provider what has become of the sandbox. A sandbox that may come back is not gone.
	Fate(ctx context.Context) (Fate, error)
	// Remove destroys the sandbox. One that is gone is not an error.
	Remove(ctx context.Context) error
}

// Fate is what has become of a sandbox.
type Fate struct {
	Gone   bool
	Reason executor.Reason // why; empty: the provider does not know
}

// Holder is a sandbox as one process holds it: a connection to its runner, and another one when the first was cut. It is most of a
// driver.Session. All methods are safe for concurrent use.
type Holder struct {
	at        Place
	destroyed atomic.Bool
	joining   chan struct{} // holds a value while a new connection is being opened

	mu sync.Mutex
	c  *client
}

// NewHolder makes a Holder of a connection. The Holder owns it from then on.
func NewHolder(c *client, at Place) *Holder {
	return &Holder{at: at, c: c, joining: make(chan struct{}, 1)}
}

// Connected returns the connection as it is.
func (h *Holder) Connected() *client {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.c
}

// Client returns a connection to the runner: another one if the last was cut, by an engine that was restarted for example.
func (h *Holder) Client(ctx context.Context) (*client, error) {
	if c := h.Connected(); !wasCut(c) {
		return c, nil
	}
	select {
	case h.joining <- struct{}{}:
		defer func() { <-h.joining }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	old := h.Connected()
	if !wasCut(old) {
		return old, nil
	}
	c, err := h.at.Bridge(ctx)
	if err != nil {
		return nil, err
	}
	old.Detach() // has ended; this waits for its goroutines
	h.mu.Lock()
	h.c = c
	h.mu.Unlock()
	return c, nil
}

// errAside is the end of a connection to a sandbox that is put aside.
var errAside = errors.New("closed while the sandbox is put aside")

// Aside closes the connection and calls f, which puts the sandbox aside, before another one can be opened. The next use opens it, through
// Place.Bridge.
func (h *Holder) Aside(ctx context.Context, f func() error) error {
	select {
	case h.joining <- struct{}{}:
		defer func() { <-h.joining }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c := h.Connected()
	c.end(&LostError{Err: errAside})
	c.wg.Wait()
	return f()
}

// Run implements driver.Session.
func (h *Holder) Run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	c, err := h.Client(ctx)
	if err != nil {
		return driver.Exit{Code: -1}, err
	}
	exit, err := c.Run(ctx, req, emit)
	if exit.FilesLost {
		h.bury(ctx)
	}
	return h.outcome(ctx, exit, err)
}

// bury removes a sandbox that its supervisor has ended: where the supervisor is not the main process, what it could not end lives on. A
// provider that does not answer ends the sandbox by the time that it was given.
func (h *Holder) bury(ctx context.Context) {
	ctx, cancel := driver.StopContext(ctx)
	defer cancel()
	_ = h.at.Remove(ctx) // see above
}

// outcome finds out what a run was that ended without a word of the runner: with its sandbox, or with the connection only.
func (h *Holder) outcome(ctx context.Context, exit driver.Exit, err error) (driver.Exit, error) {
	var e *executor.Error
	var lost *LostError
	if !errors.As(err, &e) || !errors.As(err, &lost) && !(h.destroyed.Load() && errors.Is(err, executor.ErrClosed)) {
		return exit, err
	}
	died := func(reason executor.Reason) (driver.Exit, error) {
		if e.Ran == executor.RanYes {
			return driver.Exit{Code: -1, Reason: reason, StateLost: true, FilesLost: true}, nil
		}
		return exit, driver.Fail(executor.ErrNotFound, e.Ran, errGone)
	}
	if h.destroyed.Load() {
		return died(executor.ReasonLifetime)
	}
	ctx, cancel := driver.StopContext(ctx)
	defer cancel()
	fate, ferr := h.at.Fate(ctx)
	if ferr != nil || !fate.Gone || fate.Reason == "" {
		return exit, err // that the provider does not answer either says nothing about the code
	}
	return died(fate.Reason)
}

// Explain says of an operation that was cut short whether its sandbox is gone.
func (h *Holder) Explain(ctx context.Context, err error) error {
	var e *executor.Error
	var lost *LostError
	if !errors.As(err, &e) || !errors.As(err, &lost) {
		return err
	}
	if fate, ferr := h.at.Fate(ctx); ferr == nil && fate.Gone {
		return driver.Fail(executor.ErrNotFound, e.Ran, errGone)
	}
	return err
}

// Reset implements driver.Resetter.
func (h *Holder) Reset(ctx context.Context, which executor.Interpreter) error {
	c, err := h.Client(ctx)
	if err != nil {
		return err
	}
	err = h.Explain(ctx, c.Reset(ctx, which))
	if errors.Is(err, executor.ErrNotFound) && !wasCut(c) {
		h.bury(ctx)
	}
	return err
}

// KeepAlive implements driver.KeepAliver.
func (h *Holder) KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error) {
	c, err := h.Client(ctx)
	if err != nil {
		return time.Time{}, err
	}
	expires, err := c.KeepAlive(ctx, idle)
	return expires, h.Explain(ctx, err)
}

// Suspend implements driver.Suspender, by stopping all processes of user code. The supervisor goes on and ends the sandbox in time.
func (h *Holder) Suspend(ctx context.Context) error {
	c, err := h.Client(ctx)
	if err != nil {
		return err
	}
	return h.Explain(ctx, c.Suspend(ctx))
}

// Dial implements driver.Dialer.
func (h *Holder) Dial(ctx context.Context, port int) (executor.Conn, error) {
	c, err := h.Client(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := c.Dial(ctx, port)
	return conn, h.Explain(ctx, err)
}

// Refreshed returns info with what the runner says of it now: that the sandbox lives, and for how long. It does not count as use.
func (h *Holder) Refreshed(ctx context.Context, info executor.SessionInfo) (executor.SessionInfo, error) {
	c, err := h.Client(ctx)
	if err != nil {
		return info, err
	}
	st, err := c.Status(ctx)
	if err != nil {
		return info, h.Explain(ctx, err)
	}
	info.State, info.Expires = executor.SessionRunning, st.Expires
	return info, nil
}

// Destroy implements driver.Session.
func (h *Holder) Destroy(ctx context.Context) error {
	fctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	if c, err := h.Client(fctx); err == nil && errors.Is(c.Leave(fctx), executor.ErrClosed) && !h.destroyed.Load() {
		c.Detach()
		return driver.Fail(executor.ErrClosed, executor.RanNo, errors.New("a later holder has taken over"))
	}
	h.destroyed.Store(true)
	err := h.at.Remove(ctx)
	h.Connected().Detach()
	return err
}

// Detach implements driver.Detacher.
func (h *Holder) Detach() error { return h.Connected().Detach() }

// heldFiles are the files of the runner, over whatever connection there is.
type heldFiles struct{ h *Holder }

var _ driver.Files = heldFiles{}

// Files implements driver.Filer.
func (h *Holder) Files() driver.Files { return heldFiles{h} }

// with calls f with the files of the runner.
func (f heldFiles) with(ctx context.Context, call func(driver.Files) error) error {
	r, err := f.h.Client(ctx)
	if err != nil {
		return err
	}
	return f.h.Explain(ctx, call(r.Files()))
}

// Read implements driver.Files.
func (f heldFiles) Read(ctx context.Context, name string) (rc io.ReadCloser, err error) {
	err = f.with(ctx, func(r driver.Files) (err error) { rc, err = r.Read(ctx, name); return err })
	return rc, err
}

// Write implements driver.Files.
func (f heldFiles) Write(ctx context.Context, name string, from io.Reader, mode fs.FileMode) error {
	return f.with(ctx, func(r driver.Files) error { return r.Write(ctx, name, from, mode) })
}

// Stat implements driver.Files.
func (f heldFiles) Stat(ctx context.Context, name string) (info executor.FileInfo, err error) {
	err = f.with(ctx, func(r driver.Files) (err error) { info, err = r.Stat(ctx, name); return err })
	return info, err
}

// List implements driver.Files.
func (f heldFiles) List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	return func(yield func(executor.FileInfo, error) bool) {
		r, err := f.h.Client(ctx)
		if err != nil {
			yield(executor.FileInfo{}, err)
			return
		}
		for info, err := range r.Files().List(ctx, dir) {
			if !yield(info, f.h.Explain(ctx, err)) {
				return
			}
		}
	}
}

// Mkdir implements driver.Files.
func (f heldFiles) Mkdir(ctx context.Context, name string) error {
	return f.with(ctx, func(r driver.Files) error { return r.Mkdir(ctx, name) })
}

// Rename implements driver.Files.
func (f heldFiles) Rename(ctx context.Context, from, to string) error {
	return f.with(ctx, func(r driver.Files) error { return r.Rename(ctx, from, to) })
}

// Remove implements driver.Files.
func (f heldFiles) Remove(ctx context.Context, name string) error {
	return f.with(ctx, func(r driver.Files) error { return r.Remove(ctx, name) })
}

// These are what adapters have called so far.
type Client = client

// SetUp is setUp.
func SetUp(ctx context.Context, conn io.ReadWriteCloser, cfg Config) (*client, error) {
	return setUp(ctx, conn, cfg)
}

// Attach is join.
func Attach(ctx context.Context, conn io.ReadWriteCloser, fence int64) (*client, error) {
	return join(ctx, conn, fence)
}

// StartGuest is setUp of a Guest.
func StartGuest(ctx context.Context, conn io.ReadWriteCloser, cfg Config, g Guest) (*client, error) {
	cfg.Guest = &g
	return setUp(ctx, conn, cfg)
}

// Command is command.
func Command(python string) []string { return command(python) }

// BridgeCommand is bridgeCommand.
func BridgeCommand(python, socket string) []string { return bridgeCommand(python, socket) }

// Features are languageFeatures.
func Features() []executor.Feature { return languageFeatures }

// At returns c with a socket.
func (c Config) At(socket string) Config { c.socket = socket; return c }
