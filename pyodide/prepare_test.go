package pyodide

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/store"
)

// realRuntime installs Deno and Pyodide into the user's cache if necessary, and returns their
// directory.
func realRuntime(t testing.TB) string {
	t.Helper()
	dir, err := userRuntime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// fakeNPM makes a program that replaces npm, so that tests do not depend on the network. It returns
// a value of PATH for it, and the file to which it logs its calls.
func fakeNPM(t testing.TB, script string) (path, log string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the stand-in for npm is a shell script")
	}
	bin := t.TempDir()
	log = filepath.Join(bin, "log")
	text := "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 11.0.0; exit; fi\necho \"$*\" >> " + log + "\n" + script + "\n"
	writeProgram(t, filepath.Join(bin, "npm"), text)
	return bin + ":/usr/bin:/bin", log
}

func copyInstallation(t testing.TB) string {
	return "cp -r " + filepath.Join(realRuntime(t), "node_modules") + " ."
}

// seeded returns a cache directory that Seed has filled.
func seeded(t *testing.T) (cache, host string) {
	t.Helper()
	cache = t.TempDir()
	host, err := Seed(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	return cache, host
}

// works fails the test unless a sandbox from that cache runs code.
func works(t *testing.T, cache string) {
	t.Helper()
	x, err := Open(t.Context(), driver.Env{Owner: "test", CacheDir: cache}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	ctx := executor.WithProgress(t.Context(), func(p executor.Progress) { t.Errorf("it should be prepared: %s", p.What) })
	s, err := x.Create(ctx, executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, s, "print(6 * 7)"); got != "42\n" {
		t.Errorf("got %q", got)
	}
}

// child starts a process that prepares cache, finds programs by path, and stops at a checkpoint.
func child(t *testing.T, path, cache, stop string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), "PATH="+path, envPrepare+"="+cache, envStop+"="+stop)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewScanner(out)
}

// A process that is killed during preparation leaves nothing incomplete that would be used, and
// nothing that stays.
func TestKilledWhilePreparing(t *testing.T) {
	t.Parallel()
	npm := copyInstallation(t)
	// Results from before the checkpoint are kept from one process to the next, as in reality.
	cache := t.TempDir()
	path, log := fakeNPM(t, npm)
	for _, stop := range []string{"npm", "installed", "built runtime-", "named runtime-", "compiled", "built host-", "named host-", "built deno-"} {
		t.Run(strings.ReplaceAll(strings.TrimSuffix(stop, "-"), " ", "-"), func(t *testing.T) {
			c, lines := child(t, path, cache, stop)
			at := false
			for !at && lines.Scan() {
				at = strings.HasPrefix(lines.Text(), "at ")
			}
			if !at {
				t.Fatalf("it did not come to %q: %v", stop, c.Wait())
			}
			c.Process.Kill()
			c.Wait()
			dirs, err := os.ReadDir(filepath.Join(cache, "pyodide"))
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range dirs {
				if !d.IsDir() || strings.Contains(d.Name(), ".tmp-") {
					continue
				}
				if err := store.CheckHashes(filepath.Join(cache, "pyodide", d.Name())); err != nil {
					t.Errorf("%s has its name and is not complete: %v", d.Name(), err)
				}
			}
		})
	}
	c, lines := child(t, path, cache, "")
	for lines.Scan() {
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "pyodide", "*.tmp-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if b, err := os.ReadFile(log); err != nil || strings.Count(string(b), "ci ") != 3 {
		t.Errorf("npm was called so: %s %v", b, err)
	}
	works(t, cache)
}

// The same with the real npm, killed while it unpacks.
func TestKilledWhileInstalling(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	c, lines := child(t, os.Getenv("PATH"), cache, "installed")
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "progress installing") {
	}
	eventually(t, "npm unpacks", func() bool {
		dir, _ := filepath.Glob(filepath.Join(cache, "pyodide", "*.tmp-*", "node_modules", "*"))
		return len(dir) > 0
	})
	c.Process.Kill()
	c.Wait()
	in, _, err := installed(t.Context(), storeIn(filepath.Join(cache, "pyodide")), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.try(t.Context()); err != nil {
		t.Error(err)
	}
}

// Two programs that start with nothing prepared do the work once.
func TestTwoProgramsPrepareAtOnce(t *testing.T) {
	path, log := fakeNPM(t, copyInstallation(t))
	cache := t.TempDir()
	var cmds []*exec.Cmd
	var outs []*bufio.Scanner
	for range 2 {
		c, lines := child(t, path, cache, "")
		cmds, outs = append(cmds, c), append(outs, lines)
	}
	made := 0
	for i, lines := range outs {
		last := ""
		for lines.Scan() {
			last = lines.Text()
			if strings.Contains(last, "snapshot") {
				made++
			}
		}
		if err := cmds[i].Wait(); err != nil || last != "done" {
			t.Errorf("got %v, %q", err, last)
		}
	}
	if b, err := os.ReadFile(log); err != nil || strings.Count(string(b), "ci ") != 1 || made != 1 {
		t.Errorf("npm was called so: %s %v; %d snapshots were made", b, err, made)
	}
	t.Setenv("PATH", t.TempDir()) // npm, Node.js and the network are no longer needed
	works(t, cache)
}

