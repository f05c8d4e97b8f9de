package docker

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/attempttest"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/internal/packages/packagestest"
)

// both is what the sessions of an attack on packages have from the beginning.
var both = []executor.Packages{
	{Language: executor.Python, Names: []string{"beta"}}, {Language: executor.JavaScript, Names: []string{"beta"}},
}

// hashes returns the checksums of everything in a cache.
func hashes(t *testing.T, cache string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cache, "docker", "*", "*"))
	check(t, err)
	sums := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		check(t, err)
		sum := sha256.Sum256(b)
		sums[f] = hex.EncodeToString(sum[:])
	}
	return sums
}

// TestPoison has the code of a session change packages in every way. The next run of it, another
// session and the cache are as they were.
func TestPoison(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	cache := t.TempDir()
	spec := executor.Spec{Languages: []executor.Language{executor.Python, executor.JavaScript}, Packages: both}
	a := newArenaOf(t, dockertest.Python, spec, func(c *Config) {
		c.Languages = spec.Languages
		c.Packages.Packages = driver.Packages{Allow: map[executor.Language][]string{executor.Python: {"*"}, executor.JavaScript: {"*"}}, Wheels: wheels(t), Registry: r.URL, Insecure: true, Size: 8 << 20}
	}, cache)
	before := hashes(t, cache)
	if len(before) != 4 { // of two entries the content and the list of files
		t.Fatalf("got %q in the cache, want two entries", before)
	}
	a.table(t, attempttest.Packages)
	after := hashes(t, cache)
	for f, sum := range before {
		if after[f] != sum {
			t.Errorf("%s has changed", f)
		}
	}
	for what, s := range map[string]executor.Session{"the same session": a.whole, "the next one": create(t, a.x, spec)} {
		t.Log(what)
		says(t, s, "import alpha, beta, json; print(alpha.version, beta.version, json.loads('1'))", "1.0 1.0 1")
		saysJS(t, s, `console.log(require("alpha").version, require("beta").alpha)`, "1.5.0 1.5.0")
	}
}

// hostileArchive is an archive of npm that wants something else than to be unpacked.
type hostileArchive struct {
	archive []byte
	says    string // why it is refused; "": it is unpacked without what is hostile
	naive   string // what is said by a builder that unpacks as it is told; "": that one has nothing to show
}

// unguarded is what becomes of archives where one check of ours is not made. Those that are
// installed have taken in what is damaged or too large; the one that is not has ended the builder,
// as if the engine had failed.
var unguarded = map[string]struct {
	check, instead string
	installed      bool
}{
	"long-name":     {"if size > MAX_HEADER:", "if False:", true},
	"contradiction": {"except (FileExistsError, NotADirectoryError, IsADirectoryError):", "except ZeroDivisionError:", false},
	"cut-short":     {`raise Bad("%s: its archive is damaged" % title)`, "pass", true},
	"no-archive":    {`raise Bad("%s: its archive is damaged" % title)`, "pass", true},
}

// naiveUnpack is what many programs do with an archive: all that it says.
const naiveUnpack = `import tarfile
            with tarfile.open(path) as it:
                for member in it:
                    member.name = member.name.partition("/")[2] if member.name.startswith("package/") else member.name
                    it.extract(member, to, **({"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}))
            if os.path.lexists("/workspace/evil.js") or os.path.lexists("/tmp/evil.js"):
                notes.append("it came out")
            if any(os.path.islink(os.path.join(d, f)) for d, ds, fs in os.walk(to) for f in ds + fs):
                notes.append("it has links")`

func link(kind byte, name, to string) packagestest.Entry {
	return packagestest.Entry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: to}}
}

// longName is an archive that begins with a name of so many bytes, by a header that no program of
// good will writes.
func longName(size int) []byte {
	h := make([]byte, 512)
	copy(h, "././@LongLink")
	copy(h[124:], fmt.Sprintf("%011o", size))
	copy(h[148:], "        ")
	h[156] = 'L'
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00", sum))
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(h)
	z.Write(bytes.Repeat([]byte("x"), size))
	z.Close()
	return b.Bytes()
}

// bomb is an archive with a file of so many zeros, a multiple of 1 MiB. It is compressed piece by
// piece, which are all the same but the first: to compress all of it takes minutes with the race
// detector.
func bomb(size int64) []byte {
	piece := func(write func(io.Writer)) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		write(z)
		z.Close()
		return b.Bytes()
	}
	all := piece(func(z io.Writer) {
		if err := tar.NewWriter(z).WriteHeader(&tar.Header{Name: "package/index.js", Mode: 0o644, Size: size}); err != nil {
			panic(err) // a constant of tests
		}
	})
	zeros := piece(func(z io.Writer) { z.Write(make([]byte, 1<<20)) })
	for range size >> 20 {
		all = append(all, zeros...)
	}
	return append(all, piece(func(z io.Writer) { z.Write(make([]byte, 1024)) })...)
}

