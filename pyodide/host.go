package pyodide

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/internal/wire"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// startTimeout is how long a process may take until its interpreter is ready. On an idle machine it
// takes 0.3 s, or 2 s if nothing is prepared.
const startTimeout = time.Minute

// The exit codes of main.mjs.
const (
	exitIdle = 10
	exitLife = 11
	exitLeft = 12 // code that was left running did not release the interpreter
)

// hostOptions is the first message to a host. It has nothing of a session: that comes with begin.
type hostOptions struct {
	Mode     string // "session", "javascript", "compile", "snapshot"
	Stdlib   string
	Snapshot string
	Modules  map[string]string // Python modules: name and file; a snapshot contains them already
}

// hello is that message.
func (o hostOptions) hello(nonce []byte) wire.Map {
	return wire.Map{"data": nonce, "mode": o.Mode, "stdlib": o.Stdlib, "snapshot": o.Snapshot, "modules": wire.Texts(o.Modules)}
}

// begin makes a started process that of a session. After an error the process has ended.
func (h *host) begin(ctx context.Context, o sandboxOptions) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, err := h.call(ctx, wire.Map{
		"op": "begin", "disk": o.disk, "nodes": o.nodes(), "env": wire.Texts(o.env),
		"idle_ms": o.idle.Milliseconds(), "life_ms": o.life.Milliseconds(),
	}, nil)
	if err != nil {
		h.end()
		return fmt.Errorf("beginning the session: %w", err)
	}
	return nil
}

// host is a running host program. One goroutine reads its frames into mailboxes, one for each
// exchange. It never waits for the readers of the mailboxes, because the window of the host bounds
// the frames in them.
type host struct {
	cmd     *exec.Cmd
	layer   confine.Method
	bounded bool // its memory has a limit
	stdin   *os.File
	wg      sync.WaitGroup
	exited  chan struct{} // closed when the process has ended
	dead    chan struct{} // closed when the process is gone and all its output is in mailboxes
	err     error         // why; valid when dead is closed

	writeMu sync.Mutex // one frame at a time. kill releases a blocked writer, because it closes the other end of the pipe

	mu      sync.Mutex
	boxes   map[uint32]*mailbox
	nextID  uint32
	queued  int          // what the frames in mailboxes cost
	granted wire.Granted // for what was taken from them
	killed  bool         // by this program
	gone    bool         // its PID may soon belong to another process
	fault   error        // a violation of the protocol by the host
	fatal   error        // the last message of the host
	stderr  tail
}

// startHost starts the host program p and waits until its interpreter is ready.
func startHost(ctx context.Context, p program, opts hostOptions) (*host, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	h := &host{exited: make(chan struct{}), dead: make(chan struct{}), boxes: map[uint32]*mailbox{}, granted: wire.NewGranted()}
	ready := h.open() // the first one is the stream of Hello
	defer h.close(ready)

	nonce := make([]byte, nonceLen)
	rand.Read(nonce)
	if err := h.launch(p, nonce); err != nil {
		return nil, err
	}
	err := h.send(wire.Frame{Type: wire.Hello, Payload: wire.AppendValue(nil, opts.hello(nonce))})
	if err == nil {
		var f wire.Frame
		f, err = ready.next(ctx)
		if err == nil {
			_, err = parseMap(f.Payload)
		}
	}
	if err != nil {
		h.end()
		if why := h.reason(); why != nil {
			err = why
		}
		err = fmt.Errorf("starting the sandbox process: %w", err)
		if h.fatal != nil {
			err = &startError{err}
		}
		return nil, err
	}
	return h, nil
}

// startError says that the process runs, but its interpreter does not start.
type startError struct{ error }

func (e *startError) Unwrap() error { return e.error }

// launch starts the process and the goroutines that serve it.
func (h *host) launch(p program, nonce []byte) error {
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return err
	}
	h.stdin = inW
	h.layer, h.bounded = p.layer, p.limits.DataBytes > 0
	var done func()
	if h.cmd, done, err = p.command(); err != nil {
		err = errors.Join(err, inR.Close(), inW.Close(), outR.Close(), outW.Close())
		return err
	}
	defer done()
	h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr = inR, outW, &h.stderr
	h.cmd.WaitDelay = time.Second
	err = start(h.cmd)
	inR.Close()
	outW.Close()
	if err != nil {
		inW.Close()
		outR.Close()
		return err
	}
	h.wg.Go(func() { h.read(outR, nonce) })
	go h.wait(outR) // ends by closing dead; callers of kill wait for that
	return nil
}

// wait waits for the process to exit.
func (h *host) wait(out *os.File) {
	err := reap(h.cmd, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		killGroup(h.cmd.Process.Pid)
		h.gone = true
		close(h.exited)
	})
	h.wg.Wait() // the process is gone, so the stream has ended
	out.Close()
	h.stdin.Close()
	h.mu.Lock()
	h.err = err
	h.mu.Unlock()
	close(h.dead)
}

// read reads frames until the stream ends. A frame for which nobody waits, or one that exceeds the
// window, is a fault.
func (h *host) read(out io.Reader, nonce []byte) {
	frames := wire.NewReader(out)
	frames.Nonce = nonce
	for {
		f, err := frames.Next()
		if err == io.EOF {
			// The process is probably ending by itself, and its exit code says why. A process that
			// only closes its output is useless.
			select {
			case <-h.exited:
			case <-time.After(time.Second):
				h.kill()
			}
			return
		}
		if err == nil {
			err = h.deliver(f)
		}
		if err != nil {
			h.mu.Lock()
			if err != errFatal && !h.killed {
				h.fault = err
			}
			h.mu.Unlock()
			h.kill()
			return
		}
	}
}

