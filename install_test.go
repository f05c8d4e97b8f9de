package execbroker_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	modulepath "golang.org/x/mod/module"
	modulezip "golang.org/x/mod/zip"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// heavy are the modules that only those link who import the packages for them.
var heavy = []string{
	"github.com/jackc/", "github.com/modal-labs/", "github.com/moby/", "github.com/modelcontextprotocol/", "github.com/prometheus/", "github.com/redis/",
	"github.com/superfly/", "go.opentelemetry.io/", "google.golang.org/grpc", "k8s.io/", "modernc.org/",
}

// TestLightPrograms: one module has all adapters, so it is the packages that keep what a program
// links small. docs/decisions/0056 has the figures.
func TestLightPrograms(t *testing.T) {
	all := list(t)
	for _, c := range []struct {
		rel   string
		most  int // modules, without this one
		heavy []string
	}{
		{rel: "executor"},
		{rel: "executor/driver"},
		{rel: "executor/sessions"},
		{rel: "runner", most: 4},
		{rel: "pyodide", most: 6},
		{rel: "bubblewrap", most: 4},
		{rel: "e2b", most: 10},
		{rel: "docker", most: 23, heavy: []string{"github.com/moby/", "go.opentelemetry.io/"}},
		{rel: "kubernetes", most: 32, heavy: []string{"k8s.io/"}},
		{rel: "modal", most: 19, heavy: []string{"github.com/modal-labs/", "google.golang.org/grpc"}},
		{rel: "flymachines", most: 47, heavy: []string{"github.com/superfly/", "github.com/prometheus/", "go.opentelemetry.io/"}},
	} {
		t.Run(strings.ReplaceAll(c.rel, "/", "-"), func(t *testing.T) {
			p := all[module+"/"+c.rel]
			if len(p.Deps) == 0 {
				t.Fatal("no such package")
			}
			modules := map[string]bool{}
			for _, name := range p.Deps {
				if q := all[name]; !q.Standard && q.Module != nil && q.Module.Path != module {
					modules[q.Module.Path] = true
				}
			}
			if len(modules) > c.most {
				t.Errorf("got %d modules, want at most %d: %v", len(modules), c.most, modules)
			}
			for m := range modules {
				begins := func(prefix string) bool { return strings.HasPrefix(m+"/", prefix) || strings.HasPrefix(m, prefix) }
				if slices.ContainsFunc(heavy, begins) && !slices.ContainsFunc(c.heavy, begins) {
					t.Errorf("links %s", m)
				}
			}
		})
	}
}

