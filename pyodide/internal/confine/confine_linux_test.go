//go:build linux && (amd64 || arm64)

package confine_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
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

// methods are those that put layers around a program. Both are there wherever these tests run: preparing the machine installs bwrap.
var methods = []confine.Method{confine.Namespaces, confine.Bubblewrap}

// surroundings is what a confined program might reach.
type surroundings struct {
	given string // a directory that it may read
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
	c, err := confine.Command(m, confine.Program{
		Path: self, Args: []string{"-test.run=^$"}, Env: append(testEnv(name), s.env...),
		Read: []string{s.given},
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatalf("%s: %v", m, err)
	}
	return strings.TrimSpace(string(out))
}

// TestAttempts makes every attempt without the layer, where it must work, or it would prove nothing, and behind each method, where it
// must not.
func TestAttempts(t *testing.T) {
	root := os.Geteuid() == 0
	for _, a := range escapes {
		t.Run(a.name, func(t *testing.T) {
			if a.who == "root" && !root {
				return // made as root in the parent run
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

// TestUnprivileged makes the same attempts as a user without any right.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return // this is the run as that user
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
	c := exec.CommandContext(t.Context(), program, "-test.v", "-test.run=TestAttempts|TestProbe|TestLimits|TestDescriptors|TestEnvironment")
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

// TestFailureIsSaid: what cannot be confined does not run.
func TestFailureIsSaid(t *testing.T) {
	self, _ := os.Executable()
	for _, m := range methods {
		c, err := confine.Command(m, confine.Program{Path: self, Read: []string{"/no/such/file"}})
		if err != nil {
			t.Fatal(err)
		}
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
		c, err := confine.Command(m, confine.Program{
			Path: self, Args: []string{"-test.run=^$"}, Env: testEnv(question), Limits: l,
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Stdin = strings.NewReader("")
		out, _ := c.CombinedOutput()
		got := strings.TrimPrefix(strings.TrimSpace(string(out)), "stopped: ")
		if m == confine.Bubblewrap {
			got = strings.TrimSuffix(got, " PWD=/") // it always says where it begins
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

// TestAdjustable: whether limits can be changed from outside is known before it is tried.
func TestAdjustable(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range append([]confine.Method{confine.None}, methods...) {
		c, err := confine.Command(m, confine.Program{Path: self, Args: []string{"-test.run=^$"}, Env: testEnv("wait")})
		if err != nil {
			t.Fatal(err)
		}
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

// TestDescriptors: nothing but the standard streams reaches the program, also if this one was started with more.
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
