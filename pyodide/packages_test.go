package pyodide

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// MakeWheel makes a wheel in pure Python. The suite's test uses it too.
func MakeWheel(name, version string, requires []string, files map[string]string) (file string, wheel []byte, err error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := fmt.Sprintf("%s-%s.dist-info/", name, version)
	meta := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)
	for _, r := range requires {
		meta += "Requires-Dist: " + r + "\n"
	}
	all := maps.Clone(files)
	all[info+"METADATA"] = meta + "\n"
	all[info+"WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
	var record strings.Builder
	for _, f := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&record, "%s,,\n", f)
	}
	all[info+"RECORD"] = record.String() + info + "RECORD,,\n"
	for _, f := range slices.Sorted(maps.Keys(all)) {
		w, err := z.Create(f)
		if err == nil {
			_, err = w.Write([]byte(all[f]))
		}
		if err != nil {
			return "", nil, err
		}
	}
	err = z.Close()
	return fmt.Sprintf("%s-%s-py3-none-any.whl", name, version), b.Bytes(), err
}

// demo returns two wheels, one of which needs the other, and a replacement for matplotlib.
func demo(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	add := func(name string, b []byte, err error) {
		if err != nil {
			t.Fatal(err)
		}
		out[name] = b
	}
	add(MakeWheel("demo_base", "1.0", nil, map[string]string{"demo_base/__init__.py": "VALUE = 'base'\n"}))
	add(MakeWheel("demo", "2.1", []string{"demo-base>=1"}, map[string]string{
		"demo/__init__.py": "import demo_base\nVALUE = 'demo over ' + demo_base.VALUE\n",
	}))
	add(MakeWheel("matplotlib", "0.1", nil, map[string]string{
		"matplotlib/__init__.py": "",
		"matplotlib/pyplot.py": `
_open = []
class Figure:
    def savefig(self, to, **kw): to.write(b'\x89PNG\r\n\x1a\nfigure')
def figure():
    _open.append(Figure()); return _open[-1]
def plot(*a): figure() if not _open else None
def get_fignums(): return list(range(1, len(_open) + 1))
def _get(n): return _open[n - 1]
def close(which=None): _open.clear()
def show(*a, **kw): raise RuntimeError("there is no screen")
_figure = figure
def figure(n=None): return _get(n) if n else _figure()
`,
	}))
	return out
}

