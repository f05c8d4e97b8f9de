package e2b

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// lease is a run of the supervisor beside one of the code interpreter.
type lease struct {
	id   chan string     // gets what is written down of the context, once
	live context.Context // until it has ended, by end or otherwise
	exit driver.Exit     // set when live ends
	err  error

	input  *io.PipeWriter
	cancel context.CancelFunc
}

// leaseCode says what is written down of a context, and waits until its input ends.
const leaseCode = `import sys
try:
    with open(%q) as f:
        print(f.read(1000), flush=True)
except OSError:
    print(flush=True)
sys.stdin.read()
`

const (
	// leaseSlack is how much longer than the wall time of the code, which is counted here, that of the lease is.
	leaseSlack = time.Minute
	leaseBytes = 1 << 20
	// leaseEnd is how long a lease may take to end by itself when nobody waits for what it has found any more.
	leaseEnd = 2 * time.Second
)

// lease begins one for a request, if nothing else runs in the context.
func (n *notebook) lease(ctx context.Context, which executor.Interpreter, req *executor.Request) (*lease, string, error) {
	lctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	in, out := io.Pipe()
	l := &lease{id: make(chan string, 1), input: out, cancel: cancel}
	var ended context.CancelFunc
	l.live, ended = context.WithCancel(context.WithoutCancel(ctx))
	hold := executor.Request{
		ID: "lease-" + strings.ToLower(rand.Text()), Language: executor.Python, Context: name(which),
		Code: fmt.Sprintf(leaseCode, path.Join(deskDir, name(which))), Stdin: in, Artifacts: req.Artifacts,
		Limits: executor.RunLimits{WallTime: executor.NoLimit, OutputBytes: leaseBytes},
	}
	if req.Limits.WallTime != executor.NoLimit {
		hold.Limits.WallTime = req.Limits.WallTime + leaseSlack
	}
	var said strings.Builder
	go func() { // end waits for it
		defer ended()
		l.exit, l.err = n.Holder.Run(lctx, &hold, func(e executor.Event) error {
			if e.Kind != executor.EventStdout || said.Len() > leaseBytes {
				return nil
			}
			said.Write(e.Data)
			if id, _, ok := strings.Cut(said.String(), "\n"); ok {
				select {
				case l.id <- id:
				default: // it was said
				}
			}
			return nil
		})
		in.Close() // nobody reads it any more
	}()
	select {
	case id := <-l.id:
		return l, id, nil
	case <-l.live.Done():
		cancel()
		return nil, "", l.why()
	case <-ctx.Done():
		l.end(ctx)
		return nil, "", driver.Fail(executor.ErrUnavailable, executor.RanNo, context.Cause(ctx))
	}
}

// why says why a lease that nobody has ended has ended, when none of the user's code had begun.
func (l *lease) why() error {
	var e *executor.Error
	if errors.As(l.err, &e) {
		return driver.Fail(e.Kind, executor.RanNo, e.Err)
	}
	if l.err != nil {
		return driver.Fail(executor.ErrInternal, executor.RanNo, l.err)
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("the context was ended meanwhile: %s", l.exit.Reason))
}

// over reports whether the lease has ended.
func (l *lease) over() bool { return l.live.Err() != nil }

// end ends the lease, and waits for that and for the files that it found. It may be called again.
func (l *lease) end(ctx context.Context) {
	l.input.Close()
	select {
	case <-l.live.Done():
	case <-ctx.Done():
		t := time.NewTimer(leaseEnd)
		defer t.Stop()
		select {
		case <-l.live.Done():
		case <-t.C:
		}
	}
	l.cancel()
	<-l.live.Done()
}
