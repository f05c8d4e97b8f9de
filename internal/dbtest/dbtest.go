package dbtest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// patience is how long a server may take to start or to end.
const patience = time.Minute

// Server is a server of a test. It ends with the test.
type Server struct {
	// URL has no password.
	URL      string
	Password string

	tb      testing.TB
	dir     string
	make    func() error // makes dir that of an empty server
	command func() *exec.Cmd
	ready   func() error
	process *os.Process
	ended   chan struct{} // closed when process has ended
	said    bytes.Buffer  // of process, to be read when it has ended
}

// newServer makes the directory of a server and finds it a port.
func newServer(tb testing.TB) (s *Server, port string) {
	tb.Helper()
	dir, err := os.MkdirTemp("", "dbtest-") // not in tb.TempDir, which only its owner can enter
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l.Close()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	s = &Server{Password: rand.Text(), tb: tb, dir: dir}
	tb.Cleanup(func() {
		s.quit()
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return s, port
}

// Start starts the server, which must not run, and waits until it serves.
func (s *Server) Start() {
	s.tb.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); ; {
		cmd, ended := s.command(), make(chan struct{})
		s.said.Reset()
		cmd.Stdout, cmd.Stderr = &s.said, &s.said
		if err := cmd.Start(); err != nil {
			s.tb.Fatal(err)
		}
		s.process, s.ended = cmd.Process, ended
		go func() {
			defer close(ended)
			cmd.Wait() //nolint:errcheck // what it has said says more
		}()
		for !over(ended) { // it ends by itself if what an earlier one has left is still there
			err := s.ready()
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				s.Kill()
				s.tb.Fatalf("%v: not ready: %v\n%s", cmd.Args, err, &s.said)
			}
			<-poll.C
		}
	}
}

func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Kill ends the server at once, as a crash does. If it does not run, that is not an error.
func (s *Server) Kill() {
	s.process.Kill() //nolint:errcheck // it may have ended
	<-s.ended
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); s.ready() == nil; <-poll.C { // its children
		if time.Now().After(deadline) {
			s.tb.Errorf("%s serves after it was killed", s.URL)
			return
		}
	}
}

// quit ends the server in such a way that it leaves nothing.
func (s *Server) quit() {
	if s.process == nil {
		return
	}
	s.process.Signal(syscall.SIGQUIT) //nolint:errcheck // it may have ended
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.tb.Errorf("%s does not end", s.URL)
		s.Kill()
	}
}

// Empty replaces the server by one that has the same address and password and nothing else.
func (s *Server) Empty() {
	s.tb.Helper()
	s.quit()
	s.begin()
}

// Postgres makes a PostgreSQL server with an empty database, and starts it.
func Postgres(tb testing.TB) *Server {
	tb.Helper()
	s, port := newServer(tb)
	owner := s.unprivileged()
	pass, data := filepath.Join(s.dir, "password"), filepath.Join(s.dir, "data")
	if err := os.WriteFile(pass, []byte(s.Password), 0o644); err != nil {
		tb.Fatal(err)
	}
	initdb, postgres := program(tb, "initdb"), program(tb, "postgres")
	s.make = func() error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		cmd := exec.CommandContext(tb.Context(), initdb, "--pgdata", data, "--username=app", "--auth=scram-sha-256", "--pwfile", pass, "--no-sync")
		cmd.SysProcAttr = owner
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("initdb: %w\n%s", err, out)
		}
		return nil
	}
	s.URL = fmt.Sprintf("postgres://app@127.0.0.1:%s/postgres?sslmode=disable", port)
	s.command = func() *exec.Cmd {
		cmd := exec.Command(postgres, "-D", data, "-h", "127.0.0.1", "-p", port, "-k", "") //nolint:noctx // Kill ends it
		cmd.SysProcAttr = owner
		return cmd
	}
	isReady := program(tb, "pg_isready")
	s.ready = func() error { return exec.Command(isReady, "-q", "-h", "127.0.0.1", "-p", port).Run() } //nolint:noctx // it has a timeout of 3 s
	s.begin()
	return s
}

// Redis makes an empty Redis server that loses nothing that it has acknowledged, and starts it.
// args overrule that.
func Redis(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s, port := newServer(tb)
	redis, data := program(tb, "redis-server"), filepath.Join(s.dir, "data")
	s.make = func() error { return errors.Join(os.RemoveAll(data), os.Mkdir(data, 0o700)) }
	s.URL = fmt.Sprintf("redis://127.0.0.1:%s/0", port)
	s.command = func() *exec.Cmd {
		return exec.Command(redis, slices.Concat([]string{ //nolint:noctx // Kill ends it
			"--bind", "127.0.0.1", "--port", port, "--dir", data, "--requirepass", s.Password,
			"--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction", "--save", "",
		}, args)...)
	}
	s.ready = func() error {
		c, err := net.Dial("tcp", "127.0.0.1:"+port) //nolint:noctx // loopback
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "AUTH %s\r\nPING\r\n", s.Password); err != nil {
			return err
		}
		// While the server reads its file, it takes the password and nothing else.
		for in, want := bufio.NewReader(c), []string{"+OK\r\n", "+PONG\r\n"}; len(want) > 0; want = want[1:] {
			if got, err := in.ReadString('\n'); got != want[0] {
				return fmt.Errorf("%q, want %q: %w", got, want[0], err)
			}
		}
		return nil
	}
	s.begin()
	return s
}

// begin makes the server and starts it.
func (s *Server) begin() {
	s.tb.Helper()
	if err := s.make(); err != nil {
		s.tb.Fatal(err)
	}
	s.Start()
}

// program is Find for a test, which is skipped without it.
func program(tb testing.TB, name string) string {
	tb.Helper()
	path := Find(name)
	if path == "" {
		tb.Skipf("%s is not installed", name)
	}
	return path
}
