package backends

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"sort"
	"sync"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
)

// The pieces in which the price of bytes is reserved. A piece is as big as what has passed already,
// within these bounds, so that small files reserve little and big ones rarely ask.
const (
	firstPiece = 64 << 10
	lastPiece  = 8 << 20
)

// tries bounds how often less is asked for where a piece is refused, while others ask too.
const tries = 4

// transfer is bytes that pass between a caller and a sandbox in one direction: a file, the input of
// a run, or half of a connection. What they cost is reserved before they pass, and settled at the
// end. One goroutine at a time reserves and passes.
type transfer struct {
	s   *session
	ctx context.Context
	op  string

	mu       sync.Mutex
	accounts []account // that have granted taken
	taken    grant
	asked    int64 // bytes that are reserved, including those that have passed
	moved    int64
	ended    bool
	refused  *executor.Error
}

// transfer begins a transfer. The caller calls settle.
func (s *session) transfer(ctx context.Context, op string) *transfer {
	t := &transfer{s: s, ctx: ctx, op: op}
	if r := s.b.guard.rules(); s.meter.prices.GiB == 0 || len(r.Quotas) == 0 {
		t.asked = math.MaxInt64 // nothing limits it
	}
	return t
}

// reserve returns how many bytes may pass, at least the given number, or why they may not.
func (t *transfer) reserve(least int64) (room int64, err error) {
	t.mu.Lock()
	taken, asked, moved := t.taken, t.asked, t.moved
	refused, ended := t.refused, t.ended
	t.mu.Unlock()
	switch {
	case refused != nil:
		return 0, refused
	case ended:
		return 0, fs.ErrClosed
	case asked-moved >= least:
		return asked - moved, nil
	}
	m := &t.s.meter
	price := func(n int64) executor.Money { return m.passing(asked+n) - m.passing(asked) }
	least -= asked - moved
	piece := max(least, min(max(moved, firstPiece), lastPiece))
	for range tries {
		taken, refused = t.more(taken, ledger.Amount{Cost: price(piece)})
		x := (*exceededError)(nil)
		if refused == nil || !errors.As(refused.Err, &x) {
			break
		}
		fits := int64(sort.Search(int(piece), func(n int) bool { return price(int64(n)+1) > x.left.Cost }))
		if fits < least {
			break
		}
		piece = fits
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case refused != nil:
		h := t.s.Session.Info().Handle
		refused.Op, refused.Backend, refused.Session = t.op, h.Backend, h.Session
		t.refused = refused
		return 0, refused
	case t.ended: // a connection was closed meanwhile
		if t.taken == nil {
			taken.end("", ledger.Amount{})
		}
		return 0, fs.ErrClosed
	}
	t.taken, t.asked = taken, asked+piece
	return t.asked - t.moved, nil
}

// more reserves an amount in addition to what is taken.
func (t *transfer) more(taken grant, a ledger.Amount) (grant, *executor.Error) {
	g := &t.s.b.guard
	now := t.s.accountsNow(g.rules())
	if taken != nil {
		return taken, g.more(t.ctx, limitsOf(t.accounts, now), taken, a)
	}
	t.accounts = now
	taken, _, refused := g.take(t.ctx, now, ledger.Use{Amount: a})
	return taken, refused
}

// passed counts bytes that have passed.
func (t *transfer) passed(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.moved += int64(n)
	}
}

// settle ends the transfer. It returns how many bytes have passed and what they cost. A second call
// does nothing.
func (t *transfer) settle() (n int64, cost executor.Money) {
	t.mu.Lock()
	n, taken, ended := t.moved, t.taken, t.ended
	t.ended = true
	t.mu.Unlock()
	if ended {
		return n, 0
	}
	cost = t.s.meter.traffic(n)
	if cost > 0 || taken != nil {
		t.s.charge(taken, true, ledger.Amount{Cost: cost}, cost)
	}
	return n, cost
}

// refusal returns why the transfer was refused, or else err.
func (t *transfer) refusal(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused != nil {
		return t.refused
	}
	return err
}

// input is what passes into a sandbox.
type input struct {
	r    io.Reader
	t    *transfer
	stop func(error) // called with a refusal; may be nil
}

// Read implements io.Reader. What it returns passes into the sandbox.
func (i *input) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	if n > 0 {
		if _, refused := i.t.reserve(int64(n)); refused != nil {
			if i.stop != nil {
				i.stop(refused)
			}
			return 0, refused
		}
		i.t.passed(n)
	}
	return n, err
}

// typedInput is an input whose reader wants to know what the code has read.
type typedInput struct {
	*input
	executor.InputCounter
}

// Read implements io.Reader.
func (i typedInput) Read(p []byte) (int, error) { return i.input.Read(p) }

// stdin returns r as the input of a run. If t refuses some of it, stop is called, because the code
// must not take a part of its input for all of it.
func (t *transfer) stdin(r io.Reader, stop func(error)) io.Reader {
	i := &input{r: r, t: t, stop: stop}
	if c, ok := r.(executor.InputCounter); ok {
		return typedInput{i, c}
	}
	return i
}

// output is what passes out of a sandbox.
type output struct {
	r io.Reader
	t *transfer
}

// Read implements io.Reader. No more is read than may pass.
func (o *output) Read(p []byte) (int, error) {
	room, err := o.t.reserve(1)
	if err != nil {
		return 0, err
	}
	n, err := o.r.Read(p[:min(int64(len(p)), room)])
	o.t.passed(n)
	return n, err
}

// conn is a connection to a sandbox. It is closed when it may cost no more.
type conn struct {
	executor.Conn
	in, out *transfer
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	room, err := c.out.reserve(1)
	if err != nil {
		return 0, c.over(err)
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), room)])
	c.out.passed(n)
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (done int, err error) {
	for len(p) > 0 && err == nil {
		var room int64
		if room, err = c.in.reserve(1); err != nil {
			return done, c.over(err)
		}
		var n int
		n, err = c.Conn.Write(p[:min(int64(len(p)), room)])
		c.in.passed(n)
		done, p = done+n, p[n:]
	}
	return done, err
}

// over closes the connection, of which no more may pass.
func (c *conn) over(err error) error {
	_ = c.Close() // the caller gets the reason
	return err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.in.settle()
	defer c.out.settle()
	return c.Conn.Close()
}

// passing does a run, and returns how many bytes it has passed but for its code and its input,
// which is settled already.
func (s *session) passing(ctx context.Context, req executor.Request, emit func(executor.Event) error) (res *executor.Result, n int64, err error) {
	if s.meter.prices.GiB == 0 {
		res, err = s.Session.Run(ctx, req, emit)
		return res, 0, err
	}
	if req.Stdin != nil {
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		defer stop(nil)
		t := s.transfer(ctx, "run")
		req.Stdin = t.stdin(req.Stdin, stop)
		defer func() {
			t.settle()
			if refused := t.refusal(nil); refused != nil {
				e := *t.refused
				e.Ran, err = executor.RanYes, &e
			}
		}()
	}
	res, err = s.Session.Run(ctx, req, s.meter.counted(emit, &n))
	if res != nil {
		for _, a := range res.Artifacts {
			n += int64(len(a.Data))
		}
	}
	return res, n, err
}
