// Package sshtest is a stranger's backend: hosts that are reached by SSH, on the contract of
// package runner. The adapter is this file. TestConformance runs the suite over a server of its
// own.
package sshtest

import (
	"cmp"
	"context"
	"io"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// Open opens a backend on a host. It connects when it is used.
func Open(env driver.Env, address string, client *ssh.ClientConfig) (executor.Executor, error) {
	return runner.Open(env, &host{address: address, config: client}, runner.Options{
		Options: driver.Options{Type: "ssh"}, Python: "/usr/bin/python3",
		Capabilities: executor.Capabilities{
			Isolation: executor.IsolationProcess,
			Features:  []executor.Feature{executor.FeatureNetworkFull, executor.FeatureLimitProcesses},
			Languages: []executor.Runtime{{Language: executor.Python}, {Language: executor.JavaScript}},
		},
	})
}

// The directories of the sandboxes, and the programs of the host. The first argument of each is
// such a directory.
const (
	root  = "/run/execbroker-ssh/"
	start = `mkdir -p $1; printf '%s\n' "$2" >$1/note; code=0
sh -c 'echo $$ >$0/pid; shift; exec unshare --mount --pid --fork --mount-proc sh -ec "
for d in /workspace /tmp /dev/shm /run/nscd; do mkdir -p \$d; mount -t tmpfs -o nosuid,nodev tmpfs \$d; done; chmod 755 /run/nscd; exec \"\$@\"" $0 "$@"' \
	"$@" 2>$1/stderr || code=$?; echo $code >$1/end`
	find   = `test ! -e $1/note || { cat $1/note; cat $1/end 2>/dev/null || echo; tail -c 2000 $1/stderr; }`
	remove = `pid=$(cat $1/pid 2>/dev/null) && grep -qsF $1 /proc/$pid/cmdline && pkill -9 -P $pid
rm -rf $1; while grep -qsF $1 /proc/$pid/cmdline; do sleep 0.02; done`
)

// host is a runner.Transport.
type host struct {
	address string
	config  *ssh.ClientConfig
}

// stream is a process at the host, over a connection of its own.
type stream struct {
	io.Reader
	io.Writer
	*ssh.Session
	client *ssh.Client
}

func (s stream) Close() error { return s.client.Close() }

// begin starts a process at the host.
func (h *host) begin(command ...string) (stream, error) {
	c, err := ssh.Dial("tcp", h.address, h.config)
	if err != nil {
		return stream{}, err
	}
	s, err := c.NewSession()
	if err != nil {
		c.Close()
		return stream{}, err
	}
	out, _ := s.StdoutPipe() // both fail only after Start
	in, _ := s.StdinPipe()
	quoted := "exec"
	for _, arg := range command {
		quoted += " '" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return stream{out, in, s, c}, s.Start(quoted)
}

// ask runs a program of the host to its end and returns what it has said.
func (h *host) ask(ctx context.Context, program, arg string) (string, error) {
	s, err := h.begin("sh", "-c", program, "sh", arg)
	if err != nil {
		return "", err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	said, err := io.ReadAll(s)
	return string(said), cmp.Or(context.Cause(ctx), err, s.Wait())
}

// Start implements runner.Transport.
func (h *host) Start(_ context.Context, s *runner.Start) (runner.Sandbox, io.ReadWriteCloser, error) {
	s.Config.Names = "/run/nscd/socket" // user code has a uid that the host has no name for
	conn, err := h.begin(append([]string{"sh", "-c", start, "sh", root + s.ID, s.Note()}, s.Command...)...)
	return sandbox{h, root + s.ID}, conn, err
}

// Find implements runner.Finder.
func (h *host) Find(ctx context.Context, handle executor.Handle) (runner.Sandbox, executor.SessionInfo, error) {
	if strings.ContainsAny(handle.Session, "/.") { // it becomes part of a path
		return nil, executor.SessionInfo{}, driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
	}
	said, err := h.ask(ctx, find, root+handle.Session)
	if err != nil {
		return nil, executor.SessionInfo{}, err
	}
	parts := append(strings.SplitN(said, "\n", 3), "")
	info, err := runner.Recall(handle.Session, parts[0])
	if err == nil && parts[1] != "" {
		info.State = executor.SessionDead
	}
	return sandbox{h, root + handle.Session}, info, err
}

// sandbox is a runner.Sandbox.
type sandbox struct {
	*host
	dir string
}

// Connect implements runner.Sandbox. The network is that of the host, and the name of the runner's
// socket with it.
func (s sandbox) Connect(_ context.Context, command []string) (io.ReadWriteCloser, error) {
	return s.begin(command...)
}

// Termination implements runner.Sandbox.
func (s sandbox) Termination(ctx context.Context) (runner.Termination, error) {
	said, err := s.ask(ctx, `for i in $(seq 30); do test -e $1/end && break; sleep 0.1; done; `+find, s.dir)
	parts := strings.SplitN(said, "\n", 3)
	if err != nil || said != "" && parts[1] == "" {
		return runner.Termination{}, err
	}
	end := runner.Termination{Ended: true, Reason: executor.ReasonLifetime}
	if said != "" && parts[1] != "0" {
		end.Reason, end.Stderr = executor.ReasonSandbox, strings.TrimSpace(parts[2])
		end.Code, err = strconv.Atoi(parts[1])
	}
	return end, err
}

// Remove implements runner.Sandbox.
func (s sandbox) Remove(ctx context.Context) error {
	_, err := s.ask(ctx, remove, s.dir)
	return err
}
