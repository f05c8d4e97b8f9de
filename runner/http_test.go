package runner

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/waittest"
)

// guestBox is a runner that serves HTTP, as a process on this machine.
type guestBox struct {
	*sandbox
	Endpoint
	port int
	done chan error // the end of the process
}

// freePort returns a port that nobody listens on at the moment.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// boot starts the process of a machine that nobody has set up yet, and ends by itself if nobody
// does within a while.
func boot(t testing.TB, root string) (*guestBox, Config) {
	t.Helper()
	return bootFor(t, root, 5*time.Minute)
}

func bootFor(t testing.TB, root string, within time.Duration) (*guestBox, Config) {
	t.Helper()
	s, cfg := prepare(t, root)
	cfg.socket = ""
	dir := filepath.Dir(s.socket)
	g := &guestBox{sandbox: s, port: freePort(t), done: make(chan error, 1)}
	g.Endpoint = Endpoint{URL: fmt.Sprintf("http://127.0.0.1:%d", g.port), Token: rand.Text(), Transport: newTransport(t)}
	if err := os.WriteFile(filepath.Join(dir, "program"), GuestProgram(), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := inRoot(root, GuestCommand(s.python, filepath.Join(dir, "program"), g.Token, g.port, within)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr = "/", s.stderr
	cmd.Env = append(os.Environ(), "FLY_APP_NAME=secret", "FLY_MACHINE_ID=secret")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { g.done <- cmd.Wait() }()
	g.cmd = cmd
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-g.done
		g.done <- nil
		if s.stderr.String() != "" {
			t.Errorf("the runner said:\n%s", s.stderr)
		}
	})
	waittest.Until(t, "the runner answers", func() error { return g.Ready(t.Context()) })
	return g, cfg
}

