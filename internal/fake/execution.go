package fake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.starlark.net/starlark"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// killAfter is how long code may take to stop after an interrupt. Normally it stops immediately.
const killAfter = 300 * time.Millisecond

// The reasons to stop code, apart from the end of a context and the errors of emit.
var (
	errWall      = errors.New("wall time")
	errReset     = errors.New("reset")
	errDestroyed = errors.New("the sandbox ended")
	errBroken    = errors.New("the sandbox broke")
	errMemory    = errors.New("out of memory")
	errDied      = errors.New("the interpreter died")
	errFinished  = errors.New("the run has ended")
)

// execution is one run in a sandbox. The code runs on the caller's goroutine, because emit must be
// called there.
type execution struct {
	box  *sandbox
	in   *interpreter
	req  *executor.Request
	emit func(executor.Event) error

	// Used only by the goroutine of the code.
	env     map[string]string
	dir     string
	args    []string // arguments of a command
	memory  int64
	peak    int64
	deaf    bool // the code ignores interrupts
	signal  string
	figures []int64
	started []*leftover      // what the run waits for after its code has ended
	pending []executor.Event // events to emit; without streaming, when there are many or at the end
	held    int              // bytes in pending
	input   *input

	// Used at a terminal.
	size        executor.TerminalSize // the size that the program knows
	interrupted bool
	awaited     bool // the program waits for an interrupt, which then does not end it

	mu    sync.Mutex
	cause error            // the first reason to stop
	mail  []executor.Event // events from threads
	late  *thrown          // an error of something that the code has started
	over  bool
	soft  chan struct{} // closed when the code should stop
	hard  chan struct{} // closed when the code must stop
	timer *time.Timer
}

type (
	// stopped unwinds code that was stopped.
	stopped struct{}
	// exited unwinds code that ends itself.
	exited struct {
		code int
		lost bool // the interpreter ends too
	}
	// thrown is an error of the language that is being propagated.
	thrown struct {
		typ, msg string
		line     int
		frames   []string
	}
)

// stop ends the code, immediately or after it had a chance to handle an interrupt. The first cause
// is kept.
func (e *execution) stop(cause error, atOnce bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause == nil {
		e.cause = cause
		close(e.soft)
		e.timer = time.AfterFunc(killAfter, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.kill()
		})
	}
	if atOnce {
		e.kill()
	}
}

// kill stops the code. The caller holds mu.
func (e *execution) kill() {
	select {
	case <-e.hard:
	default:
		close(e.hard)
	}
}

// heeded returns the channel that interrupts the code, or nil if the code ignores interrupts.
func (e *execution) heeded() <-chan struct{} {
	if e.deaf {
		return nil
	}
	return e.soft
}

// check ends the code if it was stopped, and emits the events of its threads.
func (e *execution) check() {
	select {
	case <-e.hard:
		panic(stopped{})
	case <-e.heeded():
		panic(stopped{})
	default:
	}
	e.mu.Lock()
	mail := e.mail
	e.mail = nil
	e.mu.Unlock()
	for _, ev := range mail {
		e.event(ev)
	}
}

// wait blocks the code until c is ready, or forever if c is nil.
func (e *execution) wait(c <-chan time.Time) { receive(e, c) }

// receive receives from c for the code, which it ends if that is stopped first.
func receive[T any](e *execution, c <-chan T) (v T, ok bool) {
	select {
	case v, ok = <-c:
		return v, ok
	case <-e.hard:
	case <-e.heeded():
	}
	panic(stopped{})
}

func (e *execution) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	e.wait(t.C)
}

// post stores an event of a thread. After the end of the run it is dropped.
func (e *execution) post(ev executor.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		e.mail = append(e.mail, ev)
	}
}

// event emits an event, and ends the code if emit fails.
func (e *execution) event(ev executor.Event) {
	e.pending = append(e.pending, ev)
	e.held += len(ev.Data)
	if e.command() || e.has(executor.FeatureStreaming) || e.held > maxHeld {
		e.flush()
	}
	e.check()
}

// maxHeld is how much output is buffered without streaming.
const maxHeld = 1 << 20

// flush emits the buffered events.
func (e *execution) flush() {
	for _, ev := range e.pending {
		if err := e.emit(ev); err != nil {
			e.stop(err, false)
			break
		}
	}
	e.pending, e.held = e.pending[:0], 0
}

