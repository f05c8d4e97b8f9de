package wheels_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/pyodide/internal/wheels"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// entry is a package of a distribution that a test makes.
type entry struct {
	name, version string
	depends       []string
	imports       []string
	content       string
}

func sum(b string) string {
	s := sha256.Sum256([]byte(b))
	return hex.EncodeToString(s[:])
}

// distribution writes a lock file and returns its path.
func distribution(t testing.TB, entries ...entry) string {
	t.Helper()
	packages := map[string]any{}
	for _, e := range entries {
		packages[e.name] = map[string]any{
			"name": e.name, "version": e.version, "file_name": file(e), "sha256": sum(e.content), "package_type": "package",
			"install_dir": "site", "imports": e.imports, "depends": e.depends, "unvendored_tests": false,
		}
	}
	b, err := json.Marshal(map[string]any{
		"info":     map[string]string{"abi_version": "1", "arch": "wasm32", "platform": "p", "python": "3.14"},
		"packages": packages,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(t.TempDir(), wheels.LockName)
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func file(e entry) string { return e.name + "-" + e.version + "-py3-none-any.whl" }

func index(t testing.TB, entries ...entry) *wheels.Index {
	t.Helper()
	x, err := wheels.ReadLock(distribution(t, entries...), "")
	if err != nil {
		t.Fatal(err)
	}
	return x
}

var small = []entry{
	{name: "numpy", version: "2.4.6", imports: []string{"numpy"}, content: "n"},
	{name: "pandas", version: "3.0.2", depends: []string{"numpy", "python_dateutil"}, imports: []string{"pandas"}, content: "p"},
	{name: "python-dateutil", version: "2.9", depends: []string{"six"}, imports: []string{"dateutil"}, content: "d"},
	{name: "six", version: "1.17", imports: []string{"six"}, content: "s"},
	{name: "six-tests", version: "1.17", depends: []string{"six"}, imports: []string{"six"}, content: "t"},
	{name: "a", version: "1", depends: []string{"b"}, imports: []string{"ns.a"}, content: "a"},
	{name: "b", version: "1", depends: []string{"a"}, imports: []string{"ns.b"}, content: "b"},
	{name: "broken", version: "1", depends: []string{"absent"}, content: "x"},
}

func names(ws []wheels.Wheel) (out []string) {
	for _, w := range ws {
		out = append(out, w.Name)
	}
	return out
}

func TestResolve(t *testing.T) {
	x := index(t, small...)
	for want, ask := range map[string][]string{
		"numpy":                            {"NumPy"},
		"numpy six python-dateutil pandas": {"pandas>=3,<4", "numpy"},
		"b a":                              {"a"}, // a cycle
		"":                                 nil,
	} {
		ws, err := x.Resolve(ask)
		if got := strings.Join(names(ws), " "); err != nil || got != want {
			t.Errorf("%q: got %q %v, want %q", ask, got, err, want)
		}
	}
	_, err := x.Resolve([]string{"nunpy", "pandas==2", "broken", "numpy[all]", "-r x"})
	for _, want := range []string{
		`no package fits "nunpy"; did you mean "numpy"?`, `no package fits "pandas==2"; there is version 3.0.2`,
		`no package fits "absent", which "broken" depends on`, `extras are not known`, `options of an installer`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %q in it", err, want)
		}
	}
	var unknown *wheels.UnknownError
	if !errors.As(err, &unknown) {
		t.Errorf("got %v, want an UnknownError in it", err)
	}
}

func TestForImports(t *testing.T) {
	x := index(t, small...)
	got := x.ForImports([]string{"pandas.core", "dateutil", "os", "six", "ns.b", "ns", "mine"})
	if want := []string{"b", "pandas", "python-dateutil", "six"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHostileLock(t *testing.T) {
	for name, e := range map[string]entry{
		"name-with-directory": {name: "../../x", version: "1", content: "c"},
		"no-version":          {name: "x", content: "c"},
	} {
		if _, err := wheels.ReadLock(distribution(t, e), ""); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	p := filepath.Join(t.TempDir(), "lock")
	for _, content := range []string{"", "[]", `{"packages":{"x":{"file_name":"x.whl","version":"1","sha256":"00"}}}`} {
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := wheels.ReadLock(p, ""); err == nil {
			t.Errorf("%q: got no error", content)
		}
	}
}

// serve starts a server with the files of a distribution that counts its requests.
func serve(t *testing.T, entries []entry, asked *atomic.Int64) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		for _, e := range entries {
			if r.URL.Path == "/full/"+file(e) {
				w.Write([]byte(e.content))
				return
			}
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/full/"
}

func store(t *testing.T, base string) *wheels.Store {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return &wheels.Store{Dir: filepath.Join(t.TempDir(), "wheels"), Base: base, Client: c}
}

func TestFetchOnce(t *testing.T) {
	var asked atomic.Int64
	s := store(t, serve(t, small, &asked))
	ws, err := index(t, small...).Resolve([]string{"pandas"})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			steps := 0
			if err := s.Fetch(t.Context(), ws, func(done, total int, _ string) {
				if steps++; done != steps || total != 4 {
					t.Errorf("got %d of %d, want %d of 4", done, total, steps)
				}
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := asked.Load(); n != 4 {
		t.Errorf("got %d requests, want 4", n)
	}
	// Another program with the same directory needs no network.
	offline := &wheels.Store{Dir: s.Dir}
	for _, w := range ws {
		if b, err := offline.Open(t.Context(), w); err != nil || sum(string(b)) != w.SHA256 {
			t.Errorf("%s: got %q %v", w.Name, b, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(s.Dir, ".partial*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestOffline(t *testing.T) {
	ws, _ := index(t, small...).Resolve([]string{"numpy"})
	if err := store(t, "").Fetch(t.Context(), ws, nil); !errors.Is(err, wheels.ErrOffline) {
		t.Errorf("got %v, want %v", err, wheels.ErrOffline)
	}
	var asked atomic.Int64
	if err := store(t, serve(t, nil, &asked)).Fetch(t.Context(), ws, nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v, want what the server answered", err)
	}
}

// TestExchanged: a file with other content is refused, both from the network and from the
// directory.
func TestExchanged(t *testing.T) {
	other := slices.Clone(small)
	other[0].content = "evil"
	var asked atomic.Int64
	s := store(t, serve(t, other, &asked))
	ws, _ := index(t, small...).Resolve([]string{"numpy"})
	var sumErr *wheels.ChecksumError
	if err := s.Fetch(t.Context(), ws, nil); !errors.As(err, &sumErr) {
		t.Errorf("on the line: got %v, want a ChecksumError", err)
	}
	if left, _ := os.ReadDir(s.Dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	s.Base = serve(t, small, &asked)
	if err := s.Fetch(t.Context(), ws, nil); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(s.Dir, "*.whl"))
	if err := os.WriteFile(files[0], []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), ws[0]); !errors.As(err, &sumErr) {
		t.Errorf("in the directory: got %v, want a ChecksumError", err)
	}
	if b, err := s.Open(t.Context(), ws[0]); err != nil || string(b) != "n" {
		t.Errorf("after that: got %q %v, want it fetched anew", b, err)
	}
}

// TestCallerGone: if one caller gives up, another caller that waits for the same file still gets
// it.
func TestCallerGone(t *testing.T) {
	arrived, release := make(chan struct{}, 8), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
		w.Write([]byte("n"))
	}))
	defer srv.Close()
	s := store(t, srv.URL)
	ws, _ := index(t, small...).Resolve([]string{"numpy"})
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- s.Fetch(ctx, ws, nil) }()
	<-arrived
	go func() { second <- s.Fetch(t.Context(), ws, nil) }()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("first: got %v, want %v", err, context.Canceled)
	}
	close(release)
	if err := <-second; err != nil {
		t.Errorf("second: got %v", err)
	}
}

// wheel writes a wheel in pure Python.
func wheel(t *testing.T, dir, fileName, metadata string, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range append(files, "demo-1.dist-info/METADATA") {
		w, err := z.Create(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, "METADATA") {
			w.Write([]byte(metadata))
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(dir, fileName)
	if err := os.WriteFile(p, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestReadDir(t *testing.T) {
	dir := t.TempDir()
	wheel(t, dir, "Demo_Pkg-1.0-py3-none-any.whl",
		"Metadata-Version: 2.1\nName: Demo_Pkg\nVersion: 1.0\nRequires-Dist: six (>=1)\nRequires-Dist: pytest; extra == 'test'\nRequires-Dist: NumPy ; python_version > '3'\n\nbody",
		"demo/__init__.py", "demo/sub/x.py", "single.py", "data.txt")
	wheel(t, dir, "compiled-1-cp313-cp313-linux_x86_64.whl", "Name: compiled\nVersion: 1\n\n")
	ws, err := wheels.ReadDir(dir)
	if err != nil || len(ws) != 1 {
		t.Fatalf("got %+v %v, want one wheel", ws, err)
	}
	w := ws[0]
	if w.Name != "demo-pkg" || w.Version != "1.0" || !slices.Equal(w.Imports, []string{"demo", "single"}) || !slices.Equal(w.Depends, []string{"six", "numpy"}) {
		t.Errorf("got %+v", w)
	}
	x := index(t, small...).With(ws...)
	got, err := x.Resolve([]string{"demo.pkg==1"})
	if err != nil || strings.Join(names(got), " ") != "six numpy demo-pkg" {
		t.Errorf("got %q %v", names(got), err)
	}
	if n := x.ForImports([]string{"single"}); !slices.Equal(n, []string{"demo-pkg"}) {
		t.Errorf("got %q", n)
	}
	b, err := store(t, "").Open(t.Context(), w)
	if err != nil || sum(string(b)) != w.SHA256 {
		t.Errorf("got %d bytes %v", len(b), err)
	}
	raw, err := x.Lock(got)
	if err != nil || !bytes.Contains(raw, []byte(`"file_name":"Demo_Pkg-1.0-py3-none-any.whl"`)) {
		t.Errorf("got %s %v", raw, err)
	}
}

func TestHostileWheels(t *testing.T) {
	dir := t.TempDir()
	wheel(t, dir, "nameless-1-py3-none-any.whl", "Version: 1\n\n")
	wheel(t, dir, "address-1-py3-none-any.whl", "Name: address\nVersion: 1\nRequires-Dist: x @ file:///etc/passwd\n\n")
	if err := os.WriteFile(filepath.Join(dir, "zipless-1-py3-none-any.whl"), []byte("no"), 0o600); err != nil {
		t.Fatal(err)
	}
	ws, err := wheels.ReadDir(dir)
	if len(ws) > 0 || err == nil {
		t.Fatalf("got %+v %v, want none", ws, err)
	}
	for _, want := range []string{"nameless", "address", "zipless"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestDistributionURL(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("package.json", `{"version":"314.0.7"}`)
	write("pyodide.mjs", "var x=1;async function f(){return`https://packages.example/pyodide/v${U}/full/`}")
	if got, err := wheels.DistributionURL(dir); err != nil || got != "https://packages.example/pyodide/v314.0.7/full/" {
		t.Errorf("got %q %v", got, err)
	}
	write("pyodide.mjs", "nothing here")
	if got, err := wheels.DistributionURL(dir); err == nil {
		t.Errorf("got %q, want an error", got)
	}
}

// FuzzLock: a lock file is configuration that may come from anywhere.
func FuzzLock(f *testing.F) {
	b, err := os.ReadFile(distribution(f, small...))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, "pandas")
	f.Add([]byte(`{"packages":{"x":{}}}`), "x")
	f.Fuzz(func(t *testing.T, raw []byte, ask string) {
		p := filepath.Join(t.TempDir(), "lock")
		if err := os.WriteFile(p, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		x, err := wheels.ReadLock(p, "")
		if err != nil {
			return
		}
		ws, err := x.Resolve([]string{ask})
		for _, w := range ws {
			if strings.ContainsAny(w.File, "/\\") || len(w.SHA256) != 64 || err != nil {
				t.Fatalf("got %+v %v", w, err)
			}
		}
	})
}
