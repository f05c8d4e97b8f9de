// Package guides has the guides, and a test that follows them.
package guides

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/netnstest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// guide is what a test knows of a guide besides what stands in it.
type guide struct {
	prints []string // among the output of its commands
	host   bool     // it needs the network of the machine, not one of its own, in which its ports are free
	cloud  bool     // it needs services of the Internet for which there are stand-ins
	// happens is what happens at the places that the guide marks, by their names.
	happens map[string]func(*scene)
}

// guides are those that need something.
var guides = map[string]guide{
	"ab-test":                {prints: []string{"1 % of new sessions go to next, paused since", "not known yet", "pause by ", "# Experiment chat"}},
	"bubblewrap":             {prints: []string{"bubblewrap works", "42\n", " 42"}},
	"chat":                   {prints: []string{"chat at http://127.0.0.1:8080", "chat at http://127.0.0.1:8081"}},
	"checkpoints":            {prints: []string{"not carried: log: ", "Shop ['tea']"}},
	"conformance":            {prints: []string{"checked in part ("}},
	"dify":                   {prints: []string{`"stdout":"42\n"`}},
	"docker":                 {prints: []string{"docker works", "hottest"}},
	"e2b":                    {prints: []string{"e2b works"}, host: true, cloud: true},
	"e2b-sdks":               {prints: []string{"[ '42\\n' ]"}, host: true}, // npm's registry
	"fly-emulator":           {prints: []string{`"state":"created"`, "cloud (flymachines) works", "\n42\n"}, host: true},
	"fly-machines":           {host: true, cloud: true},
	"fronts":                 {prints: []string{`"std_out":"42\n"`, `"stdout":"42\n"`}},
	"from-mvp-to-production": {prints: []string{"backend  same"}},
	"http":                   {prints: []string{`"stdout":"42\n"`, `"conversation":{"fresh":false`, "HTTP/1.0 200 OK"}},
	"javascript-client":      {prints: []string{"value 42\n", "ok true\n", "hello world\n", "Access-Control-Allow-Origin: https://app.example"}, host: true}, // npm's registry
	"judge0":                 {prints: []string{`"description":"Accepted"`}},
	"jupyter":                {prints: []string{"executed: 42", `"execution_state":"idle"`}},
	"librechat":              {prints: []string{`"name":"a.txt"`}},
	"mcp":                    {prints: []string{`"protocolVersion"`}},
	"modal":                  {prints: []string{"cloud (modal) works", "\n42\n"}, host: true},
	"nemo":                   {prints: []string{`"completed"`, "42"}},
	"operations":             {prints: []string{"is right: 2 backends", "box (docker) works", "local (pyodide) works"}},
	"onyx":                   {prints: []string{`"stdout":"42\n"`, `"filename":"a.txt"`}},
	"page":                   {prints: []string{"script-src 'self'"}},
	"parity":                 {prints: []string{"explained: code cannot start threads (code 1)", "python.platform: linux -> emscripten", "they differ"}},
	"piston":                 {prints: []string{`"output":"42\n"`}},
	"quotas-and-costs":       {prints: []string{`"stdout":"42\n"`, "default  local     local    1     "}},
	"replicas":               {prints: []string{`"stdout":"42\n"`, `"kind":"elsewhere"`, `"denied":{"rule":"rate"`, "durability"}},
	"terrarium":              {prints: []string{`"final_expression":120`}},
	"telemetry":              {prints: []string{"execbroker_guard_store_away 0"}},
	"quick-start":            {prints: []string{"42\n", "hottest:  2014-08-11", "3.1", "pyodide works"}},
}

// TestGuides follows every guide from top to bottom: its shell blocks, one after the other, in one
// shell in a clone of the repository. A block of another language whose first line is a comment
// with the name of a file becomes that file. Commands that go on in the background are waited for
// until they say where they serve. HOME is empty; caches are those of the machine, since how a
// first run fills them is a test of the README.
func TestGuides(t *testing.T) {
	all, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	engine, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	bin := program(t)
	stand(t, engine, dockertest.Trixie, "docker.io/library/python:3.13-slim")
	stand(t, engine, dockertest.Python, "example/execbroker:trixie")
	var left []string
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		steps := parse(string(text))
		for _, s := range steps {
			if s.why != "" {
				left = append(left, fmt.Sprintf("%s:%d: %s", file, s.line, s.why))
			}
		}
		if !hasCommands(steps) {
			continue
		}
		name := strings.TrimSuffix(file, ".md")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			follow(t, name, guides[name], steps, bin, engine)
		})
	}
	t.Logf("not run:\n%s", strings.Join(left, "\n"))
	if len(left) > 8 {
		t.Errorf("%d blocks are not run, want at most 8", len(left))
	}
}

