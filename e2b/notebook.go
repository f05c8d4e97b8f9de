package e2b

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/e2b/internal/api"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// found is a driver of sandboxes that are found again: what the runner makes of the backend.
type found interface {
	driver.Driver
	driver.Attacher
	driver.Lister
}

// notebooks is the driver of sessions whose code runs in E2B's code interpreter.
type notebooks struct {
	found
	b *backend
}

// Capabilities implements driver.Driver.
func (n *notebooks) Capabilities() executor.Capabilities {
	c := n.found.Capabilities()
	c.Languages = nil
	for _, l := range n.b.cfg.languages() {
		c.Languages = append(c.Languages, runtimeOf(l))
	}
	if len(c.Languages) > 1 {
		c.Features = append(c.Features, executor.FeatureMixedLanguages)
	}
	return c
}

// Create implements driver.Driver.
func (n *notebooks) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	held := *c
	// What runs there are leases, which last longer than the code. The service, whose clock ends
	// the sandbox, sees nothing of a context that is being made, which may take longer than the
	// idle TTL.
	held.Spec.Languages, held.Spec.MaxRun = []executor.Language{executor.Python}, executor.RunLimits{}
	held.Spec.IdleTTL = max(c.Spec.IdleTTL, time.Duration(1+len(c.Spec.Languages))*n.b.cfg.timeout())
	s, err := n.found.Create(ctx, &held)
	if err != nil {
		return nil, err
	}
	nb := n.b.notebook(s)
	err = nb.open(ctx, &c.Spec)
	if err == nil && held.Spec.IdleTTL > c.Spec.IdleTTL {
		nb.expires, err = nb.KeepAlive(ctx, n.b.idle(&c.Spec))
	}
	if err != nil {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.b.cfg.timeout())
		defer cancel()
		if rerr := s.Destroy(rctx); rerr != nil {
			return nil, driver.Leftover(err, s.Destroy)
		}
		return nil, err
	}
	return nb, nil
}

// Attach implements driver.Attacher.
func (n *notebooks) Attach(ctx context.Context, h executor.Handle) (driver.Session, error) {
	s, err := n.found.Attach(ctx, h)
	if err != nil {
		return nil, err
	}
	return n.b.notebook(s), nil
}

// runnerSession is a session of the runner.
type runnerSession interface {
	driver.Session
	driver.Detacher
	driver.Refresher
	driver.Resetter
	driver.KeepAliver
	driver.Filer
	driver.Aser
}

// notebook is a session whose code runs in E2B's code interpreter. Commands and files are the
// supervisor's, and so is what the code interpreter has not: each run of code holds an interpreter
// of the supervisor, which says that the context is taken, watches which files change, and ends
// with a reset, a later holder or the sandbox.
type notebook struct {
	runnerSession
	b    *backend
	id   string // of the sandbox
	code *interpreter
	// expires is when the sandbox ends by its idle TTL, if it had more while its contexts were
	// made.
	expires time.Time

	mu      sync.Mutex
	kernels map[executor.Interpreter]*kernel // that this holder has used
}

// Info implements driver.Session.
func (n *notebook) Info() executor.SessionInfo {
	i := n.runnerSession.Info()
	if !n.expires.IsZero() {
		i.Expires = n.expires
	}
	return i
}

// kernel is a context of the code interpreter. Only who holds its lease uses it.
type kernel struct {
	id      string
	which   executor.Interpreter
	process identity
	seen    int  // the last number of an execution; a lower one says that it began anew
	hidden  int  // executions that were the adapter's
	before  int  // executions that the code interpreter has counted and nobody has asked for
	anew    bool // the last execution was in another process than those before: its state is lost
	suspect bool // nobody knows what runs in it
	settled bool // what the last run has set was taken back
}

// begins notes the number of an execution.
func (k *kernel) begins(count int) {
	if count > 0 {
		k.anew = count <= k.seen
		if k.anew {
			k.hidden, k.before = 0, 0
		}
		k.seen = count
	}
}

// answers takes what a hidden cell has reported about its process. Some kernels replace the process
// and count on.
func (k *kernel) answers(a *answered) {
	now := identity{a.PID, a.Born}
	k.anew = k.anew || k.process.known() && now != k.process
	k.process, k.hidden = now, a.Hidden
}

// cell returns the number of the last execution among those of the user.
func (k *kernel) cell() int { return max(k.seen-k.hidden-k.before, 1) }

// fresh reports whether no code of the user has run since the context was set up.
func (k *kernel) fresh() bool { return k.seen == k.hidden+k.before }

// notebook makes a notebook of a session.
func (b *backend) notebook(s driver.Session) *notebook {
	n := &notebook{runnerSession: s.(runnerSession), b: b, kernels: map[executor.Interpreter]*kernel{}}
	var box *sandbox
	n.As(&box)
	n.id, n.code = box.id, b.service.interpreter(box.api)
	return n
}

