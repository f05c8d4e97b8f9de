package e2b

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/execbroker/execbroker/executor"
)

// maxContexts bounds the contexts of a sandbox.
const maxContexts = 64

// codeContext is one interpreter of a sandbox, as clients see it.
type codeContext struct {
	ID       string            `json:"id"`
	Language executor.Language `json:"language"`
	Cwd      string            `json:"cwd"`

	shell bool          // Bash that is run as commands
	name  string        // Interpreter.Context; empty only where there are no contexts
	dir   string        // Request.Dir of the run that starts it
	turn  chan struct{} // holds a token while something runs

	mu    sync.Mutex
	begun bool
	stop  context.CancelCauseFunc // of the last run of Bash; nil: none
	runs  int                     // of Bash
}

// contexts are those of a sandbox. Each language has one from the beginning, whose ID is the name
// of the language.
type contexts struct {
	caps executor.Capabilities
	home string        // where code is that asks for no other place
	one  chan struct{} // the turn of everything, where not all can run side by side; else nil

	mu  sync.Mutex
	all []*codeContext // in the order of their making
}

func newContexts(caps executor.Capabilities, home string) *contexts {
	c := &contexts{caps: caps, home: home}
	if !caps.Has(executor.FeatureParallelRuns) || !caps.Has(executor.FeatureFilesDuringRun) {
		c.one = make(chan struct{}, 1)
	}
	for _, r := range caps.Languages {
		x := c.make(r.Language, "")
		x.ID, x.name = string(r.Language), ""
		if caps.HasFor(r.Language, executor.FeatureContexts) {
			x.name = "default" // restarting an interpreter without a name would restart all of its language
		}
		c.all = append(c.all, x)
	}
	// JavaScript and TypeScript that share their interpreters share the first one, too.
	for _, pair := range [][2]executor.Language{{executor.JavaScript, executor.TypeScript}, {executor.TypeScript, executor.JavaScript}} {
		i := slices.IndexFunc(c.all, func(x *codeContext) bool { return x.Language == pair[0] })
		if _, ok := caps.Runtime(pair[1]); !ok || i < 0 || slices.ContainsFunc(c.all, func(x *codeContext) bool { return x.Language == pair[1] }) {
			continue
		}
		x := c.make(pair[1], "")
		x.ID, x.name, x.turn = string(pair[1]), c.all[i].name, c.all[i].turn
		c.all = append(c.all, x)
	}
	if hasShell(caps) {
		x := c.make(bash, "")
		x.ID, x.shell = string(bash), true
		c.all = append(c.all, x)
	}
	return c
}

func (c *contexts) make(l executor.Language, dir string) *codeContext {
	x := &codeContext{ID: newToken(), Language: l, Cwd: dir, dir: dir, turn: c.one}
	x.name = x.ID
	if dir == "" {
		x.Cwd = c.home
	}
	if c.one == nil {
		x.turn = make(chan struct{}, 1)
	}
	return x
}

// take waits until nobody else has the channel turn and takes it; give returns it. A nil channel is
// never waited for.
func take(ctx context.Context, turn chan struct{}) (give func(), err error) {
	if turn == nil {
		return func() {}, nil
	}
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// language returns the name that the contract has for a language.
func (c *contexts) language(name string) executor.Language {
	name = cmp.Or(strings.ToLower(strings.TrimSpace(name)), string(c.caps.Languages[0].Language))
	if l, ok := map[string]executor.Language{"js": executor.JavaScript, "ts": executor.TypeScript}[name]; ok {
		return l
	}
	return executor.Language(name)
}

// find returns the context that a client names by its ID or, with an empty one, by its language.
func (c *contexts) find(id, language string) (*codeContext, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := id
	if id == "" {
		want = string(c.language(language))
	}
	i := slices.IndexFunc(c.all, func(x *codeContext) bool { return x.ID == want })
	switch {
	case i >= 0:
		return c.all[i], nil
	case id == "":
		return nil, c.lacks(want)
	}
	return nil, refuse(http.StatusNotFound, "Context %s not found", id)
}

// lacks says that there is no such language, and which there are. It has the status whose message
// the SDKs show.
func (c *contexts) lacks(language string) error {
	var there []string
	for _, x := range c.all {
		if x.ID == string(x.Language) {
			there = append(there, x.ID)
		}
	}
	return refuse(http.StatusNotFound, "language %q is not in this sandbox, which has %s", language, strings.Join(there, ", "))
}

// add makes a context.
func (c *contexts) add(language, dir string) (*codeContext, error) {
	first, err := c.find("", language)
	if err != nil {
		return nil, err
	}
	l := first.Language
	missing := c.caps.MissingForRequest(executor.Request{Language: l, Context: "new", Dir: dir})
	if len(missing) > 0 && !first.shell {
		return nil, unsupported(strings.Join(missing, ", "))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= maxContexts {
		return nil, refuse(http.StatusTooManyRequests, "a sandbox has at most %d contexts; remove one first", maxContexts)
	}
	x := c.make(l, dir)
	x.shell = first.shell
	c.all = append(c.all, x)
	return x, nil
}

func (c *contexts) list() []*codeContext {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

func (c *contexts) remove(x *codeContext) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(y *codeContext) bool { return x == y })
}

// restart ends the interpreter of x, and what runs in it. The next run starts it anew, in the
// directory that it was made with.
func (b *sandbox) restart(ctx context.Context, x *codeContext) error {
	x.mu.Lock()
	x.runs = 0
	begun := x.begun
	x.begun = false
	x.mu.Unlock()
	switch {
	case !begun:
		return nil
	case x.shell:
		return b.restartShell(ctx, x)
	}
	return b.seen(b.session.Reset(ctx, executor.Interpreter{Language: x.Language, Context: x.name}))
}

// start returns the directory for the next run of x. It is "" if the interpreter has started
// before.
func (x *codeContext) start() (dir string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.begun {
		dir = x.dir
	}
	x.begun = true
	return dir
}