// wheelDir writes wheels into a directory.
func wheelDir(t testing.TB, ws map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range ws {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func addPackages(t testing.TB, s executor.Session, names ...string) *executor.Result {
	t.Helper()
	r, err := s.Install(t.Context(), executor.Packages{Language: executor.Python, Names: names}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestInstall(t *testing.T) {
	t.Parallel()
	s := create(t, open(t, Config{Packages: Packages{Wheels: wheelDir(t, demo(t))}}), executor.Spec{})
	runCode(t, s, "kept = 1")
	r := addPackages(t, s, "demo==2.1")
	if got := string(r.Stdout); r.Status != executor.StatusOK || got != "demo-base 1.0\ndemo 2.1\n" {
		t.Fatalf("got %s", describeResult(r))
	}
	check := "import demo, importlib.metadata as m; print(demo.VALUE, m.version('demo'))"
	const want = "demo over base 2.1\n"
	if got := output(t, s, check+"; kept"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if r := addPackages(t, s, "demo"); r.Status != executor.StatusOK || len(r.Stdout) > 0 {
		t.Errorf("again: got %s, want nothing to do", describeResult(r))
	}
	t.Run("after-reset", func(t *testing.T) {
		if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
			t.Fatal(err)
		}
		if got := output(t, s, check); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("after-the-process-was-killed", func(t *testing.T) {
		if r := runCode(t, s, "sum(range(10**12))", within(500*time.Millisecond)); !r.StateLost {
			t.Fatalf("got %s, want the state lost", describeResult(r))
		}
		if got := output(t, s, check); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestUnknownPackage(t *testing.T) {
	t.Parallel()
	s := create(t, open(t, Config{Packages: Packages{Wheels: wheelDir(t, demo(t))}}), executor.Spec{})
	r := addPackages(t, s, "demmo", "demo==9")
	for _, want := range []string{`no package fits "demmo"; did you mean "demo"?`, `"demo==9"; there is version 2.1`, "packages.wheels"} {
		if r.Status != executor.StatusFailed || !strings.Contains(string(r.Stderr), want) {
			t.Errorf("got %s, want %q", describeResult(r), want)
		}
	}
	if got := output(t, s, "print('goes on')"); got != "goes on\n" {
		t.Errorf("got %q", got)
	}
}

// TestPackagesTakeNoDisk: installed packages do not belong to the user, so they do not count in the
// quota and are not sent with the files.
func TestPackagesTakeNoDisk(t *testing.T) {
	t.Parallel()
	_, big, err := MakeWheel("big", "1", nil, map[string]string{"big.py": "DATA = '" + strings.Repeat("x", 3<<20) + "'\n"})
	if err != nil {
		t.Fatal(err)
	}
	s := create(t, open(t, Config{Packages: Packages{Wheels: wheelDir(t, map[string][]byte{"big-1-py3-none-any.whl": big})}}),
		executor.Spec{Limits: executor.Limits{DiskBytes: 2 << 20}})
	if r := addPackages(t, s, "big"); r.Status != executor.StatusOK {
		t.Fatalf("got %s", describeResult(r))
	}
	if got := output(t, s, "import big; open('a', 'wb').write(b'x' * (1 << 20)); print(len(big.DATA))"); got != "3145728\n" {
		t.Errorf("got %q", got)
	}
	r := runCode(t, s, "open('b', 'wb').write(b'x' * (3 << 20))")
	if r.Exception == nil || r.Exception.Type != "OSError" {
		t.Errorf("got %s, want the quota to hold still", describeResult(r))
	}
}

func TestFiguresOfAPackage(t *testing.T) {
	t.Parallel()
	x := open(t, Config{Packages: Packages{Wheels: wheelDir(t, demo(t)), FromImports: true}})
	s := create(t, x, executor.Spec{})
	r := runCode(t, s, "import matplotlib.pyplot as plt\nplt.plot([1, 2])")
	if r.Status != executor.StatusOK || len(r.Outputs) != 1 || !bytes.HasPrefix(r.Outputs[0].Data["image/png"], []byte("\x89PNG")) {
		t.Errorf("got %s %v, want a figure without savefig", describeResult(r), r.Outputs)
	}
	if got := output(t, s, "import json, demo\nprint(demo.VALUE)"); got != "demo over base\n" {
		t.Errorf("got %q, want what the imports need loaded by itself", got)
	}
	if r := runCode(t, s, "import nowhere_to_be_found"); r.Exception == nil || r.Exception.Type != "ModuleNotFoundError" {
		t.Errorf("got %s", describeResult(r))
	}
	if r := runCode(t, s, "import ("); r.Exception == nil || r.Exception.Type != "SyntaxError" {
		t.Errorf("got %s", describeResult(r))
	}
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	x := open(t, Config{Packages: Packages{Wheels: wheelDir(t, demo(t))}, Templates: map[string][]string{"science": {"demo"}, "broken": {"absent"}}})
	if got := x.Info().Capabilities.Templates; !slices.Equal(got, []string{"broken", "science"}) {
		t.Errorf("got %q", got)
	}
	s := create(t, x, executor.Spec{Template: "science"})
	if got := output(t, s, "import demo; print(demo.VALUE)"); got != "demo over base\n" {
		t.Errorf("got %q", got)
	}
	if _, err := x.Create(t.Context(), executor.Spec{Template: "broken"}); !errors.Is(err, executor.ErrInvalid) {
		t.Errorf("got %v, want %v", err, executor.ErrInvalid)
	}
}

// TestHostileWheels installs wheels that are attacks, one after the other in a session. Its state
// and its files, and another session, are as they were. What cannot be loaded is an error about the
// package, and not about the backend, which others use.
func TestHostileWheels(t *testing.T) {
	t.Parallel()
	evil := "open('/tmp/ran', 'w').close()\n"
	many := map[string]string{}
	for i := range 500 {
		many[fmt.Sprintf("many/f%d.txt", i)] = ""
	}
	attacks := []struct {
		name  string
		files map[string]string
		says  string // why it is refused; "": it is installed, without what leads elsewhere
	}{
		{"dots", map[string]string{"../../../../../../tmp/evil.py": evil, "../../../../../../workspace/evil.py": evil}, ""},
		{"absolute", map[string]string{"/tmp/evil.py": evil, "/workspace/evil.py": evil}, ""},
		{"backslashes", map[string]string{`..\..\..\..\..\..\tmp\evil.py`: evil}, ""},
		{"data", map[string]string{"data-1.0.data/data/../../../../../../../../tmp/evil.py": evil}, ""},
		{"long", map[string]string{strings.Repeat("x", 300) + ".py": evil}, "Filename too long"},
		{"deep", map[string]string{strings.Repeat("d/", 300) + "x.py": evil}, ""},
		{"many", many, ""},
		{"library", map[string]string{"library.so": "\x00asm but not really"}, "Failed to load dynamic library"},
		{"paths", map[string]string{"evil.pth": "import os; open('/tmp/ran', 'w').close()\n", "sitecustomize.py": evil, "usercustomize.py": evil}, ""},
		{"shadows", map[string]string{"json.py": evil, "os.py": evil, "importlib/__init__.py": evil, "pyodide/__init__.py": evil, "_pyodide/__init__.py": evil, "js.py": evil, "pyodide_js.py": evil}, ""},
	}
	ws := demo(t)
	for _, a := range attacks {
		file, b, err := MakeWheel(a.name, "1.0", nil, a.files)
		if err != nil {
			t.Fatal(err)
		}
		ws[file] = b
	}
	dir := wheelDir(t, ws)
	x := open(t, Config{Packages: Packages{Wheels: dir}})
	s, near := create(t, x, executor.Spec{Limits: executor.Limits{DiskBytes: 1 << 20}}), create(t, x, executor.Spec{})
	output(t, near, "near = 4711")
	output(t, s, "kept = 1; open('mine', 'w').write('mine')")
	const check = `import json, os
print(open("mine").read(), json.loads("1"), os.listdir("."), os.listdir("/tmp"))`
	const want = "mine 1 ['mine'] ['home']\n"
	for _, a := range attacks {
		r, err := s.Install(t.Context(), executor.Packages{Language: executor.Python, Names: []string{a.name}}, nil)
		about := (*executor.PackageError)(nil)
		if a.says == "" && (err != nil || r.Status != executor.StatusOK) || a.says != "" && (!errors.As(err, &about) || !strings.Contains(err.Error(), a.says)) {
			t.Errorf("%s: got %s, %v, want %q", a.name, describeResult(r), err, a.says)
		}
		if got := output(t, s, "print(kept); "+check); got != "1\n"+want {
			t.Errorf("%s: got %q, want %q", a.name, got, want)
		}
	}
	// An interpreter that begins with all of them finds its own modules as well.
	if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
		t.Fatal(err)
	}
	if got := output(t, s, check); got != want {
		t.Errorf("after a reset: got %q, want %q", got, want)
	}
	// It is an attack where somebody imports it.
	if got := output(t, s, "import sitecustomize, os; print(os.path.exists('/tmp/ran'))"); got != "True\n" {
		t.Errorf("got %q, want that the module runs", got)
	}
	if r := addPackages(t, near, "demo"); r.Status != executor.StatusOK {
		t.Errorf("another session: got %s", describeResult(r))
	}
	if got := output(t, near, "import demo, os; print(near, demo.VALUE, os.listdir('.'), os.listdir('/tmp'))"); got != "4711 demo over base [] ['home']\n" {
		t.Errorf("another session: got %q", got)
	}
	for name, b := range ws {
		if now, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(now, b) {
			t.Errorf("%s has changed: %v", name, err)
		}
	}
}

// distributionOf writes a lock file for wheels and serves both, like a distribution of Pyodide.
func distributionOf(t *testing.T, ws map[string][]byte) (dir, address string, asked *atomic.Int64) {
	t.Helper()
	packages := map[string]any{}
	for file, b := range ws {
		name, rest, _ := strings.Cut(file, "-")
		version, _, _ := strings.Cut(rest, "-")
		sum := sha256.Sum256(b)
		depends := []string{}
		if name == "demo" {
			depends = []string{"demo-base"}
		}
		packages[name] = map[string]any{
			"name": name, "version": version, "file_name": file, "sha256": hex.EncodeToString(sum[:]), "imports": []string{name},
			"depends": depends, "install_dir": "site", "package_type": "package", "unvendored_tests": false,
		}
	}
	lock, err := json.Marshal(map[string]any{"info": map[string]string{"python": "3.14"}, "packages": packages})
	if err != nil {
		t.Fatal(err)
	}
	dir = wheelDir(t, map[string][]byte{"pyodide-lock.json": lock})
	asked = &atomic.Int64{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if b, ok := ws[filepath.Base(r.URL.Path)]; ok {
			w.Write(b)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(srv.Close)
	return dir, srv.URL + "/full/", asked
}

// TestDistributionDirectory: a directory with the lock file and wheels needs no network.
func TestDistributionDirectory(t *testing.T) {
	t.Parallel()
	ws := demo(t)
	dir, _, asked := distributionOf(t, ws)
	for name, b := range ws {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := create(t, open(t, Config{Packages: Packages{Dir: dir}}), executor.Spec{})
	if r := addPackages(t, s, "demo"); r.Status != executor.StatusOK {
		t.Errorf("got %s", describeResult(r))
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("got %d requests, want none", n)
	}
	// A wheel that does not have the checksum in the lock file is not used.
	if err := os.WriteFile(filepath.Join(dir, "matplotlib-0.1-py3-none-any.whl"), []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.Install(t.Context(), executor.Packages{Language: executor.Python, Names: []string{"matplotlib"}}, nil)
	if !errors.Is(err, executor.ErrUnavailable) || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("got %v, want the wrong checksum", err)
	}
	if got := output(t, s, "import demo; print(demo.VALUE)"); got != "demo over base\n" {
		t.Errorf("got %q, want the session to go on", got)
	}
}

// TestUnreachableDistribution uses the real lock file and an address at which nothing answers.
func TestUnreachableDistribution(t *testing.T) {
	t.Parallel()
	s := create(t, open(t, Config{Packages: Packages{BaseURL: "http://127.0.0.1:1/"}}), executor.Spec{})
	_, err := s.Install(t.Context(), executor.Packages{Language: executor.Python, Names: []string{"numpy"}}, nil)
	var e *executor.Error
	if !errors.As(err, &e) || e.Kind != executor.ErrUnavailable || e.Ran != executor.RanNo {
		t.Errorf("got %v, want it unavailable and nothing run", err)
	}
	if got := output(t, s, "print('goes on')"); got != "goes on\n" {
		t.Errorf("got %q", got)
	}
}

func TestInvalidPackages(t *testing.T) {
	for want, cfg := range map[string]Config{
		"packages.dir":      {Packages: Packages{Dir: "relative"}},
		"packages.wheels":   {Packages: Packages{Wheels: "relative"}},
		"packages.base_url": {Packages: Packages{BaseURL: "ftp://x/"}},
		"templates.x[1]":    {Templates: map[string][]string{"x": {"numpy", "-r file"}}},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s named", err, want)
		}
	}
}