// TestInstallFromProxy: the first version, from a module proxy that has it and no checkout. What
// others wrote comes from this machine's module cache, or from where that gets it.
func TestInstallFromProxy(t *testing.T) {
	const version = "v0.1.0"
	dir := t.TempDir()
	clone, proxy, cache := filepath.Join(dir, "clone"), filepath.Join(dir, "proxy"), filepath.Join(dir, "modules")
	answer(t, "git", "clone", "--quiet", ".", clone)
	at := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := modulezip.CreateFromVCS(&packed, modulepath.Version{Path: module, Version: version}, clone, "HEAD", ""); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(clone, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		version + ".zip": packed.Bytes(), version + ".mod": mod, "list": []byte(version + "\n"),
		version + ".info": fmt.Appendf(nil, `{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, version),
	} {
		if err := os.WriteFile(filepath.Join(at, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("zip", func(t *testing.T) {
		if got, most := packed.Len(), 8<<20; got > most {
			t.Errorf("got %d bytes, want at most %d", got, most)
		}
		r, err := zip.NewReader(bytes.NewReader(packed.Bytes()), int64(packed.Len()))
		if err != nil {
			t.Fatal(err)
		}
		license := false
		for _, f := range r.File {
			name := strings.TrimPrefix(f.Name, module+"@"+version+"/")
			license = license || name == "LICENSE"
			if f.UncompressedSize64 > 1<<20 {
				t.Errorf("%s has %d bytes", name, f.UncompressedSize64)
			}
		}
		if !license {
			t.Error("there is no LICENSE")
		}
	})

	local := "file://" + filepath.ToSlash(filepath.Join(answer(t, "go", "env", "GOMODCACHE"), "cache", "download"))
	bin := filepath.Join(dir, "bin")
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE="+cache, "GOBIN="+bin,
		"GOPROXY=file://"+filepath.ToSlash(proxy)+","+local+","+answer(t, "go", "env", "GOPROXY"),
		"GOSUMDB=off") // no database knows a version that is not released
	do := func(t *testing.T, dir, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, env
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
		}
		return string(out)
	}

	// First, while the module cache is empty: a program has the modules of what it imports only.
	t.Run("get", func(t *testing.T) {
		app := filepath.Join(dir, "app")
		if err := os.Mkdir(app, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(app, "main.go"), []byte(readFile(t, "examples/quickstart/main.go")), 0o644); err != nil {
			t.Fatal(err)
		}
		do(t, app, "go", "mod", "init", "example.com/app")
		do(t, app, "go", "get", module+"/executor@"+version, module+"/pyodide@"+version)
		if got, want := do(t, app, "go", "run", "."), "42\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		var zips []string
		err := filepath.WalkDir(filepath.Join(cache, "cache", "download"), func(name string, _ os.DirEntry, err error) error {
			if filepath.Ext(name) == ".zip" {
				zips = append(zips, name)
			}
			return err
		})
		if most := 7; err != nil || len(zips) == 0 || len(zips) > most {
			t.Errorf("got %d modules downloaded, want at most %d: %q, %v", len(zips), most, zips, err)
		}
	})
	t.Run("install", func(t *testing.T) {
		do(t, dir, "go", "install", module+"/cmd/execbroker@"+version)
		if got, want := do(t, dir, filepath.Join(bin, "execbroker"), "version"), version; !strings.Contains(got, want) {
			t.Errorf("got %q, want %s in it", got, want)
		}
	})
}

// TestReadmeOnBareDebian: a container of Debian with Go, npm and a clone, and nothing else.
func TestReadmeOnBareDebian(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	if there, err := dockertest.HasImage(t.Context(), host, dockertest.Npm); err != nil || !there {
		t.Skipf("no image %s, %v: make exhaustive makes it", dockertest.Npm, err)
	}
	t.Setenv("DOCKER_HOST", host)
	blocks := blocks(t)
	dir := t.TempDir()
	clone := filepath.Join(dir, "clone")
	answer(t, "git", "clone", "--quiet", ".", clone)

	// Where packages come from, and whom to trust for it, is a setting of this machine.
	args := []string{"create", "--network=host", "--workdir=/src", "--env=PATH=/usr/local/go/bin:/usr/bin:/bin"}
	for _, name := range []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE"} {
		args = append(args, "--env="+name+"="+answer(t, "go", "env", name))
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if lower := strings.ToLower(name); strings.HasSuffix(lower, "_proxy") || strings.HasPrefix(lower, "npm_config_") && lower != "npm_config_userconfig" {
			args = append(args, "--env="+name)
		}
	}
	id := answer(t, "docker", append(args, dockertest.Npm, "sh", "-e", "-c", blocks["first"])...)
	t.Cleanup(func() {
		if out, err := exec.Command("docker", "rm", "--force", "--volumes", id).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	copies := [][2]string{{answer(t, "go", "env", "GOROOT"), "/usr/local/go"}, {clone + "/.", "/src"}}
	for _, c := range [][2]string{
		{answer(t, "npm", "config", "get", "userconfig"), "/root/.npmrc"},
		{"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-certificates.crt"},
	} {
		if _, err := os.Stat(c[0]); err == nil {
			copies = append(copies, c)
		}
	}
	for _, c := range copies {
		answer(t, "docker", "cp", "--quiet", c[0], id+":"+c[1])
	}

	cmd := exec.CommandContext(t.Context(), "docker", "start", "--attach", id)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", blocks["first"], err, stdout.Bytes(), stderr.Bytes())
	}
	if got, want := stdout.String(), blocks["output"]; !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant the output in README.md\n%s", got, want)
	}
	answer(t, "docker", "cp", "--quiet", id+":/src/out/seattle.svg", dir)
	if got, want := readFile(t, filepath.Join(dir, "seattle.svg")), readFile(t, "examples/analysis/testdata/seattle.svg"); got != want {
		t.Errorf("out/seattle.svg differs from the golden one:\n%s", got)
	}
}
