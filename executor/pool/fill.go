package pool

import (
	"context"
	"fmt"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// fill keeps the pool full until the Pool is closed.
func (p *Pool) fill() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.kick:
		case <-timer.C:
		}
		timer.Reset(p.step())
	}
}

// step removes sessions that are too old or too many, starts missing ones, and returns how long to
// wait until the next step.
func (p *Pool) step() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	fresh := p.warm[:0:0]
	for i, w := range p.warm {
		old := now.Sub(w.born) >= p.opts.MaxAge
		if !old && len(p.warm)-i <= p.opts.Size {
			fresh = append(fresh, w)
			continue
		}
		if old {
			p.stats.Expired++
		}
		p.work.Go(func() { w.s.Close() }) // if this fails, the idle TTL removes it
	}
	p.warm = fresh
	wait := p.opts.MaxAge
	if len(p.warm) > 0 {
		wait = p.warm[0].born.Add(p.opts.MaxAge).Sub(now)
	}
	if now.Before(p.again) {
		return min(wait, p.again.Sub(now))
	}
	for len(p.warm)+p.stats.Starting < p.opts.Size && p.stats.Starting < p.opts.Refill {
		p.stats.Starting++
		p.work.Go(p.start)
	}
	return wait
}

// start starts one session in the background.
func (p *Pool) start() {
	s, err := p.create()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Starting--
	if err != nil {
		if p.ctx.Err() == nil {
			p.stats.Failed++
			p.again = time.Now().Add(min(firstWait<<min(p.failed, 10), lastWait))
			p.failed++
		}
	} else {
		p.failed, p.again = 0, time.Time{}
		p.warm = append(p.warm, warm{s, time.Now()})
	}
	p.wake()
}

// create creates a session and runs the prelude in it.
func (p *Pool) create() (executor.Session, error) {
	s, err := p.Executor.Create(p.ctx, p.opts.Spec)
	if err != nil {
		return nil, err
	}
	for i, req := range p.opts.Prelude {
		if err := prelude(p.ctx, s, req); err != nil {
			s.Close() // if this fails, the idle TTL removes it
			return nil, fmt.Errorf("prelude[%d]: %w", i, err)
		}
	}
	if p.opts.Suspended {
		if err := suspend(p.ctx, s); err != nil {
			s.Close() // if this fails, the idle TTL removes it
			return nil, err
		}
	}
	return s, nil
}

func suspend(ctx context.Context, s executor.Session) error {
	var sus executor.Suspender
	if !executor.As(s, &sus) {
		return &executor.Error{Op: "suspend", Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{"suspend"}}
	}
	return sus.Suspend(ctx)
}

func prelude(ctx context.Context, s executor.Session, req executor.Request) error {
	res, err := s.Run(ctx, req, nil)
	if err != nil {
		return err
	}
	return res.Err()
}
