//go:build unix

package dbtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// Freeze stops the server without ending its connections, until Thaw.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

// signal sends a signal to the server and to its children.
func (s *Server) signal(sig syscall.Signal) {
	s.tb.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", s.process.Pid))
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, f := range append(bytes.Fields(children), strconv.AppendInt(nil, int64(s.process.Pid), 10)) {
		pid, err := strconv.Atoi(string(f))
		if err == nil {
			err = syscall.Kill(pid, sig)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			s.tb.Fatal(err)
		}
	}
}

// unprivileged gives the directory of the server to a user who is not root, and returns how to
// become that user.
func (s *Server) unprivileged() *syscall.SysProcAttr {
	s.tb.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		s.tb.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(s.dir, uid, gid); err != nil {
		s.tb.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