// owner returns the user and group of code in the code interpreter. Files have to belong to them.
func (b *backend) owner(ctx context.Context, sandbox *api.Sandbox) (uid, gid int, err error) {
	code := b.service.interpreter(sandbox)
	if err := code.health(ctx); err != nil {
		return 0, 0, b.noInterpreter(ctx, sandbox, err)
	}
	n := &notebook{code: code}
	a, err := n.hidden(ctx, &kernel{which: executor.Interpreter{Language: executor.Python}}, "")
	if err != nil {
		return 0, 0, b.noInterpreter(ctx, sandbox, err)
	}
	return a.UID, a.GID, nil
}

// noInterpreter returns why a new sandbox has no code interpreter.
func (b *backend) noInterpreter(ctx context.Context, sandbox *api.Sandbox, err error) error {
	var said *ServiceError
	if errors.As(err, &said) && said.notListening() || errors.Is(err, errNoContext) {
		return unsupported(fmt.Errorf("the template %s has no code interpreter: %w; use one that is made from %s, or the kernel %s",
			sandbox.TemplateID, err, InterpreterTemplate, KernelRunner), "kernel:"+KernelCodeInterpreter)
	}
	return b.service.fail(ctx, "reaching the code interpreter", err)
}

// open makes the contexts of a new session.
func (n *notebook) open(ctx context.Context, spec *executor.Spec) error {
	s := setup{Keep: true, Env: pointers(spec.Env), Dir: executor.Workdir}
	for k, v := range map[string]string{"TZ": "UTC", "LANG": "C.UTF-8"} {
		if _, given := s.Env[k]; !given {
			s.Env[k] = &v
		}
	}
	if _, err := n.pass(ctx, sessionFile, s); err != nil {
		return err
	}
	for _, l := range spec.Languages {
		k := &kernel{which: executor.Interpreter{Language: l}}
		if err := n.begin(ctx, k); err != nil {
			var said *ServiceError
			if errors.As(err, &said) && !undelivered(err) && said.Status <= http.StatusInternalServerError {
				return unsupported(fmt.Errorf("the code interpreter of the template has no %s: %w", l, err), "language:"+string(l))
			}
			return n.failed(ctx, "making a context", err)
		}
	}
	return nil
}

// failed classifies an error of a step that runs no code of the user.
func (n *notebook) failed(ctx context.Context, what string, err error) error {
	var e *executor.Error
	if errors.As(err, &e) {
		return driver.Fail(e.Kind, executor.RanNo, e.Err)
	}
	return n.b.service.fail(ctx, what, err)
}

// name returns the name of a context for the supervisor, which is also that of the file with its
// note. Names of languages have no dots.
func name(which executor.Interpreter) string { return string(which.Language) + "." + which.Context }

