package dockertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The files in the directory of an engine.
const (
	pidFile   = "pid"
	logFile   = "log"
	usersFile = "users"
	startFile = "start"
)

// maxSocket is the length of a Unix socket's path. The longest that dockerd makes is
// run/containerd/containerd.sock.ttrpc.
const maxSocket = 107 - len("/run/containerd/containerd.sock.ttrpc")

// Engine is a dockerd that this process has started or found.
type Engine struct {
	Host  string
	opts  Options
	cmd   *exec.Cmd // nil if it was found
	leash io.Closer
	done  chan struct{} // closed when cmd has ended
}

// Start starts dockerd and waits until it answers. With Detach an engine that already runs in Dir
// is taken as it is.
func Start(ctx context.Context, o Options) (*Engine, error) {
	if len(o.Dir) > maxSocket {
		return nil, fmt.Errorf("%s: longer than %d bytes, no room for sockets below it", o.Dir, maxSocket)
	}
	if err := os.MkdirAll(o.Dir, 0o711); err != nil {
		return nil, err
	}
	l, err := lock(filepath.Join(o.Dir, startFile), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	e := &Engine{Host: hostOf(o.Dir), opts: o}
	if o.Detach && Ping(ctx, e.Host) == nil {
		return e, nil
	}
	// A machine without the kernel's packet filter can still run containers without a network or
	// with one that reaches the host.
	variants := [][]string{{}, {"--iptables=false", "--ip6tables=false"}}
	network := "--bridge=none"
	if o.Bridge {
		name, err := addBridge(o.Dir)
		if err != nil {
			return nil, err
		}
		network = "--bridge=" + name
	} else {
		variants = variants[1:]
	}
	var errs []error
	for _, v := range variants {
		if err = e.start(ctx, append(v, network)); err == nil {
			return e, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// leashed starts its arguments and ends them when its standard input ends, which it does when the
// process at the other end dies. An engine that a test has frozen is thawed, so that it can heed
// the signal.
const leashed = `exec 3<&0 </dev/null
"$@" 3<&- & engine=$!
{ cat <&3 >/dev/null; kill -TERM $engine; kill -CONT $engine; } & watch=$!
exec 3<&-
wait $engine; code=$?
kill $watch; exit $code`

func (e *Engine) start(ctx context.Context, args []string) error {
	dir := e.opts.Dir
	// A pid file that a killed dockerd has left makes the next one refuse if the number is in use
	// again.
	if err := os.Remove(filepath.Join(dir, pidFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	config, err := writeRuntimes(dir)
	if err != nil {
		return err
	}
	return e.run(ctx, append([]string{
		"dockerd", "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "run"),
		"--host", e.Host, "--pidfile", filepath.Join(dir, pidFile), "--containerd-namespace", "execbroker",
		"--config-file", config,
	}, args...))
}

// run starts the program of an engine and waits until it answers.
func (e *Engine) run(ctx context.Context, args []string) error {
	logName := filepath.Join(e.opts.Dir, logFile)
	log, err := os.Create(logName)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	if !e.opts.Detach {
		cmd = exec.Command("/bin/sh", append([]string{"-c", leashed, "sh"}, args...)...)
		if e.leash, err = cmd.StdinPipe(); err != nil {
			return err
		}
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C at the terminal is not for the engine
	if !e.opts.Bridge {
		// Even an engine that is told to have no bridge changes the network of the machine: it
		// removes the bridge of another one.
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	e.cmd, e.done = cmd, done
	go func() { // ends with the engine: Restart waits for it, and a detached engine outlives this process
		cmd.Wait()
		close(done)
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		if Ping(ctx, e.Host) == nil {
			return nil
		}
		select {
		case <-e.done:
			return fmt.Errorf("%s ended: %s", args[0], tail(logName))
		case <-ctx.Done():
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-e.done
			return fmt.Errorf("%s does not answer: %w: %s", args[0], ctx.Err(), tail(logName))
		case <-poll.C:
		}
	}
}

// tail returns the last lines of a log.
func tail(name string) string {
	b, _ := os.ReadFile(name) // a log that cannot be read adds nothing to the error that it would explain
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-5):], []byte("\n")))
}

// Started reports whether Start has started the engine, and not found it running.
func (e *Engine) Started() bool { return e.cmd != nil }

// Stop ends the engine and its containers, and waits for it.
func (e *Engine) Stop(ctx context.Context) error { return Stop(ctx, e.opts.Dir) }

// Remove stops the engine and removes its directory.
func (e *Engine) Remove(ctx context.Context) error {
	if err := e.Stop(ctx); err != nil {
		return err
	}
	// A dockerd that was killed leaves behind the monitors of containers that ended meanwhile, and
	// its mounts.
	if err := killMonitors(filepath.Join(e.opts.Dir, "run") + "/"); err != nil {
		return err
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if p := strings.Fields(line)[1]; strings.HasPrefix(p, e.opts.Dir+"/") {
			if err := syscall.Unmount(p, syscall.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", p, err)
			}
		}
	}
	return os.RemoveAll(e.opts.Dir)
}

// killMonitors ends the shims whose containerd is below a directory, and what they still have
// running.
func killMonitors(dir string) error {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, name := range commands {
		b, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(b, []byte("containerd-shim")) || !bytes.Contains(b, []byte("\x00-address\x00"+dir)) {
			continue // has ended, or is something else
		}
		process := filepath.Dir(name)
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			return err
		}
		// A shim is a subreaper with several threads, each of which may have children.
		children, err := filepath.Glob(filepath.Join(process, "task/*/children"))
		if err != nil {
			return err
		}
		for _, c := range children {
			b, _ := os.ReadFile(c) // of a thread that has ended: none
			for f := range strings.FieldsSeq(string(b)) {
				if child, err := strconv.Atoi(f); err == nil {
					syscall.Kill(child, syscall.SIGKILL)
				}
			}
		}
		syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
	return nil
}

// Stop ends the engine of a directory, whoever started it, unless it has users: ErrInUse. None is
// not an error.
func Stop(ctx context.Context, dir string) error {
	l, err := lock(filepath.Join(dir, usersFile), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return ErrInUse
	case err != nil:
		return err
	}
	defer l.Close()
	pid, err := pidOf(dir)
	if err != nil || pid == 0 {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("dockerd %d: %w", pid, err)
	}
	if err := gone(ctx, pid); err != nil {
		return err
	}
	return removeBridge(dir)
}

// Kill ends dockerd and its containerd as a crash would: containers live on without them.
func (e *Engine) Kill(ctx context.Context) error {
	dir := e.opts.Dir
	pid, err := pidOf(dir)
	if err != nil {
		return err
	}
	containerd, err := pidIn(filepath.Join(dir, "run", "containerd", "containerd.pid"), filepath.Join(dir, "run"))
	if err != nil {
		return err
	}
	for _, p := range []int{pid, containerd} { // in this order: a living dockerd would start containerd again
		if p == 0 {
			continue
		}
		if err := syscall.Kill(p, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			return err
		}
		if err := gone(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// Restart starts the engine again after Stop or Kill, in the same directory.
func (e *Engine) Restart(ctx context.Context) error {
	if e.done != nil {
		<-e.done
	}
	n, err := Start(ctx, e.opts)
	if err == nil {
		*e = *n
	}
	return err
}

// Freeze stops dockerd in its tracks: it accepts connections and answers none. Thaw lets it go on.
func (e *Engine) Freeze(ctx context.Context) error {
	pid, err := e.signal(syscall.SIGSTOP)
	if err != nil {
		return err
	}
	return wait(ctx, fmt.Sprintf("process %d does not stop", pid), func() bool { return stopped(pid) })
}

// Thaw undoes Freeze.
func (e *Engine) Thaw() error {
	_, err := e.signal(syscall.SIGCONT)
	return err
}

func (e *Engine) signal(s syscall.Signal) (pid int, err error) {
	pid, err = pidOf(e.opts.Dir)
	if err == nil && pid == 0 {
		err = errors.New("dockerd does not run")
	}
	if err != nil {
		return 0, err
	}
	return pid, syscall.Kill(pid, s)
}

// stopped reports whether every thread of a process is stopped.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, t := range threads {
		b, err := os.ReadFile(t)
		_, state, _ := bytes.Cut(b, []byte(") "))
		if err == nil && !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return true
}

// pidOf returns the dockerd of the engine in dir, or 0.
func pidOf(dir string) (int, error) {
	return pidIn(filepath.Join(dir, pidFile), filepath.Join(dir, pidFile))
}

// pidIn returns the process that a pid file names, or 0 if there is none with want in its command
// line: the number in a file that a crash has left may belong to another program by now.
func pidIn(name, want string) (int, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%s: not a process: %q", name, b)
	}
	cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Contains(cmd, []byte(want)) {
		return 0, nil
	}
	return pid, nil
}

// gone waits until process pid has ended and been reaped: the next dockerd takes a dead containerd
// that is not for a living one.
func gone(ctx context.Context, pid int) error {
	return wait(ctx, fmt.Sprintf("process %d does not end", pid), func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
}

func wait(ctx context.Context, problem string, f func() bool) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", problem, context.Cause(ctx))
		case <-poll.C:
		}
	}
	return nil
}

// Use registers a user of the engine in dir, until it is closed or this process ends. Stop leaves
// the engine running until the last user has gone, so that two test runs on one machine do not take
// it from each other.
func Use(dir string) (io.Closer, error) {
	l, err := lock(filepath.Join(dir, usersFile), syscall.LOCK_SH)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// lock takes an advisory lock on a file, waiting for it unless how has LOCK_NB. Closing the file
// gives it back.
func lock(name string, how int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}