func newTransport(t testing.TB) *http.Transport {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// startGuest starts a machine and sets it up.
func startGuest(t testing.TB, root string, edit ...func(*guestBox, *Config, *Guest)) *guestBox {
	t.Helper()
	g, cfg := boot(t, root)
	guest := Guest{Network: "none"}
	for _, f := range edit {
		f(g, &cfg, &guest)
	}
	cfg.Guest = &guest
	c, err := setUp(t.Context(), g.Dial(), cfg)
	if err != nil {
		t.Fatalf("%v\n%s", err, g.stderr)
	}
	g.client = c
	t.Cleanup(func() { c.Detach() })
	return g
}

func TestHTTPRun(t *testing.T) {
	each(t, func(t *testing.T, root string) {
		g := startGuest(t, root)
		r := g.code(t, "print('hello')\nx = 41\nx + 1")
		if r.err != nil || r.stdout != "hello\n" || r.value() != "42" || !r.StateFresh {
			t.Fatalf("got %+v", r)
		}
		if r = g.sh(t, "echo $((x)); env; id -u; exit 3"); r.err != nil || r.Code != 3 || !strings.Contains(r.stdout, fmt.Sprintf("\n%d\n", g.uid)) {
			t.Errorf("got %+v", r)
		}
		if strings.Contains(r.stdout, "FLY_") {
			t.Errorf("the environment of code has those of the machine: %s", r.stdout)
		}
		if r = g.code(t, "x"); r.value() != "41" {
			t.Errorf("got %+v", r)
		}
		// Another holder, which shuts out the first.
		c, err := join(t.Context(), g.Dial(), 1)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Detach()
		if r := doWith(t.Context(), c, executor.Request{Language: executor.Python, Code: "x + 2"}); r.value() != "43" {
			t.Errorf("got %+v", r)
		}
		if r := g.code(t, "x"); !errors.Is(r.err, executor.ErrClosed) {
			t.Errorf("got %+v, want that a later holder has taken over", r)
		}
	})
}

// Nothing of a machine is told to who does not know its secret, and nobody but its creator sets it
// up.
func TestHTTPSecret(t *testing.T) {
	g, _ := boot(t, host)
	wrong := g.Endpoint
	var status *StatusError
	for _, token := range []string{"", "x", g.Token[:len(g.Token)-1], g.Token + "x"} {
		wrong.Token = token
		if err := wrong.Ready(t.Context()); !errors.As(err, &status) || status.Status != http.StatusUnauthorized {
			t.Errorf("got %v for %q", err, token)
		}
		if _, err := join(t.Context(), wrong.Dial(), 0); !errors.As(err, &status) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := join(t.Context(), g.Dial(), 0); !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("got %v for a machine that is not set up", err)
	}
	for _, name := range []string{"program", "token"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(g.socket), name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

// What is no request of this client is answered, and disturbs nobody.
func TestHTTPNonsense(t *testing.T) {
	g := startGuest(t, host)
	auth := "Authorization: Bearer " + g.Token + "\r\n"
	for name, c := range map[string]struct{ request, want string }{
		"no-secret":   {"GET /v1/ready HTTP/1.1\r\n\r\n", "401"},
		"long-head":   {"GET /v1/ready HTTP/1.1\r\nX: " + strings.Repeat("x", 20<<10), "431"},
		"long-body":   {"POST /v1/links/aaaaaaaaaaaaaaaaaaaa?at=0 HTTP/1.1\r\n" + auth + "Content-Length: 99999999\r\n\r\n", "413"},
		"chunked":     {"POST /v1/links/aaaaaaaaaaaaaaaaaaaa?at=0 HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n", "411"},
		"bad-length":  {"POST /v1/links/aaaaaaaaaaaaaaaaaaaa?at=0 HTTP/1.1\r\n" + auth + "Content-Length: -1\r\n\r\n", "400"},
		"bad-number":  {"GET /v1/links/aaaaaaaaaaaaaaaaaaaa?from=x HTTP/1.1\r\n" + auth + "\r\n", "400"},
		"no-such":     {"GET /v1/links/aaaaaaaaaaaaaaaaaaaa?from=5 HTTP/1.1\r\n" + auth + "\r\n", "410"},
		"gap":         {"POST /v1/links/bbbbbbbbbbbbbbbbbbbb?at=7 HTTP/1.1\r\n" + auth + "\r\n", "410"},
		"other-path":  {"GET /etc/passwd HTTP/1.1\r\n" + auth + "\r\n", "404"},
		"method":      {"PATCH /v1/links/aaaaaaaaaaaaaaaaaaaa HTTP/1.1\r\n" + auth + "\r\n", "405"},
		"ack-ahead":   {"POST /v1/links/cccccccccccccccccccc?at=0&ack=9 HTTP/1.1\r\n" + auth + "\r\n", "409"},
		"not-http":    {"\x16\x03\x01\x02\r\n\r\n", "401"},
		"broken-line": {"GET\r\n" + auth + "\r\n", "400"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(time.Minute))
			if _, err := io.WriteString(conn, c.request); err != nil {
				t.Fatal(err)
			}
			head := make([]byte, 12)
			if _, err := io.ReadFull(conn, head); err != nil || string(head) != "HTTP/1.1 "+c.want {
				t.Errorf("got %q, %v, want %s", head, err, c.want)
			}
		})
	}
	if r := g.code(t, "1 + 1"); r.value() != "2" {
		t.Errorf("got %+v", r)
	}
}

// reach tries to connect by numbers, by both versions of IP, and by name.
const reach = `
import errno, socket
def tries(family, address, kind=socket.SOCK_STREAM):
    try:
        with socket.socket(family, kind) as s:
            s.settimeout(5)
            s.connect(address)
            return "connected"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
`

func TestHTTPNetworkNone(t *testing.T) {
	each(t, func(t *testing.T, root string) {
		g := startGuest(t, root)
		r := g.code(t, reach+fmt.Sprintf(`
print(tries(socket.AF_INET, ("192.0.2.1", 80)), tries(socket.AF_INET6, ("2001:db8::1", 80)), tries(socket.AF_INET6, ("fdaa::3", 53), socket.SOCK_DGRAM))
print(tries(socket.AF_INET, ("127.0.0.1", %[1]d)), tries(socket.AF_INET6, ("::1", %[1]d)))
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    with socket.socket(family) as l:
        l.bind((address, 0)); l.listen(1)
        print(tries(family, l.getsockname()[:2]))
try: print(socket.getaddrinfo("example.invalid", 80))
except OSError as e: print("no name")
`, g.port))
		want := "ENETUNREACH ENETUNREACH ENETUNREACH\nECONNREFUSED ECONNREFUSED\nconnected\nconnected\nno name\n"
		if r.stdout != want {
			t.Errorf("got %q %s, want %q", r.stdout, r.stderr, want)
		}
	})
}

// With a network, the runner's port is there, and asks for the secret.
func TestHTTPNetworkFull(t *testing.T) {
	g := startGuest(t, host, func(_ *guestBox, _ *Config, g *Guest) { g.Network = "full" })
	r := g.code(t, reach+fmt.Sprintf(`
print(tries(socket.AF_INET, ("127.0.0.1", %[1]d)))
s = socket.create_connection(("127.0.0.1", %[1]d)); s.sendall(b"GET /v1/ready HTTP/1.1\r\n\r\n"); print(s.recv(12).decode())
held = []
for _ in range(400):
    try: held.append(socket.create_connection(("127.0.0.1", %[1]d)))
    except OSError: break
`, g.port))
	if want := "connected\nHTTP/1.1 401\n"; r.stdout != want {
		t.Errorf("got %q %s, want %q", r.stdout, r.stderr, want)
	}
	// However many connections the code holds.
	c, err := join(t.Context(), g.Dial(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Detach()
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// Directories of the machine's provider are not for code.
func TestHTTPHides(t *testing.T) {
	g := startGuest(t, host, func(g *guestBox, _ *Config, guest *Guest) {
		dir := filepath.Join(filepath.Dir(g.workdir), "fly")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "api"), []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
		guest.Hide = []string{dir, "/no/such/directory"}
	})
	r := g.sh(t, "ls "+filepath.Join(filepath.Dir(g.workdir), "fly")+"; cat /proc/1/environ /proc/$PPID/environ; ls /proc/1/root/")
	if r.stdout != "" || strings.Count(r.stderr, "ermission denied") != 4 {
		t.Errorf("got %q, %q", r.stdout, r.stderr)
	}
}

// lateStream holds a stream back until what was sent before it was answered, and for as long as a
// runner would take to end.
type lateStream struct {
	http.RoundTripper
	once   sync.Once
	posted chan struct{}
}

func (l *lateStream) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/links/") {
		<-l.posted
		select {
		case <-time.After(time.Second): // that somebody is late can be had only so
		case <-r.Context().Done():
		}
	}
	res, err := l.RoundTripper.RoundTrip(r)
	if r.Method == http.MethodPost {
		l.once.Do(func() { close(l.posted) })
	}
	return res, err
}

// What cannot be enforced is refused before any code runs, and the machine ends.
func TestHTTPRefuses(t *testing.T) {
	g, cfg := boot(t, host)
	// Nobody asks for the stream before the runner has made up its mind.
	g.Transport = &lateStream{RoundTripper: g.Transport, posted: make(chan struct{})}
	cfg.Guest = &Guest{Network: "allowlist"}
	if _, err := setUp(t.Context(), g.Dial(), cfg); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	select {
	case err := <-g.done:
		g.done <- nil
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("got %v, want exit code 1", err)
		}
	case <-time.After(time.Minute):
		t.Error("the machine did not end")
	}
}

