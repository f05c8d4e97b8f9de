package bubblewrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/internal/bwrap"
	"github.com/execbroker/execbroker/internal/seccomp"
)

// process is a sandbox that runs. Two processes of this machine belong to it: bwrap, which watches
// from outside, and the supervisor, with which everything in the sandbox ends.
type process struct {
	monitor int    // the process of bwrap
	pid     int    // of the supervisor
	group   *group // nil: none
	same    bool   // code has the user of the supervisor

	// Of a sandbox that this program has started.
	root string
	said *tail
	over chan struct{} // closed when it has ended, and then the rest is known
	code int           // exit code, as a shell has it
	oom  bool
}

// killed is the exit code of a supervisor that was killed.
const killed = 128 + int(unix.SIGKILL)

// noteName is the variable in the environment of bwrap, outside of the sandbox, that says what it
// is.
const noteName = "EXECBROKER_SANDBOX"

// start starts a sandbox that executes a command, whose standard input and output are the
// connection. If it fails it leaves nothing running.
func start(ctx context.Context, b *box, command []string) (p *process, conn io.ReadWriteCloser, err error) {
	filter, err := seccomp.Profile{CodeFilters: b.codeFilters}.Filter(runtime.GOARCH)
	if err != nil {
		return nil, nil, unsupported(err)
	}
	program, err := bwrap.Find()
	if err != nil {
		return nil, nil, unsupported(noBwrap(err), "bwrap")
	}
	var theirs, ours []*os.File // ends of pipes, and files
	defer func() {
		closeAll(theirs)
		if err != nil {
			closeAll(ours)
		}
	}()
	var ferr error
	give := func(f *os.File, err error) string {
		if err != nil {
			ferr = errors.Join(ferr, err)
			return ""
		}
		theirs = append(theirs, f)
		return strconv.Itoa(2 + len(theirs))
	}
	pipe := func(toUs bool) (theirEnd, ourEnd *os.File) {
		r, w, err := os.Pipe()
		ferr = errors.Join(ferr, err)
		if toUs {
			r, w = w, r
		}
		if err == nil {
			ours = append(ours, w)
		}
		return r, w
	}
	args, err := b.args(func(d data) string { return give(memory(d.name, []byte(d.text))) })
	if err != nil {
		return nil, nil, err
	}
	info, tells := pipe(true)
	block, unblock := pipe(false)
	stdin, input := pipe(false)
	stdout, output := pipe(true)
	args = append(args, "--seccomp", give(memory("filter", filter)), "--info-fd", give(info, nil), "--block-fd", give(block, nil), "--")
	if ferr != nil {
		return nil, nil, ferr
	}
	argv := append(append([]string{"/bin/sh", "-c", bounded, program}, args...), command...)
	attr := &syscall.SysProcAttr{Setsid: true}
	release := func() {}
	if b.who.helpers {
		var namespace string
		if namespace, release, err = subordinateNamespace(ctx, &b.who); err != nil {
			return nil, nil, err
		}
		argv = append([]string{"nsenter", "--user=" + namespace, "--setuid", "0", "--setgid", "0", "--"}, argv...)
	} else {
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = b.who.uids, b.who.gids, !b.who.same
		attr.Credential = &syscall.Credential{NoSetGroups: b.who.same} // the kernel keeps the groups of who has one user
	}
	defer release()
	c := exec.Command(argv[0], argv[1:]...) //nolint:noctx // its life is that of the sandbox
	p = &process{root: b.root, group: b.group, same: b.who.same, said: &tail{}, over: make(chan struct{})}
	c.Dir, c.Env, c.ExtraFiles, c.SysProcAttr = "/", []string{noteName + "=" + b.note}, theirs, attr
	c.Stdin, c.Stdout, c.Stderr = stdin, stdout, p.said
	theirs = append(theirs, stdin, stdout)
	if err := c.Start(); err != nil {
		return nil, nil, unsupported(fmt.Errorf("bwrap: %w", err), "user-namespaces")
	}
	closeAll(theirs)
	theirs, p.monitor = nil, c.Process.Pid
	go p.wait(c) // kill waits for it
	if err := p.place(ctx, tells); err != nil {
		// What waits for unblock ends by itself. But the sandbox's first process waits before that
		// for bwrap to give it its users, and does not notice that bwrap is gone. It has our pipes.
		_ = unix.Kill(-p.monitor, unix.SIGKILL) // they may have ended
		closeAll(ours)
		<-p.over
		return nil, nil, p.refused(err)
	}
	unblock.Close()
	return p, &stdio{input, output}, nil
}

// place waits until the sandbox is there and puts its first process, which waits, into its group.
func (p *process) place(ctx context.Context, tells *os.File) error {
	defer tells.Close()
	stop := context.AfterFunc(ctx, func() { tells.Close() })
	defer stop()
	var info struct {
		PID int `json:"child-pid"`
	}
	if err := json.NewDecoder(io.LimitReader(tells, 4096)).Decode(&info); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return errNotMade
	}
	p.pid = info.PID
	if p.group != nil {
		return p.group.add(p.pid)
	}
	return nil
}

