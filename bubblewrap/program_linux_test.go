package bubblewrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// The test binary is also a program that embeds the library, possibly as another user.
const (
	programEnv = "BUBBLEWRAP_TEST_PROGRAM"
	ownerEnv   = "BUBBLEWRAP_TEST_OWNER"
)

// What such a program does.
const (
	holdSessions = "hold"   // it has two sessions until it is killed, the second of which is idle soon
	runCode      = "run"    // it runs code and says what came of it
	runWeak      = "weak"   // likewise, with AllowWeak
	examine      = "doctor" // it says what Doctor says
)

// said is what a program says.
type said struct {
	Handles []executor.Handle
	Out     string // of the code
	UID     int    // of the supervisor, outside
	Limited bool
	Err     string
	Checks  []driver.Check
}

func program(ctx context.Context, how, owner string) error {
	env := driver.Env{Owner: owner}
	var s said
	switch how {
	case examine:
		s.Checks = Doctor(ctx, env, Config{})
	case holdSessions:
		x, err := Open(ctx, env, Config{})
		if err != nil {
			return err
		}
		for _, idle := range []time.Duration{time.Hour, time.Second} {
			session, err := x.Create(ctx, executor.Spec{})
			if err != nil {
				return err
			}
			if _, err := session.Run(ctx, executor.Request{Code: "import subprocess; subprocess.Popen(['sleep', '1000']); x = 41"}, nil); err != nil {
				return err
			}
			if _, err := session.KeepAlive(ctx, idle); err != nil {
				return err
			}
			s.Handles = append(s.Handles, session.Info().Handle)
		}
		if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
			return err
		}
		_, err = io.ReadAll(os.Stdin)
		return err
	default:
		x, err := Open(ctx, env, Config{AllowWeak: how == runWeak})
		if err != nil {
			return err
		}
		s.Limited = x.Info().Capabilities.Has(executor.FeatureLimitMemory)
		s.Out, s.UID, err = once(ctx, x)
		if err != nil {
			s.Err = err.Error()
		}
		if err := x.Close(); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

// once runs code in a session, which another holder then takes over.
func once(ctx context.Context, x executor.Executor) (out string, uid int, err error) {
	s, err := x.Create(ctx, executor.Spec{})
	if err != nil {
		return "", 0, err
	}
	defer s.Close()
	r, err := s.Run(ctx, executor.Request{Code: "import os; x = os.getuid(); open('/workspace/a', 'w').close()"}, nil)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return "", 0, err
	}
	var p Process
	executor.As(s, &p)
	st, err := os.Stat(fmt.Sprintf("/proc/%d", p.PID))
	if err != nil {
		return "", 0, err
	}
	h := s.Info().Handle
	h.Fence = 1
	later, err := x.Attach(ctx, h)
	if err != nil {
		return "", 0, err
	}
	defer later.Close()
	if r, err = later.Run(ctx, executor.Request{Code: "print(x, os.listdir('/workspace'))"}, nil); err != nil {
		return "", 0, err
	}
	return strings.TrimSpace(r.Stdout.String()), int(st.Sys().(*syscall.Stat_t).Uid), nil
}

// TestProgramKilled kills a program that has sessions. The one whose time is over ends by itself
// and leaves no process; the other is found by the next program and goes on.
func TestProgramKilled(t *testing.T) {
	t.Parallel()
	x, owner := open(t, func(*Config) {})
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env, c.Stderr = append(os.Environ(), programEnv+"="+holdSessions, ownerEnv+"="+owner), os.Stderr
	stdin, err := c.StdinPipe()
	check(t, err)
	defer stdin.Close()
	stdout, err := c.StdoutPipe()
	check(t, err)
	check(t, c.Start())
	var s said
	check(t, json.NewDecoder(stdout).Decode(&s))
	check(t, c.Process.Kill())
	if err := c.Wait(); err == nil {
		t.Error("the program was not killed")
	}
	eventually(t, "one sandbox less", func() bool {
		left, err := leftOf(owner)
		check(t, err)
		return len(left) == 1
	})
	session, err := x.Attach(t.Context(), s.Handles[0])
	check(t, err)
	if got := says(t, session, "print(x + 1)"); got != "42" {
		t.Errorf("got %q", got)
	}
	p := pid(t, session)
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p))
	check(t, err)
	if n := inNamespace(t, namespace); n < 3 {
		t.Errorf("%d processes in the sandbox", n)
	}
	check(t, session.Close())
	if n := inNamespace(t, namespace); n > 0 {
		t.Errorf("%d processes are left", n)
	}
	m, err := newMachine(driver.Env{}, Config{})
	check(t, err)
	check(t, m.groups.sweep(time.Now().Add(2*youngGroup))) // of the first, whose creator could not
	for _, h := range s.Handles {
		for _, dir := range m.groups.parents {
			if _, err := os.Stat(filepath.Join(dir, groupPrefix+h.Session)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a control group is left: %v", err)
			}
		}
	}
}

