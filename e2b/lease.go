package e2b

import (
	"bytes"
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
	noted chan note       // gets what is written down of the context, once
	gone  chan struct{}   // closed when the process of the context has ended
	live  context.Context // until it has ended, by end or otherwise
	exit  driver.Exit     // set when live ends
	err   error

	input  *io.PipeWriter
	cancel context.CancelFunc
}

// leaseCode says what is written down of a context, and waits until its input ends. If the process of the context ends before, it says
// that: the code interpreter may take 3 seconds to notice, and of JavaScript it never does.
const leaseCode = `def lease(name, most, over):
    import sys, threading

    def gone(pid, born):
        try:
            with open("/proc/%%s/stat" %% pid) as f:
                now = f.read().rsplit(")", 1)[1].split()
        except FileNotFoundError:
            return True
        except OSError:
            return False  # nobody may know
        return now[0] in "ZX" or now[19] != born

    def read():
        try:
            with open(name) as f:
                note = f.read(most).split()[:4]
        except OSError:
            note = []
        return note, len(note) == 4 and gone(*note[2:])

    first, ended = read()
    print(*first, *[over] * ended, flush=True)
    done = threading.Event()

    def watch():
        last = False
        while not last:
            last = done.wait(0.25)
            note, now = read()  # the context may have been made meanwhile
            if now and not (ended and note == first):
                return print(over, flush=True)

    t = threading.Thread(target=watch)
    t.start()
    try:
        sys.stdin.read()
    finally:
        done.set()
        t.join()

lease(%q, %d, %q)
`

// over is the word for the end of a process.
const over = "over"

const (
	// leaseSlack is how much longer than the wall time of the code, which is counted here, that of the lease is.
	leaseSlack = time.Minute
	leaseBytes = 1 << 20
	// leaseEnd is how long a lease may take to end by itself when nobody waits for what it has found any more.
	leaseEnd = 2 * time.Second
)

// lease begins one for a request, if nothing else runs in the context.
func (n *notebook) lease(ctx context.Context, which executor.Interpreter, req *executor.Request) (*lease, note, error) {
	lctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	in, out := io.Pipe()
	l := &lease{noted: make(chan note, 1), gone: make(chan struct{}), input: out, cancel: cancel}
	var ended context.CancelFunc
	l.live, ended = context.WithCancel(context.WithoutCancel(ctx))
	hold := executor.Request{
		ID: "lease-" + strings.ToLower(rand.Text()), Language: executor.Python, Context: name(which),
		Code: fmt.Sprintf(leaseCode, path.Join(deskDir, name(which)), maxNote, over), Stdin: in, Artifacts: req.Artifacts,
		Limits: executor.RunLimits{WallTime: executor.NoLimit, OutputBytes: leaseBytes},
	}
	if req.Limits.WallTime != executor.NoLimit {
		hold.Limits.WallTime = req.Limits.WallTime + leaseSlack
	}
	var said []byte
	lines := 0
	go func() { // end waits for it
		defer ended()
		l.exit, l.err = n.runnerSession.Run(lctx, &hold, func(e executor.Event) error {
			if e.Kind != executor.EventStdout || len(said)+len(e.Data) > 2*maxNote {
				return nil
			}
			said = append(said, e.Data...)
			for line, rest, ok := bytes.Cut(said, []byte("\n")); ok; line, rest, ok = bytes.Cut(said, []byte("\n")) {
				switch lines++; {
				case lines == 1:
					l.noted <- parseNote(string(line))
				case lines == 2 && string(line) == over:
					close(l.gone)
				}
				said = rest
			}
			return nil
		})
		in.Close() // nobody reads it any more
	}()
	select {
	case noted := <-l.noted:
		return l, noted, nil
	case <-l.live.Done():
		cancel()
		return nil, note{}, l.why()
	case <-ctx.Done():
		l.end(ctx)
		return nil, note{}, driver.Fail(executor.ErrUnavailable, executor.RanNo, context.Cause(ctx))
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

// alone reports whether the process of the context is known to have ended before the lease.
func (l *lease) alone() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
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
