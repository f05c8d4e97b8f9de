package e2b

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/packages/packagestest"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// live says that the suite is to run against the service itself, which costs money. A key alone
// does not say so.
func live() bool { return os.Getenv("CONFORMANCE_LIVE") == Type && os.Getenv(defaultKey) != "" }

func TestMain(m *testing.M) {
	if owner := os.Getenv(standInProgram); owner != "" {
		if err := standIn(context.Background(), owner, os.Getenv(standInKernels)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	was, err := conformance.RunChild(context.Background(), target(KernelRunner, ours))
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case was:
		os.Exit(0)
	}
	os.Exit(leaktest.Main(m))
}

// kernels are what runs the code of a stand-in.
type kernels string

const (
	ours    kernels = ""        // the runner in its containers
	jupyter kernels = "jupyter" // Python in Jupyter's own kernel
	node    kernels = "node"    // JavaScript with the traits of E2B's kernel, which is no kernel of ours to have
)

// language is the one in which the suite runs over the code interpreter. The others share all but a
// few lines.
func (k kernels) language() executor.Language {
	if k == node {
		return executor.JavaScript
	}
	return executor.Python
}

// options are those of a stand-in.
func (k kernels) options() e2btest.Options {
	switch k {
	case jupyter:
		return e2btest.Options{Docker: containersWithJupyter(), Jupyter: true}
	case node:
		return e2btest.Options{Docker: containersWithRoom, Faults: e2btest.Faults{
			SilentExecution: true, ReplacedProcesses: true, EndlessExit: true, SlowDeletes: time.Second,
		}}
	}
	return e2btest.Options{Docker: containersWithRoom}
}

// must is what the backend has to declare with a kernel: more than whatever kernel it has, since it
// is known here.
func must(kernel string, of kernels) conformance.Must {
	m, _ := conformance.MustDeclare(Type)
	if kernel == KernelCodeInterpreter {
		all := append(slices.Clone(m.EachLanguage), executor.FeatureRichOutput, executor.FeatureEnv, executor.FeatureDir,
			executor.FeatureExitCode, executor.FeatureThreads, executor.FeatureTopLevelAwait)
		if of != node {
			all = append(all, executor.FeatureInterrupt)
		}
		m.Languages = map[executor.Language][]executor.Feature{of.language(): all}
		return m
	}
	likeDocker, _ := conformance.MustDeclare("docker") // the runner is the same
	m.Features = append(m.Features, executor.FeatureMixedLanguages, executor.FeatureLimitProcesses, executor.FeatureAliases, executor.FeaturePorts)
	m.EachLanguage = likeDocker.EachLanguage
	packages := append([]executor.Feature{executor.FeaturePackages}, m.EachLanguage...)
	m.Languages = map[executor.Language][]executor.Feature{executor.Python: packages, executor.JavaScript: packages}
	if live() { // nobody says where a registry of npm is
		m.Languages[executor.JavaScript] = m.EachLanguage
	}
	return m
}

// What a run of the suite has of its own.
const (
	paramRun = "run" // owner, because others may test with the same engine or account
	paramURL = "url" // of the stand-in

	paramKernel   = "kernel"
	paramLanguage = "language" // with the code interpreter

	paramDir      = "dir" // for wheels and the cache
	paramIndex    = "index"
	paramRegistry = "registry"
)

// surroundings makes what a run of the suite over a stand-in has of its own.
func surroundings(ctx context.Context, kernel string, of kernels) (params map[string]string, cleanup func() error, err error) {
	params = map[string]string{paramRun: "conformance-" + strings.ToLower(rand.Text()), paramKernel: kernel, paramLanguage: string(of.language())}
	var closing []func() error
	cleanup = func() error {
		var errs []error
		for _, f := range slices.Backward(closing) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cleanup())
		}
	}()
	var stop func() error
	if params[paramURL], stop, err = startStandIn(ctx, params[paramRun], of); err != nil {
		return nil, cleanup, err
	}
	closing = append(closing, stop)
	if kernel != KernelRunner {
		return params, cleanup, nil
	}
	s, err := packagestest.StartSuite(ctx, dockertest.Listen)
	if err != nil {
		return nil, cleanup, err
	}
	closing = append(closing, s.Close)
	params[paramDir], params[paramIndex], params[paramRegistry] = s.Dir, s.Index, s.Registry
	return params, cleanup, nil
}

