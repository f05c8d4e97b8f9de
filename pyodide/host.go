package pyodide

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// startTimeout is how long a process may take until its interpreter is up. It takes 0.3 s, and 2 s
// without anything prepared, on a machine that has nothing else to do.
const startTimeout = time.Minute

// The exit codes of main.mjs.
const (
	exitIdle = 10
	exitLife = 11
	exitLeft = 12 // what code had left running did not let go of the interpreter
)

// hostOptions is the first thing that a host is told.
type hostOptions struct {
	Mode     string            `json:"mode"` // "session", "compile", "snapshot"
	Stdlib   string            `json:"stdlib"`
	Snapshot string            `json:"snapshot,omitempty"`
	Modules  map[string]string `json:"modules"` // of Python: name and file; a snapshot has them already
	Disk     int64             `json:"disk"`
	Nodes    int               `json:"nodes"`
	Env      map[string]string `json:"env"`
	IdleMS   int64             `json:"idle_ms"`
	LifeMS   int64             `json:"life_ms"`
}

// hostReady is what a host says when its interpreter is up.
type hostReady struct {
	Version string `json:"version"`
	MS      int64  `json:"ms"`
}

// hostFatal is the last thing that a host says.
type hostFatal struct {
	Message string `json:"message"`
}

// host is a running host program. One goroutine reads its frames into mailboxes, one for each
// exchange; it never waits for whoever takes them, because the host's window bounds what can be
// there.
type host struct {
	cmd     *exec.Cmd
	layer   confine.Method
	bounded bool // its memory has a limit
	stdin   *os.File
	wg      sync.WaitGroup
	exited  chan struct{} // closed when the process has ended
	dead    chan struct{} // closed when the process is gone and all that it wrote is in mailboxes
	err     error         // why; valid when dead is closed

	writeMu sync.Mutex // one frame at a time. Who blocks here is freed by kill, which closes the other end of the pipe

	mu     sync.Mutex
	boxes  map[uint32]*mailbox
	nextID uint32
	queued int   // bytes in mailboxes
	credit int   // bytes taken from mailboxes and not yet confirmed
	killed bool  // by us
	gone   bool  // its number may soon be another's
	fault  error // what the host did wrong
	fatal  *hostFatal
	stderr tail
}