// program builds the program and returns its directory.
func program(t *testing.T) (bin string) {
	t.Helper()
	bin = t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(bin, "execbroker"), "../../cmd/execbroker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// step is a block that a reader copies, or one of these.
type step struct {
	line  int
	file  string // that the text goes to; "" is the shell
	text  string
	why   string // it is not run
	sees  string // what the commands of the block before print
	event string // what happens here, for which the guide has a comment
}

// runs reports whether s is a block of commands that is run.
func (s step) runs() bool { return s.file == "" && s.why == "" && s.sees == "" && s.event == "" }

var (
	block   = regexp.MustCompile("(?m)^<!-- happens: (.*) -->$|^(?:<!-- not run: (.*) -->\n)?```(\\w+)\n((?s:.*?))^```$")
	heading = regexp.MustCompile(`^(?:#|//) ([\w.-]+\.\w+)\n`)
)

func parse(text string) (steps []step) {
	for _, m := range block.FindAllStringSubmatchIndex(text, -1) {
		part := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return text[m[2*i]:m[2*i+1]]
		}
		if part(1) != "" {
			steps = append(steps, step{line: 1 + strings.Count(text[:m[0]], "\n"), event: part(1)})
			continue
		}
		s := step{line: 1 + strings.Count(text[:m[8]], "\n"), why: part(2), text: part(4)}
		switch language := part(3); {
		case language == "sh":
		case language == "txt":
			s.sees, s.text = s.text, ""
		default:
			h := heading.FindStringSubmatch(s.text)
			if h == nil {
				continue
			}
			s.file = h[1]
		}
		steps = append(steps, s)
	}
	return steps
}

