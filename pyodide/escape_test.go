package pyodide

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/sharetest"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

const secretVariable = "EXECBROKER_ESCAPE_SECRET"

// secret is the value of secretVariable in this process.
var secret = func() string {
	var b [16]byte
	rand.Read(b[:])
	s := hex.EncodeToString(b[:])
	os.Setenv(secretVariable, s)
	return s
}()

func containsNoSpace(b []byte) bool { return bytes.Contains(b, []byte("No space left on device")) }

// outside is what attempts try to reach.
type outside struct {
	dir    string
	marker string // a file that is not there
	server *httptest.Server

	mu   sync.Mutex
	seen []string // requests that arrived at the server
	hits int      // connections to the server
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{}
	var err error
	if o.dir, err = os.MkdirTemp("", "outside"); err != nil { // not t.TempDir: users other than root must be able to read it
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(o.dir) })
	os.Chmod(o.dir, 0o777)
	o.marker = filepath.Join(o.dir, "marker")
	for name, text := range map[string]string{"secret": "content-of-the-secret-file", "module.mjs": "export default 42"} {
		if err := os.WriteFile(filepath.Join(o.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o.server = httptest.NewUnstartedServer(http.HandlerFunc(o.serve))
	o.server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			o.mu.Lock()
			o.hits++
			o.mu.Unlock()
		}
	}
	o.server.Start()
	t.Cleanup(o.server.Close)
	return o
}

func (o *outside) serve(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.seen = append(o.seen, r.URL.Path)
	seen := strings.Join(o.seen, " ")
	o.mu.Unlock()
	switch r.URL.Path {
	case "/module.js":
		w.Header().Set("Content-Type", "text/javascript")
		io.WriteString(w, "export default 42")
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: reached\n\n")
	case "/seen":
		io.WriteString(w, seen)
	default:
		io.WriteString(w, "reached")
	}
}

// prelude returns the beginning of the attempts of a guest, with the addresses of the outside.
func (o *outside) prelude(t *testing.T, g guest) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/escape", g.prelude))
	if err != nil {
		t.Fatal(err)
	}
	port := o.server.Listener.Addr().(*net.TCPAddr).Port
	return fmt.Sprintf("%s\n%s\n", b, fmt.Sprintf(g.where, filepath.Join(o.dir, "secret"), filepath.Join(o.dir, "module.mjs"), o.marker, port))
}

// reached lists what attempts have reached.
func (o *outside) reached(t *testing.T) (out []string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hits > 0 {
		out = append(out, fmt.Sprintf("%d connections, %q", o.hits, o.seen))
	}
	if _, err := os.Lstat(o.marker); err == nil {
		out = append(out, "the marker is there")
		os.Remove(o.marker)
	}
	o.hits, o.seen = 0, nil
	return out
}

// guest is a language that attempts are made in.
type guest struct {
	language executor.Language
	attempts []attempt
	prelude  string // file in testdata/escape
	weak     string // file in testdata/escape that runs attempts in a weakened host
	where    string // sets the variables of attempts to file, module, marker and port
	call     string // makes the attempt with the inserted code
	quoted   bool   // the code is inserted as a literal
	// For the session of a bystander: code that creates state, and code that prints whether the
	// state is there.
	state, unchanged string
}

func guests() []guest {
	all := []guest{{
		language: executor.Python, attempts: pythonAttempts(),
		prelude: "prelude.py", weak: "weak-python.mjs",
		where: "SECRET_FILE, SECRET_MODULE, MARKER, PORT = %q, %q, %q, %d",
		call:  "await attempt(%s)", quoted: true,
		state:     "bystander_state = 4711\nopen('bystander-file', 'w').close()",
		unchanged: "import os; print(42 if (bystander_state, os.listdir()) == (4711, ['bystander-file']) else os.listdir())",
	}}
	if javascriptHere {
		all = append(all, guest{
			language: executor.JavaScript, attempts: javascriptAttempts(),
			prelude: "prelude.js", weak: "weak-javascript.mjs",
			where: "var SECRET_FILE = %q, SECRET_MODULE = %q, MARKER = %q, PORT = %d",
			call:  "await attempt(async () => {\n%s\n})",
			state: "var bystander_state = 4711", unchanged: "console.log(bystander_state === 4711 ? 42 : bystander_state)",
		})
	}
	return all
}

// code returns the program that makes an attempt.
func (g guest) code(prelude string, a attempt) string {
	text := a.code
	if g.quoted {
		text = quote(text)
	}
	return prelude + fmt.Sprintf(g.call, text)
}

// create makes a session of the guest.
func (g guest) create(t *testing.T, x executor.Executor) executor.Session {
	t.Helper()
	return create(t, x, executor.Spec{Languages: []executor.Language{g.language}, Limits: executor.Limits{MemoryBytes: 128 * mib, DiskBytes: 32 * mib},
		Run: executor.RunLimits{WallTime: 5 * time.Minute}})
}