// startHost starts a host program and waits until its interpreter is up. p says what to start.
func startHost(ctx context.Context, p program, opts hostOptions) (*host, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	h := &host{exited: make(chan struct{}), dead: make(chan struct{}), boxes: map[uint32]*mailbox{}}
	ready := h.open()
	defer h.close(ready)

	var nonce [nonceLen]byte
	rand.Read(nonce[:])
	if err := h.launch(p, nonce); err != nil {
		return nil, err
	}
	j, err := json.Marshal(opts)
	if err == nil {
		err = h.send(toInit, 0, nonce[:], j)
	}
	var f frame
	if err == nil {
		f, err = ready.next(ctx)
	}
	var r hostReady
	if err == nil && (f.typ != fromReady || json.Unmarshal(f.payload, &r) != nil) {
		err = fmt.Errorf("%w: type %d before ready", errFrame, f.typ)
	}
	if err != nil {
		h.kill()
		<-h.dead
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

// startError says that the process runs, but that its interpreter does not come up.
type startError struct{ error }

func (e *startError) Unwrap() error { return e.error }

// launch starts the process and the goroutines that serve it.
func (h *host) launch(p program, nonce [nonceLen]byte) error {
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
	go h.wait(outR) // ends by closing dead, for which everybody who kills waits
	return nil
}

// wait reaps the process.
func (h *host) wait(out *os.File) {
	err := reap(h.cmd, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		killGroup(h.cmd.Process.Pid)
		h.gone = true
		close(h.exited)
	})
	h.wg.Wait() // the end of the stream is there, since the process has gone
	out.Close()
	h.stdin.Close()
	h.mu.Lock()
	h.err = err
	h.mu.Unlock()
	close(h.dead)
}

// read takes frames until the stream ends. A frame that nobody waits for, or more than the window
// allows, is a fault.
func (h *host) read(out io.Reader, nonce [nonceLen]byte) {
	fr := newFrameReader(out, nonce)
	for {
		f, err := fr.next()
		if err == io.EOF {
			// It ends by itself, most likely, and how it ends says why. One that only closes its
			// output is of no use any more.
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

// errFatal says that the host has said its last word.
var errFatal = errors.New("fatal")

func (h *host) deliver(f frame) error {
	if f.typ == fromFatal {
		var m hostFatal
		if err := json.Unmarshal(f.payload, &m); err != nil {
			return fmt.Errorf("%w: %w", errFrame, err)
		}
		h.mu.Lock()
		h.fatal = &m
		h.mu.Unlock()
		return errFatal
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.boxes[f.id]
	if b != nil && b.abandoned {
		if f.typ != fromReply {
			return fmt.Errorf("%w: type %d for a call that has no other answer", errFrame, f.typ)
		}
		delete(h.boxes, f.id)
		return nil
	}
	if b == nil {
		return fmt.Errorf("%w: type %d for exchange %d, which is not in progress", errFrame, f.typ, f.id)
	}
	h.queued += f.cost()
	if h.queued > 2*window+maxFrame+maxEnd {
		return fmt.Errorf("%w: more than the window allows", errFrame)
	}
	b.put(f)
	return nil
}

// reapTimeout is how long the process that watches over a killed one may take to end.
const reapTimeout = time.Second

// kill ends the process. dead is closed soon after.
func (h *host) kill() {
	select {
	case <-h.dead:
		return // by itself
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

// killAll ends the process that was started and all in its group.
func (h *host) killAll() {
	h.mu.Lock()
	if !h.gone {
		killGroup(h.cmd.Process.Pid)
	}
	h.mu.Unlock()
	h.cmd.Process.Kill() //nolint:errcheck // it has ended
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

// exitCode returns the exit code of the process, which has ended, or -1 if a signal ended it.
func (h *host) exitCode() int { return h.cmd.ProcessState.ExitCode() }

// reason says why the process ended, if it was not our wish.
func (h *host) reason() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	said := h.stderr.last()
	switch {
	case h.fault != nil:
		return h.fault
	case h.fatal != nil:
		return errors.New(h.fatal.Message)
	case h.killed:
		return nil
	case said != "":
		return fmt.Errorf("the process ended (%w): %s", h.err, said)
	case h.err != nil:
		return fmt.Errorf("the process ended: %w", h.err)
	}
	return errors.New("the process ended")
}

// signs of memory that has run out, in what the engine says before it gives up.
var memorySigns = []string{"out of memory", "memory allocation of", "allocation failed", "cannot allocate memory"}

// noThread is what Deno says when it cannot start a thread. Here it is memory that lacks for the
// stack: the limit on it is ours, one on threads is not set.
const noThread = "unable to create worker threads"

// outOfMemory reports whether the process is known to have ended because the system or its limits
// gave it no more memory. It has ended. An engine that crashes where it takes memory for granted
// says nothing, and so is not known to.
func (h *host) outOfMemory() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	said := h.stderr.String()
	if h.fatal != nil {
		said += h.fatal.Message
	}
	said = strings.ToLower(said)
	// The system's own killer says nothing.
	return !h.killed && signalName(confine.Signal(h.layer, h.cmd.ProcessState)) == "SIGKILL" ||
		slices.ContainsFunc(memorySigns, func(s string) bool { return strings.Contains(said, s) }) ||
		h.bounded && strings.Contains(said, noThread)
}

// outOfCPU reports whether the limit on processor time ended the process. It has ended.
func (h *host) outOfCPU() bool {
	return signalName(confine.Signal(h.layer, h.cmd.ProcessState)) == "SIGXCPU"
}

// allow sets how much processor time the process may use for a run of at most wall: several times
// that, since it has several threads. It is for the case that the clocks of the host and of this
// process both fail. Where this process may not set it, Open has said so.
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

// send writes a frame.
func (h *host) send(typ uint8, id uint32, parts ...[]byte) error {
	b := appendFrame(nil, typ, id, parts...)
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	_, err := h.stdin.Write(b)
	return err
}

// sendTimeout is how long a host may take, after the end of a context, to take what it was sent
// before. It always reads.
const sendTimeout = 5 * time.Second

// ask sends a frame that may be larger than the pipe holds. A host that does not take it is ended
// some time after ctx: half a frame cannot be taken back.
func (h *host) ask(ctx context.Context, typ uint8, id uint32, parts ...[]byte) error {
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
	return h.send(typ, id, parts...)
}