// testKey is where the key of the stand-in is.
const testKey = "EXECBROKER_TEST_E2B_KEY"

func init() { os.Setenv(testKey, e2btest.Key) }

// emulated is the configuration for a stand-in.
func emulated(url string) Config {
	return Config{
		APIKey: driver.Secret{Env: testKey}, APIURL: url, SandboxURL: url, Languages: []executor.Language{executor.Python, executor.JavaScript},
		Networks: []executor.NetworkMode{executor.NetworkNone, executor.NetworkFull}, // those of Docker
		Ports:    true,
	}
}

// config is the configuration for a run of the suite. The code interpreter runs it in one language.
func config(params map[string]string) Config {
	var cfg Config
	if url := params[paramURL]; url != "" {
		cfg = emulated(url)
	} else {
		cfg.Languages = []executor.Language{executor.Python, executor.JavaScript}
	}
	if cfg.Kernel = params[paramKernel]; cfg.Kernel == KernelCodeInterpreter {
		cfg.Languages, cfg.Ports = []executor.Language{executor.Language(params[paramLanguage])}, false
		return cfg
	}
	cfg.Packages.Allow = map[executor.Language][]string{executor.Python: {"six", packagestest.Missing}}
	if params[paramRegistry] != "" {
		cfg.Packages = driver.Packages{
			Allow:    packagestest.Allow(),
			IndexURL: params[paramIndex], Registry: params[paramRegistry], Insecure: true, Size: 4 << 20,
		}
	}
	return cfg
}

// target is the suite with a kernel over a stand-in whose sandboxes are containers, or over the
// service.
func target(kernel string, of kernels) conformance.Target {
	t := conformance.Target{
		Implementation: conformance.Implementation{Name: Type, Version: "server/e2b over docker"},
		Mode:           conformance.Emulated,
		Setup: func(ctx context.Context) (map[string]string, func() error, error) {
			return surroundings(ctx, kernel, of)
		},
		Open: func(ctx context.Context, params map[string]string) (executor.Executor, error) {
			env := driver.Env{Owner: params[paramRun] + params[conformance.ParamOwner]}
			if params[paramDir] != "" {
				env.CacheDir = filepath.Join(params[paramDir], "cache")
			}
			return Open(ctx, env, config(params))
		},
		Leaks:    containers,
		Programs: []conformance.Programs{conformance.Python, conformance.JavaScript},
		Must:     must(kernel, of),
		Parallel: 4,
	}
	if live() {
		t.Implementation.Version, t.Mode = "hosted", conformance.Live
		t.Setup = func(context.Context) (map[string]string, func() error, error) {
			return map[string]string{paramRun: "conformance-" + strings.ToLower(rand.Text()), paramKernel: kernel, paramLanguage: string(of.language())}, nil, nil
		}
		t.Leaks, t.Parallel = nil, 1
		t.Must.Features = append(t.Must.Features, executor.FeatureNetworkAllowlist)
		if n, err := strconv.Atoi(os.Getenv("CONFORMANCE_MAX_SESSIONS")); err == nil {
			t.MaxSessions = n
		}
	}
	if l := string(of.language()); kernel == KernelCodeInterpreter {
		t.Implementation.Version += ", kernel " + kernel
		t.Programs = []conformance.Programs{conformance.Python}
		if of == node {
			t.Programs[0] = conformance.JavaScript
		}
		if t.Mode == conformance.Emulated {
			const text = "the stand-in's interpreter can write bytes, and the stream that E2B defines has text only"
			t.KnownFailures = map[string]string{l + "/output/binary": text, l + "/output/half-character": text}
		}
		if t.KnownFailures == nil {
			t.KnownFailures = map[string]string{}
		}
		if of == jupyter {
			t.Parallel = 1 // a session starts two kernels, each of which takes seconds
			// What the kernel decides. The rest is the supervisor's, or needs many kernels.
			// exit/abort and output/crash hold now and then: what was printed is sent by another
			// thread, which ends too.
			t.Only = []string{"python/output/[^cs]*", "python/exit/at-exit", "python/exit/[^a]*"}
			for _, area := range []string{"cells", "code", "dir", "env", "exceptions", "interrupt", "state", "stdin", "timeouts", "values"} {
				t.Only = append(t.Only, "python/"+area+"/*")
			}
			t.KnownFailures["python/values/figures"] = "IPython shows the figures of its own backend of matplotlib, not those of a module with the same functions"
			t.KnownFailures["python/cells/indented"] = "IPython takes the indentation of a cell off texts in it, too"
			t.KnownFailures["python/cells/shell"] = "IPython runs shell lines at a terminal, whose lines end in CR LF"
			t.KnownFailures["python/cells/magic-unknown"] = "IPython prints an error for an unknown magic and raises nothing"
		}
		t.KnownFailures[l+"/values/json"] = "E2B gives JSON only of values that are shown as JSON, not of plain containers"
	}
	return t
}