// answers returns nil if a session prints 42 when it runs code, and otherwise what it prints.
func (g guest) answers(ctx context.Context, s executor.Session, code string) error {
	r, err := s.Run(ctx, executor.Request{Code: code, Limits: executor.RunLimits{WallTime: time.Minute}}, nil)
	if err == nil && string(r.Stdout) != "42\n" {
		err = errors.New(describeResult(r))
	}
	return err
}

// alive is code that prints 42.
func (g guest) alive() string {
	if g.language == executor.JavaScript {
		return "console.log(6 * 7)"
	}
	return "print(6 * 7)"
}

// quote returns a literal of Python.
func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// TestEscape makes every attempt behind every layer of the operating system. The layers inside the
// process must be sufficient without that layer.
func TestEscape(t *testing.T) {
	t.Parallel()
	for _, g := range guests() {
		for _, m := range layersHere() {
			t.Run(string(g.language)+"/"+string(m), func(t *testing.T) {
				// Code that does not heed the interrupt is killed at once: how long it has is not
				// the question here.
				all, x := t, openFor(t, Config{OSLayer: string(m)}, 500*time.Millisecond)
				bystander := g.create(t, x)
				runCode(t, bystander, g.state, func(r *executor.Request) { r.Language = g.language })
				t.Cleanup(func() { // after all attempts
					if err := g.answers(context.WithoutCancel(t.Context()), bystander, g.unchanged); err != nil {
						t.Errorf("another session: %v", err)
					}
				})
				type world struct {
					*outside
					shared executor.Session // may be nil
				}
				worlds := sharetest.New(func() *world { return &world{outside: newOutside(t)} })
				for _, a := range g.attempts {
					t.Run(a.name, func(t *testing.T) {
						t.Parallel()
						w := worlds.Take(t)
						s := w.shared
						if w.shared = nil; s == nil {
							s = g.create(all, x)
						}
						if a.check(t, g, w.outside, s) {
							w.shared = s
						} else if err := s.Close(); err != nil {
							t.Error(err)
						}
					})
				}
			})
		}
	}
}

// check makes the attempt in a session, and reports whether the session is clean for the next
// attempt.
func (a attempt) check(t *testing.T, g guest, o *outside, s executor.Session) (clean bool) {
	t.Helper()
	wall := a.wall
	if wall == 0 {
		wall = time.Minute
	}
	r, err := s.Run(t.Context(), executor.Request{Code: g.code(o.prelude(t, g), a), Limits: executor.RunLimits{WallTime: wall}}, nil)
	if err != nil {
		var e *executor.Error
		if !a.lost || !errors.As(err, &e) {
			t.Fatalf("got error %v", err)
		}
		t.Logf("%v", err)
	} else {
		said := strings.TrimSpace(string(r.Stdout[max(0, len(r.Stdout)-400):]))
		t.Logf("%s %s lost %v: %s", r.Status, r.Reason, r.StateLost, said)
		text := printed(r)
		if strings.Contains(text, "ESCAPED") || strings.Contains(strings.ToLower(text), secret) {
			t.Errorf("it got out: %s", describeResult(r))
		}
		if strings.Contains(text, driverSession(s).p.assets) {
			t.Errorf("it says where the host program is: %s", describeResult(r))
		}
		if a.fails && r.Status != executor.StatusFailed {
			t.Errorf("got %s, want that its uncaught error fails the run", describeResult(r))
		}
		if !a.lost && (r.StateLost || !a.fails && (r.Status != executor.StatusOK || !strings.HasSuffix(string(r.Stdout), "TRIED\n"))) {
			t.Errorf("got %s, lost %v; want it refused and nothing else", describeResult(r), r.StateLost)
		}
		if a.want != nil && !a.want(r) {
			t.Errorf("got %s", describeResult(r))
		}
	}
	if got := o.reached(t); got != nil {
		t.Errorf("it got out: %q", got)
	}
	// The session still works, unchanged or restarted.
	if !a.lost {
		if err := g.answers(t.Context(), s, g.alive()); err != nil {
			t.Errorf("the session afterwards: %v", err)
		}
		// The next attempt would see changes of JavaScript's globals and entries in its queues.
		return g.language != executor.JavaScript || a.tidy
	}
	t.Cleanup(func() {
		if got := o.reached(t); got != nil {
			t.Errorf("it got out afterwards: %q", got)
		}
	})
	// Code that has broken its own interpreter may make it give wrong answers or hang. The results
	// say so, and after a reset there is a new one.
	next, err := s.Run(t.Context(), executor.Request{Code: g.alive(), Limits: executor.RunLimits{WallTime: time.Second}}, nil)
	empty := func() bool {
		left, err := fs.ReadDir(executor.FS(t.Context(), s), ".")
		return err == nil && len(left) == 0
	}
	if err == nil && next.Status == executor.StatusOK && string(next.Stdout) == "42\n" {
		return next.StateFresh && empty()
	}
	t.Logf("the next run: %v", err)
	if err := s.Reset(t.Context(), executor.Interpreter{Language: g.language}); err != nil {
		t.Fatal(err)
	}
	if err := g.answers(t.Context(), s, g.alive()); err != nil {
		t.Errorf("the session after a reset: %v", err)
	}
	return empty()
}

