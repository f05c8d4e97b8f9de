package e2btest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
)

// transferSize is the size of the files that BenchmarkTransfer moves.
const transferSize = 64 << 20

// asClient makes a process of the tests the client of BenchmarkTransfer, so that what the process
// of the benchmark uses is the server's.
const asClient = "E2BTEST_TRANSFERS"

func init() {
	if os.Getenv(asClient) != "" {
		serveTransfers()
		os.Exit(0)
	}
}

// serveTransfers does the request of each line of standard input and says what came of it.
func serveTransfers() {
	data := bytes.Repeat([]byte("0123456789abcdef"), transferSize/16)
	lines := json.NewDecoder(os.Stdin)
	for {
		var o move
		if err := lines.Decode(&o); err != nil {
			return
		}
		said := "ok"
		if err := o.do(data); err != nil {
			said = strconv.Quote(err.Error())
		}
		fmt.Println(said) // to the process of the benchmark
	}
}

var transfers = http.Client{Timeout: 10 * time.Minute}

// move is what the client does.
type move struct {
	URL    string
	Header http.Header
	Way    string // up, form or down
}

func (o move) do(data []byte) error {
	method, body := http.MethodPost, io.Reader(bytes.NewReader(data))
	switch o.Way {
	case "down":
		method, body = http.MethodGet, nil
	case "form":
		var head bytes.Buffer
		w := multipart.NewWriter(&head)
		if _, err := w.CreateFormFile("file", "big"); err != nil {
			return err
		}
		body = io.MultiReader(&head, body, strings.NewReader("\r\n--"+w.Boundary()+"--\r\n"))
		o.Header.Set("Content-Type", w.FormDataContentType())
	default:
		o.Header.Set("Content-Type", "application/octet-stream")
	}
	r, err := http.NewRequestWithContext(context.Background(), method, o.URL, body)
	if err != nil {
		return err
	}
	r.Header = o.Header
	res, err := transfers.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err == nil && (res.StatusCode >= 300 || method == http.MethodGet && n != transferSize) {
		err = fmt.Errorf("%s, %d bytes", res.Status, n)
	}
	return err
}

// mover is a process that is the client.
type mover struct {
	in  *json.Encoder
	out *bufio.Reader
}

func newMover(b *testing.B) mover {
	cmd := exec.CommandContext(context.WithoutCancel(b.Context()), os.Args[0]) // ended by the end of its input
	cmd.Env = append(os.Environ(), asClient+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	return mover{json.NewEncoder(in), bufio.NewReader(out)}
}

func (m mover) do(b *testing.B, o move) {
	b.Helper()
	if err := m.in.Encode(o); err != nil {
		b.Fatal(err)
	}
	if line, err := m.out.ReadString('\n'); line != "ok\n" {
		b.Fatalf("%s: %q, %v", o.Way, line, err)
	}
}

// plain serves one file of a directory, as simply as it can be done. A file is replaced as a whole.
func plain(b *testing.B) string {
	name := filepath.Join(b.TempDir(), "big")
	store := func(from io.Reader) error {
		f, err := os.Create(name + ".part")
		if err == nil {
			_, err = io.Copy(f, from)
			err = errors.Join(err, f.Close())
		}
		if err == nil {
			err = os.Rename(name+".part", name)
		}
		return err
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := io.Reader(r.Body)
		if r.Method == http.MethodGet {
			http.ServeFile(w, r, name)
			return
		}
		form, err := r.MultipartReader()
		if err == nil {
			from, err = form.NextPart()
		} else if errors.Is(err, http.ErrNotMultipart) {
			err = nil
		}
		if err == nil {
			err = store(from)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	b.Cleanup(s.Close)
	return s.URL
}

// grabbing remembers the last session that was created.
type grabbing struct {
	executor.Executor
	last executor.Session
}

func (g *grabbing) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := g.Executor.Create(ctx, spec)
	g.last = s
	return s, err
}

// party is one of the processes that a transfer goes through, with those below it.
type party struct {
	name string
	pids func() []int
}

// parties are the server, the engine and the sandbox.
func parties(b *testing.B, s executor.Session) []party {
	var c docker.Container
	if !executor.As(s, &c) {
		b.Fatal("not a session of Docker")
	}
	address, ok := strings.CutPrefix(c.Client.DaemonHost(), "unix://")
	if !ok {
		b.Skip("the engine is on another machine")
	}
	conn, err := net.Dial("unix", address)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	engine := 0
	if err := raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			engine = int(peer.Pid)
		}
	}); err != nil || engine == 0 {
		b.Skip("the process of the engine is not known", err)
	}
	found, err := c.Client.ContainerInspect(b.Context(), c.ID, client.ContainerInspectOptions{})
	if err != nil {
		b.Fatal(err)
	}
	main := found.Container.State.Pid
	shim, err := strconv.Atoi(stat(main)[1])
	if err != nil {
		b.Fatal(err)
	}
	return []party{
		{"server", func() []int { return []int{os.Getpid()} }},
		{"engine", func() []int { return []int{engine, shim} }},
		{"sandbox", func() []int { return below(main) }},
	}
}

