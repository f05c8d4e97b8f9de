package execbroker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/execbroker/execbroker"

// goPackage is what go list says of a package.
type goPackage struct {
	ImportPath, Dir, Name string
	Standard, DepOnly     bool
	Module                *struct{ Path string }
	GoFiles, CgoFiles     []string
	Imports               []string // not those of tests
	Deps                  []string // likewise
}

// rel is the path within the module; the root is ".".
func (p goPackage) rel() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

// list returns the packages of the module and everything they need, by import path.
func list(t *testing.T) map[string]goPackage {
	t.Helper()
	fields := "ImportPath,Dir,Name,Standard,DepOnly,Module,GoFiles,CgoFiles,Imports,Deps"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json="+fields, "./...").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("go list: %v\n%s", err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	all := map[string]goPackage{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// A rule says what the packages that match any of its patterns import of this module, and of other
// modules. The first rule that matches a package decides. A pattern ends in "/..." to match a
// package and those below it.
type rule struct {
	packages []string
	imports  []string // of this module
	modules  []string // other modules
}

var adapters = []string{"bubblewrap", "pyodide/...", "docker/...", "e2b/...", "flymachines/...", "kubernetes", "modal/..."}

// The arrows point one way only. A package that has no rule gets one together with the reason for
// what it imports.
var rules = []rule{
	{packages: []string{"."}},
	// Applications and adapters see these two, so they bring nothing along.
	{packages: []string{"executor"}, imports: []string{"internal/decimal"}},
	{packages: []string{"executor/driver"}, imports: []string{"executor", "internal/decimal", "internal/engine", "internal/settings"}},
	// Prices and amounts of money are read alike, and exactly.
	{packages: []string{"internal/decimal"}},
	{packages: []string{"internal/pyimports"}},
	// What runs a driver knows no type of package driver: see docs/decisions/0036.
	{packages: []string{"internal/engine"}, imports: []string{"executor", "internal/remote"}},
	// What a machine lacks is told alike in an error and by doctor.
	{packages: []string{"internal/missing"}, imports: []string{"executor/driver"}},
	// Everything that has a configuration reports what is wrong in it alike.
	{packages: []string{"internal/settings"}, imports: []string{"executor"}},
	// Ordinary users of the contract: what they need of a backend is declared.
	{packages: []string{"executor/compare"}, imports: []string{"executor"}},
	{packages: []string{"executor/checkpoint"}, imports: []string{"executor"}},
	{packages: []string{"executor/rollout"}, imports: []string{"executor"}},
	{packages: []string{"executor/rollout/report"}, imports: []string{"executor/rollout"}},
	{packages: []string{"executor/router"}, imports: []string{"executor", "internal/settings"}},
	{packages: []string{"executor/pool"}, imports: []string{"executor"}},
	{packages: []string{"executor/sessions/postgres"}, imports: []string{"executor", "executor/sessions"}, modules: []string{"github.com/jackc/pgx/v5"}},
	{packages: []string{"executor/sessions/redis"}, imports: []string{"executor", "executor/sessions"}, modules: []string{"github.com/redis/go-redis/v9"}},
	{packages: []string{"executor/sessions/sqlite"}, imports: []string{"executor", "executor/sessions"}, modules: []string{"golang.org/x/sync", "modernc.org/sqlite"}},
	// A conversation goes on from its last checkpoint.
	{packages: []string{"executor/sessions/..."}, imports: []string{"executor", "executor/checkpoint", "executor/sessions/...", "internal/pyimports"}},
	{packages: []string{"executor/telemetry"}, imports: []string{"executor"}, modules: []string{"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace"}},
	// Calls of one conversation share a session. Tables come as HTML, and models read Markdown.
	{packages: []string{"tool/..."}, imports: []string{"executor", "executor/checkpoint", "executor/sessions", "internal/drain", "internal/front", "tool/..."}, modules: []string{"github.com/modelcontextprotocol/go-sdk", "golang.org/x/net"}},
	// E2B's daemon speaks the Connect protocol. Messages register themselves by name, so there is
	// one copy for whoever speaks it.
	{packages: []string{"internal/envd/..."}, modules: []string{"connectrpc.com/connect", "google.golang.org/protobuf"}},
	{packages: []string{"internal/stdin"}},
	{packages: []string{"server/e2b"}, imports: []string{"executor", "internal/envd/...", "internal/front", "internal/narrow", "internal/stdin"}, modules: []string{"connectrpc.com/connect", "google.golang.org/protobuf"}},
	// A stand-in for tests: real sandboxes behind the server, with what the contract does not know,
	// and with E2B's faults.
	{packages: []string{"server/e2b/e2btest"}, imports: []string{"executor", "executor/driver", "docker/...", "internal/envd/...", "server/e2b"}, modules: []string{"connectrpc.com/connect", "github.com/moby/moby/api", "github.com/moby/moby/client", "google.golang.org/protobuf"}},
	// What ends in good order waits for what it has begun.
	{packages: []string{"internal/drain"}},
	// Whom web pages reach through a browser, and how a request is called, is one question for all
	// servers.
	{packages: []string{"internal/front"}},
	{packages: []string{"internal/front/fronttest"}},
	// What a field of a request may ask for is one rule for all servers.
	{packages: []string{"internal/narrow"}, imports: []string{"executor"}},
	// Code in fences is what models write, whoever asks them.
	{packages: []string{"server/nemo"}, imports: []string{"executor", "executor/sessions", "internal/drain", "internal/front", "server", "tool"}},
	// WebSockets are a wire of Piston. What fails is told in the words for models.
	{packages: []string{"server/compat"}, imports: []string{"executor", "internal/drain", "internal/front", "internal/narrow", "internal/stdin", "server", "tool"}, modules: []string{"golang.org/x/net"}},
	// WebSockets carry its channels. The sandboxes of kernels may be replaced, as those of
	// conversations are.
	{packages: []string{"server/jupyter"}, imports: []string{"executor", "executor/sessions", "internal/complete", "internal/drain", "internal/front", "internal/stdin", "server", "tool"}, modules: []string{"golang.org/x/net"}},
	// Code that people type is the same at a prompt and in a notebook.
	{packages: []string{"internal/complete"}, imports: []string{"executor"}},
	// A page is files for whoever serves the API.
	{packages: []string{"server/page"}, imports: []string{"internal/front"}},
	{packages: []string{"server/..."}, imports: []string{"executor", "executor/checkpoint", "executor/rollout", "executor/sessions", "internal/drain", "internal/front", "internal/stdin", "server/..."}},
	// The suite judges what users of the contract see. Only the part for go test plants faults
	// below it.
	{packages: []string{"conformance/cases"}, imports: []string{"executor", "executor/checkpoint"}},
	{packages: []string{"conformance"}, imports: []string{"conformance/cases", "executor"}},
	// It counts what a run makes at the provider between the adapter and the service, so it knows
	// of both by their words alone.
	{packages: []string{"conformance/live"}, imports: []string{"conformance", "executor", "executor/driver"}},
	{packages: []string{"conformance/parity", "conformance/corpus"}, imports: []string{"executor", "executor/compare"}, modules: []string{"golang.org/x/tools"}},
	{packages: []string{"conformance/conformancetest"}, imports: []string{"conformance", "executor", "executor/driver"}},
	// Adapters translate; none knows another.
	{packages: []string{"internal/cell", "internal/seccomp", "internal/typescript", "internal/leaktest", "internal/npmtest", "internal/sharetest", "internal/waittest"}},
	{packages: []string{"internal/browsertest"}, modules: []string{"github.com/gorilla/websocket"}},
	{packages: []string{"internal/netnstest"}, modules: []string{"golang.org/x/sys"}},
	// What sandboxes say, in the types of the contract, for whoever speaks to them.
	{packages: []string{"internal/wire"}, imports: []string{"executor", "executor/driver"}},
	{packages: []string{"internal/store"}, imports: []string{"executor"}, modules: []string{"golang.org/x/sys"}},
	{packages: []string{"internal/npm"}},
	{packages: []string{"internal/requirement"}, modules: []string{"github.com/aquasecurity/go-pep440-version"}},
	// What the adapters of processes and machines share.
	{packages: []string{"runner/..."}, imports: []string{"executor", "executor/driver", "internal/cell", "internal/packages", "internal/seccomp", "internal/typescript", "internal/wire", "runner/..."}},
	{packages: []string{"internal/packages/packagestest"}, imports: []string{"executor"}},
	{packages: []string{"internal/packages"}, imports: []string{"executor", "executor/driver", "internal/npm", "internal/requirement", "internal/store"}},
	{packages: []string{"internal/bwrap"}, modules: []string{"golang.org/x/sys"}},
	// What is tried from inside of sandboxes, for the tests of their adapters.
	{packages: []string{"internal/attempttest"}, imports: []string{"executor"}, modules: []string{"golang.org/x/sys"}},
	{packages: []string{"internal/contacttest"}, imports: []string{"executor"}},
	{packages: []string{"internal/fake"}, imports: []string{"executor", "executor/driver"}, modules: []string{"go.starlark.net", "golang.org/x/tools"}},
	{packages: []string{"pyodide/..."}, imports: []string{"executor", "executor/driver", "internal/bwrap", "internal/cell", "internal/missing", "internal/requirement", "internal/store", "internal/typescript", "internal/wire", "pyodide/..."}, modules: []string{"golang.org/x/net", "golang.org/x/sync", "golang.org/x/sys"}},
	// It starts engines, each with a network of its own.
	{packages: []string{"docker/dockertest"}, imports: []string{"internal/wire"}, modules: []string{"github.com/containerd/errdefs", "github.com/moby/moby/api", "github.com/moby/moby/client", "golang.org/x/sys"}},
	{packages: []string{"docker/..."}, imports: []string{"executor", "executor/driver", "internal/missing", "internal/packages", "runner/...", "internal/seccomp", "internal/wire", "docker/..."}, modules: []string{"github.com/containerd/errdefs", "github.com/moby/moby/api", "github.com/moby/moby/client"}},
	{packages: []string{"e2b/..."}, imports: []string{"executor", "executor/driver", "internal/envd/...", "internal/packages", "runner/...", "internal/wire", "e2b/..."}, modules: []string{"connectrpc.com/connect", "golang.org/x/sync", "google.golang.org/protobuf", "github.com/oapi-codegen/runtime"}},
	{packages: []string{"bubblewrap"}, imports: []string{"executor", "executor/driver", "internal/bwrap", "internal/missing", "internal/seccomp", "runner"}, modules: []string{"golang.org/x/sys"}},
	// Fly's stand-in starts containers where the adapter starts Machines. It shares no type of the
	// API with the adapter or with Fly's client.
	{packages: []string{"flymachines/flytest"}, imports: []string{"internal/standin"}, modules: []string{"github.com/containerd/errdefs", "github.com/moby/moby/api", "github.com/moby/moby/client"}},
	// What stand-ins share: an engine, and containers on it that end with them.
	{packages: []string{"internal/standin"}, imports: []string{"internal/store"}, modules: []string{"github.com/containerd/errdefs", "github.com/moby/moby/api", "github.com/moby/moby/client"}},
	// Modal's stand-in speaks Modal's messages, which its SDK has in a package of their own. It
	// shares nothing with the adapter.
	{packages: []string{"modal/modaltest"}, imports: []string{"internal/standin"}, modules: []string{"github.com/containerd/errdefs", "github.com/modal-labs/modal-client/go", "github.com/moby/moby/api", "github.com/moby/moby/client", "google.golang.org/grpc", "google.golang.org/protobuf"}},
	// Of Modal's SDK also the messages, for what it does not return of them: see
	// docs/decisions/0054.
	{packages: []string{"modal"}, imports: []string{"executor", "executor/driver", "internal/handover", "internal/packages", "internal/remote", "runner"}, modules: []string{"github.com/modal-labs/modal-client/go", "github.com/pelletier/go-toml/v2", "google.golang.org/grpc"}},
	// Few lines that adapters of providers share.
	{packages: []string{"internal/handover", "internal/remote"}},
	{packages: []string{"flymachines/..."}, imports: []string{"executor", "executor/driver", "internal/packages", "internal/remote", "runner/...", "internal/store", "internal/wire", "flymachines/..."}, modules: []string{"github.com/superfly/fly-go"}},
	// Pods over an engine, in the types of Kubernetes; it knows nothing of the adapter.
	{packages: []string{"kubernetes/podtest"}, modules: []string{"github.com/containerd/errdefs", "github.com/gorilla/websocket", "github.com/moby/moby/api", "github.com/moby/moby/client", "k8s.io/api", "k8s.io/apimachinery"}},
	// It brings up a cluster of real programs, whose images an engine has.
	{packages: []string{"kubernetes/kubetest/..."}, imports: []string{"docker/dockertest"}, modules: []string{"github.com/moby/moby/client"}},
	// Of Kubernetes' client what has no generated clients: see docs/decisions/0050.
	{packages: []string{"kubernetes"}, imports: []string{"executor", "executor/driver", "internal/handover", "internal/packages", "internal/remote", "runner"}, modules: []string{"github.com/go-logr/logr", "github.com/gorilla/websocket", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2", "k8s.io/streaming"}},
	// Configuration knows factories, not adapters; one package names them all.
	{packages: []string{"backends"}, imports: []string{"backends/internal/ledger", "executor", "executor/compare", "executor/driver", "executor/rollout", "executor/router", "executor/pool", "executor/sessions/...", "executor/telemetry", "internal/requirement", "internal/settings"}, modules: []string{"github.com/sony/gobreaker/v2", "go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric", "go.yaml.in/yaml/v3"}},
	// What the guard counts, by any store.
	{packages: []string{"backends/internal/ledger"}, imports: []string{"executor", "executor/sessions"}},
	{packages: []string{"backends/all"}, imports: append([]string{"backends", "executor/driver"}, adapters...)},
	// Programs. golang.org/x/mod reads the commit in a version.
	{packages: []string{"cmd/..."}, imports: append([]string{"backends/...", "conformance/corpus", "conformance/live", "conformance/parity", "conformance", "executor/...", "internal/complete", "internal/front", "server/...", "tool/...", "cmd/..."}, adapters...), modules: []string{"github.com/mattn/go-sixel", "github.com/pelletier/go-toml/v2", "github.com/prometheus/client_golang", "github.com/spf13/cobra", "go.opentelemetry.io/contrib/bridges/otelslog", "go.opentelemetry.io/otel", "go.opentelemetry.io/otel/log", "go.opentelemetry.io/otel/sdk/log", "go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp", "go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp", "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp", "go.opentelemetry.io/otel/exporters/prometheus", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/sdk/metric", "golang.org/x/image", "golang.org/x/mod", "golang.org/x/sys", "golang.org/x/term"}},
	{packages: []string{"examples/stateless"}, imports: []string{"executor", "executor/driver"}},
	{packages: []string{"examples/thirdparty"}, imports: []string{"executor", "executor/driver", "runner"}},
	// Its page is made of the parts of the page of the server.
	{packages: []string{"examples/chatbackend"}, imports: append([]string{"backends/...", "executor/...", "server/page", "tool/..."}, adapters...)},
	{packages: []string{"examples/..."}, imports: append([]string{"backends/...", "executor/...", "tool/...", "examples/..."}, adapters...)},
	// It starts programs and speaks to them over the network; the stand-in names an engine.
	{packages: []string{"internal/ci/load"}, imports: []string{"docker/dockertest"}},
	{packages: []string{"internal/ci/mutate"}, modules: []string{"golang.org/x/sys"}},
	{packages: []string{"internal/ci/performance", "internal/dbtest"}},
	// What is published has the runtime that the adapter says.
	{packages: []string{"internal/ci/release"}, imports: []string{"pyodide"}, modules: []string{"github.com/in-toto/attestation", "github.com/opencontainers/go-digest", "github.com/opencontainers/image-spec", "google.golang.org/protobuf"}},
	{packages: []string{"internal/ci/site"}}, // the documentation, by a program of npm
	{packages: []string{"docs/guides"}},      // the test that follows them
	{packages: []string{"deploy/helm/..."}},  // the test that installs the chart, and Helm for others
	{packages: []string{"clients/npm"}},      // the test that builds the package and runs it
	{packages: []string{"internal/ci"}, imports: append([]string{"conformance", "conformance/conformancetest", "executor", "executor/driver", "internal/ci/mutate", "internal/ci/performance", "internal/ci/release", "internal/dbtest"}, adapters...), modules: []string{"github.com/containerd/errdefs", "github.com/moby/moby/api", "github.com/moby/moby/client"}},
}

func matches(patterns []string, rel string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		above, tree := strings.CutSuffix(p, "/...")
		return rel == above || tree && strings.HasPrefix(rel, above+"/")
	})
}

func TestArrows(t *testing.T) {
	all := list(t)
	for _, p := range all {
		if p.DepOnly {
			continue
		}
		i := slices.IndexFunc(rules, func(r rule) bool { return matches(r.packages, p.rel()) })
		if i < 0 {
			t.Errorf("%s: no rule says what it may import", p.rel())
			continue
		}
		for _, name := range p.Imports {
			switch q := all[name]; {
			case q.Standard || name == "C":
			case q.Module != nil && q.Module.Path == module:
				if !matches(rules[i].imports, q.rel()) {
					t.Errorf("%s imports %s, against the arrows", p.rel(), q.rel())
				}
			case q.Module == nil || !slices.Contains(rules[i].modules, q.Module.Path):
				t.Errorf("%s imports %s, a dependency that has no rule there", p.rel(), name)
			}
		}
	}
}

// The contract links nothing but the standard library, and nothing that users link brings testing
// with it, which would register its flags in their programs.
func TestDependencies(t *testing.T) {
	all := list(t)
	for _, rel := range []string{"executor", "executor/driver"} {
		for _, name := range all[module+"/"+rel].Deps {
			if q := all[name]; !q.Standard && q.Module.Path != module {
				t.Errorf("%s depends on %s", rel, name)
			}
		}
	}
	for _, p := range all {
		if !p.DepOnly && !matches(forTests, p.rel()) && reaches(all, p.ImportPath, "testing", map[string]bool{}) {
			t.Errorf("%s links package testing", p.rel())
		}
	}
}

// forTests are the packages that only tests and builds of this module need, and those with which
// others test theirs. Products stand on none of them.
var forTests = []string{
	"conformance/conformancetest", "deploy/helm/helmtest", "docker/dockertest", "executor/sessions/storetest", "flymachines/flytest",
	"internal/attempttest", "internal/browsertest", "internal/ci/...", "internal/contacttest", "internal/dbtest", "internal/fake", "internal/front/fronttest", "internal/leaktest", "internal/netnstest", "internal/npmtest",
	"internal/packages/packagestest", "internal/sharetest", "internal/waittest", "kubernetes/kubetest/...", "kubernetes/podtest", "modal/modaltest", "runner/sshtest", "server/e2b/e2btest",
}

// TestProductsStandApart: what a program of this module or of others links needs nothing of what is
// for tests. The command line has stand-ins as commands of their own: execbroker emulate.
func TestProductsStandApart(t *testing.T) {
	all := list(t)
	emulates := func(from, to string) bool {
		return from == "cmd/execbroker" && (to == "flymachines/flytest" || to == "modal/modaltest")
	}
	for _, p := range all {
		if p.DepOnly {
			continue
		}
		if strings.HasSuffix(p.Name, "test") && !matches(forTests, p.rel()) {
			t.Errorf("%s: is it for tests? its name says so, and forTests does not", p.rel())
		}
		if matches(forTests, p.rel()) {
			continue
		}
		for _, name := range p.Deps {
			if q := all[name]; matches(forTests, q.rel()) && !emulates(p.rel(), q.rel()) {
				t.Errorf("%s needs %s, which is for tests and builds", p.rel(), q.rel())
			}
		}
	}
	for _, pattern := range forTests {
		if above, _ := strings.CutSuffix(pattern, "/..."); all[module+"/"+above].ImportPath == "" {
			t.Errorf("forTests: there is no package %s", pattern)
		}
	}
}

// linksTesting is a module that brings testing along, by a generator that its own package links:
// see docs/decisions/0021.
const linksTesting = "github.com/superfly/fly-go"

// reaches reports whether a package needs another, by whatever way but that module.
func reaches(all map[string]goPackage, from, to string, seen map[string]bool) bool {
	p := all[from]
	if from == to || seen[from] || p.Module != nil && p.Module.Path == linksTesting {
		return from == to
	}
	seen[from] = true
	return slices.ContainsFunc(p.Imports, func(name string) bool { return reaches(all, name, to, seen) })
}

func TestPackageComments(t *testing.T) {
	for _, p := range list(t) {
		if p.DepOnly {
			continue
		}
		var comments []string
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				comments = append(comments, name)
				if text, want := f.Doc.Text(), begin(p); !strings.HasPrefix(text, want) {
					t.Errorf("%s: the comment of the package does not begin with %q", path.Join(p.rel(), name), want)
				}
			}
		}
		// Packages of tests only speak through their tests.
		if len(p.GoFiles) > 0 && len(comments) != 1 {
			t.Errorf("%s: got package comments in %d files %q, want one", p.rel(), len(comments), comments)
		}
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "types"}, p.Name) {
			t.Errorf("%s: the name %s says nothing about what is in it", p.rel(), p.Name)
		}
	}
}

