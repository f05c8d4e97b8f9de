package docker

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	"time"

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

const tooLong = "if len(name) > 2000 or len(parts) > 100 or max(map(len, name.split(b\"/\"))) > 255:"

// unguarded is what becomes of archives where one check of ours is not made. Those that are
// installed have taken in what is damaged or too large; those that are not have ended the builder,
// as if the engine had failed.
var unguarded = map[string]struct {
	check, instead string
	installed      bool
}{
	"long-name":     {"if size > MAX_HEADER:", "if False:", true},
	"contradiction": {"except (FileExistsError, NotADirectoryError, IsADirectoryError):", "except ZeroDivisionError:", false},
	"negative-size": {"if not digits.isdigit():", "if False:", false},
	"negative-name": {"if not digits.isdigit():", "if False:", false},
	"long-part":     {tooLong, "if False:", false},
	"long-parts":    {tooLong, "if False:", false},
	"deep":          {tooLong, "if False:", false},
	"cut-short":     {`raise Bad("%s: its archive is damaged" % title)`, "pass", true},
	"no-archive":    {`raise Bad("%s: its archive is damaged" % title)`, "pass", true},
}

// naiveUnpack is what many programs do with an archive: all that it says.
const naiveUnpack = `import tarfile
            with tarfile.open(path) as it:
                for member in it:
                    member.name = member.name.partition("/")[2] if member.name.startswith("package/") else member.name
                    it.extract(member, to, **({"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}))
                    if member.isfifo():
                        notes.append("it has a pipe")
                        os.unlink(os.path.join(to, member.name))
            if os.path.lexists("/workspace/evil.js") or os.path.lexists("/tmp/evil.js"):
                notes.append("it came out")
            if any(os.path.islink(os.path.join(d, f)) for d, ds, fs in os.walk(to) for f in ds + fs):
                notes.append("it has links")`

func link(kind byte, name, to string) packagestest.Entry {
	return packagestest.Entry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: to}}
}

// crafted is an archive that begins with a header of a kind that no program of good will writes,
// with these words as its size.
func crafted(kind byte, name, size string, content ...byte) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[124:], size)
	copy(h[148:], "        ")
	h[156] = kind
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00", sum))
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(h)
	z.Write(content)
	z.Close()
	return b.Bytes()
}