var errNotMade = errors.New("bwrap has not made the sandbox")

// wait takes note of the end.
func (p *process) wait(c *exec.Cmd) {
	defer close(p.over)
	_ = c.Wait() // its state says it
	p.code = c.ProcessState.ExitCode()
	if p.group != nil {
		p.oom = p.code == killed && p.group.outOfMemory()
		_ = p.group.remove() // sweep removes what remains
	}
}

// hold opens the supervisor for the kernel, because numbers are given again. It fails with ESRCH if
// the sandbox has ended.
func (p *process) hold() (*os.File, error) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "supervisor")
	if child(p.monitor) != p.pid { // it had ended before, and this is another
		f.Close()
		return nil, unix.ESRCH
	}
	return f, nil
}

// ended waits until the sandbox has ended, for as long as ctx lasts.
func (p *process) ended(ctx context.Context) bool {
	if p.over != nil {
		select {
		case <-p.over:
			return true
		case <-ctx.Done():
			return false
		}
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for child(p.monitor) == p.pid {
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// kill ends the sandbox and waits until it is gone. One that has ended is not an error.
func (p *process) kill(ctx context.Context) error {
	f, err := p.hold()
	if err == nil {
		defer f.Close()
		err = unix.PidfdSendSignal(int(f.Fd()), unix.SIGKILL, nil, 0)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", p.pid, err)
	}
	if !p.ended(ctx) {
		return fmt.Errorf("process %d does not end: %w", p.pid, context.Cause(ctx))
	}
	if p.group != nil { // its creator may be gone
		return p.group.remove()
	}
	return nil
}

// refused says why a sandbox has ended before it was there.
func (p *process) refused(err error) error {
	if !errors.Is(err, errNotMade) {
		return err
	}
	return unsupported(fmt.Errorf("%w: %s%s", err, p.said, forbidden()), "user-namespaces")
}

// memory returns a file that has no name.
func memory(name string, content []byte) (*os.File, error) {
	fd, err := bwrap.Memory(name, unix.MFD_CLOEXEC, content)
	if err != nil {
		return nil, fmt.Errorf("memory for %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// bounded is a shell program that bounds what its user namespace may take of what the kernel counts
// by the user who has made the namespace, who is the same for all sandboxes: instances of inotify,
// 128 by default, and their watches. Then it becomes the program that it is given. In a container
// that cannot write to /proc/sys there is no such bound.
const bounded = `cd /proc/sys/user && { echo 16 > max_inotify_instances; echo 8192 > max_inotify_watches; cd /; } 2> /dev/null
exec "$0" "$@"`

// subordinateNamespace makes a user namespace with subordinate users, whose maps only newuidmap and
// newgidmap may write, and returns the path of it. The process that holds it ends with release.
func subordinateNamespace(ctx context.Context, who *identity) (path string, release func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", nil, err
	}
	defer r.Close()
	c := exec.Command("cat") //nolint:noctx // it ends with its input
	c.Stdin, c.Env, c.SysProcAttr = r, []string{}, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if err := c.Start(); err != nil {
		w.Close()
		return "", nil, unsupported(fmt.Errorf("user namespace: %w%s", err, forbidden()), "user-namespaces")
	}
	release = func() {
		w.Close()
		_ = c.Wait() // it may only have been killed, which is the same
	}
	for _, m := range []struct {
		program string
		maps    []syscall.SysProcIDMap
	}{{"newuidmap", who.uids}, {"newgidmap", who.gids}} {
		args := []string{strconv.Itoa(c.Process.Pid)}
		for _, e := range m.maps {
			args = append(args, strconv.Itoa(e.ContainerID), strconv.Itoa(e.HostID), strconv.Itoa(e.Size))
		}
		if out, err := exec.CommandContext(ctx, m.program, args...).CombinedOutput(); err != nil {
			release()
			return "", nil, unsupported(fmt.Errorf("%s: %w: %s", m.program, err, bytes.TrimSpace(out)), "user-namespaces")
		}
	}
	return fmt.Sprintf("/proc/%d/ns/user", c.Process.Pid), release, nil
}

// stdio is a connection over two pipes.
type stdio struct{ in, out *os.File }

func (s *stdio) Read(b []byte) (int, error)  { return s.out.Read(b) }
func (s *stdio) Write(b []byte) (int, error) { return s.in.Write(b) }
func (s *stdio) Close() error                { return errors.Join(s.in.Close(), s.out.Close()) }

// maxSaid bounds what is kept of what bwrap and the supervisor say.
const maxSaid = 4 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p[max(0, len(p)-maxSaid):]...)
	t.b = t.b[max(0, len(t.b)-maxSaid):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.b), "\uFFFD"))
}