// TestHostileArchives installs packages whose archives are attacks: on the builder, and again where
// the builder unpacks as it is told and counts nothing, to see that they are attacks. Even then
// nothing of it reaches a session.
func TestHostileArchives(t *testing.T) {
	r := newRegistry(t)
	many := []packagestest.Entry{packagestest.Named("package/index.js", "")}
	for i := range 400 {
		many = append(many, packagestest.Named(fmt.Sprintf("package/f%d", i), ""))
	}
	index := packagestest.Named("package/index.js", "module.exports = 'harmless'")
	archives := map[string]hostileArchive{
		"dot-dot":        {packagestest.Pack(index, packagestest.Named("package/../../evil.js", "x")), "leads out of its directory", "it came out"},
		"dot-dot-first":  {packagestest.Pack(index, packagestest.Named("../../evil.js", "x")), "leads out of its directory", "it came out"},
		"absolute":       {packagestest.Pack(index, packagestest.Named("/tmp/evil.js", "x")), "leads out of its directory", "it came out"},
		"symbolic-link":  {packagestest.Pack(index, link(tar.TypeSymlink, "package/passwd", "/etc/passwd")), "", "it has links"},
		"through-link":   {packagestest.Pack(index, link(tar.TypeSymlink, "package/tmp", "/tmp"), packagestest.Named("package/tmp/evil.js", "x")), "", "it came out"},
		"contradiction":  {packagestest.Pack(index, packagestest.Named("package/index.js/index.js", "x")), "as a file and as a directory", ""},
		"long-name":      {longName(2 << 20), "has a name of", ""},
		"bomb":           {bomb(1 << 29), "more than packages.size allows", "more than the 1048576 bytes"},
		"many-files":     {packagestest.Pack(many...), "more than packages.size allows", "packages.size may be too small"},
		"cut-short":      {half(packagestest.Pack(index)), "its archive is damaged", ""},
		"no-archive":     {[]byte("x"), "its archive is damaged", ""},
		"other-checksum": {packagestest.Pack(index), "not the one that the registry has a checksum of", "ok"},
	}
	var names []string
	for name, a := range archives {
		names = append(names, name)
		r.Manifest[name+" 1.0.0"] = map[string]any{}
		r.Archives[name+" 1.0.0"] = a.archive
	}
	var exchanged atomic.Int32
	r.Answer = func(w http.ResponseWriter, q *http.Request) bool {
		if q.URL.Path != "/-/other-checksum 1.0.0" {
			return false
		}
		exchanged.Add(1)
		w.Write(packagestest.Pack(packagestest.Named("package/index.js", "module.exports = 'exchanged'"), packagestest.Named("package/package.json", `{"version": "1.0.0"}`)))
		return true
	}
	p := driver.Packages{Allow: allowJS("*"), Registry: r.URL, Insecure: true, Size: 1 << 20}
	clean := `const fs = require("fs")
for (const name of ["/tmp/evil.js", "/workspace/evil.js", "/node_modules/evil.js", "/node_modules/symbolic-link/passwd", "/evil.js"]) if (fs.existsSync(name)) console.log(name)
for (const name of fs.readdirSync("/node_modules", {recursive: true})) if (fs.lstatSync("/node_modules/" + name).isSymbolicLink()) console.log(name)`
	// share installs the packages in a few sessions that share them, and looks for what is hostile
	// in these.
	share := func(t *testing.T, names []string, judge func(t *testing.T, s executor.Session, name string, res *executor.Result)) {
		box := openJS(t, t.TempDir(), p)
		t.Run("sessions", func(t *testing.T) {
			const few = 4
			for i := range few {
				t.Run(strconv.Itoa(i), func(t *testing.T) {
					t.Parallel()
					s := create(t, box, executor.Spec{})
					defer s.Close()
					for at := i; at < len(names); at += few {
						judge(t, s, names[at], installJS(t, s, names[at]))
					}
					saysJS(t, s, clean, "")
					installsJS(t, s, "alpha 2.0.0", "alpha")
				})
			}
		})
	}
	share(t, names, func(t *testing.T, _ executor.Session, name string, res *executor.Result) {
		switch want := archives[name].says; {
		case want == "" && res.Status != executor.StatusOK:
			t.Errorf("%s: got %s, %q", name, res.Status, res.Stderr)
		case want != "" && (res.Status != executor.StatusFailed || !strings.Contains(res.Stderr.String(), want)):
			t.Errorf("%s: got %s, %q, want %q", name, res.Status, res.Stderr, want)
		}
	})
	if exchanged.Load() == 0 {
		t.Error("no archive was exchanged")
	}

	for name, u := range unguarded {
		t.Run(name, func(t *testing.T) {
			without(t, &packages.NpmProgram, u.check, u.instead)
			weak := create(t, openJS(t, t.TempDir(), p), executor.Spec{})
			defer weak.Close()
			res, err := weak.Install(t.Context(), executor.Packages{Language: executor.JavaScript, Names: []string{name}}, nil)
			if u.installed && (err != nil || res.Status != executor.StatusOK) || !u.installed && !errors.Is(err, executor.ErrUnavailable) {
				t.Errorf("without the check: got %+v, %v, want installed %v", res, err, u.installed)
			}
		})
	}
	for name, a := range archives {
		if _, ok := unguarded[name]; !ok && a.naive == "" {
			t.Errorf("%s: nothing shows that it is an attack", name)
		}
	}

	without(t, &packages.NpmProgram, "            unpack(path, to)\n", "            "+naiveUnpack+"\n")
	without(t, &packages.NpmProgram, "if digest.hexdigest() != want:", "if False:")
	names = slices.DeleteFunc(names, func(name string) bool { return archives[name].naive == "" })
	share(t, names, func(t *testing.T, s executor.Session, name string, res *executor.Result) {
		want := archives[name].naive
		if got := res.Stderr.String(); want == "ok" && res.Status != executor.StatusOK || want != "ok" && !strings.Contains(got, want) {
			t.Errorf("%s, by a builder without protection: got %s, %q, want %q", name, res.Status, got, want)
		}
		if name == "other-checksum" {
			saysJS(t, s, `console.log(require("other-checksum"))`, "exchanged")
		}
	})
}