func begin(p goPackage) string {
	if p.Name == "main" {
		return "Command " + path.Base(p.ImportPath) + " "
	}
	return "Package " + p.Name + " "
}

// Who imports the module gets the dependencies that it was tested with, which replace and exclude
// would prevent.
func TestModuleFile(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Module           struct{ Path string }
		Toolchain        string
		Replace, Exclude []any
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Module.Path != module {
		t.Errorf("got module %s, want %s", mod.Module.Path, module)
	}
	if len(mod.Replace) > 0 || len(mod.Exclude) > 0 || mod.Toolchain != "" {
		t.Error("go.mod has a replace, exclude or toolchain line")
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// files returns what belongs to the repository, committed or about to be.
func files(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var names []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() { // one that is deleted and not yet committed is listed
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Fatal("git lists no file")
	}
	return names
}

var generated = regexp.MustCompile(`(?m)^(//|#) Code generated .* DO NOT EDIT\.$`)

// A file has one topic. Data and what programs write may be as long as they are.
func TestFileLength(t *testing.T) {
	const most = 800
	for _, name := range files(t) {
		if !slices.Contains([]string{".go", ".py", ".js", ".mjs", ".ts", ".md", ".yml", ".sh"}, path.Ext(name)) || strings.HasPrefix(name, "docs/reports/") {
			continue
		}
		text := readFile(t, name)
		if n := strings.Count(text, "\n"); n > most && !generated.MatchString(text) {
			t.Errorf("%s: got %d lines, want at most %d", name, n, most)
		}
	}
}

// A program that was built and committed by mistake stays in the history for ever, and in each
// download of the module.
func TestFileSize(t *testing.T) {
	const most = 1 << 20
	for _, name := range files(t) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > most {
			t.Errorf("%s: got %d bytes, want at most %d", name, info.Size(), most)
		}
	}
}

// forbidden is what no file says, in pieces so that this file does not say it either. The places
// that packages come from are a matter of each machine's configuration, and paths of the machine of
// an author mean nothing elsewhere. A file is searched by a pattern only if it has one of the
// texts, which takes a hundredth of the time.
var forbidden = []struct {
	texts   []string
	pattern *regexp.Regexp
}{
	{
		[]string{"://registry.", "://proxy.", "://sum.", "://deb.", "://security.", "://packages."},
		regexp.MustCompile(`https?://(registry|proxy|sum|deb|security|packages)\.[a-z0-9.-]+`),
	},
	{
		[]string{"registry.", "proxy.", "sum.", "deb.", "files.", "registry-1."},
		regexp.MustCompile(`\b(registry\.npmjs|registry\.yarnpkg|proxy\.golang|sum\.golang|deb\.debian|files\.pythonhosted|registry-1\.docker)` + `\.(org|com|io)`),
	},
	{
		[]string{"/wo" + "rk/", "/fa" + "rm/"},
		regexp.MustCompile(`(^|[^a-zA-Z0-9_.])/(` + `work|farm)/`),
	},
}

// reserved are the names that no machine can have.
var reserved = regexp.MustCompile(`\.(example|invalid|test)$`)

func TestNamesOfMachines(t *testing.T) {
	for _, name := range files(t) {
		text := readFile(t, name)
		if strings.Contains(text, "\x00") {
			continue // binary
		}
		for _, f := range forbidden {
			if !slices.ContainsFunc(f.texts, func(s string) bool { return strings.Contains(text, s) }) {
				continue
			}
			n := 0
			for line := range strings.Lines(text) {
				n++
				if found := f.pattern.FindString(line); found != "" && !reserved.MatchString(found) {
					t.Errorf("%s:%d: names %q", name, n, strings.TrimSpace(found))
				}
			}
		}
	}
}

// A test that sleeps is slow, or wrong on a slow machine. A loop that polls is neither, and nor is
// a sleep in packages whose tests have a clock of their own, by testing/synctest.
func TestNoSleeps(t *testing.T) {
	set := token.NewFileSet()
	tests := map[string]*ast.File{}
	fakeClock := map[string]bool{} // by directory
	for _, name := range files(t) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		tests[name] = f
		if slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` }) {
			fakeClock[path.Dir(name)] = true
		}
	}
	for name, f := range tests {
		if fakeClock[path.Dir(name)] {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if _, poll := n.(*ast.ForStmt); poll {
				return false
			}
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
					t.Errorf("%s: sleeps; wait for the condition", set.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

// mdLink finds the target of a link or image in Markdown.
var mdLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksInDocuments(t *testing.T) {
	for _, name := range files(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range mdLink.FindAllStringSubmatch(readFile(t, name), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := name
			if target != "" {
				file = path.Join(path.Dir(name), target)
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, m[1])
				continue
			}
			if anchor != "" && (info.IsDir() || !slices.Contains(anchors(readFile(t, file)), anchor)) {
				t.Errorf("%s: the link %s leads to no heading", name, m[1])
			}
		}
	}
}

// anchors returns the names of the headings of a document as web sites make them.
func anchors(text string) (names []string) {
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if heading := strings.TrimLeft(line, "#"); !fenced && heading != line && strings.HasPrefix(heading, " ") {
			var b strings.Builder
			for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
				switch {
				case r == ' ':
					b.WriteByte('-')
				case r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z':
					b.WriteRune(r)
				}
			}
			names = append(names, b.String())
		}
	}
	return names
}

// Decisions are numbered without gaps and say what was rejected.
func TestDecisions(t *testing.T) {
	entries, err := fs.Glob(os.DirFS("docs/decisions"), "[0-9]*.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range entries {
		if want := fmt.Sprintf("%04d-", i+1); !strings.HasPrefix(name, want) {
			t.Errorf("got decision %s, want number %s", name, want)
		}
		if text := strings.ToLower(readFile(t, "docs/decisions/"+name)); !strings.Contains(text, "rejected") {
			t.Errorf("docs/decisions/%s: does not say what was rejected", name)
		}
	}
}