func TestDamageIsRepaired(t *testing.T) {
	t.Parallel()
	cache, host := seeded(t)
	f, err := os.OpenFile(filepath.Join(host, snapshotFile), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), 20<<20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := Prepare(t.Context(), driver.Env{CacheDir: cache}, Config{}); err != nil {
		t.Fatal(err)
	}
	works(t, cache)
}

// Programs that start and end at the same time do not mistake each other's directory for an
// abandoned one.
func TestRunDirs(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	left := filepath.Join(cache, "run-left")
	for _, err := range []error{os.Mkdir(left, 0o700), os.WriteFile(left+".lock", nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				dir, unlock, err := newRunDir(t.Context(), cache)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := os.Stat(dir); err != nil {
					t.Error(err)
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
				unlock()
				os.Remove(dir + ".lock")
			}
		})
	}
	wg.Wait()
	if dirs, _ := filepath.Glob(filepath.Join(cache, "run-*")); len(dirs) > 0 {
		t.Errorf("left: %v", dirs)
	}
}

// Files that pass the check but do not work are no longer used, and the program logs that.
func TestFallBack(t *testing.T) {
	t.Parallel()
	cache, dir := seeded(t)
	env := driver.Env{Owner: "test", CacheDir: cache}
	for _, c := range []struct{ file, want string }{
		{snapshotFile, "without the memory snapshot"},
		{compiledLibrary, "without the compiled standard library"},
	} {
		t.Run(c.file, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(strings.Repeat("nonsense", 1000)), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := store.WriteManifest(dir); err != nil { // the damage existed when the manifest was written
				t.Fatal(err)
			}
			x, err := Open(t.Context(), env, Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			var said []string
			ctx := executor.WithProgress(t.Context(), func(p executor.Progress) { said = append(said, p.What) })
			s, err := x.Create(ctx, executor.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			if len(said) == 0 || !strings.Contains(said[len(said)-1], c.want) {
				t.Errorf("got %q, want %q", said, c.want)
			}
			if got := output(t, s, "import json; print(json.dumps([1]))"); got != "[1]\n" {
				t.Errorf("got %q", got)
			}
			n := len(said)
			if _, err := x.Create(ctx, executor.Spec{}); err != nil || len(said) != n {
				t.Errorf("the second session says it again: %q, %v", said[n:], err)
			}
		})
	}
}

// The error of a failed installation says which command would help, and contains no secrets of
// npm's configuration.
func TestInstallErrors(t *testing.T) {
	says := func(code string) string {
		return `trap 'exit 1' EXIT; echo '{"error": {"code": "` + code + `", "summary": "404 Not Found - GET http://x/y"}}'`
	}
	for _, c := range []struct {
		name, script string
		want         []string
	}{
		{"old", "", []string{"npm: version 6.14.4 is too old", "npm install -g npm@"}},
		{"not-found", says("E404"), []string{"does not have the packages"}},
		{"integrity", says("EINTEGRITY"), []string{"does not have the published checksum"}},
		{"npm-8", says("E403") + " >&2", []string{"it refuses"}},
		{"no-document", "echo 'npm is broken' >&2; exit 1", []string{"npm is broken", "npm ping"}},
		{"no-binary", "mkdir node_modules; exit 0", []string{"package.json"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, log := fakeNPM(t, c.script)
			if c.name == "old" {
				writeProgram(t, filepath.Join(filepath.Dir(log), "npm"), "#!/bin/sh\necho 6.14.4\n")
			}
			t.Setenv("PATH", path)
			err := Prepare(t.Context(), driver.Env{CacheDir: t.TempDir()}, Config{})
			for _, w := range c.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("got %v, want %q in it", err, w)
				}
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		err := Prepare(t.Context(), driver.Env{CacheDir: t.TempDir()}, Config{})
		if err == nil || !strings.Contains(err.Error(), "install Node.js") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("real-npm-without-registry", func(t *testing.T) {
		t.Setenv("npm_config_registry", "http://127.0.0.1:9/")
		t.Setenv("npm_config_cache", t.TempDir())
		err := Prepare(t.Context(), driver.Env{CacheDir: t.TempDir()}, Config{})
		if err == nil || !strings.Contains(err.Error(), "nothing answers") {
			t.Errorf("got %v", err)
		}
	})
}

// A Create that is cancelled during the installation ends soon, and so does npm. The next Create
// continues.
func TestCancelledInstallation(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	path, _ := fakeNPM(t, "echo $$ > "+pid+"; exec sleep 1000")
	t.Setenv("PATH", path)
	x, err := Open(t.Context(), driver.Env{Owner: "test", CacheDir: t.TempDir()}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := x.Create(ctx, executor.Spec{}); ended <- err }()
	var n int
	eventually(t, "npm runs", func() bool {
		b, err := os.ReadFile(pid)
		if err == nil {
			_, err = fmt.Sscan(string(b), &n)
		}
		return err == nil
	})
	cancel()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "canceled") {
			t.Errorf("got %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("it goes on")
	}
	eventually(t, "npm has ended", func() bool { return !alive(n) })
}

// The lock file lists every platform for which Deno has a binary, and no address: npm uses the
// registry that the user has configured.
func TestLockFile(t *testing.T) {
	b, err := runtimeFiles.ReadFile("runtime/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if s := string(b); strings.Contains(s, "resolved") || strings.Contains(s, "://") {
		t.Error("the lock file names an address")
	}
	var lock struct {
		Packages map[string]struct{ Version, Integrity string }
	}
	if err := json.Unmarshal(b, &lock); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"deno": DenoVersion, "pyodide": PyodideVersion}
	for _, name := range denoPackages {
		want[name] = DenoVersion
	}
	for name, version := range want {
		p := lock.Packages["node_modules/"+name]
		if p.Version != version || !strings.HasPrefix(p.Integrity, "sha512-") {
			t.Errorf("%s: got %+v, want version %s", name, p, version)
		}
	}
}

func TestDoctor(t *testing.T) {
	realRuntime(t)
	ok := func(checks []driver.Check) map[string]bool {
		m := map[string]bool{}
		for _, c := range checks {
			m[c.Name] = c.OK
			if !c.OK && c.Fix == "" {
				t.Errorf("%s: nothing says what to do: %+v", c.Name, c)
			}
		}
		return m
	}
	for _, c := range []struct {
		name  string
		env   driver.Env
		cfg   Config
		path  bool
		wrong string // the check that fails
	}{
		{name: "ready", path: true},
		{name: "nothing-prepared", env: driver.Env{CacheDir: t.TempDir()}, path: true, wrong: "runtime"},
		{name: "no-npm", env: driver.Env{CacheDir: t.TempDir()}, wrong: "npm"},
		{name: "empty-runtime-dir", cfg: Config{RuntimeDir: t.TempDir()}, path: true, wrong: "runtime"},
		{name: "no-cache-directory", env: driver.Env{CacheDir: "/dev/null/x"}, path: true, wrong: "cache directory"},
		{name: "bad-settings", cfg: Config{Memory: 1}, path: true, wrong: "configuration"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !c.path {
				t.Setenv("PATH", t.TempDir())
			}
			checks := Doctor(t.Context(), c.env, c.cfg)
			for name, good := range ok(checks) {
				if good == (name == c.wrong) {
					t.Errorf("got %+v, want %q to fail", checks, c.wrong)
				}
			}
		})
	}
}

// A package of the system brings the runtime: no npm is asked, and the cache has only what is made
// of it. A runtime of other versions in the same place is not used.
func TestPackagedRuntime(t *testing.T) {
	name, _, err := runtimeName()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	before := packaged
	t.Cleanup(func() { packaged = before })
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(filepath.Dir(filepath.Dir(program)), packagedDir, name)
	if got := before(name); got != "" || exists(place) {
		t.Fatalf("got %q beside a program that no package has installed", got)
	}
	dir := realRuntime(t)
	packaged = func(of string) string {
		if of != name {
			t.Errorf("got the name %q, want %q", of, name)
		}
		return dir
	}
	cache := filepath.Join(t.TempDir(), "cache")
	in, _, err := installed(t.Context(), storeIn(cache), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "node_modules", "pyodide"); in.pyodide != want {
		t.Errorf("got %s, want %s", in.pyodide, want)
	}
	if exists(cache) {
		t.Error("something was put into the cache")
	}
	for _, c := range Doctor(t.Context(), driver.Env{CacheDir: t.TempDir()}, Config{}) {
		if c.Name == "runtime" && (!c.OK || !strings.Contains(c.Detail, dir)) {
			t.Errorf("got %+v, want the runtime in %s", c, dir)
		}
	}
	packaged = func(string) string { return t.TempDir() } // whose files are gone
	if _, _, err := installed(t.Context(), storeIn(cache), Config{}); err == nil {
		t.Error("a damaged runtime of a package was accepted")
	}
}
