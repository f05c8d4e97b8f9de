package runner

import "sync"

// compiled is the program as the Python of some sandboxes has compiled it. Compiling takes most of
// the time in which a supervisor and an interpreter come up, so the first sandbox of a kind gives
// what it has compiled to the others. It does so when it is set up, before user code could have a
// hand in it, and only sandboxes that are made from the same get it.
type compiled struct {
	runner []byte // the supervisor, for ahead
	parts  []byte // the others, for its set-up
}

// maxBases bounds the kinds of sandboxes whose compiled program is kept, of about 200 KB each.
const maxBases = 64

// compilations keeps what was compiled, by Base.
type compilations struct {
	mu sync.Mutex
	by map[string]*compiled // nil: somebody was asked for it
}

// use adds to the configuration of a new sandbox what there is, or that it is asked for it.
func (c *compilations) use(box Sandbox, cfg *Config) {
	b, ok := box.(Base)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	made, known := c.by[b.Base()]
	if cfg.compiled = made; !known && len(c.by) < maxBases {
		cfg.compile = true
		if c.by == nil {
			c.by = map[string]*compiled{}
		}
		c.by[b.Base()] = nil
	}
}

// learn keeps what a new sandbox has answered. If that is nil the sandbox has failed, and what it
// may have failed because of is not used again.
func (c *compilations) learn(box Sandbox, made *compiled) {
	b, ok := box.(Base)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if made != nil {
		c.by[b.Base()] = made
	} else {
		delete(c.by, b.Base())
	}
}
