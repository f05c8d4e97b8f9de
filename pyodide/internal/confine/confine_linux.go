//go:build linux && (amd64 || arm64)

package confine

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/internal/bwrap"
)

// Of returns the layers that m puts around a program.
func Of(m Method) Layers {
	if m == None {
		return Layers{}
	}
	return Layers{Namespaces: true, PrivateRoot: true, SystemCalls: true, NoPrivileges: true}
}

// plan is the message from the parent to the child that sets up the confinement. It is in an
// anonymous file that the child inherits. A process that can only choose arguments and environment
// of this program cannot create such a file.
type plan struct {
	Method Method
	Bwrap  string `json:",omitempty"`
	Path   string
	Args   []string
	Env    []string
	Read   []string
	Limits Limits
	User   uint32 // the child has the rights of real root and becomes this user; 0: it does not have them
}

const (
	childName = "execbroker-confine" // argv[0] of a process that sets up a confinement
	planFD    = 3                    // the descriptor of its plan
	nobody    = 65534
)

// Command returns the command that starts p. The caller owns the standard streams and the life of
// the process, and calls done once the command is started or will not be started. If confining
// fails before the program has begun, the exit status is 126 and standard error has one line.
func Command(m Method, p Program) (c *exec.Cmd, done func(), err error) {
	c, pl, err := command(m, p)
	if err != nil {
		return nil, nil, err
	}
	raw, err := json.Marshal(pl)
	if err != nil {
		return nil, nil, err
	}
	fd, err := bwrap.Memory("plan", unix.MFD_CLOEXEC, raw)
	if err != nil {
		return nil, nil, fmt.Errorf("plan of the confinement: %w", err)
	}
	f := os.NewFile(uintptr(fd), "plan")
	c.Env, c.ExtraFiles = []string{}, []*os.File{f}
	return c, func() { f.Close() }, nil
}

func command(m Method, p Program) (*exec.Cmd, plan, error) {
	pl := plan{Method: m, Path: p.Path, Args: p.Args, Env: p.Env, Limits: p.Limits}
	if os.Geteuid() == 0 && m != None {
		pl.User = nextUser()
	}
	if pl.User == 0 || pl.User == nobody {
		pl.Limits.Threads = 0 // processes of other sandboxes would count
	}
	c := &exec.Cmd{Path: "/proc/self/exe", Args: []string{childName}}
	switch m {
	case None:
	case Namespaces:
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		}
		if pl.User == 0 {
			// Inside the namespace the process is root, which it needs for mounts. Outside it stays
			// the same user.
			c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
			c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		}
	case Bubblewrap:
		b, err := bwrap.Find()
		if err != nil {
			return nil, pl, fmt.Errorf("bubblewrap: %w: %w", ErrUnavailable, err)
		}
		pl.Bwrap = b
		if pl.User != 0 { // a copy of real root needs a mount namespace to pass files to the user that it becomes
			c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		}
	default:
		return nil, pl, fmt.Errorf("confinement %q: %w", m, ErrUnavailable)
	}
	if m != None {
		libs, err := libraries(p.Path)
		if err != nil {
			return nil, pl, err
		}
		pl.Read = append(append([]string{p.Path}, libs...), p.Read...)
	}
	return c, pl, nil
}

// The users of processes of real root, each a different one.
var (
	lastUser atomic.Uint32 // last used ID, relative to userBase
	userBase = rand.Uint32N(bwrap.Users)
)

// nextUser returns a user ID that no other process of this program has and, except by a rare
// coincidence, no other process at all. If the namespace of this process has no such IDs, it
// returns one ID that all share.
func nextUser() uint32 {
	if !OwnUsers() {
		return nobody
	}
	return bwrap.FirstUser + (userBase+lastUser.Add(1))%bwrap.Users
}

// OwnUsers reports whether each confined process has a separate user, so that limits per user apply
// to each process. That requires real root, and a namespace with the user IDs.
var OwnUsers = sync.OnceValue(func() bool {
	return os.Geteuid() == 0 && mapped("/proc/self/uid_map") && mapped("/proc/self/gid_map")
})

// mapped reports whether a file of ID mappings contains the IDs for confined processes.
func mapped(path string) bool {
	b, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		var inside, outside, n uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err == nil && inside <= bwrap.FirstUser && inside+n >= bwrap.FirstUser+bwrap.Users {
			return true
		}
	}
	return false
}

