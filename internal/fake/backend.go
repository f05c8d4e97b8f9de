package fake

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// Type is the type of the backend in Info and Handle.
const Type = "fake"

// Options configures New. The zero value is a backend that has every feature, in Python and
// JavaScript, and answers immediately.
type Options struct {
	// Capabilities are what the backend declares. It has nothing else. Without a language they are
	// All().
	Capabilities executor.Capabilities
	// Packages are the names of packages that can be installed. Nil: a few.
	Packages []string
	// CreateTime is how long the creation of a sandbox takes.
	CreateTime time.Duration
	// Mute: sessions are no executor.Enders.
	Mute bool
}

// All returns capabilities with every feature of the contract, in the given languages or in Python
// and JavaScript. With only one language, languages cannot be mixed.
func All(languages ...executor.Language) executor.Capabilities {
	c := executor.Capabilities{Templates: []string{"data-science"}, Isolation: executor.IsolationProcess}
	if len(languages) == 0 {
		languages = []executor.Language{executor.Python, executor.JavaScript}
	}
	for _, l := range languages {
		c.Languages = append(c.Languages, executor.Runtime{Language: l, Version: "0"})
	}
	for _, i := range executor.Features() {
		if !i.PerLanguage {
			if i.Feature != executor.FeatureMixedLanguages || len(languages) > 1 {
				c.Features = append(c.Features, i.Feature)
			}
			continue
		}
		for n := range c.Languages {
			c.Languages[n].Features = append(c.Languages[n].Features, i.Feature)
		}
	}
	return c
}

// Without returns c without some features, in all languages.
func Without(c executor.Capabilities, features ...executor.Feature) executor.Capabilities {
	drop := func(f executor.Feature) bool { return slices.Contains(features, f) }
	c.Features = slices.DeleteFunc(slices.Clone(c.Features), drop)
	c.Languages = slices.Clone(c.Languages)
	for i := range c.Languages {
		c.Languages[i].Features = slices.DeleteFunc(slices.Clone(c.Languages[i].Features), drop)
	}
	return c
}

// Op is an operation of the backend that a test can make fail or wait.
type Op string

// The operations.
const (
	OpCreate      Op = "create"
	OpLookup      Op = "lookup"
	OpAttach      Op = "attach"
	OpDestroy     Op = "destroy"
	OpLastContact Op = "last-contact"
	OpSessions    Op = "sessions"
	OpRefresh     Op = "refresh"
	OpRun         Op = "run" // before the code starts
	OpReset       Op = "reset"
	OpKeepAlive   Op = "keep-alive"
	OpFiles       Op = "files"
	OpDial        Op = "dial"
)

// Backend is a provider in memory. Any number of Executors share it, and it knows the sandboxes
// that they left.
type Backend struct {
	opts Options
	caps executor.Capabilities

	mu      sync.Mutex
	boxes   map[string]*sandbox
	scripts map[Op]*scripted
	calls   map[Op]int
}

// scripted is what a test has set for an operation.
type scripted struct {
	err  error
	left int
	held chan struct{} // closed when the operation may continue
}

// New makes a backend without sandboxes.
func New(opts Options) *Backend {
	if len(opts.Capabilities.Languages) == 0 {
		opts.Capabilities = All()
	}
	if opts.Packages == nil {
		opts.Packages = []string{"six", "ms", "numpy"}
	}
	return &Backend{
		opts: opts, caps: opts.Capabilities,
		boxes: map[string]*sandbox{}, scripts: map[Op]*scripted{}, calls: map[Op]int{},
	}
}

// Open returns an Executor over b. An empty Owner becomes "fake".
func (b *Backend) Open(env driver.Env) (executor.Executor, error) {
	return Open(b.Driver(), env)
}

// Open returns an Executor over a driver of a Backend, including one from Dial.
func Open(d driver.Driver, env driver.Env) (executor.Executor, error) {
	env.Owner = cmp.Or(env.Owner, Type)
	return driver.New(d, env, driver.Options{Type: Type, StopTimeout: 2 * time.Second, CleanupTimeout: 5 * time.Second})
}

// Fail makes the next n calls of an operation fail with err, which should come from driver.Fail;
// other errors become internal errors. n < 0: all calls from now on; n = 0: none.
func (b *Backend) Fail(op Op, n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.script(op).err, b.script(op).left = err, n
}

// Hold makes calls of an operation wait until release is called or their context ends.
func (b *Backend) Hold(op Op) (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := make(chan struct{})
	b.script(op).held = held
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		close(held)
		if s := b.script(op); s.held == held {
			s.held = nil
		}
	})
}

// script returns what a test has set for an operation. The caller holds mu.
func (b *Backend) script(op Op) *scripted {
	if b.scripts[op] == nil {
		b.scripts[op] = &scripted{}
	}
	return b.scripts[op]
}

// Calls returns how often an operation was called.
func (b *Backend) Calls(op Op) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[op]
}

// enter begins an operation, with the failures and waits that the test has set.
func (b *Backend) enter(ctx context.Context, op Op) error {
	b.mu.Lock()
	b.calls[op]++
	s := b.script(op)
	held := s.held
	b.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.left == 0 {
		return nil
	}
	if s.left > 0 {
		s.left--
	}
	return s.err
}

// Sandboxes returns the IDs of the existing sandboxes, including dead ones, in order.
func (b *Backend) Sandboxes() []string {
	var ids []string
	for _, s := range b.list(nil) {
		ids = append(ids, s.id)
	}
	return ids
}

// Break makes a sandbox dead, as a crash of its machine would. It still exists until it is
// destroyed or expires.
func (b *Backend) Break(id string) {
	if s := b.find(id); s != nil {
		s.end(errBroken)
	}
}

// Cut ends the connections of all holders, as the death of their processes would have done some
// time ago. What they use afterwards works.
func (b *Backend) Cut(ago time.Duration) {
	for _, s := range b.list(nil) {
		s.mu.Lock()
		clear(s.holders)
		s.contact = time.Now().Add(-ago)
		s.mu.Unlock()
	}
}

func (b *Backend) find(id string) *sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.boxes[id]
}

// list returns the sandboxes that have all of the labels, in order.
func (b *Backend) list(labels map[string]string) []*sandbox {
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.boxes))
	b.mu.Unlock()
	all = slices.DeleteFunc(all, func(s *sandbox) bool { return !s.matches(labels) })
	slices.SortFunc(all, func(a, c *sandbox) int { return strings.Compare(a.id, c.id) })
	return all
}

// create starts a sandbox. A second create with the same ID returns the same sandbox.
func (b *Backend) create(ctx context.Context, c *driver.Create) (*sandbox, error) {
	if err := b.enter(ctx, OpCreate); err != nil {
		return nil, err
	}
	if !pause(b.opts.CreateTime, ctx.Done()) {
		return nil, context.Cause(ctx)
	}
	s := newSandbox(b, c)
	for _, name := range c.Spec.Aliases {
		if err := s.disk.alias(name); err != nil {
			s.end(errDestroyed)
			return nil, driver.Fail(executor.ErrUnsupported, executor.RanNo, err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.boxes[s.id] = s
	return s, nil
}

// remove forgets a sandbox and ends everything in it.
func (b *Backend) remove(s *sandbox) {
	b.mu.Lock()
	delete(b.boxes, s.id)
	b.mu.Unlock()
	s.end(errDestroyed)
}