// printed returns all output of a run.
func printed(r *executor.Result) string {
	text := string(r.Stdout) + string(r.Stderr)
	for _, out := range r.Outputs {
		for _, data := range out.Data {
			text += string(data)
		}
	}
	if e := r.Exception; e != nil {
		text += e.Type + e.Message + e.Traceback
	}
	return text
}

// TestAttemptsWork makes the attempts in hosts that lack layers, and checks which of them succeed.
// An attempt that never succeeds, or succeeds although a layer should stop it, would prove nothing
// in TestEscape.
func TestAttemptsWork(t *testing.T) {
	t.Parallel()
	root := realRuntime(t)
	in, err := find(root)
	if err != nil {
		t.Fatal(err)
	}
	x := open(t, Config{})
	all := []string{"--allow-all"}
	noEval := "--v8-flags=--disallow-code-generation-from-strings"
	for _, g := range guests() {
		s := g.create(t, x)
		read, err := filepath.Abs("testdata/escape")
		if err != nil {
			t.Fatal(err)
		}
		if g.language == executor.Python {
			read = in.pyodide
		}
		type host struct {
			name  string
			flags []string
			layer confine.Method
			realm string // the directory of the host program, if its realm is used; empty: it is not
		}
		hosts := []host{
			{name: plainHost, flags: all, layer: confine.None},
			{name: permissionHost, layer: confine.None, flags: []string{
				"--allow-read=" + read, "--deny-net", "--deny-env", "--deny-run", "--deny-ffi", "--deny-sys", "--deny-write", "--deny-import",
			}},
			{name: systemHost, flags: all, layer: confine.Namespaces},
		}
		if g.language == executor.Python {
			hosts = append(hosts, host{name: noEvalHost, flags: append([]string{noEval}, all...), layer: confine.None})
		} else {
			hosts = append(hosts, host{name: realmHost, flags: all, layer: confine.None, realm: driverSession(s).p.assets})
		}
		for _, h := range hosts {
			if !slices.Contains(layersHere(), h.layer) {
				continue
			}
			t.Run(string(g.language)+"/"+h.name, func(t *testing.T) {
				t.Parallel()
				o := newOutside(t)
				out := weak(t, g, o, in, h.layer, h.flags, h.realm)
				for _, a := range g.attempts {
					if len(a.works) == 0 {
						continue
					}
					said, ok := out[a.name]
					got := strings.Contains(said, "ESCAPED")
					if want := slices.Contains(a.works, h.name); got != want || !ok {
						t.Errorf("%s: it got out: %v, want %v; it said %q", a.name, got, want, said)
					}
				}
			})
		}
	}
}

// realmNames makes an import map of the modules that the realm needs, including those that the
// host's own map removes.
func realmNames(t *testing.T, realm string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(realm, "importmap.json"))
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Imports map[string]string `json:"imports"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(m.Imports, func(name, _ string) bool { return !strings.HasPrefix(name, "execbroker:") })
	if b, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "names.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// weak makes the attempts in one Deno process with flags, and returns the output of each.
func weak(t *testing.T, g guest, o *outside, in installation, layer confine.Method, flags []string, realm string) map[string]string {
	t.Helper()
	dir, err := filepath.Abs("testdata/escape")
	if err != nil {
		t.Fatal(err)
	}
	type program struct {
		Name string `json:"name"`
		Code string `json:"code"`
	}
	var programs []program
	for _, a := range g.attempts {
		if len(a.works) > 0 {
			programs = append(programs, program{a.name, a.code})
		}
	}
	b, err := json.Marshal(map[string]any{"prelude": o.prelude(t, g), "attempts": programs, "host": realm})
	if err != nil {
		t.Fatal(err)
	}
	if realm != "" {
		flags = append(slices.Clone(flags), "--import-map="+realmNames(t, realm))
	}
	args := slices.Concat([]string{"run", "--no-prompt", "--no-config", "--no-lock"}, flags,
		[]string{filepath.Join(dir, g.weak), "file://" + filepath.Join(in.pyodide, "pyodide.mjs")})
	env := []string{"DENO_NO_UPDATE_CHECK=1", "NO_COLOR=1", "DENO_DIR=" + filepath.Join(o.dir, "deno")}
	if layer == confine.None {
		env = append(env, secretVariable+"="+secret)
	}
	c, done, err := confine.Command(layer, confine.Program{Path: in.deno, Args: args, Env: env, Read: []string{in.pyodide, dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	var stderr tail
	c.Stdin, c.Stderr = bytes.NewReader(b), &stderr
	c.WaitDelay = time.Second
	detach(c)
	stdout, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	const patience = 90 * time.Second // for one attempt
	stop := time.AfterFunc(patience, func() { c.Process.Kill() })
	defer stop.Stop()
	out := map[string]string{}
	name := ""
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		stop.Reset(patience)
		if after, ok := strings.CutPrefix(lines.Text(), "BEGIN "); ok {
			name = after
		} else if lines.Text() != "END "+name {
			out[name] += lines.Text() + "\n"
		}
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, stderr.String())
	}
	return out
}
