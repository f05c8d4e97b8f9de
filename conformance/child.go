package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// childFunc is work of a case in another process. T is there the case's as far as that is possible:
// the same params, labels, programs and bounds, with an Executor that was opened in the child. What
// it returns is what T.Child returns in the parent.
//
// Sessions that it makes are closed at its end unless it detaches them: those are then the parent's
// to attach or destroy. If the child is killed nothing is closed.
type childFunc func(t *T, in []byte) []byte

// testChildren are those of the tests of this file.
var testChildren map[string]childFunc

// childEnv tells a process that it is a child. Its value begins every line that the child writes to
// the parent, so that what else the program prints is not taken for a message.
const childEnv = "EXECBROKER_CONFORMANCE_CHILD"

// maxMessage bounds a message between the processes.
const maxMessage = 64 << 20

// order is the first line that a child reads. Lines after it are messages of Child.Send.
type order struct {
	Name     string
	In       []byte
	Case     string
	Language executor.Language
	Run      string
	Params   map[string]string
	Budget   int
	Bound    time.Duration
	Grace    time.Duration
}

// message is a line that a child writes.
type message struct {
	Kind string // the kinds below
	Data []byte `json:",omitempty"`
	Text string `json:",omitempty"`
}

// The kinds of message.
const (
	msgHello   = "hello"         // the program calls RunChild
	msgSession = "session"       // a session is about to be created
	msgSend    = "send"          // Data of T.Send
	msgLog     = "log"           // Text of Logf
	msgFailed  = string(Failed)  // Text of Errorf
	msgErrored = string(Errored) // Text of Abort
	msgDone    = "done"          // Data is the output
)

// A Child is a process that does a part of a case. It is killed at the end of the case, and dies
// with the suite.
type Child struct {
	t      *T
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	msgs   chan message // closed when the child has ended
	stderr tail
	once   sync.Once
	exited error // why it ended; valid when msgs is closed
}

// Child runs a named function of the suite in another process with in as its input, and returns its
// output. What it finds there, the case has found.
func (t *T) Child(name string, in []byte) []byte {
	return t.StartChild(name, in).Wait()
}

// StartChild begins Child and does not wait for it.
func (t *T) StartChild(name string, in []byte) *Child {
	if _, ok := childOf(name); !ok {
		t.Abort("%q is not a child function of the suite", name)
	}
	argv := t.s.target.Child
	if argv == nil {
		exe, err := os.Executable()
		t.needs("child", err)
		argv = []string{exe}
	}
	if len(argv) == 0 {
		t.Abort("the target has no second process, which this case needs")
	}
	nonce := rand.Text()
	c := &Child{t: t, name: name, msgs: make(chan message)}
	c.cmd = exec.Command(argv[0], argv[1:]...)
	c.cmd.Env = append(os.Environ(), childEnv+"="+nonce)
	c.cmd.Stderr = &c.stderr
	stdin, err := c.cmd.StdinPipe()
	t.needs("child", err)
	out, err := c.cmd.StdoutPipe()
	t.needs("child", err)
	t.needs("child", c.cmd.Start())
	c.in = stdin
	read := make(chan struct{})
	go func() { // ends with the child's stdout; Kill waits for it
		defer close(read)
		c.read(out, nonce)
	}()
	t.cleanup(func() { c.Kill(); <-read })
	if m, ok := c.next(); !ok || m.Kind != msgHello {
		t.Abort("the program %q does not call RunChild: %s", argv[0], c.ending())
	}
	deadline, _ := t.ctx.Deadline()
	c.write(order{
		Name: name, In: in, Case: t.c.ID, Language: t.c.Language, Run: t.s.run, Params: t.s.params, Budget: t.s.budget(),
		Bound: time.Until(deadline), Grace: t.s.target.Grace,
	})
	return c
}

// read passes on what the child says until it has ended.
func (c *Child) read(out io.Reader, nonce string) {
	lines := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := readLine(lines, maxMessage)
		if rest, ok := bytes.CutPrefix(line, []byte(nonce)); ok {
			var m message
			if jerr := json.Unmarshal(rest, &m); jerr != nil {
				m = message{Kind: msgErrored, Text: fmt.Sprintf("a message of the child: %v", jerr)}
			}
			c.handle(m)
		}
		if err != nil {
			break
		}
	}
	io.Copy(io.Discard, out) // after a line that was too long
	c.exited = c.cmd.Wait()
	close(c.msgs)
}

// handle notes what needs no answer, and hands the rest to Receive and Wait.
func (c *Child) handle(m message) {
	switch m.Kind {
	case msgSession:
		c.t.s.created.Add(1)
	case msgLog:
		c.t.Logf("child %s: %s", c.name, m.Text)
	case msgFailed:
		c.t.Errorf("child %s: %s", c.name, m.Text)
	case msgErrored:
		c.t.find(Errored, fmt.Sprintf("child %s: %s", c.name, m.Text))
	default:
		select {
		case c.msgs <- m:
		case <-c.t.ctx.Done():
		}
	}
}

// next returns the next message; ok is false if the child has ended or the case is over.
func (c *Child) next() (m message, ok bool) {
	select {
	case m, ok = <-c.msgs:
		return m, ok
	case <-c.t.ctx.Done():
		return m, false
	}
}