// stat returns what the kernel says of a process behind its name: the state, the parent and so on.
func stat(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil { // it has ended
		return make([]string, 50)
	}
	return strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
}

// below returns a process and its descendants.
func below(pid int) []int {
	all := []int{pid}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, name := range tasks {
		data, _ := os.ReadFile(name) // of a thread that has ended
		for child := range strings.FieldsSeq(string(data)) {
			if n, err := strconv.Atoi(child); err == nil {
				all = append(all, below(n)...)
			}
		}
	}
	return all
}

// used returns the time of processors that a party has used, to a hundredth of a second.
func (p party) used() (sum time.Duration) {
	for _, pid := range p.pids() {
		fields := stat(pid)
		for _, ticks := range fields[11:13] {
			n, _ := strconv.Atoi(ticks) // 0 of one that has ended
			sum += time.Duration(n) * (time.Second / 100)
		}
	}
	return sum
}

// What it costs to move a file through the server to a sandbox and back, in time of processors,
// beside a server of net/http with a file. The client is a process of its own and is not counted.
// x-plain is how many times the plain server's time all parties need, and server-x-plain the same
// of the server alone.
func BenchmarkTransfer(b *testing.B) {
	x, err := Docker(b.Context(), "e2btest-transfer", docker.Config{Image: dockertest.Python})
	if err != nil {
		b.Fatal(err)
	}
	g := &grabbing{Executor: x}
	s, err := Serve(b.Context(), g, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	tr := &http.Transport{}
	b.Cleanup(tr.CloseIdleConnections)
	m, err := sdk{s.URL, &http.Client{Transport: tr}}.create(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	header := http.Header{"E2b-Sandbox-Id": {m.SandboxID}, "E2b-Sandbox-Port": {"49983"}, "X-Access-Token": {m.EnvdAccessToken}}
	all := parties(b, g.last)
	moves := newMover(b)
	for _, way := range []string{"up", "form", "down"} {
		var base float64
		b.Run(way+"/plain", func(b *testing.B) {
			o := move{URL: plain(b), Header: http.Header{}, Way: "up"}
			moves.do(b, o)
			o.Way = way
			base, _ = measure(b, all[:1], func() { moves.do(b, o) })
		})
		b.Run(way+"/server", func(b *testing.B) {
			o := move{URL: s.URL + "/files?path=" + url.QueryEscape("/home/user/big"), Header: header.Clone(), Way: "up"}
			moves.do(b, o)
			o.Way = way
			if own, sum := measure(b, all, func() { moves.do(b, o) }); base > 0 {
				b.ReportMetric(own/base, "server-x-plain")
				b.ReportMetric(sum/base, "x-plain")
			}
		})
	}
}

// measure reports milliseconds of processors for each MiB that f moves. It returns those of the
// first party, and of all.
func measure(b *testing.B, all []party, f func()) (own, sum float64) {
	b.SetBytes(transferSize)
	before := make([]time.Duration, len(all))
	for i, p := range all {
		before[i] = p.used()
	}
	for b.Loop() {
		f()
	}
	for i, p := range all {
		ms := float64((p.used() - before[i]).Microseconds()) / 1000 / float64(b.N*transferSize>>20)
		b.ReportMetric(ms, p.name+"-ms/MiB")
		if i == 0 {
			own = ms
		}
		sum += ms
	}
	b.ReportMetric(sum, "ms/MiB")
	return own, sum
}
