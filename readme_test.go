package execbroker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// marked finds the fenced blocks of README.md that a test follows, by the comment above each.
var marked = regexp.MustCompile("(?s)<!-- tested: (\\w+) -->\n```\\w*\n(.*?)```\n")

func blocks(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, m := range marked.FindAllStringSubmatch(readFile(t, "README.md"), -1) {
		found[m[1]] = m[2]
	}
	for _, name := range []string{"first", "output", "tests", "quickstart"} {
		if found[name] == "" {
			t.Fatalf("README.md has no block that is marked %q", name)
		}
	}
	return found
}

// A newcomer has a fresh clone, the tools that the README names, and nothing of ours in any cache.
// Go's own caches stay: what is in them is the same for everybody, and is not ours.
func TestReadmeInFreshClone(t *testing.T) {
	blocks := blocks(t)
	dir := t.TempDir()
	clone, home := filepath.Join(dir, "clone"), filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	answer(t, "git", "clone", "--quiet", ".", clone)
	var env []string
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != "CI" && !strings.HasPrefix(name, "XDG_") && !strings.HasPrefix(name, "EXECBROKER_") {
			env = append(env, v)
		}
	}
	env = append(env, "HOME="+home, "XDG_CACHE_HOME="+filepath.Join(home, "cache"))
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOENV", "GOPATH"} {
		env = append(env, name+"="+answer(t, "go", "env", name))
	}
	// Where npm's packages come from is a setting of this machine.
	env = append(env, "NPM_CONFIG_USERCONFIG="+answer(t, "npm", "config", "get", "userconfig"))

	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", blocks["first"])
	cmd.Dir, cmd.Env = clone, env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", blocks["first"], err, stdout.Bytes(), stderr.Bytes())
	}
	if got, want := stdout.String(), blocks["output"]; !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant the output in README.md\n%s", got, want)
	}
	chart, err := os.ReadFile(filepath.Join(clone, "out", "seattle.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if want := readFile(t, "examples/analysis/testdata/seattle.svg"); string(chart) != want {
		t.Errorf("out/seattle.svg differs from the golden one:\n%s", chart)
	}

	if made, err := filepath.Glob(filepath.Join(home, "cache", "execbroker", "pyodide", "host-*", "*")); len(made) == 0 {
		t.Errorf("nothing was prepared in the cache that was empty: %v", err)
	}

	// The other command is the one that runs this test; it only has to be there.
	if got, want := blocks["tests"], "make test\n"; got != want {
		t.Errorf("got the command %q, want %q", got, want)
	}
}

func answer(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// Each example has a test that compares what it prints, or that it passes the suite.
func TestExamplesAreTested(t *testing.T) {
	compares := regexp.MustCompile(`got != want|golden\(t, "|conformancetest\.Test\(t, `)
	dirs, err := filepath.Glob("examples/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("got the examples %q, %v", dirs, err)
	}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		tested := false
		for _, name := range files {
			text := readFile(t, name)
			tested = tested || strings.Contains(text, "\nfunc Test") && compares.MatchString(text)
		}
		if !tested {
			t.Errorf("%s has no test of what it prints", dir)
		}
	}
}

// The program in the README is that of examples/quickstart, which its own test runs.
func TestReadmeShowsQuickstart(t *testing.T) {
	flat := func(s string) (lines []string) {
		for line := range strings.Lines(s) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return lines
	}
	program := strings.Join(flat(readFile(t, "examples/quickstart/main.go")), "\n")
	if shown := strings.Join(flat(blocks(t)["quickstart"]), "\n"); !strings.Contains(program, shown) {
		t.Errorf("examples/quickstart/main.go does not have\n%s", shown)
	}
}

var (
	goBlock  = regexp.MustCompile("(?s)```go\n(.*?)```\n")
	fileName = regexp.MustCompile(`\A// \w+\.go\n`) // which TestGuides gives to a file
)

// What the documents show of Go compiles. A block that is not a whole file stands in a function
// with the usual things at hand.
func TestGoInDocuments(t *testing.T) {
	dir := t.TempDir()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay := map[string]map[string]string{"Replace": {}}
	var patterns []string
	add := func(where, name, text string) {
		real := filepath.Join(dir, strings.ReplaceAll(where, "/", "_")+"_"+name)
		if err := os.WriteFile(real, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][filepath.Join(root, where, name)] = real
	}
	for _, name := range files(t) {
		if filepath.Ext(name) != ".md" || name == "README.md" { // that has a test of its own, above
			continue
		}
		for i, m := range goBlock.FindAllStringSubmatch(readFile(t, name), -1) {
			text := fileName.ReplaceAllString(m[1], "")
			where := "documents/" + strings.NewReplacer("/", "_", ".", "_").Replace(name) + "_" + string(rune('a'+i))
			if !strings.HasPrefix(text, "package ") {
				text = fragmentHead + "{\n//line " + filepath.Join(root, name) + ":1\n" + text + "\n}\nreturn nil\n}\n"
			} else if strings.Contains(text, "open(ctx") {
				add(where, "open.go", strings.SplitN(text, "\n", 2)[0]+openFunc)
			}
			add(where, "main.go", text)
			patterns = append(patterns, "./"+where)
		}
	}
	file := filepath.Join(dir, "overlay.json")
	data, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	// list -export compiles as build does, without linking forty programs.
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-f={{with \"\"}}{{end}}", "-overlay=" + file}, patterns...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

const fragmentHead = `package fragment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/bubblewrap"
	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/e2b"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/executor/telemetry"
	"github.com/execbroker/execbroker/flymachines"
	"github.com/execbroker/execbroker/kubernetes"
	"github.com/execbroker/execbroker/pyodide"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/tool"
	"github.com/execbroker/execbroker/tool/mcp"
	"go.opentelemetry.io/otel"
)

var _ = []any{errors.As, otel.GetMeterProvider, telemetry.Hooks, json.Marshal, tool.Define, fmt.Print, io.Copy, os.Open, strings.NewReader, time.Second, backends.Parse, all.Registry, bubblewrap.Open, docker.Open, e2b.Open, flymachines.Open, kubernetes.Open, pyodide.Open, driver.Fail, sessions.New, http.Handle, net.Dial, mcp.New, server.New}

func _(ctx context.Context, box executor.Executor, broker *backends.Broker, s executor.Session, userID, code string, keys io.Reader, req executor.Request) error {
`

const openFunc = `

import (
	"context"

	"github.com/execbroker/execbroker/executor"
)

func open(ctx context.Context, owner string) (executor.Executor, error) { panic("a function of the reader") }
`
