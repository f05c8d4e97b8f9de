package e2b

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/internal/packages/packagestest"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// packagesWorld is a world in which packages come from an index of its own.
func packagesWorld(t *testing.T, allow ...string) (*world, *packagestest.Index) {
	t.Helper()
	dir := t.TempDir()
	l, err := dockertest.Listen(t.Context())
	if err == nil {
		err = packagestest.WriteWheels(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	x := packagestest.StartIndex(l, dir)
	t.Cleanup(x.Close)
	return newWorld(t, func(c *Config) {
		c.Packages = driver.Packages{Allow: map[executor.Language][]string{executor.Python: allow}, IndexURL: x.URL + "/simple", Insecure: true, Size: 8 << 20}
	}), x
}

func (w *world) says(s executor.Session, code, want string) {
	w.Helper()
	o := w.run(s, code)
	if o.err != nil {
		w.Fatal(o.err)
	}
	if got := strings.TrimSpace(o.res.Stdout.String()); got != want {
		w.Errorf("%s: got %q, %q, want %q", code, got, o.res.Stderr, want)
	}
}

// alone waits until there is no sandbox but that of a session.
func (w *world) alone(s executor.Session) {
	w.Helper()
	waittest.Until(w, "no other sandbox is left", func() error {
		var left []string
		for i, err := range w.x.Sessions(w.Context(), nil) {
			if err != nil {
				w.Fatal(err)
			}
			if i.Handle.Session != s.Info().Handle.Session {
				left = append(left, i.Handle.Session)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("got %q", left)
		}
		return nil
	})
}

// entries returns what the cache has of packages.
func (w *world) entries() []string {
	w.Helper()
	files, err := filepath.Glob(filepath.Join(w.cache, Type, "packages-*", packages.ContentFile))
	if err != nil {
		w.Fatal(err)
	}
	return files
}

// An index is asked once, from a sandbox of its own. Sessions get what it gave without a network,
// where code cannot change it.
func TestPackages(t *testing.T) {
	t.Parallel()
	w, x := packagesWorld(t, "beta", "alpha<2", "missing")
	var made atomic.Int32
	w.between(func(rw http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/sandboxes") {
			made.Add(1)
		}
		return false
	})
	s := w.session()
	w.says(s, "x = 42\nimport socket; print([i[1] for i in socket.if_nameindex()])", "['lo']")
	for name, want := range map[string]error{
		"gamma": executor.ErrDenied, "beta[more]": executor.ErrDenied, "alpha==2.0": executor.ErrDenied,
		"alpha @ https://example.org/alpha.whl": executor.ErrInvalid, "./alpha": executor.ErrInvalid, "--pre": executor.ErrInvalid,
	} {
		if _, err := s.Install(t.Context(), executor.Packages{Names: []string{"beta", name}}, nil); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	if n := made.Load(); n != 1 {
		t.Errorf("got %d sandboxes for a session and what it may not have", n)
	}
	packagestest.Installs(t, s, "alpha 1.0 beta 1.0", "beta")
	w.says(s, "import alpha, beta; print(x, alpha.version, beta.version, alpha.__file__)", "42 1.0 1.0 /opt/packages/alpha.py")
	w.says(s, `import os, subprocess, sys
for f in (lambda: open("/opt/packages/alpha.py", "w"), lambda: open("/opt/packages/new.py", "w"), lambda: os.rename("/opt/packages/alpha.py", "/opt/packages/b.py")):
    try: f(); print("done")
    except OSError as e: print(e.strerror)
print(subprocess.run([sys.executable, "-c", "import beta; print(beta.version)"], capture_output=True, text=True).stdout)`,
		strings.Repeat("Permission denied\n", 3)+"1.0")
	w.alone(s)
	asked, sandboxes := x.Served.Load(), made.Load()
	if asked == 0 || sandboxes != 2 {
		t.Errorf("got %d files from the index and %d sandboxes, want one for the session and one that fetched", asked, sandboxes)
	}

	// Who attaches knows what is there, and another session needs neither index nor sandbox for it.
	other, err := w.x.Attach(t.Context(), s.Info().Handle)
	if err != nil {
		t.Fatal(err)
	}
	packagestest.Installs(t, other, "", "beta", "alpha")
	x.Down.Store(true)
	second := w.session()
	packagestest.Installs(t, second, "alpha 1.0 beta 1.0", "beta")
	w.says(second, "import alpha; print(alpha.version)", "1.0")
	if x.Served.Load() != asked || made.Load() != sandboxes+1 {
		t.Errorf("got %d files and %d sandboxes more", x.Served.Load()-asked, made.Load()-sandboxes)
	}

	// What was damaged since is not used.
	files := w.entries()
	if len(files) != 1 {
		t.Fatalf("got %q in the cache, want one entry", files)
	}
	if err := os.Truncate(files[0], 100); err != nil {
		t.Fatal(err)
	}
	third := w.session()
	if res, err := third.Install(t.Context(), executor.Packages{Names: []string{"beta"}}, nil); !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("got %+v, %v, want %v", res, err, executor.ErrUnavailable)
	}
	w.says(third, "print('next')", "next")
}

// What fetches packages is killed whatever becomes of it, and what it has not made is in no cache.
func TestBuilderIsKilled(t *testing.T) {
	t.Parallel()
	w, x := packagesWorld(t, "*")
	s := w.session()
	six := executor.Packages{Names: []string{"six"}}
	none := func(what string) {
		t.Helper()
		w.alone(s)
		if files := w.entries(); len(files) > 0 {
			t.Errorf("%s: got %q in the cache", what, files)
		}
	}
	packagestest.GivesUp(t, w.x, s, x, none)

	w.SetFaults(e2btest.Faults{LostAnswers: 1})
	if _, err := s.Install(t.Context(), six, nil); !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("lost answer: got %v, want %v", err, executor.ErrUnavailable)
	}
	w.SetFaults(e2btest.Faults{})
	none("lost answer")

	packagestest.Installs(t, s, "six 1.0", "six")
}