// Receive returns what the child passes to T.Send next.
func (c *Child) Receive() []byte {
	m, ok := c.next()
	if !ok || m.Kind != msgSend {
		c.giveUp("sent nothing")
	}
	return m.Data
}

// Send passes data to T.Receive in the child.
func (c *Child) Send(data []byte) { c.write(data) }

// write sends a line to the child. That it has died shows in what it does not answer.
func (c *Child) write(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		c.t.Abort("child %s: %v", c.name, err)
	}
	c.in.Write(append(line, '\n'))
}

// Wait waits for the child to end and returns the output of its function.
func (c *Child) Wait() []byte {
	for {
		m, ok := c.next()
		switch {
		case !ok:
			c.giveUp("ended without a result")
		case m.Kind == msgDone:
			c.Kill()
			return m.Data
		}
	}
}

// giveUp ends the case, whose finding, if the child has told one, stays the child's.
func (c *Child) giveUp(what string) { c.t.Abort("child %s %s: %s", c.name, what, c.ending()) }

// ending says how the child ended, as far as that is known.
func (c *Child) ending() string {
	if c.t.ctx.Err() != nil {
		return "the case ran out of time"
	}
	c.Kill()
	return fmt.Sprintf("%v; its last words: %s", c.exited, c.stderr.String())
}

// Kill kills the child as the kernel would, without a chance to clean up, and waits for its end.
func (c *Child) Kill() {
	c.once.Do(func() {
		c.in.Close()
		c.cmd.Process.Kill() // it may have ended already
	})
	for range c.msgs { // until read has seen the end
	}
}

// childEnd is the child's side.
type childEnd struct {
	nonce string
	mu    sync.Mutex // of out
	out   io.Writer
	in    chan []byte
}

// send writes a message. If the parent is gone, nothing reads it.
func (e *childEnd) send(m message) {
	line, err := json.Marshal(m)
	if err != nil {
		panic(err) // message is marshalable by its type
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.out.Write(append(append([]byte(e.nonce), line...), '\n'))
}

// Send passes data to Child.Receive in the parent. It is for functions in a child.
func (t *T) Send(data []byte) {
	if t.child == nil {
		t.Abort("Send outside of a child")
	}
	t.child.send(message{Kind: msgSend, Data: data})
}

// Receive returns what the parent passes to Child.Send next. It is for functions in a child.
func (t *T) Receive() []byte {
	if t.child == nil {
		t.Abort("Receive outside of a child")
	}
	select {
	case data := <-t.child.in:
		return data
	case <-t.ctx.Done():
		t.Abort("the parent sent nothing in time")
		return nil
	}
}

// RunChild does the work of a child process if this process is one, and reports whether it was. It
// comes first in main or TestMain. The process must end when it has returned.
func RunChild(ctx context.Context, target Target) (was bool, err error) {
	nonce := os.Getenv(childEnv)
	if nonce == "" {
		return false, nil
	}
	os.Unsetenv(childEnv) // what this process starts is not a child of the suite
	return true, runChild(ctx, target.withDefaults(), nonce, os.Stdin, os.Stdout)
}

func runChild(ctx context.Context, target Target, nonce string, in io.Reader, out io.Writer) error {
	end := &childEnd{nonce: nonce, out: out, in: make(chan []byte)}
	end.send(message{Kind: msgHello})
	lines := bufio.NewReaderSize(in, 64<<10)
	line, err := readLine(lines, maxMessage)
	if err != nil {
		return fmt.Errorf("conformance: child: order: %w", err)
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("conformance: child: order: %w", err)
	}
	f, ok := childOf(o.Name)
	if !ok {
		return fmt.Errorf("conformance: child: no function %q: is this the program of the suite that started it?", o.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Bound)
	defer cancel()
	go end.listen(ctx, lines) // it ends with the process
	target.MaxSessions, target.Grace = o.Budget, o.Grace
	s := &suite{target: target, params: o.Params, run: o.Run}
	t := &T{s: s, c: Case{ID: o.Case, Language: o.Language}, ctx: ctx, child: end}
	x, err := target.Open(ctx, o.Params)
	if err != nil {
		t.find(Errored, fmt.Sprintf("open: %v", err))
		return nil
	}
	s.info = x.Info()
	t.x = watch(t, x)
	var result []byte
	ended := make(chan struct{})
	go func() { // because Fatalf ends the goroutine
		defer close(ended)
		defer t.recover()
		result = f(t, o.In)
	}()
	<-ended
	t.finish()
	if err := x.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	end.send(message{Kind: msgDone, Data: result})
	return nil
}

// listen passes on what the parent sends. When the parent dies the child does too, however it died:
// its end of the pipe is closed.
func (e *childEnd) listen(ctx context.Context, lines *bufio.Reader) {
	for {
		line, err := readLine(lines, maxMessage)
		if err != nil {
			os.Exit(1)
		}
		var data []byte
		if json.Unmarshal(line, &data) == nil {
			select {
			case e.in <- data:
			case <-ctx.Done():
			}
		}
	}
}

var errLongLine = errors.New("line too long")

// readLine reads a line of at most most bytes, without its end.
func readLine(r *bufio.Reader, most int) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > most {
			return nil, errLongLine
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
}

// tail keeps the last bytes of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - maxLogBytes/2; over > 0 {
		t.b = t.b[over:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