// A machine that nobody uses ends by itself.
func TestHTTPIdle(t *testing.T) {
	g := startGuest(t, host)
	if _, err := g.KeepAlive(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-g.done:
		g.done <- nil
		if err != nil {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the machine did not end")
	}
	if r := g.code(t, "1"); !errors.Is(r.err, executor.ErrNotFound) {
		t.Errorf("got %v", r.err)
	}
}

// A machine that nobody sets up ends by itself, even if somebody sees that it is there.
func TestHTTPUnclaimed(t *testing.T) {
	t.Parallel()
	g, _ := bootFor(t, host, 10*time.Second) // somebody has to look before that
	if _, err := join(t.Context(), g.Dial(), 0); !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("got %v for a machine that is not set up", err)
	}
	select {
	case err := <-g.done:
		g.done <- nil
		if err != nil {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the machine did not end")
	}
}

// scissors is a way to a server that is cut again and again, each time after a number of bytes in
// both directions together.
type scissors struct {
	net.Listener
	to    string
	after int64 // bytes
	ctx   context.Context
	cuts  atomic.Int64
	wg    sync.WaitGroup
}

func newScissors(t testing.TB, to string, after int64) *scissors {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scissors{Listener: l, to: to, after: after}
	ctx, cancel := context.WithCancel(context.Background())
	s.ctx = ctx
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.carry(c) })
		}
	})
	t.Cleanup(func() { l.Close(); cancel(); s.wg.Wait() })
	return s
}

