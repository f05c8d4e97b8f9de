package docker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/internal/packages/packagestest"
)

func newRegistry(t testing.TB) *packagestest.Registry {
	t.Helper()
	l, err := dockertest.Listen(t.Context())
	check(t, err)
	r := packagestest.StartRegistry(l)
	t.Cleanup(r.Close)
	needs := func(names ...string) map[string]any {
		d := map[string]string{}
		for _, n := range names {
			name, v, _ := strings.Cut(n, "@")
			d[name] = v
		}
		return map[string]any{"main": "lib/index.js", "dependencies": d}
	}
	index := func(text string) packagestest.Entry { return packagestest.Named("package/lib/index.js", text) }
	r.Publish("alpha", "1.0.0", needs(), index("exports.version = '1.0.0'"))
	r.Publish("alpha", "1.5.0", needs(), index("exports.version = '1.5.0'"))
	r.Publish("alpha", "2.0.0", needs(), index("exports.version = '2.0.0'"))
	r.Publish("beta", "1.0.0", needs("alpha@^1.0.0"), index("exports.alpha = require('alpha').version"))
	r.Publish("@scope/gamma", "1.0.0", map[string]any{"type": "module", "exports": map[string]any{"import": "./esm.js"}, "dependencies": map[string]string{"alpha": "2.x"}},
		packagestest.Named("package/esm.js", "import a from 'alpha'\nexport default 'gamma ' + a.version"))
	r.Publish("two-faces", "1.0.0", map[string]any{"exports": map[string]any{"import": "./esm.mjs", "require": "./cjs.js"}},
		packagestest.Named("package/esm.mjs", "export default 'esm'"), packagestest.Named("package/cjs.js", "module.exports = 'cjs'"))
	r.Publish("big", "1.0.0", needs(), index("module.exports = '"+strings.Repeat("x", 3<<20)+"'"))
	r.Publish("builds", "1.0.0", map[string]any{"hasInstallScript": true, "scripts": map[string]string{"install": "touch /tmp/ran", "postinstall": "node -e 'require(\"fs\").writeFileSync(\"ran\", \"\")'"}},
		packagestest.Named("package/index.js", "module.exports = require('fs').existsSync(__dirname + '/ran')"))
	r.Publish("mac", "1.0.0", map[string]any{"os": []string{"darwin"}})
	return r
}

func allowJS(names ...string) map[executor.Language][]string {
	return map[executor.Language][]string{executor.JavaScript: names}
}

func openJS(t testing.TB, cache string, p driver.Packages, edit ...func(*Config)) executor.Executor {
	t.Helper()
	return openPackages(t, cache, p, append([]func(*Config){func(c *Config) { c.Languages = []executor.Language{executor.JavaScript, executor.Python} }}, edit...)...)
}

func installJS(t testing.TB, s executor.Session, names ...string) *executor.Result {
	t.Helper()
	res, err := s.Install(t.Context(), executor.Packages{Language: executor.JavaScript, Names: names}, nil)
	if err != nil {
		t.Fatalf("install %q: %v", names, err)
	}
	return res
}

func installsJS(t testing.TB, s executor.Session, want string, names ...string) {
	t.Helper()
	res := installJS(t, s, names...)
	if got := strings.Join(strings.Fields(res.Stdout.String()), " "); res.Status != executor.StatusOK || got != want {
		t.Errorf("install %q: got %s, %q, %q, want %q", names, res.Status, got, res.Stderr, want)
	}
}