func TestParse(t *testing.T) {
	got := parse("a\n```sh\nx\ny &\n```\n```yaml\n# app.yaml\nb\n```\n```yaml\nno: file\n```\n<!-- not run: why -->\n```sh\nz\n```\n" +
		"<!-- happens: an end -->\n```txt\nok\n```\n")
	want := []step{{line: 3, text: "x\ny &\n"}, {line: 7, file: "app.yaml", text: "# app.yaml\nb\n"}, {line: 15, text: "z\n", why: "why"}, {line: 17, event: "an end"}, {line: 19, sees: "ok\n"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func hasCommands(steps []step) bool {
	for _, s := range steps {
		if s.runs() {
			return true
		}
	}
	return false
}

// follow does what a reader of a guide does.
func follow(t *testing.T, name string, g guide, steps []step, bin, engine string) {
	if g.host {
		takeTurns(t, steps)
	}
	dir := t.TempDir()
	clone, home := filepath.Join(dir, "clone"), filepath.Join(dir, "home")
	copyRepository(t, clone)
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	curl := "no-progress-meter\n"
	if g.happens == nil {
		curl += "fail-with-body\n" // its exit code says nothing of HTTP by itself; incidents show what it prints
	}
	if err := os.WriteFile(filepath.Join(home, ".curlrc"), []byte(curl), 0o644); err != nil {
		t.Fatal(err)
	}
	env := environment(t, home, bin, engine)
	if g.cloud {
		env = append(env, clouds(t, engine)...)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Minute)
	t.Cleanup(cancel)
	sh := start(t, ctx, clone, env, steps, !g.host)
	t.Cleanup(func() { sh.end(t) })
	present, leave := context.WithCancel(ctx)
	t.Cleanup(leave)
	around := &scene{T: t, ctx: present, sh: sh, dir: clone}
	before := 0 // the output before the last block
	for _, s := range steps {
		switch {
		case s.why != "":
		case s.event != "":
			if g.happens[s.event] == nil {
				t.Fatalf("%s.md:%d: no test makes that happen: %s", name, s.line, s.event)
			}
			g.happens[s.event](around)
		case s.sees != "":
			if err := sh.sees(ctx, before, s.sees); err != nil {
				t.Fatalf("%s.md:%d: %v", name, s.line, err)
			}
		case s.file != "":
			if err := os.WriteFile(filepath.Join(clone, s.file), []byte(s.text), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			before = sh.out.len()
			if err := sh.next(); err != nil {
				leave()
				sh.end(t) // all output is there then
				t.Fatalf("%s.md:%d: %v\n%s\n%s", name, s.line, err, s.text, sh.out.from(before))
			}
			for strings.HasSuffix(s.text, " &\n") && !served.MatchString(sh.out.from(before)) {
				err := sh.more(ctx)
				if strings.Contains(sh.out.from(before), "address already in use") {
					err = errors.New("another has its address")
				}
				if err != nil {
					t.Fatalf("%s.md:%d: %v: it does not serve\n%s\n%s", name, s.line, err, s.text, sh.out.from(before))
				}
			}
		}
	}
	leave()
	sh.end(t)
	for _, want := range g.prints {
		if got := sh.out.from(0); !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q in it", got, want)
		}
	}
}

// turns has a mutex for each address of the machine's network at which guides listen.
var turns sync.Map

// takeTurns waits until no other guide uses the addresses of a guide.
func takeTurns(t *testing.T, steps []step) {
	var addresses []string
	for _, s := range steps {
		addresses = append(addresses, address.FindAllString(s.text, -1)...)
	}
	slices.Sort(addresses) // so that no two guides wait for each other
	for _, a := range slices.Compact(addresses) {
		m, _ := turns.LoadOrStore(a, new(sync.Mutex))
		m.(*sync.Mutex).Lock()
		t.Cleanup(m.(*sync.Mutex).Unlock)
	}
}

var address = regexp.MustCompile(`127\.0\.0\.1:\d+`)

var served = regexp.MustCompile(`at http://127\.0\.0\.1:\d+`)

// copyRepository makes what a clone of these sources would be.
func copyRepository(t *testing.T, to string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = filepath.Join("..", "..")
	names, err := list.Output()
	if err == nil {
		err = os.Mkdir(to, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	names = bytes.Join(slices.DeleteFunc(bytes.Split(names, []byte{0}), func(name []byte) bool {
		_, err := os.Lstat(filepath.Join(list.Dir, string(name)))
		return len(name) == 0 || errors.Is(err, os.ErrNotExist) // deleted, and not yet committed
	}), []byte{0})
	// One program copies a thousand files in the time that this one takes for some, watched by the
	// race detector.
	cp := exec.CommandContext(t.Context(), "xargs", "-0", "cp", "--parents", "--target-directory="+to)
	cp.Dir, cp.Stdin = list.Dir, bytes.NewReader(names)
	if out, err := cp.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// environment is that of a reader who has installed the program, and an engine.
func environment(t *testing.T, home, bin, engine string) (env []string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "EXECBROKER_") && !strings.HasPrefix(name, "CONFORMANCE_") {
			env = append(env, v)
		}
	}
	answer := func(name string, args ...string) string {
		out, err := exec.CommandContext(t.Context(), name, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOENV", "GOPATH"} {
		env = append(env, name+"="+answer("go", "env", name))
	}
	own := filepath.Join(home, "bin")
	return append(env, "HOME="+home, "XDG_CACHE_HOME="+cache, "DOCKER_HOST="+engine, "GOBIN="+own,
		"PATH="+strings.Join([]string{own, bin, os.Getenv("PATH")}, string(filepath.ListSeparator)),
		"GOFLAGS=-trimpath", // so that what was built in another directory is not built again
		"NPM_CONFIG_USERCONFIG="+answer("npm", "config", "get", "userconfig"), "NPM_CONFIG_CACHE="+answer("npm", "config", "get", "cache"),
		"NPM_CONFIG_PREFER_OFFLINE=true")
}

// shell runs blocks one after the other, each when it is told to.
type shell struct {
	cmd  *exec.Cmd
	out  *output
	say  *os.File    // a line for each block that may begin
	hear *os.File    // an empty line for each block that has ended
	kept func() bool // ends the watch over its time

	alone bool // it has a network of its own; who may not make one has that of the machine
}

// start starts a shell for steps, which stops when a command fails.
func start(t *testing.T, ctx context.Context, dir string, env []string, steps []step, alone bool) *shell {
	t.Helper()
	var script strings.Builder
	script.WriteString("set -e\ntrap 'echo failed >&4' EXIT\n") // a server in the background keeps the pipe open
	for _, s := range steps {
		if s.runs() {
			fmt.Fprintf(&script, "read -r _ <&3\n%secho >&4\n", s.text)
		}
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	told, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{cmd: exec.Command("sh", "-c", script.String()), out: &output{more: make(chan struct{}, 1)}, say: say, hear: ours, alone: alone && os.Geteuid() == 0}
	s.cmd.Dir, s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = dir, env, s.out, s.out
	s.cmd.ExtraFiles = []*os.File{told, theirs}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.WaitDelay = time.Minute
	err = startIn(s.cmd, s.alone)
	told.Close()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	s.kept = context.AfterFunc(ctx, func() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) })
	return s
}

// startIn starts cmd, if alone with a network of its own that has nothing but loopback.
func startIn(cmd *exec.Cmd, alone bool) error {
	if alone {
		return netnstest.Alone(cmd.Start)
	}
	return cmd.Start()
}

// next runs the next block.
func (s *shell) next() error {
	if _, err := s.say.WriteString("\n"); err != nil {
		return err
	}
	said := make([]byte, 1)
	if n, err := s.hear.Read(said); n != 1 {
		return fmt.Errorf("it was killed: %w", err)
	}
	if said[0] != '\n' {
		return errors.New("a command failed")
	}
	return nil
}

// more waits for output.
func (s *shell) more(ctx context.Context) error {
	select {
	case <-s.out.more:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end ends what goes on in the background, and waits until it has cleaned up.
func (s *shell) end(t *testing.T) {
	if s.cmd.ProcessState != nil {
		return
	}
	s.kept()
	s.say.Close()
	if err := syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
	if err := s.cmd.Wait(); errors.Is(err, exec.ErrWaitDelay) {
		t.Errorf("what was in the background does not end:\n%s", s.out.from(0))
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // usually nothing is there
	s.hear.Close()
}

// output is what programs have written so far.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // has something if there was something new
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default:
	}
	return o.b.Write(p)
}

func (o *output) len() int { o.mu.Lock(); defer o.mu.Unlock(); return o.b.Len() }

func (o *output) from(at int) string { o.mu.Lock(); defer o.mu.Unlock(); return o.b.String()[at:] }
