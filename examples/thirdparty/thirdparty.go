//go:build linux

// Package thirdparty is an adapter to copy: a complete backend in one file, with two languages,
// state, files, commands and terminals. docs/guides/write-an-adapter.md goes through it.
//
// Its sandboxes are processes in namespaces of their own. They have the network of this machine and
// can read its files, so this is no sandbox for strangers: it says what it is by its type, its
// isolation and the features that it does not declare. It needs root.
package thirdparty

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// Type is what configuration calls this backend.
const Type = "unsafe-namespaces"

// Config is what configuration says.
type Config struct {
	// Python is the program that runs the sandboxes' supervisors. Default: /usr/bin/python3.
	Python string `json:"python,omitempty"`
}

// Open opens the backend. Like every constructor of an adapter it does no remote I/O.
func Open(_ context.Context, env driver.Env, cfg Config) (executor.Executor, error) {
	if cfg.Python == "" {
		cfg.Python = "/usr/bin/python3"
	}
	return runner.Open(env, transport{}, runner.Options{
		Options: driver.Options{Type: Type},
		Python:  cfg.Python,
		Capabilities: executor.Capabilities{
			Isolation: executor.IsolationProcess,
			Features:  []executor.Feature{executor.FeatureNetworkFull, executor.FeatureLimitProcesses},
			Languages: []executor.Runtime{{Language: executor.Python}, {Language: executor.JavaScript}},
		},
	})
}

// Factory is for registries.
func Factory() driver.Factory { return driver.NewFactory(Type, Open, nil) }

// transport implements runner.Transport.
type transport struct{}

// prepare runs in the new namespaces, and becomes the runner. The directories are the sandbox's.
const prepare = `mount --make-rprivate /; mount -t proc proc /proc
for d in /workspace /tmp /dev/shm /run/nscd; do
	mkdir -p $d; mount -t tmpfs -o nosuid,nodev tmpfs $d
done
chmod 755 /run/nscd; exec "$@"`

// Start implements runner.Transport.
func (transport) Start(_ context.Context, s *runner.Start) (runner.Sandbox, io.ReadWriteCloser, error) {
	s.Config.Names = "/run/nscd/socket" // user code has a uid that this machine has no name for
	box := &sandbox{ended: make(chan struct{})}
	cmd := exec.Command("sh", append([]string{"-ec", prepare, "sh"}, s.Command...)...)
	cmd.Stderr = &box.stderr
	// Of a process namespace it is the first process: with it everything ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC}
	conn, err := start(cmd)
	if err != nil {
		return nil, nil, err
	}
	box.cmd = cmd
	go func() { // Remove and Termination wait for it
		defer close(box.ended)
		cmd.Wait()
	}()
	return box, conn, nil
}

// stream is the standard input and output of a process.
type stream struct {
	io.WriteCloser
	*os.File
}

func (s stream) Write(p []byte) (int, error) { return s.WriteCloser.Write(p) }
func (s stream) Close() error                { return errors.Join(s.WriteCloser.Close(), s.File.Close()) }

// start starts a process with an environment that has nothing of this program.
func start(cmd *exec.Cmd) (io.ReadWriteCloser, error) {
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	in, ierr := cmd.StdinPipe()
	r, w, oerr := os.Pipe() // which Wait does not close
	if err := errors.Join(ierr, oerr); err != nil {
		return nil, err
	}
	cmd.Stdout = w
	err := cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
	}
	return stream{in, r}, err
}

// sandbox implements runner.Sandbox.
type sandbox struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer  // read when it has ended
	ended  chan struct{} // closed then
	bridge sync.WaitGroup
}

// Connect implements runner.Sandbox. The network, with the name of the runner's socket, is that of
// this machine, so a bridge need not be in the other namespaces.
func (s *sandbox) Connect(_ context.Context, command []string) (io.ReadWriteCloser, error) {
	cmd := exec.Command(command[0], command[1:]...)
	conn, err := start(cmd)
	if err == nil {
		s.bridge.Go(func() { cmd.Wait() }) // it ends with the sandbox
	}
	return conn, err
}

// Termination implements runner.Sandbox. The output ends a little before the process.
func (s *sandbox) Termination(context.Context) (runner.Termination, error) {
	select {
	case <-s.ended:
	case <-time.After(time.Second):
		return runner.Termination{}, nil
	}
	state := s.cmd.ProcessState
	if state.Success() { // the runner's clocks have ended it
		return runner.Termination{Ended: true, Reason: executor.ReasonLifetime}, nil
	}
	return runner.Termination{Ended: true, Reason: executor.ReasonSandbox, Code: max(0, state.ExitCode()), Stderr: s.stderr.String()}, nil
}

// Remove implements runner.Sandbox.
func (s *sandbox) Remove(context.Context) error {
	s.cmd.Process.Kill() // fails if it has ended
	<-s.ended
	s.bridge.Wait()
	return nil
}