func saysJS(t testing.TB, s executor.Session, code, want string) {
	t.Helper()
	res, err := s.Run(t.Context(), executor.Request{Language: executor.JavaScript, Code: code}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(res.Stdout.String()); got != want || res.Status != executor.StatusOK {
		t.Errorf("%s: got %q, %q, %+v, want %q", code, got, res.Stderr, res.Exception, want)
	}
}

// A registry is asked once, also for what was looked for in vain before. Its packages are found by
// require and import, in cells, in files and in programs, and each finds the versions that it
// needs.
func TestRegistry(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	p := driver.Packages{Allow: allowJS("alpha", "beta", "@scope/gamma@^1", "two-faces", "builds"), Registry: r.URL, Insecure: true}
	cache := t.TempDir()
	box := openJS(t, cache, p)
	s := create(t, box, executor.Spec{})
	defer s.Close()
	saysJS(t, s, `var kept = 42
for (const name of ["alpha", "beta", "@scope/gamma", "two-faces"]) {
  try { require(name); console.log("there") } catch {}
  try { await import(name); console.log("there") } catch {}
}`, "")
	installsJS(t, s, "@scope/gamma 1.0.0 alpha 1.5.0 alpha 2.0.0 beta 1.0.0", "beta", "@scope/gamma")
	saysJS(t, s, `import gamma from "@scope/gamma"
console.log(kept, require("beta").alpha, gamma, require("alpha").version, require.resolve("beta"))`, "42 1.5.0 gamma 2.0.0 2.0.0 /node_modules/beta/lib/index.js")
	n := r.Served.Load()
	if n != 4 {
		t.Errorf("got %d archives fetched, want 4", n)
	}
	installsJS(t, s, "", "beta@^1")
	installsJS(t, s, "two-faces 1.0.0", "two-faces")
	saysJS(t, s, `import esm from "two-faces"
console.log(esm, require("two-faces"))`, "esm cjs")
	check(t, s.Files().Write(t.Context(), "lib/it.mjs", strings.NewReader("import a from 'alpha'\nconsole.log(a.version)"), 0o644))
	saysJS(t, s, `await import("./lib/it.mjs"); console.log(require("child_process").execSync("node lib/it.mjs").toString().trim())`, "2.0.0\n2.0.0")
	if res := installJS(t, s, "alpha@^1"); res.Status != executor.StatusFailed || !strings.Contains(res.Stderr.String(), "alpha 2.0.0 already") {
		t.Errorf("another version: got %s, %q", res.Status, res.Stderr)
	}
	res := installJS(t, s, "builds")
	if res.Status != executor.StatusOK || !strings.Contains(res.Stderr.String(), "builds 1.0.0 wants to run a program") {
		t.Errorf("a package with scripts: got %s, %q", res.Status, res.Stderr)
	}
	saysJS(t, s, `console.log(require("builds"), require("fs").existsSync("/tmp/ran"))`, "false false")

	r.Down.Store(true)
	n = r.Served.Load()
	other := create(t, openJS(t, cache, p), executor.Spec{Packages: []executor.Packages{{Language: executor.JavaScript, Names: []string{"@scope/gamma", "beta"}}}})
	defer other.Close()
	saysJS(t, other, `console.log((await import("@scope/gamma")).default)`, "gamma 2.0.0")
	if got := r.Served.Load(); got != n {
		t.Errorf("the registry was asked for %d archives more", got-n)
	}
	_, err := other.Install(t.Context(), executor.Packages{Language: executor.JavaScript, Names: []string{"builds"}}, nil)
	if !errors.Is(err, executor.ErrUnavailable) || !strings.Contains(err.Error(), "the registry cannot be reached") {
		t.Errorf("registry down: got %v", err)
	}
	// What was damaged since is not used.
	r.Down.Store(false)
	files, err := filepath.Glob(filepath.Join(cache, "docker", "packages-*", packages.ContentFile))
	check(t, err)
	for _, f := range files {
		check(t, os.Truncate(f, 100))
	}
	again := create(t, box, executor.Spec{})
	defer again.Close()
	installsJS(t, again, "@scope/gamma 1.0.0 alpha 1.5.0 alpha 2.0.0 beta 1.0.0", "beta", "@scope/gamma")
	if left, _ := filepath.Glob(filepath.Join(cache, "docker", "*.tmp-*")); len(left) > 0 {
		t.Errorf("left in the cache: %q", left)
	}
}

// What is not on the list is refused before anything is asked for it, and what cannot be had is
// told in words that name it.
func TestRegistryRefusals(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	box := openJS(t, t.TempDir(), driver.Packages{Allow: allowJS("beta", "alpha@1.0", "big", "mac", "nowhere"), Registry: r.URL, Insecure: true, Size: 1 << 20})
	s := create(t, box, executor.Spec{})
	defer s.Close()
	for name, want := range map[string]error{
		"@scope/gamma": executor.ErrDenied, "two-faces": executor.ErrDenied, "alpha@1.5.0": executor.ErrDenied, "Beta": executor.ErrDenied,
		"https://example.org/a.tgz": executor.ErrInvalid, "git+ssh://example.org/a": executor.ErrInvalid, "user/repo": executor.ErrInvalid, "file:../a": executor.ErrInvalid,
		"./alpha": executor.ErrInvalid, "--registry=x": executor.ErrInvalid, "alpha@latest": executor.ErrInvalid, "alpha@npm:beta": executor.ErrInvalid,
	} {
		if _, err := s.Install(t.Context(), executor.Packages{Language: executor.JavaScript, Names: []string{"beta", name}}, nil); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	if n := r.Served.Load(); n != 0 {
		t.Errorf("%d archives were fetched", n)
	}
	for name, words := range map[string]string{"nowhere": "nowhere is not in the registry", "big": "packages.size", "mac": "not for this machine", "alpha@>=2": "no version of alpha@>=2 will do"} {
		res := installJS(t, s, name)
		t.Logf("%s: %s", name, res.Stderr)
		if res.Status != executor.StatusFailed || res.ExitCode != 1 || !strings.Contains(res.Stderr.String(), words) || res.Exception == nil {
			t.Errorf("%s: got %s, %d, %q, %v, want %q", name, res.Status, res.ExitCode, res.Stderr, res.Exception, words)
		}
	}
	installsJS(t, s, "alpha 1.0.0 beta 1.0.0", "beta") // the list bounds what is needed as well
	if _, err := s.Install(t.Context(), executor.Packages{Language: executor.Python, Names: []string{"six"}}, nil); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("python: got %v", err)
	}
	for _, mode := range []string{"w", "x"} {
		saysJS(t, s, fmt.Sprintf(`try { require("fs").writeFileSync("/node_modules/alpha/lib/index.js%s", "") } catch (e) { console.log(e.code) }`, strings.Trim(mode, "w")), "EACCES")
	}
}

// Packages of a template are there from the beginning, of both languages, and sessions that begin
// at the same time have them fetched once.
func TestTemplateRegistry(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	box := openJS(t, t.TempDir(), driver.Packages{Registry: r.URL, Insecure: true, Wheels: wheels(t)}, func(c *Config) {
		c.Templates = map[string]Template{
			"web": {Image: dockertest.Python, Packages: map[executor.Language][]string{executor.JavaScript: {"beta"}, executor.Python: {"six"}}},
			"bad": {Image: dockertest.Python, Packages: allowJS("nowhere")},
		}
	})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			s := create(t, box, executor.Spec{Template: "web", Languages: []executor.Language{executor.JavaScript, executor.Python}})
			saysJS(t, s, `console.log(require("beta").alpha)`, "1.5.0")
			res, err := s.Run(t.Context(), executor.Request{Language: executor.Python, Code: "import six; print(six.version)"}, nil)
			if err != nil || res.Stdout.String() != "1.0\n" {
				t.Errorf("python: got %+v, %v", res, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := r.Served.Load(); n != 2 {
		t.Errorf("got %d archives fetched, want 2", n)
	}
	if _, err := box.Create(t.Context(), executor.Spec{Template: "bad"}); !errors.Is(err, executor.ErrInvalid) || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("got %v, want %v", err, executor.ErrInvalid)
	}
}

// BenchmarkInstall measures what a session waits for packages that nobody has fetched yet, and for
// those that are in the cache. The registry and the wheels are on this machine.
func BenchmarkInstall(b *testing.B) {
	r := newRegistry(b)
	dir := wheels(b)
	for _, l := range []executor.Language{executor.Python, executor.JavaScript} {
		p := driver.Packages{Allow: map[executor.Language][]string{l: {"*"}}, Wheels: dir, Registry: r.URL, Insecure: true}
		once := func(b *testing.B, cache string) {
			b.Helper()
			b.StopTimer()
			s := create(b, openJS(b, cache, p), executor.Spec{Languages: []executor.Language{l}})
			b.StartTimer()
			res, err := s.Install(b.Context(), executor.Packages{Language: l, Names: []string{"beta"}}, nil)
			b.StopTimer()
			if err != nil || res.Status != executor.StatusOK {
				b.Fatalf("got %+v, %v", res, err)
			}
			check(b, s.Close())
			b.StartTimer()
		}
		b.Run(string(l)+"/first", func(b *testing.B) {
			for b.Loop() {
				once(b, b.TempDir())
			}
		})
		b.Run(string(l)+"/second", func(b *testing.B) {
			cache := b.TempDir()
			once(b, cache)
			b.ResetTimer()
			for b.Loop() {
				once(b, cache)
			}
		})
	}
}