// containersWithRoom are the sandboxes of stand-ins. Root of a container cannot make directories in
// its root, so those for packages are there, and belong to it.
var containersWithRoom = docker.Config{
	Limits: docker.Limits{CPUs: 2, Processes: 256},
	Packages: docker.Packages{Packages: driver.Packages{
		Allow:    map[executor.Language][]string{executor.Python: {"*"}, executor.JavaScript: {"*"}},
		Registry: "https://nobody.example", Size: 16 << 20, // nothing asks it
	}},
}

// containersWithJupyter are those of stand-ins whose Python is that of Jupyter.
func containersWithJupyter() docker.Config {
	c := containersWithRoom
	c.Image, c.Languages = dockertest.Jupyter, []executor.Language{executor.Python}
	c.Limits.Memory = 2 << 30 // for the kernels of nine contexts
	c.Packages.Allow, c.Packages.Registry = map[executor.Language][]string{executor.Python: {"*"}}, ""
	return c
}

// needsJupyter skips a test where its image is missing.
func needsJupyter(t *testing.T) {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	switch has, err := dockertest.HasImage(t.Context(), host, dockertest.Jupyter); {
	case err != nil:
		t.Fatal(err)
	case !has:
		t.Skip("make exhaustive makes the image with Jupyter")
	}
}

// standInProgram makes this program a stand-in, for the owner that it names. It is a process of its
// own, since the suite counts what is left in this one.
const standInProgram = "EXECBROKER_TEST_E2B_STAND_IN"

// standInKernels names its kernels.
const standInKernels = "EXECBROKER_TEST_E2B_STAND_IN_KERNELS"

// standIn serves until standard input ends, which it does when the other process dies.
func standIn(ctx context.Context, owner, of string) error {
	o := kernels(of).options()
	o.Owner = owner
	s, err := e2btest.Start(ctx, o)
	if err != nil {
		return err
	}
	fmt.Println(s.URL)
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, s.Close())
}

// startStandIn starts one.
func startStandIn(ctx context.Context, owner string, of kernels) (url string, stop func() error, err error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), standInProgram+"="+owner, standInKernels+"="+string(of)), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	url, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return strings.TrimSpace(url), stop, nil
}

// containers returns the containers of a run of the suite, but for those of sandboxes that the
// stand-in is about to remove.
func containers(ctx context.Context, params map[string]string) ([]string, error) {
	host, err := dockertest.Host()
	if err != nil {
		return nil, err
	}
	return dockertest.Containers(ctx, host, driver.LabelOwner+"="+params[paramRun])
}

func TestConformance(t *testing.T) { conform(t, KernelRunner, ours) }

func TestConformanceOfCodeInterpreter(t *testing.T) { conform(t, KernelCodeInterpreter, ours) }

// The suite over Jupyter's own kernel of Python.
func TestConformanceOfJupyter(t *testing.T) {
	needsJupyter(t)
	conform(t, KernelCodeInterpreter, jupyter)
}

// The suite in JavaScript, over what E2B's kernel of it does to those who stop code.
func TestConformanceOfJavaScript(t *testing.T) { conform(t, KernelCodeInterpreter, node) }

func conform(t *testing.T, kernel string, of kernels) {
	if !live() {
		t.Log("not run against the service: that takes E2B_API_KEY and CONFORMANCE_LIVE=e2b")
		if _, err := dockertest.Host(); err != nil {
			t.Fatal(err)
		}
	}
	conformancetest.Test(t, target(kernel, of))
}