// longName is an archive that begins with a name of so many bytes.
func longName(size int) []byte {
	return crafted('L', "././@LongLink", fmt.Sprintf("%011o", size), bytes.Repeat([]byte("x"), size)...)
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
		"negative-size":  {crafted('0', "package/index.js", "-0000001000", make([]byte, 4096)...), "its archive is damaged", ""},
		"negative-name":  {crafted('L', "././@LongLink", "-0000001000", make([]byte, 4096)...), "its archive is damaged", ""},
		"long-part":      {packagestest.Pack(index, packagestest.Named("package/"+strings.Repeat("x", 300)+".js", "x")), "which is too long", ""},
		"long-parts":     {packagestest.Pack(index, packagestest.Named("package/"+strings.Repeat(strings.Repeat("d", 200)+"/", 21)+"x.js", "x")), "which is too long", ""},
		"deep":           {packagestest.Pack(index, packagestest.Named("package/"+strings.Repeat("d/", 1500)+"x.js", "x")), "which is too long", ""},
		"pipe":           {packagestest.Pack(index, link(tar.TypeFifo, "package/pipe", "")), "", "it has a pipe"},
		"of-another":     {packagestest.Pack(index, packagestest.Named("package/node_modules/alpha/lib/index.js", "exports.version = 'evil'"), packagestest.Named("package/node_modules/alpha/package.json", `{"version": "9.0.0", "main": "lib/index.js"}`)), "", "ok"},
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

// shadowing are the files of a wheel that runs where somebody looks for a module by one of these
// names, or for files of paths: it leaves a file with the user, and asks the index for /ran.
func shadowing(index string) map[string]string {
	program := fmt.Sprintf(`import posix, sys
try: posix.close(posix.open("/tmp/ran-%%d" %% posix.getuid(), posix.O_CREAT, 0o666))
except OSError: pass
if b"TOLD" not in posix.environ:
    posix.environ[b"TOLD"] = b"1"
    posix.putenv(b"TOLD", b"1")
    posix.system("%%s -I -c 'import urllib.request; urllib.request.urlopen(\"%s/ran\", timeout=5)' >/dev/null 2>&1" %% sys.executable)
`, index)
	files := map[string]string{"shadows.py": "", "evil.pth": "import sys; exec(" + strconv.Quote(program) + ")\n"}
	for _, name := range []string{"sitecustomize", "usercustomize", "json", "os", "signal", "shutil", "compileall", "resource", "pip/__init__", "encodings/__init__"} {
		files[name+".py"] = program
	}
	return files
}

// TestHostileWheels installs wheels that are attacks. Each ends as a result of the package, and
// leaves the session, the next one and what others have in the cache as they were.
func TestHostileWheels(t *testing.T) {
	dir := wheels(t)
	x := newIndex(t, dir)
	var ran atomic.Int32
	inner := x.Config.Handler
	x.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/ran" {
			ran.Add(1)
			return
		}
		inner.ServeHTTP(w, q)
	})
	many := map[string]string{}
	for i := range 3000 {
		many[fmt.Sprintf("many/f%d.txt", i)] = ""
	}
	attacks := map[string]struct {
		files map[string]string
		says  string // why it is refused; "": it is installed
	}{
		"dots":     {map[string]string{"../../../../tmp/evil.py": "x"}, "outside the target directory"},
		"absolute": {map[string]string{"/tmp/evil.py": "x"}, "outside the target directory"},
		"data":     {map[string]string{"data-1.0.data/data/../../../../tmp/evil.py": "x"}, "scheme key"},
		"entries":  {map[string]string{"entries-1.0.dist-info/entry_points.txt": "[console_scripts]\n../../../../tmp/evil.py = x:y\n"}, "OSError"},
		"long":     {map[string]string{strings.Repeat("x", 300) + ".py": "x"}, "File name too long"},
		"deep":     {map[string]string{strings.Repeat("d/", 900) + "x.py": "x"}, "packages.size"},
		"bomb":     {map[string]string{"bomb.bin": strings.Repeat("\x00", 64<<20)}, "packages.size"},
		"many":     {many, "packages.size"},
		"nested":   {map[string]string{"a.py": strings.Repeat("(", 150) + strings.Repeat(")", 150), "b.py": "x = " + strings.Repeat("-", 200_000) + "1", "c.py": "x = a" + strings.Repeat(".a", 200_000)}, ""},
		"dense":    {map[string]string{"dense.py": "x = [" + strings.Repeat("[],", 500_000) + "]"}, ""},
		"another":  {map[string]string{"alpha.py": "version = 'evil'", "alpha-9.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: alpha\nVersion: 9.0\n"}, "multiple .dist-info"},
		"replaces": {map[string]string{"alpha.py": "version = 'evil'"}, ""},
	}
	var names []string
	put := func(name string, files map[string]string) {
		file, b, err := packagestest.Wheel(name, "1.0", nil, files)
		check(t, err)
		check(t, os.WriteFile(filepath.Join(dir, file), b, 0o600))
	}
	for name, a := range attacks {
		names = append(names, name)
		put(name, a.files)
	}
	put("shadows", shadowing(x.URL))
	cache := t.TempDir()
	box := openPackages(t, cache, driver.Packages{Allow: allow("*"), IndexURL: x.URL + "/simple", Insecure: true, Size: 4 << 20})
	first := create(t, box, executor.Spec{})
	packagestest.Installs(t, first, "alpha 1.0", "alpha<2")
	before := hashes(t, cache)

	t.Run("sessions", func(t *testing.T) {
		const few = 4
		for i := range few {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				s := create(t, box, executor.Spec{})
				defer s.Close()
				packagestest.Installs(t, s, "alpha 1.0", "alpha<2")
				for at := i; at < len(names); at += few {
					name, want := names[at], attacks[names[at]].says
					res := install(t, s, name)
					if want == "" && res.Status != executor.StatusOK || want != "" && (res.Status != executor.StatusFailed || !strings.Contains(res.Stderr.String(), want)) {
						t.Errorf("%s: got %s, %q, want %q", name, res.Status, res.Stderr, want)
					}
				}
				says(t, s, `import alpha, os
print(alpha.version, *[p for p in ("/tmp/evil.py", "/workspace/evil.py", "/opt/evil.py", "/evil.py", "/opt/packages/tmp") if os.path.lexists(p)])`, "1.0")
				packagestest.Installs(t, s, "six 1.0", "six")
			})
		}
		t.Run("shadows", func(t *testing.T) {
			t.Parallel()
			s := create(t, box, executor.Spec{})
			defer s.Close()
			packagestest.Installs(t, s, "shadows 1.0", "shadows")
			packagestest.Installs(t, s, "six 1.0", "six") // by root, who imports json and others
			if n := ran.Load(); n > 0 {
				t.Errorf("it ran %d times in a builder", n)
			}
			asRoot := `import posix; print("ran-0" in posix.listdir("/tmp"))`
			says(t, s, asRoot, "False")
			// It would, if root's Python looked where packages are.
			if out := execAs(t, s, root, "env", "PYTHONPATH=/opt/packages", python, "-c", ""); out != "" {
				t.Log(out)
			}
			says(t, s, asRoot, "True")
		})
	})
	for f, sum := range before {
		if hashes(t, cache)[f] != sum {
			t.Errorf("%s has changed", f)
		}
	}
	for what, s := range map[string]executor.Session{"the first session": first, "the next one": create(t, box, executor.Spec{})} {
		t.Log(what)
		if what != "the first session" {
			packagestest.Installs(t, s, "alpha 1.0", "alpha<2")
		}
		says(t, s, "import alpha, json; print(alpha.version, json.loads('1'))", "1.0 1")
	}

	// A builder that starts Python where packages are runs them.
	without(t, &packages.PipProgram, "deliver(found,", "subprocess.run([sys.executable, \"-c\", \"\"], env=dict(os.environ, PYTHONPATH=\"out\"))\ndeliver(found,")
	s := create(t, box, executor.Spec{})
	defer s.Close()
	install(t, s, "shadows")
	if ran.Load() == 0 {
		t.Error("where a builder looks for modules in packages, nothing of them ran")
	}
}

