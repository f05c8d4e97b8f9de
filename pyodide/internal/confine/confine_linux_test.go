//go:build linux && (amd64 || arm64)

package confine_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// methods are the methods that put layers around a program. Both exist wherever these tests run,
// because bwrap is installed on a prepared machine.
var methods = []confine.Method{confine.Namespaces, confine.Bubblewrap}

// surroundings is what a confined program might try to reach.
type surroundings struct {
	given string // a directory that the program may read
	env   []string
}

func prepare(t *testing.T) surroundings {
	t.Helper()
	dir := t.TempDir()
	given, secret := filepath.Join(dir, "given"), filepath.Join(dir, "secret")
	for _, d := range []string{given, secret} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{given + "/file", given + "/gone", secret + "/secret"} {
		if err := os.WriteFile(f, []byte("content"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret+"/secret", given+"/link"); err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	s := surroundings{given: given, env: []string{
		"GIVEN=" + given, "SECRET=" + secret + "/secret", "LINK=" + given + "/link", "HOST=" + host, fmt.Sprintf("PARENT=%d", os.Getpid()),
	}}
	listen := func(name, network, addr string) {
		l, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		s.env = append(s.env, name+"="+l.Addr().String())
	}
	listen("TCP4", "tcp4", "127.0.0.1:0")
	listen("TCP6", "tcp6", "[::1]:0")
	listen("UNIX", "unix", given+"/socket")
	listen("ABSTRACT", "unix", "@"+filepath.Base(dir)+"-confine")
	return s
}

// run starts this program again, confined by m, to make an attempt.
func (s surroundings) run(t *testing.T, m confine.Method, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, done, err := confine.Command(m, confine.Program{
		Path: self, Args: []string{"-test.run=^$"}, Env: append(testEnv(name), s.env...),
		Read: []string{s.given},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	out, err := c.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatalf("%s: %v", m, err)
	}
	return strings.TrimSpace(string(out))
}

// TestAttempts makes every attempt without the layer, where it must succeed, because it would prove
// nothing otherwise, and behind each method, where it must fail.
func TestAttempts(t *testing.T) {
	root := os.Geteuid() == 0
	for _, a := range escapes {
		t.Run(a.name, func(t *testing.T) {
			if a.who == "root" && !root {
				return // was made as root in the parent run
			}
			s := prepare(t)
			t.Cleanup(func() { os.Remove("/tmp/execbroker-confine-test"); os.Remove("/dev/shm/execbroker-confine-test") })
			for _, m := range methods {
				if got := s.run(t, m, a.name); !strings.HasPrefix(got, "stopped:") {
					t.Errorf("%s: got %q, want it stopped", m, got)
				}
			}
			if got := s.run(t, confine.None, a.name); got != "open" {
				t.Errorf("without the layer: got %q, want open", got)
			}
		})
	}
}

// TestUnprivileged makes the same attempts as an unprivileged user.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return // this is the child run as that user
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "confine") // t.TempDir is below a directory that only root can enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "confine.test")
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), program, "-test.v", "-test.run=TestAttempts|TestProbe|TestLimits|TestUsers|TestDescriptors|TestEnvironment")
	c.Dir = dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := c.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestAttempts/tcp-ipv4")) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestProbe(t *testing.T) {
	for _, m := range append([]confine.Method{confine.None}, methods...) {
		if err := confine.Probe(t.Context(), m); err != nil {
			t.Errorf("%s: %v", m, err)
		}
	}
	if err := confine.Probe(t.Context(), "magic"); !errors.Is(err, confine.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, confine.ErrUnavailable)
	}
	for _, m := range methods {
		if !confine.Of(m).Complete() {
			t.Errorf("%s: got %+v, want every layer", m, confine.Of(m))
		}
	}
	if l := confine.Of(confine.None); l != (confine.Layers{}) {
		t.Errorf("none: got %+v", l)
	}
}

// TestFailureIsSaid: a program that cannot be confined does not run.
func TestFailureIsSaid(t *testing.T) {
	self, _ := os.Executable()
	for _, m := range methods {
		c, done, err := confine.Command(m, confine.Program{Path: self, Read: []string{"/no/such/file"}})
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 126 || !bytes.Contains(out, []byte("/no/such/file")) {
			t.Errorf("%s: got %v %q, want exit status 126 and the path", m, err, out)
		}
	}
}