func (e *execution) write(stream executor.EventKind, text string) {
	if e.req.Terminal != nil {
		stream, text = executor.EventStdout, strings.ReplaceAll(text, "\n", "\r\n")
	}
	if text != "" {
		e.event(executor.Event{Kind: stream, Data: executor.Bytes(text)})
	}
}

func (e *execution) display(main bool, data executor.MIMEBundle) {
	if len(data) > 0 && e.has(executor.FeatureRichOutput) {
		e.event(executor.Event{Kind: executor.EventOutput, Output: &executor.Output{Main: main, Data: data}})
	}
}

func (e *execution) command() bool { return len(e.req.Command) > 0 }

// has reports whether the language of the code has f.
func (e *execution) has(f executor.Feature) bool { return e.box.caps.HasFor(e.req.Language, f) }

// run executes a program, and returns how that ended.
func (e *execution) run(ctx context.Context, src string) (driver.Exit, error) {
	defer context.AfterFunc(ctx, func() { e.stop(context.Cause(ctx), false) })()
	if w := e.req.Limits.WallTime; w != executor.NoLimit {
		defer time.AfterFunc(w, func() { e.stop(errWall, false) }).Stop()
	}
	defer func() {
		e.stop(errFinished, true) // for waiters on the end of the run
		e.mu.Lock()
		e.over = true
		e.timer.Stop()
		e.mu.Unlock()
	}()
	mark := e.box.disk.mark()
	exit := e.code(src)
	exit.Usage.PeakMemory = e.peak
	e.flush()
	if !e.command() && e.has(executor.FeatureLinger) {
		exit.LeftRunning = e.in.names()
	}
	e.mu.Lock()
	cause := e.cause
	e.mu.Unlock()
	var err error
	switch {
	case cause == nil && e.req.Artifacts != nil:
		exit.Artifacts, exit.ArtifactsOmitted, err = driver.Collect(ctx, e.req.Artifacts, e.box.disk.changedSince(mark, environment(e.box.spec.Env)["HOME"]), e.box.disk.open)
	case cause == nil:
	case errors.Is(cause, errWall):
		exit.Reason = executor.ReasonWallTime
	case errors.Is(cause, errReset):
		exit.Reason, exit.StateLost = executor.ReasonReset, true
	case errors.Is(cause, errDestroyed):
		exit.Reason, exit.StateLost, exit.FilesLost = executor.ReasonLifetime, true, true
	case errors.Is(cause, errBroken):
		exit.Reason, exit.StateLost, exit.FilesLost = executor.ReasonSandbox, true, true
	case errors.Is(cause, errMemory):
		exit.Reason, exit.StateLost = executor.ReasonMemory, true
	case errors.Is(cause, errDied):
		exit.Reason, exit.Signal, exit.StateLost = executor.ReasonSignal, e.signal, true
	default:
		err = cause
	}
	if e.command() {
		exit.StateLost = false
	}
	return exit, err
}

// code executes the program and shows its value and figures.
func (e *execution) code(src string) (exit driver.Exit) {
	end := e.protect(func() { e.display(true, bundle(e.program(src))) })
	if _, stop := end.(stopped); !stop && !e.command() && e.has(executor.FeatureLinger) {
		if failed := e.protect(e.linger); failed != nil {
			end = failed
		}
	}
	if _, stop := end.(stopped); !stop { // even after an error, because figures are shown at the end of a cell
		if failed := e.protect(e.showFigures); failed != nil {
			end = failed
		}
	}
	switch end := end.(type) {
	case exited:
		exit.Code, exit.StateLost = end.code, end.lost
	case *thrown:
		exit.Code, exit.Exception = 1, e.exception(end)
		if !e.command() && !e.has(executor.FeatureExitCode) {
			exit.Code = -1
		}
	case stopped:
		exit.Code = -1
		select {
		case <-e.hard: // the code could not handle the interrupt, or did not
			exit.StateLost = true
		default:
			exit.StateLost = !e.has(executor.FeatureInterrupt)
		}
	}
	return exit
}

// linger waits for what the code has started. If the run is stopped, that is stopped too.
func (e *execution) linger() {
	var late <-chan time.Time
	if e.req.Linger != nil {
		t := time.NewTimer(*e.req.Linger)
		defer t.Stop()
		late = t.C
	}
	for _, l := range e.started {
		select {
		case <-l.done:
			e.check()
			e.mu.Lock()
			late := e.late
			e.mu.Unlock()
			if late != nil {
				panic(late)
			}
			continue
		case <-late:
			return
		case <-e.hard:
		case <-e.heeded():
		}
		for _, l := range e.started {
			l.stopOnce()
			<-l.done
		}
		panic(stopped{})
	}
}