// inNamespace counts the processes of a namespace.
func inNamespace(t *testing.T, namespace string) (n int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	check(t, err)
	for _, dir := range dirs {
		if at, err := os.Readlink(dir + "/ns/pid"); err == nil && at == namespace {
			n++
		}
	}
	return n
}

// TestSupervisorKilled kills the first process of a sandbox, as the administrator may.
func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	x, owner := open(t, func(*Config) {})
	s := create(t, x, executor.Spec{})
	says(t, s, "import subprocess; subprocess.Popen(['sleep', '1000'])")
	check(t, syscall.Kill(pid(t, s), syscall.SIGKILL))
	if _, err := s.Run(t.Context(), executor.Request{Code: "1"}, nil); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	left, err := leftOf(owner)
	check(t, err)
	if len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// otherUser is one that nobody has.
const otherUser = 54321

// asUser runs the test binary as a program of another user, who has ranges of subordinate users or
// not.
func asUser(t *testing.T, how, ranges string) said {
	t.Helper()
	version(t)
	if os.Getuid() != 0 {
		t.Skip("needs root: it becomes another user")
	}
	for _, name := range []string{"newuidmap", "setpriv", "unshare"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%v\n\tto prepare it: go run ./internal/ci prepare", err)
		}
	}
	dir, err := os.MkdirTemp("/var/tmp", "execbroker-user-") // not below a directory that only root can enter
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Chmod(dir, 0o755))
	file, binary := filepath.Join(dir, "ranges"), filepath.Join(dir, "program")
	check(t, os.WriteFile(file, []byte(ranges), 0o644))
	// Another process writes it: a child that a parallel test starts would inherit a file that this
	// process has open for writing, and until it has ended nothing can execute the file.
	if out, err := exec.CommandContext(t.Context(), "cp", "/proc/"+strconv.Itoa(os.Getpid())+"/exe", binary).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	check(t, os.Chmod(binary, 0o755))
	users, err := os.ReadFile("/etc/passwd")
	check(t, err)
	accounts := filepath.Join(dir, "passwd")
	check(t, os.WriteFile(accounts, fmt.Appendf(users, "execbroker-test:x:%d:%[1]d::/:/bin/sh\n", otherUser), 0o644))
	// In a mount namespace of its own, nobody else sees that user and these ranges.
	script := fmt.Sprintf("mount --bind %s /etc/subuid; mount --bind %[1]s /etc/subgid; mount --bind %s /etc/passwd; "+
		"exec setpriv --reuid %d --regid %[3]d --clear-groups %s", file, accounts, otherUser, binary)
	c := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-ec", script)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), programEnv + "=" + how, ownerEnv + "=test-of-another-user", "HOME=" + dir}
	c.Dir = "/"
	out, err := c.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	check(t, err)
	var s said
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v: %q", err, out)
	}
	return s
}

// TestSubordinateUsers is the backend for somebody who is not root and has a range.
func TestSubordinateUsers(t *testing.T) {
	t.Parallel()
	const first, size = 300_000_000, 65536
	ranges := fmt.Sprintf("%d:%d:%d\n", otherUser, first, size)
	s := asUser(t, runCode, ranges)
	if s.Err != "" || s.Out != strconv.Itoa(codeID)+" ['a']" {
		t.Errorf("got %+v", s)
	}
	if s.UID < first || s.UID >= first+size {
		t.Errorf("the supervisor has the user %d", s.UID)
	}
	if s.Limited {
		t.Error("limits are declared, and this user can make no control group")
	}
	for _, c := range asUser(t, examine, ranges).Checks {
		if !c.OK {
			t.Errorf("doctor: %+v", c)
		}
		if c.Name == "limits" && !strings.Contains(c.Detail, "not limited") {
			t.Errorf("doctor says of limits: %s", c.Detail)
		}
	}
}

// TestNoSubordinateUsers refuses sandboxes as the user of the program, unless configuration wants
// them.
func TestNoSubordinateUsers(t *testing.T) {
	t.Parallel()
	if s := asUser(t, runCode, ""); !strings.Contains(s.Err, "allow_weak") || s.Out != "" {
		t.Errorf("got %+v", s)
	}
	s := asUser(t, runWeak, "")
	if s.Err != "" || s.Out != "0 ['a']" || s.UID != otherUser {
		t.Errorf("allowed: got %+v", s)
	}
	for _, c := range asUser(t, examine, "").Checks {
		if c.Name == "users" && (c.OK || !strings.Contains(c.Fix, "uidmap")) {
			t.Errorf("doctor: %+v", c)
		}
	}
}
