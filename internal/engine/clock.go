package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// run is one execution between New and the driver. All of it but the timer lives on the goroutine
// that called Run.
type run struct {
	call
	sandbox sandboxContext // of the driver
	caller  context.Context
	req     *executor.Request
	emit    func(executor.Event) error
	grace   time.Duration // after the wall time

	timer   *time.Timer // to the start, then of the wall time
	running atomic.Bool // EventStarted has come: what the timer is about
	started time.Time
	seq     int
	written int64
	over    bool  // more than OutputBytes was written
	stopErr error // what event returns from now on
	emitErr error // what the caller's emit has returned
	stdout  stream
	stderr  stream
	res     executor.Result
}

// start starts the clock that runs until the sandbox has accepted the code.
func (r *run) start() {
	r.sandbox = sandboxContext{r.ctx, r.x.o.StopTimeout}
	r.stdout.max, r.stderr.max = max(r.req.Keep, 0), max(r.req.Keep, 0)
	r.timer = time.AfterFunc(r.x.o.StartTimeout, func() {
		if r.running.Load() {
			r.cancel(errWall)
		} else {
			r.cancel(errStart)
		}
	})
}

// stop ends the clock. Events that a driver reports later, against its contract, have no effect.
func (r *run) stop() {
	r.timer.Stop()
	r.stopErr = errEnded
}

// accepted notes that the sandbox has accepted the code, and starts the clock of the wall time. It
// reports whether that was in time: if not, the run is being stopped as not started, and that it
// started after all is known.
func (r *run) accepted() bool {
	inTime := r.timer.Stop()
	r.started = time.Now()
	if !inTime {
		r.halt(errStart) // the timer is about to do that too
		return false
	}
	if w := r.req.Limits.WallTime; w != executor.NoLimit {
		r.running.Store(true)
		r.timer.Reset(w + r.grace)
	}
	return true
}

// halt stops the code. The first reason counts.
func (r *run) halt(reason error) {
	r.cancel(reason)
	if r.stopErr == nil {
		r.stopErr = reason
	}
}