// protect calls f and returns the reason why f ended early: stopped, exited, a thrown error, or
// nil.
func (e *execution) protect(f func()) (end any) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case stopped, exited, *thrown:
			end = v
		default: // emit has panicked
			panic(v)
		}
	}()
	f()
	return nil
}

func (e *execution) exception(t *thrown) *executor.Exception {
	file := "<input>"
	if e.has(executor.FeatureCellNames) {
		file = fmt.Sprintf("<cell %d>", e.in.cell)
	}
	var b strings.Builder
	b.WriteString("Traceback (most recent call last):\n")
	fmt.Fprintf(&b, "  File \"%s\", line %d\n", file, t.line)
	for _, f := range t.frames {
		fmt.Fprintf(&b, "  File \"%s\", line %d, in %s\n", file, t.line, f)
	}
	fmt.Fprintf(&b, "%s: %s\n", t.typ, t.msg)
	return &executor.Exception{Type: t.typ, Message: t.msg, Traceback: escapes.ReplaceAllString(b.String(), ""), Line: t.line}
}

// escapes matches the escape sequences that tracebacks must not have.
var escapes = regexp.MustCompile("\x1b\\[[0-9;]*[a-zA-Z]")

// throw raises an error of the language.
func (e *execution) throw(typ, format string, args ...any) {
	panic(&thrown{typ: typ, msg: fmt.Sprintf(format, args...)})
}

// must throws an error of the file system as an error of the language.
func (e *execution) must(err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.throw("FileNotFoundError", "%v", err)
	case err != nil:
		e.throw("OSError", "%v", err)
	}
}

// take takes memory, and ends the code if there is not enough.
func (e *execution) take(n int64) {
	e.memory += n
	e.peak = max(e.peak, e.memory)
	if most := e.box.spec.Limits.MemoryBytes; most > 0 && e.memory > most {
		e.stop(errMemory, true)
		e.check()
	}
}

// interpreter keeps the variables of one language and context until it ends. Then another one
// replaces it.
type interpreter struct {
	busy chan struct{} // a lock: contains a token while a run is in progress

	// Of the run in progress.
	vars starlark.StringDict
	cell int
	dir  string // directory in which it was started

	exits []func() // exit handlers, also those of the run in progress

	mu      sync.Mutex
	current *execution
	ended   chan struct{} // closed at the end
	left    sync.WaitGroup
	others  []*leftover // in order
}

// leftover is something that runs beside the code and after its end.
type leftover struct {
	name       string
	stop, done chan struct{} // closed when it must end, and when it has ended
	stopOnce   func()
}

func newInterpreter() *interpreter {
	return &interpreter{busy: make(chan struct{}, 1), vars: starlark.StringDict{}, ended: make(chan struct{})}
}

// leave starts f, which may run after the end of the code until it is stopped or the interpreter
// ends.
func (in *interpreter) leave(name string, f func(end <-chan struct{})) *leftover {
	in.mu.Lock()
	defer in.mu.Unlock()
	l := &leftover{name: name, stop: make(chan struct{}), done: make(chan struct{})}
	l.stopOnce = sync.OnceFunc(func() { close(l.stop) })
	select {
	case <-in.ended:
		close(l.done)
	default:
		in.others = append(in.others, l)
		in.left.Go(func() {
			f(l.stop)
			in.mu.Lock()
			defer in.mu.Unlock()
			in.others = slices.DeleteFunc(in.others, func(o *leftover) bool { return o == l })
			close(l.done)
		})
	}
	return l
}

// names lists what runs beside the code.
func (in *interpreter) names() (names []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, l := range in.others {
		names = append(names, l.name)
	}
	return names
}

// begin sets the run in progress; nil means that there is none.
func (in *interpreter) begin(e *execution) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.current = e
	select {
	case <-in.ended: // between getting the lock and now
		if e != nil {
			e.stop(errReset, true)
		}
	default:
	}
}

// end stops the run in progress and everything that was left running. It does not wait, because the
// run may be waiting for the consumer of its output.
func (in *interpreter) end(cause error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	select {
	case <-in.ended:
		return
	default:
		close(in.ended)
		for _, l := range in.others {
			l.stopOnce()
		}
	}
	if in.current != nil {
		in.current.stop(cause, true)
	}
}