// half is an archive that was cut short.
func half(b []byte) []byte { return b[:len(b)/2] }

// without takes a protection out of a program until the test ends.
func without(t *testing.T, program *string, protection, instead string) {
	t.Helper()
	was := *program
	weak := strings.Replace(was, protection, instead, 1)
	if weak == was {
		t.Fatalf("the program has no %q", protection)
	}
	*program = weak
	t.Cleanup(func() { *program = was })
}

// TestSourceDistribution installs a package that has to be built, by a program of its own. That
// does not happen, and would where pip may.
func TestSourceDistribution(t *testing.T) {
	dir := wheels(t)
	x := newIndex(t, dir)
	var ran atomic.Int32
	inner := x.Config.Handler
	x.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/ran":
			ran.Add(1)
		case "/simple/builds/":
			fmt.Fprint(w, `<a href="/files/builds-1.0.tar.gz">builds-1.0.tar.gz</a>`)
			return
		}
		inner.ServeHTTP(w, q)
	})
	backend := fmt.Sprintf("import urllib.request\ntry: urllib.request.urlopen(%q)\nexcept OSError: pass\n", x.URL+"/ran")
	check(t, os.WriteFile(filepath.Join(dir, "builds-1.0.tar.gz"), packagestest.Pack(
		packagestest.Named("builds-1.0/PKG-INFO", "Metadata-Version: 2.1\nName: builds\nVersion: 1.0\n"),
		packagestest.Named("builds-1.0/pyproject.toml", "[build-system]\nrequires = []\nbuild-backend = \"evil\"\nbackend-path = [\".\"]\n"),
		packagestest.Named("builds-1.0/evil.py", backend),
	), 0o600))
	p := driver.Packages{Allow: allow("*"), IndexURL: x.URL + "/simple", Insecure: true, Size: 4 << 20}
	try := func() *executor.Result {
		s := create(t, openPackages(t, t.TempDir(), p), executor.Spec{})
		defer s.Close()
		return install(t, s, "builds")
	}
	if res := try(); res.Status != executor.StatusFailed || ran.Load() != 0 {
		t.Errorf("got %s, %q; its program ran %d times", res.Status, res.Stderr, ran.Load())
	}
	without(t, &packages.PipProgram, `"--only-binary", ":all:", `, "")
	if res := try(); ran.Load() == 0 {
		t.Errorf("where packages may be built its program did not run: %s, %q", res.Status, res.Stderr)
	}
}

// TestHostileContent gives a session what no builder of ours would say. The host refuses it, and if
// it did not, the sandbox would.
func TestHostileContent(t *testing.T) {
	box := openPackages(t, t.TempDir(), driver.Packages{Allow: allow("*"), Wheels: wheels(t), Size: 1 << 20})
	s := create(t, box, executor.Spec{})
	defer s.Close()
	var c Container
	executor.As(s, &c)
	put := func(name string) error {
		box := &sandbox{b: &backend{engine: testEngine(t)}, container: c.ID}
		conn, err := box.Connect(t.Context(), packages.PlaceCommand(python, executor.Python))
		check(t, err)
		tr, err := packages.NewPlacer(t.Context(), packages.Process{ReadWriteCloser: conn, Said: conn.(*stdio).stderr}, executor.Python)
		check(t, err)
		defer tr.Close()
		return tr.Put(strings.NewReader(fmt.Sprintf("{\"files\": [[%q, 1, false]]}\nx", name)))
	}
	there := `import os; print(os.path.lexists("/opt/packages/evil.py"))`
	for _, name := range []string{"../evil.py", "a/../../evil.py", "/opt/packages/evil.py"} {
		if err := put(name); err == nil || !strings.Contains(err.Error(), "bad name") {
			t.Errorf("%s: got %v, want a bad name", name, err)
		}
	}
	says(t, s, there, "False")
	without(t, &packages.PlaceProgram, `".." in parts or `, "")
	// Then a file is where none was asked for, and only the read-only root keeps it from getting
	// further.
	if err := put("../evil.py"); err == nil || strings.Contains(err.Error(), "bad name") {
		t.Errorf("without the check: got %v", err)
	}
	says(t, s, there, "True")
}
