package kubetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The addresses of a cluster. The first is this machine's, the second the node's.
const (
	hostIP    = "10.98.0.1"
	nodeIP    = "10.98.0.2"
	linkBits  = "/30"
	podRange  = "10.88.0.0/16"
	serviceIP = "10.96.0.1"
	services  = "10.96.0.0/24"
	link      = "execbrokerkube" // the end of the link at this machine; at most 15 characters
)

// NodeName is the name of the node.
const NodeName = "node1"

// Cluster is one that runs.
type Cluster struct {
	Kubeconfig string // of an administrator
	Address    string // of this machine, for pods

	dir      string // state
	programs string
	lock     *os.File
	first    *exec.Cmd // the first process of the namespaces
	leash    io.Closer
	keys     *authority

	mu      sync.Mutex
	running map[string]*program
}

// program is one of the programs of a cluster.
type program struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// Start brings up a cluster and waits until its node is ready. It fails with ErrMissing where that
// is not possible.
func Start(ctx context.Context, o Options) (c *Cluster, err error) {
	if err := possible(); err != nil {
		return nil, err
	}
	made := &Cluster{dir: filepath.Join(o.Cache, "state"), programs: o.Programs, running: map[string]*program{}, Address: hostIP}
	if err := os.MkdirAll(made.dir, 0o755); err != nil {
		return nil, err
	}
	if made.lock, err = lock(ctx, filepath.Join(o.Cache, "lock")); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, made.Stop())
		}
	}()
	if err := made.clean(); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{
		made.files, made.namespaces, made.network,
		func(ctx context.Context) error { return made.containerd(ctx, o.Images) },
		made.control, made.node,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// possible says what this machine lacks.
func possible() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: needs root", ErrMissing)
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip", "nsenter", "mount"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: %s is not in PATH", ErrMissing, name)
		}
	}
	return nil
}

// lock waits for the only user of a file.
func lock(ctx context.Context, name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = until(ctx, func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) })
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("another cluster runs: %w", err)
	}
	return f, nil
}

// until polls until a check does not fail, and otherwise returns its last error.
func until(ctx context.Context, check func() error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// path is a file of the state.
func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

// clean removes what the last cluster has left, but its images.
func (c *Cluster) clean() error {
	if mounts, err := os.ReadFile("/proc/self/mounts"); err == nil {
		lines := strings.Split(string(mounts), "\n")
		slices.Reverse(lines) // those below come after those above
		for _, line := range lines {
			if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], c.dir+"/") {
				if err := syscall.Unmount(f[1], syscall.MNT_DETACH); err != nil {
					return fmt.Errorf("unmount %s: %w", f[1], err)
				}
			}
		}
	}
	if _, err := net.InterfaceByName(link); err == nil {
		err := run(exec.Command("ip", "link", "del", link))
		if _, there := net.InterfaceByName(link); err != nil && there == nil { // it may have gone with the namespace
			return err
		}
	}
	err := removeGroups()
	for _, name := range []string{"etcd", "run", "keys", "kubelet", "log"} {
		err = errors.Join(err, os.RemoveAll(c.path(name)))
	}
	return err
}

// groups is the part of each hierarchy of control groups that the kubelet makes its own in. They
// are of the whole machine.
const groups = "/sys/fs/cgroup/*/" + groupName

const groupName = "execbroker-kubetest"

// removeGroups removes the control groups of pods.
func removeGroups() error {
	found, err := filepath.Glob(groups)
	if err != nil {
		return err
	}
	for _, top := range found {
		var dirs []string
		filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			if e := until(deadline(), func() error { return ignoreMissing(syscall.Rmdir(dir)) }); e != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", dir, e))
			}
		}
	}
	return err
}

// deadline is a context for what has to be done in any case.
func deadline() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// namespaces starts the first process.
func (c *Cluster) namespaces(ctx context.Context) error {
	cmd := exec.Command(filepath.Join(c.programs, "pause"), "leash")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Setsid: true,
	}
	leash, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: namespaces: %w", ErrMissing, err)
	}
	c.first, c.leash = cmd, leash
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		return fmt.Errorf("%w: namespaces: %q, %w", ErrMissing, line, err)
	}
	return nil
}

