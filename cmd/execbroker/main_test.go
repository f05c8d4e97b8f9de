package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/leaktest"
)

// asProgram makes the test binary the program, with the backend of package fake. Its value is a
// file for the number of sandboxes that were left.
const asProgram = "EXECBROKER_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if file := os.Getenv(asProgram); file != "" {
		os.Exit(program(file))
	}
	// A program that is started with nohup ignores a hangup, and so do its children, unless it
	// handles the signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	code := leaktest.Main(m)
	if dir := builtIn; dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// builtIn is the directory with the real program, once build has made it.
var builtIn string

var build = sync.OnceValues(func() (file string, err error) {
	if builtIn, err = os.MkdirTemp("", "execbroker-"); err != nil {
		return "", err
	}
	file = filepath.Join(builtIn, "execbroker")
	if out, err := exec.Command("go", "build", "-o", file, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return file, nil
})

// installed prepares a process of the program with the real adapters.
func installed(t *testing.T, args ...string) *process {
	t.Helper()
	file, err := build()
	if err != nil {
		t.Fatal(err)
	}
	p := command(t, args...)
	p.Path = file
	return p
}

// fakeConfig is the configuration of the type "fake" in the tests.
type fakeConfig struct {
	CreateTime driver.Duration    `json:"create_time"`
	Without    []executor.Feature `json:"without"`
	Fail       string             `json:"fail"` // the operation that fails
	Hold       string             `json:"hold"` // the operation that does not end
	Broken     bool               `json:"broken"`
	Packages   []string           `json:"packages"`
	Address    string             `json:"address"` // address of a backend in another process
	Refuse     bool               `json:"refuse"`  // refuse to open
}

// program is main with the fake. It writes the number of sandboxes that were left to a file.
func program(file string) int {
	var made []*fake.Backend
	factory := driver.NewFactory(fake.Type, func(ctx context.Context, env driver.Env, c fakeConfig) (executor.Executor, error) {
		if c.Refuse {
			return nil, driver.At("refuse", errors.New("the machine is not right"))
		}
		b := fake.New(fake.Options{
			CreateTime:   time.Duration(c.CreateTime),
			Packages:     c.Packages,
			Capabilities: fake.Without(fake.All(), c.Without...),
		})
		if c.Fail != "" {
			b.Fail(fake.Op(c.Fail), -1, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("the engine is \x1b[31mdown")))
		}
		if c.Hold != "" {
			b.Hold(fake.Op(c.Hold))
		}
		made = append(made, b)
		if c.Address != "" {
			d, err := fake.Dial(ctx, c.Address)
			if err != nil {
				return nil, err
			}
			return fake.Open(d, env)
		}
		return b.Open(env)
	}, func(_ context.Context, _ driver.Env, c fakeConfig) []driver.Check {
		return []driver.Check{{Name: "engine", OK: !c.Broken, Detail: "version \x1b[31m7", Fix: "start it"}}
	})
	factory = driver.WithSetup(factory, func(_ context.Context, _ driver.Env, c fakeConfig) error {
		if c.Broken {
			return driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("no network"))
		}
		return nil
	})
	a := newApp(backends.NewRegistry(factory, driver.NewFactory("strict", func(context.Context, driver.Env, strictConfig) (executor.Executor, error) {
		return nil, errors.New("never")
	}, nil), driver.NewFactory("docker", func(_ context.Context, env driver.Env, c fakeConfig) (executor.Executor, error) {
		x, err := fake.New(fake.Options{Capabilities: fake.Without(fake.All(), c.Without...)}).Open(env)
		return retyped{x, "docker"}, err
	}, nil)))
	a.standard = fake.Type
	a.programs = nil
	for _, l := range []executor.Language{executor.Python, executor.JavaScript} {
		a.programs = append(a.programs, conformance.Programs{Language: l, Source: fake.Programs(l)})
	}
	code := a.main(context.Background(), os.Args[1:])
	left := 0
	for _, b := range made {
		left += len(b.Sandboxes())
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, "%d", left), 0o644); err != nil {
		panic(err)
	}
	return code
}

// retyped is an Executor that claims another type, with known required features.
type retyped struct {
	executor.Executor
	typ string
}

func (r retyped) Info() executor.Info {
	i := r.Executor.Info()
	i.Type, i.Capabilities.Isolation = r.typ, executor.IsolationContainer
	return i
}

// strictConfig requires settings.
type strictConfig struct {
	Image string `json:"image"`
}

func (c strictConfig) Validate() error {
	if c.Image == "" {
		return driver.At("image", errors.New("is required"))
	}
	return nil
}

// process is a process of the program.
type process struct {
	*exec.Cmd
	out, err bytes.Buffer
	left     string // the file of asProgram
}

// command prepares a process, which runs in a new directory.
func command(t testing.TB, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(t.Context(), exe, args...), left: filepath.Join(t.TempDir(), "left")}
	p.Dir = t.TempDir()
	p.Env = append(os.Environ(), asProgram+"="+p.left, "EXECBROKER_CONFIG=")
	p.Stdout, p.Stderr = &p.out, &p.err
	return p
}

// code waits for the end of the process and returns the exit code.
func (p *process) code(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		t.Fatalf("%v\n%s", err, p.err.String())
	}
	return exit.ExitCode()
}

// clean checks that the process has left no sandbox.
func (p *process) clean(t *testing.T) {
	t.Helper()
	if left, err := os.ReadFile(p.left); err != nil || string(left) != "0" {
		t.Errorf("sandboxes left: %q, %v", left, err)
	}
}

// run runs the program and checks the exit code.
func run(t *testing.T, want int, args ...string) *process {
	t.Helper()
	p := command(t, args...)
	if got := p.code(t, p.Run()); got != want {
		t.Fatalf("%q: got exit code %d, want %d\nstdout: %s\nstderr: %s", args, got, want, p.out.String(), p.err.String())
	}
	p.clean(t)
	return p
}

// write creates a file in dir.
func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// decode reads the only JSON document that a command has printed.
func decode(t *testing.T, data []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(v); err != nil || d.More() {
		t.Fatalf("%v, or more than one document in %s", err, data)
	}
}

// contains checks for texts, in order.
func contains(t *testing.T, got string, want ...string) {
	t.Helper()
	rest := got
	for _, w := range want {
		_, after, ok := strings.Cut(rest, w)
		if !ok {
			t.Fatalf("got %q, want %q in it", got, w)
		}
		rest = after
	}
}
