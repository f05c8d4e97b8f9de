package pyodide

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// spareLife is how long a spare waits for a session.
const spareLife = time.Minute

// spares are processes that are started before a session needs them. What a session is comes with
// begin, so a spare has seen nothing of any session, and it serves one at most. Limits are set at
// the start of a process, so spares are for sessions with Python and the limits of the
// configuration.
//
// A start keeps almost two processors busy. So a spare is started only after a session that could
// have used it is ready, and while no other one is being created. If a session needs a spare that
// is still starting, it waits: a start of its own would be slower.
type spares struct {
	d    *Driver
	ctx  context.Context // of starts
	want int
	life time.Duration

	keepers sync.WaitGroup

	mu       sync.Mutex
	all      []*spare // which no session has taken
	creating int      // sessions that are being created
	starting bool     // one of all is starting
	used     bool     // a session has needed a spare since all were there
	closed   bool
}

// spare is a process without a session.
type spare struct {
	dir    string             // for the files of the session
	cancel context.CancelFunc // ends the start, or else the watch over the process
	ready  chan struct{}      // closed when one of the following is valid
	h      *host
	err    error
}

// end ends the process. No other goroutine ends it or hands it out.
func (sp *spare) end() error {
	sp.cancel()
	<-sp.ready
	if sp.h != nil {
		sp.h.end()
	}
	return os.RemoveAll(sp.dir)
}

// create is called before a session is created, and the function that it returns afterwards. used
// says that the session could have used a spare.
func (p *spares) create() (done func(used bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.creating++
	return func(used bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.creating--
		p.used = p.used || used
		p.fill()
	}
}

// fill starts a spare if one is missing and it disturbs nobody. The caller holds mu.
func (p *spares) fill() {
	if len(p.all) >= p.want {
		p.used = false
	}
	if !p.used || p.creating > 0 || p.starting || p.closed {
		return
	}
	p.starting = true
	sp := &spare{ready: make(chan struct{})}
	ctx, cancel := context.WithCancel(p.ctx)
	sp.cancel = cancel
	p.all = append(p.all, sp)
	p.keepers.Go(func() { p.keep(ctx, sp) })
}

// keep starts a spare, and ends it if no session takes it in time.
func (p *spares) keep(ctx context.Context, sp *spare) {
	sp.dir, sp.h, sp.err = p.start(ctx)
	close(sp.ready)
	p.mu.Lock()
	p.starting = false
	p.used = p.used && sp.err == nil // otherwise the next session tries again
	p.fill()
	p.mu.Unlock()
	if sp.err == nil {
		t := time.NewTimer(p.life)
		defer t.Stop()
		select {
		case <-t.C:
		case <-sp.h.dead:
		case <-ctx.Done():
		}
	}
	if p.remove(sp) {
		p.warn("ending a spare process", sp.end())
	}
}

// start starts a process in a directory of its own.
func (p *spares) start(ctx context.Context) (dir string, h *host, err error) {
	ready, runDir, err := p.d.prepared(ctx)
	if err == nil {
		dir, err = os.MkdirTemp(runDir, "spare-")
	}
	if err == nil {
		h, err = p.d.launch(ctx, ready, executor.Python, dir, p.d.options(executor.Spec{}))
	}
	if ctx.Err() == nil {
		p.warn("starting a spare process", err)
	}
	return dir, h, err
}

func (p *spares) warn(what string, err error) {
	if err != nil {
		p.d.env.Logger().Warn("pyodide: "+what, "error", err)
	}
}

// remove removes a spare from the list, and reports whether it was there.
func (p *spares) remove(sp *spare) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.all, sp)
	if i >= 0 {
		p.all = slices.Delete(p.all, i, i+1)
	}
	return i >= 0
}

// fit reports whether a spare can serve a session.
func (p *spares) fit(spec executor.Spec) bool {
	o, usual := p.d.options(spec), p.d.options(executor.Spec{})
	return spec.Languages[0] == executor.Python && o.memory == usual.memory && o.disk == usual.disk
}

// take returns a process for a session, and the directory for its files. If there is none, it
// returns nil and dir.
func (p *spares) take(ctx context.Context, dir string) (*host, string) {
	for ctx.Err() == nil {
		p.mu.Lock()
		if len(p.all) == 0 {
			p.mu.Unlock()
			break
		}
		sp := p.all[0]
		p.all = p.all[1:]
		p.mu.Unlock()
		select {
		case <-sp.ready:
		case <-ctx.Done():
		}
		sp.cancel()
		<-sp.ready
		if ctx.Err() == nil && sp.err == nil && !sp.h.isDead() {
			return sp.h, sp.dir
		}
		p.warn("ending a spare process", sp.end())
	}
	return nil, dir
}

// close ends all spares. No session is being created.
func (p *spares) close() {
	p.mu.Lock()
	all := p.all
	p.all, p.closed = nil, true
	p.mu.Unlock()
	for _, sp := range all {
		p.warn("ending a spare process", sp.end())
	}
	p.keepers.Wait()
}

// launch starts a process when starting allows it. dir is for the files of its session.
func (d *Driver) launch(ctx context.Context, p *prepared, l executor.Language, dir string, o sandboxOptions) (*host, error) {
	done, err := d.starting(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	deno := filepath.Join(dir, "deno")
	if err := p.newDenoDir(deno); err != nil {
		return nil, err
	}
	return p.start(ctx, l, deno, o)
}