// errFatal says that the host has sent its last message.
var errFatal = errors.New("fatal")

func (h *host) deliver(f wire.Frame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.Type == wire.Bye {
		m, err := parseMap(f.Payload)
		if err != nil {
			return err
		}
		h.fatal = errors.New(m.Text("message"))
		return errFatal
	}
	b := h.boxes[f.Stream]
	switch {
	case b == nil:
		return fmt.Errorf("%w: %v for exchange %d, which is not in progress", errFrame, f.Type, f.Stream)
	case b.abandoned && last(f):
		delete(h.boxes, f.Stream)
		return nil
	case b.abandoned && f.Type != wire.Done: // or a part of one
		return fmt.Errorf("%w: %v for a call that has no other answer", errFrame, f.Type)
	case b.abandoned:
		return nil
	}
	h.queued += cost(f)
	if h.queued > 2*wire.Window+wire.MaxPayload+maxEnd {
		return fmt.Errorf("%w: more than the window allows", errFrame)
	}
	f.Payload = bytes.Clone(f.Payload)
	b.put(f)
	return nil
}

// reapTimeout is how long the monitor of a killed process may take to exit.
const reapTimeout = time.Second

// kill kills the process. dead is closed soon after.
func (h *host) kill() {
	select {
	case <-h.dead:
		return // it has ended by itself
	default:
	}
	h.mu.Lock()
	h.killed = true
	reaped := !h.gone && confine.Kill(h.layer, h.cmd.Process.Pid)
	h.mu.Unlock()
	if reaped {
		time.AfterFunc(reapTimeout, h.killAll)
	} else {
		h.killAll()
	}
}

// end kills the process and waits until it is dead.
func (h *host) end() {
	h.kill()
	<-h.dead
}

// killAll kills the started process and its whole group.
func (h *host) killAll() {
	h.mu.Lock()
	if !h.gone {
		killGroup(h.cmd.Process.Pid)
	}
	h.mu.Unlock()
	h.cmd.Process.Kill() //nolint:errcheck // an error means that it has ended
}

// isDead reports whether the process has ended.
func (h *host) isDead() bool {
	select {
	case <-h.dead:
		return true
	default:
		return false
	}
}

// exitCode returns the exit code of the process, or -1 if a signal ended it. The process must have
// ended.
func (h *host) exitCode() int { return h.cmd.ProcessState.ExitCode() }

// reason says why the process ended, unless this program killed it.
func (h *host) reason() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	said := h.stderr.last()
	switch {
	case h.fault != nil:
		return h.fault
	case h.fatal != nil:
		return h.fatal
	case h.killed:
		return nil
	case said != "":
		return fmt.Errorf("the process ended (%w): %s", h.err, said)
	case h.err != nil:
		return fmt.Errorf("the process ended: %w", h.err)
	}
	return errors.New("the process ended")
}

// memorySigns are parts of the engine's messages when it runs out of memory.
var memorySigns = []string{"out of memory", "memory allocation of", "allocation failed", "cannot allocate memory"}

// noThread is Deno's message when it cannot start a thread. The reason is missing memory for the
// stack: this package limits memory but not threads.
const noThread = "unable to create worker threads"

// outOfMemory reports whether the process is known to have ended because the system or its limits
// gave it no more memory. The process must have ended. An engine that crashes without a message
// cannot be recognized.
func (h *host) outOfMemory() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	said := h.stderr.String()
	if h.fatal != nil {
		said += h.fatal.Error()
	}
	said = strings.ToLower(said)
	// The kernel's out-of-memory killer leaves no message.
	return !h.killed && signalName(confine.Signal(h.layer, h.cmd.ProcessState)) == "SIGKILL" ||
		slices.ContainsFunc(memorySigns, func(s string) bool { return strings.Contains(said, s) }) ||
		h.bounded && strings.Contains(said, noThread)
}

// outOfCPU reports whether the limit on processor time ended the process. The process must have
// ended.
func (h *host) outOfCPU() bool {
	return signalName(confine.Signal(h.layer, h.cmd.ProcessState)) == "SIGXCPU"
}

// allow sets the limit on the processor time of the process for a run of at most wall. It is
// several times wall, because the process has several threads. The limit matters only if the clocks
// of the host and of this process both fail. If this process cannot set it, Open has logged that.
func (h *host) allow(wall time.Duration) error {
	pid := confine.PID(h.layer, h.cmd.Process.Pid)
	if pid == 0 || confine.Adjustable(h.layer) != nil {
		return nil
	}
	seconds := uint64(0)
	if wall >= 0 {
		seconds = uint64((cpuTime(pid) + 4*wall + time.Minute) / time.Second)
	}
	return allowCPU(pid, seconds)
}

// send writes a message, in as many frames as it takes.
func (h *host) send(f wire.Frame) error {
	b := f.AppendLong(nil)
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	_, err := h.stdin.Write(b)
	return err
}

// sendTimeout is how long a host may take, after the end of a context, to read what was sent
// before. A working host always reads.
const sendTimeout = 5 * time.Second

// ask sends a request, which may be larger than the pipe's buffer. If the host does not read it,
// the host is killed some time after ctx ends, because half a frame cannot be withdrawn.
func (h *host) ask(ctx context.Context, id uint32, request wire.Map) error {
	sent := make(chan struct{})
	defer close(sent)
	defer context.AfterFunc(ctx, func() {
		t := time.NewTimer(sendTimeout)
		defer t.Stop()
		select {
		case <-sent:
		case <-t.C:
			h.kill()
		}
	})()
	return h.send(wire.Frame{Type: wire.Open, Stream: id, Payload: wire.AppendValue(nil, request)})
}