// inside returns a command in the namespaces.
func (c *Cluster) inside(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(c.first.Process.Pid), "-m", "-n", "-p", "--", name}, args...)...)
}

// network links the node with this machine.
func (c *Cluster) network(context.Context) error {
	pid := strconv.Itoa(c.first.Process.Pid)
	for _, cmd := range []*exec.Cmd{
		exec.Command("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", pid),
		exec.Command("ip", "addr", "add", hostIP+linkBits, "dev", link),
		exec.Command("ip", "link", "set", link, "up"),
		exec.Command("ip", "route", "replace", podRange, "via", nodeIP, "dev", link),
		c.inside("ip", "link", "set", "lo", "up"),
		c.inside("ip", "addr", "add", serviceIP+"/32", "dev", "lo"), // the service of the API server, without a kube-proxy
		c.inside("ip", "addr", "add", nodeIP+linkBits, "dev", "eth0"),
		c.inside("ip", "link", "set", "eth0", "up"),
		c.inside("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"),
	} {
		if err := run(cmd); err != nil {
			return err
		}
	}
	return nil
}

// start starts a program of the cluster, whose output goes to a file.
func (c *Cluster) start(name string, args ...string) error {
	log, err := os.OpenFile(c.path("log", name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	at := filepath.Join(c.programs, name)
	if _, err := os.Stat(at); err != nil {
		at = name // of the machine
	}
	cmd := c.inside(at, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &program{cmd: cmd, done: make(chan struct{})}
	go func() { // Stop and Kill wait for it
		defer close(p.done)
		cmd.Wait()
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[name] = p
	return nil
}

// await waits until a check does not fail, or the program that it is about has ended.
func (c *Cluster) await(ctx context.Context, name string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("%s is not ready within %v", name, startTimeout))
	defer cancel()
	c.mu.Lock()
	p := c.running[name]
	c.mu.Unlock()
	over := func() {}
	err := until(ctx, func() error {
		select {
		case <-p.done:
			over()
			cancel()
			return fmt.Errorf("%s has ended", name)
		default:
			return check(ctx)
		}
	})
	if err != nil {
		said, _ := os.ReadFile(c.path("log", name)) // without one the error has to do
		return fmt.Errorf("%w\n%s", err, tail(said))
	}
	return nil
}

// Kill kills a program of the cluster, as SIGKILL does, and waits until it has ended.
func (c *Cluster) Kill(name string) error {
	c.mu.Lock()
	p := c.running[name]
	c.mu.Unlock()
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	child, err := childOf(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// childOf returns the process that nsenter has started.
func childOf(parent int) (int, error) {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, name := range all {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(b[max(0, strings.LastIndex(string(b), ")")):]), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(parent) {
			return strconv.Atoi(filepath.Base(filepath.Dir(name)))
		}
	}
	return 0, fmt.Errorf("process %d has no child", parent)
}

// Stop ends the cluster with everything in it. Its images are kept.
func (c *Cluster) Stop() error {
	if c.first != nil {
		c.leash.Close()
		c.first.Wait() // it ends with the leash, and the kernel ends everything else
		c.mu.Lock()
		for _, p := range c.running {
			<-p.done
		}
		c.mu.Unlock()
	}
	err := c.clean()
	return errors.Join(err, c.lock.Close())
}

// Listen listens at the address of this machine for pods.
func (c *Cluster) Listen(ctx context.Context) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(c.Address, "0"))
}

// Groups returns the control groups of pods.
func (c *Cluster) Groups() (all []string, err error) {
	tops, err := filepath.Glob(groups)
	if err != nil {
		return nil, err
	}
	for _, top := range tops {
		werr := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.Contains(d.Name(), "pod") && d.Name() != "kubepods" {
				all = append(all, path)
			}
			return ignoreMissing(err)
		})
		err = errors.Join(err, werr)
	}
	return all, err
}