// PID returns the PID of the program itself. With [Bubblewrap] the started process only monitors
// the program, which may not exist yet: then it returns zero.
func PID(m Method, started int) int {
	if m != Bubblewrap {
		return started
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", started, started))
	if err != nil {
		return 0
	}
	var pid int
	fmt.Sscan(string(b), &pid) // no child yet: zero
	return pid
}

// Kill kills only the program, if another process monitors it, and reports whether it did. The
// monitor then waits for it and exits. If the monitor were killed instead, the init process would
// have to wait for the program, and in a container that is often a program that never does.
func Kill(m Method, started int) bool {
	pid := PID(m, started)
	if pid == 0 || pid == started {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	// The PID may belong to another process by the time that it is opened.
	return PID(m, started) == pid && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// Signal returns the number of the signal that ended the program, or zero.
func Signal(m Method, p *os.ProcessState) syscall.Signal {
	w, ok := p.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return 0
	case w.Signaled():
		return w.Signal()
	case m == Bubblewrap && w.ExitStatus() > 128: // as a shell reports a signal
		return syscall.Signal(w.ExitStatus() - 128)
	}
	return 0
}

// Adjustable reports why this process cannot change the limits of programs that it has confined
// with m, or nil. Programs of real root run as another user. To change the limits of another user,
// root needs a capability that it lacks in many containers.
func Adjustable(m Method) error {
	if m == None || os.Geteuid() != 0 {
		return nil
	}
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&h, &caps[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	if caps[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return errors.New("this process is root without CAP_SYS_RESOURCE")
	}
	return nil
}

var probes sync.Map // Method -> *probe

type probe struct {
	once sync.Once
	err  error
}

// Probe reports why m cannot be used on this machine, or nil. It tries the method once in the life
// of this process.
func Probe(ctx context.Context, m Method) error {
	v, _ := probes.LoadOrStore(m, &probe{})
	p := v.(*probe)
	p.once.Do(func() { p.err = try(context.WithoutCancel(ctx), m) })
	return p.err
}

// try confines a program that exists on every machine: the dynamic loader, which prints its own
// version.
func try(ctx context.Context, m Method) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("%s: %w: %w", m, ErrUnavailable, err)
	}
	loader, err := anyLoader(exe)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", m, ErrUnavailable, err)
	}
	c, done, err := Command(m, Program{Path: loader, Args: []string{"--version"}})
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out := &capped{max: 4 << 10}
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		return fmt.Errorf("%s: %w: %w", m, ErrUnavailable, err)
	}
	stop := context.AfterFunc(ctx, func() { c.Process.Kill() })
	defer stop()
	if err := c.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %w: %s", m, ErrUnavailable, err, strings.TrimSpace(string(out.b)))
	}
	return nil
}

// capped keeps the first bytes of what is written to it.
type capped struct {
	b   []byte
	max int
}

func (c *capped) Write(p []byte) (int, error) {
	c.b = append(c.b, p[:min(len(p), c.max-len(c.b))]...)
	return len(p), nil
}

// libraries returns the dynamic loader of a program and the libraries that it loads.
func libraries(path string) ([]string, error) {
	loader, err := interpreter(path)
	if err != nil || loader == "" {
		return nil, err
	}
	if loader == path {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, loader, "--list", path)
	c.Env = []string{}
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: libraries: %w", path, err)
	}
	libs := []string{loader}
	for line := range strings.Lines(string(out)) {
		// A line is "name => /path (0x…)" or only a path; the kernel's own library has neither.
		if _, after, ok := strings.Cut(line, "=> "); ok {
			line = after
		}
		lib, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if filepath.IsAbs(lib) && lib != loader {
			libs = append(libs, lib)
		}
	}
	return libs, nil
}

// interpreter returns the dynamic loader that a program names, or "" for a statically linked
// program.
func interpreter(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b := make([]byte, min(p.Filesz, 4096))
		if _, err := p.ReadAt(b, 0); err != nil {
			return "", fmt.Errorf("%s: loader: %w", path, err)
		}
		return strings.TrimRight(string(b), "\x00"), nil
	}
	return "", nil
}

// anyLoader finds a dynamic loader: that of exe or, if exe is statically linked, that of the shell.
// An image may have neither, and only the C library that Deno needs, in one of the usual places.
func anyLoader(exe string) (string, error) {
	for _, p := range []string{exe, "/bin/sh"} {
		if l, err := interpreter(p); err == nil && l != "" {
			return filepath.EvalSymlinks(l)
		}
	}
	for _, p := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"} {
		if l, err := filepath.EvalSymlinks(p); err == nil {
			return l, nil
		}
	}
	return "", errors.New("no dynamic loader found")
}

// seconds rounds up, because a limit must be at least what was requested.
func seconds(d time.Duration) uint64 { return uint64(math.Ceil(d.Seconds())) }
