package flymachines

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/flymachines/flytest"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/internal/packages/packagestest"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/runner"
)

// packagesWorld is a world in which packages come from an index of its own.
type packagesWorld struct {
	*world
	*packagestest.Index
	*backend
	box   executor.Executor
	cache string
}

func newPackagesWorld(t *testing.T, allow ...string) *packagesWorld {
	t.Helper()
	dir := t.TempDir()
	l, err := dockertest.Listen(t.Context())
	if err == nil {
		err = packagestest.WriteWheels(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &packagesWorld{world: newWorld(t), Index: packagestest.StartIndex(l, dir), cache: t.TempDir()}
	t.Cleanup(w.Index.Close)
	cfg := w.config()
	cfg.Packages = driver.Packages{
		Allow: map[executor.Language][]string{executor.Python: allow}, IndexURL: w.URL + "/simple", Insecure: true, Size: 8 << 20,
	}
	env := driver.Env{Owner: w.owner, CacheDir: w.cache, Instance: "one"}
	if w.backend, err = newBackend(t.Context(), env, cfg); err != nil {
		t.Fatal(err)
	}
	if w.box, err = runner.Open(env, w.backend, w.options()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.box.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// alone waits until there is no Machine but those of so many sessions.
func (w *packagesWorld) alone(t *testing.T, sessions int) {
	t.Helper()
	waittest.Until(t, "only sessions are left", func() error {
		if left := w.machines(t); len(left) != sessions {
			return fmt.Errorf("got %q", left)
		}
		return nil
	})
}

// entries returns what the cache has of packages.
func (w *packagesWorld) entries(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(w.cache, Type, "packages-*", packages.ContentFile))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// An index is asked once, from a Machine of its own. Sessions get what it gave without a network,
// where code cannot change it.
func TestPackages(t *testing.T) {
	t.Parallel()
	w := newPackagesWorld(t, "beta", "alpha<2")
	s := create(t, w.box, executor.Spec{})
	mustRun(t, s, "import socket; [i[1] for i in socket.if_nameindex()]", "['lo']")
	for name, want := range map[string]error{"gamma": executor.ErrDenied, "alpha==2.0": executor.ErrDenied, "--pre": executor.ErrInvalid} {
		if _, err := s.Install(t.Context(), executor.Packages{Names: []string{"beta", name}}, nil); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	if n := w.Served.Load(); n != 0 {
		t.Errorf("the index was asked %d times for what nobody may have", n)
	}
	packagestest.Installs(t, s, "alpha 1.0 beta 1.0", "beta")
	mustRun(t, s, "import alpha, beta; (alpha.version, beta.version, alpha.__file__)", "('1.0', '1.0', '/opt/packages/alpha.py')")
	mustRun(t, s, `import os, subprocess, sys
said = []
for f in (lambda: open("/opt/packages/alpha.py", "w"), lambda: open("/opt/packages/new.py", "w"), lambda: os.rename("/opt/packages/alpha.py", "/opt/packages/b.py"), lambda: os.chmod("/opt/packages", 0o777)):
    try: f(); said.append("done")
    except OSError as e: said.append(type(e).__name__)
said, subprocess.run([sys.executable, "-c", "import beta; print(beta.version)"], capture_output=True, text=True).stdout`,
		`(['PermissionError', 'PermissionError', 'PermissionError', 'PermissionError'], '1.0\n')`)
	w.alone(t, 1)
	asked := w.Served.Load()

	// Who attaches knows what is there, and another session needs neither index nor Machine for it.
	other, err := w.box.Attach(t.Context(), s.Info().Handle)
	if err != nil {
		t.Fatal(err)
	}
	packagestest.Installs(t, other, "", "beta", "alpha")
	w.Down.Store(true)
	second := create(t, w.box, executor.Spec{Packages: []executor.Packages{{Language: executor.Python, Names: []string{"beta"}}}})
	mustRun(t, second, "import alpha; alpha.version", "'1.0'")
	if asked == 0 || w.Served.Load() != asked {
		t.Errorf("got %d files from the index, then %d", asked, w.Served.Load())
	}

	// What is installed is there when a session that was suspended is woken.
	suspend(t, w.backend, s)
	packagestest.Installs(t, s, "", "beta")
	mustRun(t, s, "import beta; beta.version", "'1.0'")
}

// suspend has a Machine suspended behind the back of who holds it.
func suspend(t *testing.T, b *backend, s executor.Session) {
	t.Helper()
	m, err := b.find(t.Context(), s.Info().Handle.Session)
	if err == nil {
		err = b.suspend(t.Context(), m.ID)
	}
	if err == nil {
		_, err = b.wake(t.Context(), m)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What fetches packages is nobody's session, and gone whatever becomes of it. What it has not made
// is in no cache.
func TestBuilderIsRemoved(t *testing.T) {
	t.Parallel()
	w := newPackagesWorld(t, "*")
	s := create(t, w.box, executor.Spec{})
	six := executor.Packages{Names: []string{"six"}}
	none := func(what string) {
		t.Helper()
		w.alone(t, 1)
		if files := w.entries(t); len(files) > 0 {
			t.Errorf("%s: got %q in the cache", what, files)
		}
	}
	packagestest.GivesUp(t, w.box, s, w.Index, none)

	off := w.Switch(flytest.NoCapacity())
	if _, err := s.Install(t.Context(), six, nil); !errors.Is(err, executor.ErrExhausted) {
		t.Errorf("no capacity: got %v, want %v", err, executor.ErrExhausted)
	}
	off()
	none("no capacity")

	r, err := s.Install(t.Context(), executor.Packages{Names: []string{"nowhere"}}, nil)
	if err != nil || r.Exception == nil || r.Exception.Type != "PackageError" {
		t.Errorf("no such package: got %+v, %v", r, err)
	}
	none("no such package")
	packagestest.Installs(t, s, "six 1.0", "six")
}

// A session whose Python cannot be given packages says so, and what has no pip to fetch them with.
func TestNoPip(t *testing.T) {
	t.Parallel()
	w := newPackagesWorld(t, "*")
	w.cfg.Image = plainImage
	s := create(t, w.box, executor.Spec{Languages: []executor.Language{executor.Python}})
	_, err := s.Install(t.Context(), executor.Packages{Names: []string{"six"}}, nil)
	var e *executor.Error
	if !errors.As(err, &e) || !errors.Is(err, executor.ErrUnsupported) || len(e.Missing) != 1 || e.Missing[0] != "pip>=22.2" {
		t.Errorf("got %v", err)
	}
	w.alone(t, 1)
}