// TestBuilderIsTakenOver has a package take over what fetches it. It is stopped as code in a
// session is, reaches no network where packages come from a directory, and is gone when the
// installation is over.
func TestBuilderIsTakenOver(t *testing.T) {
	out := attempttest.NewOutside(t)
	image := hostileImage(t)
	// A program that says how attempts ended: as the names and versions of packages.
	taken := func(made []attempttest.Attempt) string {
		command, err := json.Marshal(attempttest.Command(python, made, out.Vars))
		check(t, err)
		return fmt.Sprintf(`
import subprocess
said = subprocess.run(%s, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
reply({"packages": [["said", line] for line in said.splitlines()], "files": []})
`, command)
	}
	was := packages.PipProgram
	t.Cleanup(func() { packages.PipProgram = was })
	try := func(t *testing.T, p driver.Packages, program string) []string {
		t.Helper()
		packages.PipProgram = program
		p.Allow, p.Size = allow("*"), 4<<20
		box := openPackages(t, t.TempDir(), p, func(c *Config) { c.Image = image })
		s := create(t, box, executor.Spec{})
		defer s.Close()
		res := install(t, s, "six")
		if res.Status != executor.StatusOK {
			t.Fatalf("got %s, %q", res.Status, res.Stderr)
		}
		return strings.Split(strings.TrimSpace(res.Stdout.String()), "\n")
	}
	for _, group := range []string{attempttest.Kernel, attempttest.Network, attempttest.Files, attempttest.Supervisor} {
		t.Run(group, func(t *testing.T) {
			made := attempttest.Of(group, Type)
			words := try(t, driver.Packages{Wheels: wheels(t)}, taken(made))
			if len(words) != len(made) {
				t.Fatalf("%d attempts: got %q", len(made), words)
			}
			for i, a := range made {
				if word := strings.TrimPrefix(words[i], "said "); !a.IsStopped(word) {
					t.Errorf("%s: got %q, want %q", a.Name, word, a.Stopped)
				}
			}
			if n := out.Seen(); n > 0 {
				t.Errorf("%d messages came out", n)
			}
		})
	}

	x := newIndex(t, wheels(t))
	mark := "taken-over-" + strings.ToLower(rand.Text())
	var reached atomic.Int32
	running := func() bool {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		check(t, err)
		return slices.ContainsFunc(files, func(name string) bool {
			text, _ := os.ReadFile(name) // of those that have ended meanwhile there is none
			return bytes.Contains(text, []byte(mark))
		})
	}
	inner := x.Config.Handler
	x.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/reached" {
			inner.ServeHTTP(w, q)
			return
		}
		reached.Add(1)
		for !running() { // until it asks no more
			select {
			case <-q.Context().Done():
				t.Error("what it has left is not seen at this machine")
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	// It leaves a process that heeds no signal, and asks the index for something.
	leaves := fmt.Sprintf(`
import urllib.request
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for n in range(1, 65):
            try: signal.signal(n, signal.SIG_IGN)
            except (OSError, ValueError): pass
        os.closerange(0, 4096)
        os.execv(sys.executable, [sys.executable, "-I", "-c", "import time; time.sleep(100000)", %q])
    os._exit(0)
os.wait()
try: said = "%%d" %% urllib.request.urlopen("%s/reached", timeout=60).status
except OSError as e: said = "nothing"
reply({"packages": [["said", said]], "files": []})
`, mark, x.URL)
	for _, c := range []struct {
		name, says string
		from       driver.Packages
		reached    int32
	}{
		{"without a network", "said nothing", driver.Packages{Wheels: wheels(t)}, 0},
		{"with a network", "said 200", driver.Packages{IndexURL: x.URL + "/simple", Insecure: true}, 1}, // in which it is seen to run
	} {
		if got := try(t, c.from, leaves); got[0] != c.says || reached.Load() != c.reached {
			t.Errorf("%s: got %q, and it reached %d times what is outside, want %q and %d", c.name, got, reached.Load(), c.says, c.reached)
		}
		if running() {
			t.Errorf("%s: it runs when the installation is over", c.name)
		}
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