// begin makes the context of k, writes down its ID for other holders and sets it up.
func (n *notebook) begin(ctx context.Context, k *kernel) error {
	id, err := n.code.create(ctx, k.which.Language)
	if err != nil {
		return err
	}
	*k = kernel{id: id, which: k.which}
	a, err := n.hidden(ctx, k, path.Join(deskDir, sessionFile))
	if err == nil && a.Error != "" {
		err = fmt.Errorf("%w: %s", errHidden, printable(a.Error, maxMessage))
	}
	if err == nil {
		k.before = max(k.seen-k.hidden, 0)
		err = n.Files().Write(ctx, path.Join(deskDir, name(k.which)), strings.NewReader(k.note().String()), 0o644)
	}
	if err != nil {
		n.discard(ctx, id)
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kernels[k.which] = k
	return nil
}

// find returns the context of a run whose lease is held. noted is the note of the context.
func (n *notebook) find(ctx context.Context, which executor.Interpreter, noted note) (k *kernel, err error) {
	n.mu.Lock()
	k = n.kernels[which]
	n.mu.Unlock()
	switch {
	case noted.id == "":
		k = nil
	case k == nil || k.id != noted.id: // another holder's
		k = &kernel{id: noted.id, which: which, process: noted.process, before: noted.before, suspect: true}
	}
	switch {
	case k == nil:
	case noted.over: // it has ended, and what runs there by now has nothing of what was set up
		if err := n.drop(ctx, k, false); err != nil {
			return nil, err
		}
		k = nil
	case k.suspect:
		lost, err := n.settle(ctx, k)
		if err != nil {
			return nil, err
		}
		if lost {
			k = nil
			break
		}
		n.mu.Lock()
		n.kernels[which] = k
		n.mu.Unlock()
	}
	if k == nil {
		k = &kernel{which: which}
		for try := 0; ; try++ {
			err := n.begin(ctx, k)
			if err == nil || !startsAgain(err) || try+1 == beginnings || !pause(ctx, try, err) {
				return k, err
			}
		}
	}
	return k, nil
}

// beginnings is how often a context is asked for while Jupyter starts again, which takes about 3
// seconds.
const beginnings = 6

// startsAgain reports whether a context may be had later. When Jupyter is down, the service in
// front of it only says that it fails.
func startsAgain(err error) bool {
	var said *ServiceError
	return errors.As(err, &said) && said.Status >= http.StatusInternalServerError && !said.gone()
}

const (
	// heedTime is how long code may take to heed that its connection was closed. Then its
	// context is removed, for which E2B takes 3 s.
	heedTime = 3 * time.Second
	// probeTime is how long the first probe may take: one that comes too early is never
	// executed.
	probeTime = time.Second
	// abortTime is how long after the end of a connection what comes next may be thrown away
	// with it.
	abortTime = 100 * time.Millisecond
)

// settle waits until nothing runs in a context, and ends what does not stop. E2B takes the end of a
// connection for an interrupt, if it notices. If the state is lost, the context is gone.
func (n *notebook) settle(ctx context.Context, k *kernel) (lost bool, err error) {
	k.suspect, k.settled = true, true // or it is gone
	pctx, cancel := context.WithTimeout(ctx, heedTime)
	defer cancel()
	for patience := probeTime; pctx.Err() == nil; patience = heedTime {
		select {
		case <-time.After(abortTime):
		case <-pctx.Done():
		}
		tctx, cancel := context.WithTimeout(pctx, patience)
		_, err = n.hidden(tctx, k, "")
		cancel()
		if errors.Is(err, errNoContext) || errors.Is(err, errHidden) || err == nil && k.anew {
			return true, n.drop(ctx, k, false)
		}
		if err == nil {
			k.suspect = false
			return false, nil
		}
	}
	return true, n.drop(ctx, k, true)
}

// drop removes a context, so that the next run begins anew. With wait it returns after the code
// interpreter has removed it, which ends what runs there.
func (n *notebook) drop(ctx context.Context, k *kernel, wait bool) error {
	n.mu.Lock()
	if n.kernels[k.which] == k {
		delete(n.kernels, k.which)
	}
	n.mu.Unlock()
	if err := n.Files().Remove(ctx, path.Join(deskDir, name(k.which))); err != nil {
		return err
	}
	if wait {
		return n.code.remove(ctx, k.id)
	}
	n.discard(ctx, k.id)
	return nil
}

// discard removes a context in which no code of the user runs, in the background, because E2B takes
// some seconds.
func (n *notebook) discard(ctx context.Context, id string) {
	n.b.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.b.cfg.timeout())
		defer cancel()
		defer context.AfterFunc(n.b.life, cancel)()
		if err := n.code.remove(ctx, id); err != nil && n.b.life.Err() == nil {
			n.b.env.Logger().Debug("a context is left in its sandbox", "sandbox", n.id, "context", id, "error", err)
		}
	})
}

// Reset implements driver.Resetter.
func (n *notebook) Reset(ctx context.Context, which executor.Interpreter) error {
	if err := n.reset(ctx, which); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return n.failed(ctx, "resetting", err)
	}
	return nil
}

func (n *notebook) reset(ctx context.Context, which executor.Interpreter) error {
	matching := map[string]executor.Interpreter{}
	add := func(i executor.Interpreter) {
		if (which.Language == "" || which.Language == i.Language) && (which.Context == "" || which.Context == i.Context) {
			matching[name(i)] = i
		}
	}
	n.mu.Lock()
	for i := range n.kernels {
		add(i)
	}
	n.mu.Unlock()
	for info, err := range n.Files().List(ctx, deskDir) {
		if errors.Is(err, fs.ErrNotExist) {
			break // code has removed it
		}
		if err != nil {
			return err
		}
		if l, c, ok := strings.Cut(path.Base(info.Name), "."); ok {
			add(executor.Interpreter{Language: executor.Language(l), Context: c})
		}
	}
	for _, file := range slices.Sorted(maps.Keys(matching)) {
		// First what runs, which hears why it ends, then its context.
		if err := n.runnerSession.Reset(ctx, executor.Interpreter{Language: executor.Python, Context: file}); err != nil {
			return err
		}
		noted, err := n.noted(ctx, file)
		if err != nil {
			return err
		}
		k := &kernel{id: noted.id, which: matching[file]}
		n.mu.Lock()
		if k.id == "" && n.kernels[k.which] != nil {
			k.id = n.kernels[k.which].id
		}
		delete(n.kernels, k.which)
		n.mu.Unlock()
		if k.id == "" {
			continue
		}
		if err := n.drop(ctx, k, true); err != nil {
			return err
		}
	}
	return nil
}

// noted returns what is written down of a context; its zero value: nothing.
func (n *notebook) noted(ctx context.Context, file string) (note, error) {
	rc, err := n.Files().Read(ctx, path.Join(deskDir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return note{}, nil
	}
	if err != nil {
		return note{}, err
	}
	defer rc.Close()
	text, _ := io.ReadAll(io.LimitReader(rc, maxNote)) // what is no note is none
	return parseNote(string(text)), nil
}