func (s *scissors) carry(c net.Conn) {
	defer c.Close()
	d, err := net.Dial("tcp", s.to)
	if err != nil {
		return
	}
	defer d.Close()
	defer context.AfterFunc(s.ctx, func() { c.Close(); d.Close() })()
	left := atomic.Int64{}
	left.Store(s.after)
	pass := func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if left.Add(-int64(n)) < 0 {
				s.cuts.Add(1)
				to.Write(buf[:n/2]) // in the middle of something
				return
			}
			if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { pass(c, d) })
	pass(d, c)
	wg.Wait()
}

// A connection that is dropped in the middle of a run, again and again: nothing is repeated, and no
// output is lost.
func TestHTTPDropped(t *testing.T) {
	g := startGuest(t, host)
	cut := newScissors(t, strings.TrimPrefix(g.URL, "http://"), 300<<10)
	e := g.Endpoint
	e.URL = "http://" + cut.Addr().String()
	c, err := join(t.Context(), e.Dial(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Detach()
	data := bytes.Repeat([]byte("0123456789abcdef"), 256<<10) // 4 MiB
	r := doWith(t.Context(), c, executor.Request{
		Language: executor.Python, Stdin: bytes.NewReader(data), Limits: executor.RunLimits{WallTime: 5 * time.Minute, OutputBytes: 64 << 20},
		Code: `
import sys, hashlib
open("log", "a").write("ran\n")
h = hashlib.sha256(sys.stdin.buffer.read())
for i in range(400000): print(i)
h.hexdigest()`,
	})
	if r.err != nil || r.Code != 0 {
		t.Fatalf("got %+v, %v", r.Exit, r.err)
	}
	var want strings.Builder
	for i := range 400000 {
		fmt.Fprintln(&want, i)
	}
	if r.stdout != want.String() {
		t.Errorf("got %d bytes of output, want %d", len(r.stdout), want.Len())
	}
	if sum := fmt.Sprintf("'%x'", sha256.Sum256(data)); r.value() != sum {
		t.Errorf("got the sum %s of standard input, want %s", r.value(), sum)
	}
	files := c.Files()
	if err := files.Write(t.Context(), filepath.Join(g.workdir, "up"), bytes.NewReader(data), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"up": string(data), "log": "ran\n"} {
		f, err := files.Read(t.Context(), filepath.Join(g.workdir, name))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(f); err != nil || string(b) != want {
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(b), err, len(want))
		}
		f.Close()
	}
	if n := cut.cuts.Load(); n < 10 {
		t.Errorf("got %d cuts, want at least 10", n)
	} else {
		t.Logf("%d cuts", n)
	}
}

// That a machine is gone is known from who can tell, and not only by waiting.
func TestHTTPGone(t *testing.T) {
	g := startGuest(t, host)
	e := g.Endpoint
	gone := errors.New("it was destroyed")
	var dead atomic.Bool
	e.Gone = func(context.Context) error {
		if dead.Load() {
			return gone
		}
		return nil
	}
	c, err := join(t.Context(), e.Dial(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Detach()
	started := make(chan struct{})
	go func() {
		<-started
		dead.Store(true)
		g.cmd.Process.Kill()
	}()
	req := executor.Request{Language: executor.Python, Code: "import time; time.sleep(600)", Limits: executor.RunLimits{WallTime: time.Hour, OutputBytes: 1 << 20}}
	_, err = c.Run(t.Context(), &req, func(ev executor.Event) error {
		if ev.Kind == executor.EventStarted {
			close(started)
		}
		return nil
	})
	var lost *LostError
	var e2 *executor.Error
	if !errors.As(err, &lost) || !errors.Is(err, gone) || !errors.As(err, &e2) || e2.Ran != executor.RanYes {
		t.Errorf("got %v", err)
	}
}