// ask runs one of the questions with each method.
func ask(t *testing.T, question, want string, l confine.Limits) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range append([]confine.Method{confine.None}, methods...) {
		c, done, err := confine.Command(m, confine.Program{
			Path: self, Args: []string{"-test.run=^$"}, Env: testEnv(question), Limits: l,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		c.Stdin = strings.NewReader("")
		out, _ := c.CombinedOutput()
		got := strings.TrimPrefix(strings.TrimSpace(string(out)), "stopped: ")
		if m == confine.Bubblewrap {
			got = strings.TrimSuffix(got, " PWD=/") // PWD is always set
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", m, got, want)
		}
	}
}

func TestLimits(t *testing.T) {
	ask(t, "limits", "core 0 data 3221225472 cpu 2 files 77",
		confine.Limits{DataBytes: 3 << 30, CPUTime: 1500 * time.Millisecond, Files: 77})
}

// TestUsers: with real root each process has a separate user and a limit on its threads; without,
// it has neither.
func TestUsers(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, m := range append([]confine.Method{confine.None}, methods...) {
		for range 2 {
			c, done, err := confine.Command(m, confine.Program{
				Path: self, Args: []string{"-test.run=^$"}, Env: testEnv("user"), Limits: confine.Limits{Threads: 99},
			})
			if err != nil {
				t.Fatal(err)
			}
			out, err := c.CombinedOutput()
			done()
			var user, threads int
			if _, serr := fmt.Sscanf(string(out), "stopped: %d %d", &user, &threads); err != nil || serr != nil {
				t.Fatalf("%s: %v %v %q", m, err, serr, out)
			}
			own := confine.OwnUsers() && m != confine.None
			if own != (threads == 99) || own == (user < 1<<20) || own && seen[user] {
				t.Errorf("%s: user %d, %d threads, of its own: %v, seen: %v", m, user, threads, own, seen)
			}
			seen[user] = true
		}
	}
}

// TestSetUser: a program with this package and more rights than the process that starts it refuses
// instructions from that process.
func TestSetUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give programs away")
	}
	dir, err := os.MkdirTemp("", "confine") // see TestUnprivileged
	if err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755)
	}
	self, serr := os.Executable()
	b, rerr := os.ReadFile(self)
	program := filepath.Join(dir, "confine.test")
	if err := errors.Join(err, serr, rerr, os.WriteFile(program, b, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		mode fs.FileMode
		env  bool // pass the plan as an earlier version did
		want string
	}{
		{"ordinary", 0o755, false, "stopped: GOCOVERDIR=/nowhere"},
		{"set-user", 0o755 | fs.ModeSetuid, false, "more rights than the process that started it"},
		{"set-group", 0o755 | fs.ModeSetgid, false, "more rights than the process that started it"},
		{"environment", 0o755, true, "plan: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := errors.Join(os.Chown(program, 4321, 4321), os.Chmod(program, c.mode)); err != nil {
				t.Fatal(err)
			}
			plan := fmt.Sprintf(`{"Method":"none","Path":%q,"Args":["-test.run=^$"],"Env":["GOCOVERDIR=/nowhere","%s=environment"]}`, program, attemptEnv)
			f, err := os.CreateTemp(t.TempDir(), "plan")
			if err == nil && !c.env {
				_, err = f.WriteString(plan)
			}
			if err == nil {
				_, err = f.Seek(0, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			cmd := &exec.Cmd{
				Path: program, Args: []string{"execbroker-confine"}, Env: []string{"EXECBROKER_CONFINE=" + plan}, ExtraFiles: []*os.File{f},
				SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}},
			}
			out, err := cmd.CombinedOutput()
			if !strings.Contains(string(out), c.want) || (err == nil) != (c.name == "ordinary") {
				t.Errorf("got %v %q, want %q", err, out, c.want)
			}
		})
	}
}

// TestAdjustable: it is known in advance whether limits can be changed from outside.
func TestAdjustable(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range append([]confine.Method{confine.None}, methods...) {
		c, done, err := confine.Command(m, confine.Program{Path: self, Args: []string{"-test.run=^$"}, Env: testEnv("wait")})
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Errorf("%s: %v", m, err)
		}
		want := confine.Adjustable(m)
		got := unix.Prlimit(confine.PID(m, c.Process.Pid), unix.RLIMIT_CPU, &unix.Rlimit{Cur: 1000, Max: unix.RLIM_INFINITY}, nil)
		if (got == nil) != (want == nil) {
			t.Errorf("%s: got %v, foretold %v", m, got, want)
		}
		in.Close()
		c.Wait()
	}
}

// TestDescriptors: the program gets only the standard streams, even if this one was started with
// more descriptors.
func TestDescriptors(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // to be inherited
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ask(t, "descriptors", "0 1 2", confine.Limits{})
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SECRET_OF_THE_HOST", "1")
	ask(t, "environment", strings.Join(testEnv("environment"), " "), confine.Limits{})
}
