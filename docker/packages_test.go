package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/internal/packages/packagestest"
)

func wheels(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	check(t, packagestest.WriteWheels(dir))
	return dir
}

func newIndex(t testing.TB, dir string) *packagestest.Index {
	t.Helper()
	l, err := dockertest.Listen(t.Context())
	check(t, err)
	x := packagestest.StartIndex(l, dir)
	t.Cleanup(x.Close)
	return x
}

// openPackages is open with a cache directory.
func openPackages(t testing.TB, cache string, p driver.Packages, edit ...func(*Config)) executor.Executor {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Host: host, Image: dockertest.Python, Pull: PullNever, Packages: Packages{Packages: p}}
	for _, f := range edit {
		f(&cfg)
	}
	x, err := Open(t.Context(), driver.Env{Owner: owner(t), CacheDir: cache}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if left := containers(t, host, owner(t)); len(left) > 0 {
			t.Errorf("containers are left: %q", left)
		}
	})
	return x
}

func allow(names ...string) map[executor.Language][]string {
	return map[executor.Language][]string{executor.Python: names}
}

func install(t testing.TB, s executor.Session, names ...string) *executor.Result {
	t.Helper()
	res, err := s.Install(t.Context(), executor.Packages{Names: names}, nil)
	if err != nil {
		t.Fatalf("install %q: %v", names, err)
	}
	return res
}

// An index is asked once. What it gave is used again without it, by other sessions and other programs, and a session is never in a
// network for it.
func TestIndex(t *testing.T) {
	t.Parallel()
	x := newIndex(t, wheels(t))
	p := driver.Packages{Allow: allow("Beta[more]", "six"), IndexURL: x.URL + "/simple", Insecure: true}
	cache := t.TempDir()
	box := openPackages(t, cache, p)
	s := create(t, box, executor.Spec{})
	defer s.Close()
	says(t, s, "x = 42\nimport socket; print([i[1] for i in socket.if_nameindex()])", "['lo']")
	packagestest.Installs(t, s, "alpha 1.0 beta 1.0 beta_extra 1.0", "beta[more]")
	says(t, s, "import alpha, beta, beta_extra; print(x, alpha.version, beta.version, alpha.__file__)", "42 1.0 1.0 /opt/packages/alpha.py")
	n := x.Served.Load()
	if n == 0 {
		t.Error("the index was not asked")
	}
	packagestest.Installs(t, s, "", "beta")
	x.Down.Store(true)
	other := create(t, openPackages(t, cache, p), executor.Spec{Packages: []executor.Packages{{Language: executor.Python, Names: []string{"BETA[more]"}}}})
	defer other.Close()
	says(t, other, "import alpha, beta; print(alpha.version)", "1.0")
	if got := x.Served.Load(); got != n {
		t.Errorf("the index was asked for %d files more", got-n)
	}
	res, err := other.Install(t.Context(), executor.Packages{Names: []string{"six"}}, nil)
	if !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("index down: got %+v, %v, want %v", res, err, executor.ErrUnavailable)
	}
	// What was damaged since is not used.
	x.Down.Store(false)
	files, err := filepath.Glob(filepath.Join(cache, "docker", "packages-*", packages.ContentFile))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %q, %v", files, err)
	}
	check(t, os.Truncate(files[0], 100))
	again := create(t, box, executor.Spec{})
	defer again.Close()
	packagestest.Installs(t, again, "alpha 1.0 beta 1.0 beta_extra 1.0", "beta[more]")
	if got := x.Served.Load(); got == n {
		t.Error("a damaged entry was used")
	}
}

// With a directory of wheels nothing has a network. What cannot be installed is told in words that name it.
func TestWheels(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	box := openPackages(t, cache, driver.Packages{Allow: allow("*"), Wheels: wheels(t), Size: 2 << 20})
	s := create(t, box, executor.Spec{})
	defer s.Close()
	says(t, s, "import numpy; print(numpy.__version__[0])", "2")
	packagestest.Installs(t, s, "alpha 1.0", "alpha<2")
	for name, words := range map[string]string{
		"no-such-package": "no-such-package", "gamma": "gamma 1.0 depends on alpha>=2", "big": "packages.size",
	} {
		res := install(t, s, name)
		t.Logf("%s: %s", name, res.Stderr)
		if res.Status != executor.StatusFailed || res.ExitCode != 1 || !strings.Contains(res.Stderr.String(), words) || res.Exception == nil {
			t.Errorf("%s: got %s, %d, %q, %v, want %q", name, res.Status, res.ExitCode, res.Stderr, res.Exception, words)
		}
	}
	// What the image has is not fetched again, and another version comes before it.
	packagestest.Installs(t, s, "numpy 99.0", "pandas", "numpy>=99")
	check(t, s.Reset(t.Context(), executor.Interpreter{}))
	says(t, s, "import numpy, sys; print(numpy.__version__, numpy.__cached__ is not None)", "99.0 True")
	res, err := s.Run(t.Context(), executor.Request{Command: []string{"python3", "-c", "import alpha; print(alpha.version)"}}, nil)
	if err != nil || res.Stdout.String() != "1.0\n" {
		t.Errorf("command: got %q, %q, %v", res.Stdout, res.Stderr, err)
	}
	install(t, s, "sly")
	says(t, s, "import os; print(os.path.exists('/tmp/sly.py'))", "False")
	// Code cannot change what it was given.
	says(t, s, `import os
for f in (lambda: open("/opt/packages/alpha.py", "w"), lambda: open("/opt/packages/new.py", "w"), lambda: os.unlink("/opt/packages/alpha.py"),
          lambda: os.rename("/opt/packages/alpha.py", "/opt/packages/b.py"), lambda: os.chmod("/opt/packages", 0o777)):
    try: f(); print("done")
    except OSError as e: print(e.strerror)`, strings.TrimSpace(strings.Repeat("Permission denied\n", 4)+"Operation not permitted"))
	if left, _ := filepath.Glob(filepath.Join(cache, "docker", "*.tmp-*")); len(left) > 0 {
		t.Errorf("left in the cache: %q", left)
	}
}

// What is not on the list is refused before anything is asked for it.
func TestAllow(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "requirements.txt")
	check(t, os.WriteFile(file, []byte("# ours\nalpha < 2  # the old one\n\n"), 0o600))
	box := openPackages(t, t.TempDir(), driver.Packages{Allow: allow("beta"), Requirements: file, Wheels: wheels(t)})
	s := create(t, box, executor.Spec{})
	defer s.Close()
	for name, want := range map[string]error{
		"gamma": executor.ErrDenied, "alpha_extra": executor.ErrDenied, "beta[more]": executor.ErrDenied, "alpha==2.0": executor.ErrDenied,
		"alpha @ https://example.org/alpha.whl": executor.ErrInvalid, "./alpha": executor.ErrInvalid, "--pre": executor.ErrInvalid,
	} {
		if _, err := s.Install(t.Context(), executor.Packages{Names: []string{"beta", name}}, nil); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	packagestest.Installs(t, s, "alpha 1.0", "Alpha")
	if res := install(t, s, "alpha>=2"); res.Status != executor.StatusFailed {
		t.Errorf("got %s, want %s: the list has older versions only", res.Status, executor.StatusFailed)
	}
	none := openPackages(t, t.TempDir(), driver.Packages{Wheels: wheels(t)})
	if r, _ := none.Info().Capabilities.Runtime(executor.Python); slices.Contains(r.Features, executor.FeaturePackages) {
		t.Error("declares packages without a list")
	}
}

// Packages of a template are there from the beginning. Sessions that begin at the same time have them fetched once.
func TestTemplatePackages(t *testing.T) {
	t.Parallel()
	x := newIndex(t, wheels(t))
	box := openPackages(t, t.TempDir(), driver.Packages{IndexURL: x.URL + "/simple", Insecure: true}, func(c *Config) {
		c.Templates = map[string]Template{
			"ds":  {Image: dockertest.Python, Packages: allow("gamma")},
			"bad": {Image: dockertest.Python, Packages: allow("no-such-package")},
		}
	})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			s := create(t, box, executor.Spec{Template: "ds"})
			says(t, s, "import alpha, gamma; print(alpha.version)", "2.0")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := x.Served.Load(); n > 4 { // each of two once to know what it needs, and once to install it
		t.Errorf("got %d files fetched, want at most 4", n)
	}
	if _, err := box.Create(t.Context(), executor.Spec{Template: "bad"}); !errors.Is(err, executor.ErrInvalid) || !strings.Contains(err.Error(), "no-such-package") {
		t.Errorf("got %v, want %v", err, executor.ErrInvalid)
	}
}

// Another process that attaches can install as well, and knows what is there.
func TestInstallAttached(t *testing.T) {
	t.Parallel()
	box := openPackages(t, t.TempDir(), driver.Packages{Allow: allow("*"), Wheels: wheels(t)})
	s := create(t, box, executor.Spec{})
	defer s.Close()
	packagestest.Installs(t, s, "alpha 1.0", "alpha<2")
	h := s.Info().Handle
	other, err := box.Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Detach()
	if res := install(t, other, "gamma"); !strings.Contains(res.Stderr.String(), "alpha") {
		t.Errorf("got %s, %q, want a conflict", res.Status, res.Stderr)
	}
	packagestest.Installs(t, other, "six 1.0", "six")
	says(t, s, "import six; print(six.version)", "1.0")
}

// An image without pip says so, and installs nothing.
func TestNoPip(t *testing.T) {
	t.Parallel()
	box := openPackages(t, t.TempDir(), driver.Packages{Allow: allow("*"), Wheels: wheels(t)}, func(c *Config) { c.Image = dockertest.Trixie })
	s := create(t, box, executor.Spec{})
	defer s.Close()
	_, err := s.Install(t.Context(), executor.Packages{Names: []string{"six"}}, nil)
	if !errors.Is(err, executor.ErrUnsupported) || !strings.Contains(err.Error(), "pip") {
		t.Errorf("got %v, want %v about pip", err, executor.ErrUnsupported)
	}
}

// builders returns the containers that fetch packages for an owner.
func builders(t testing.TB, e *engine, owner string) []container.InspectResponse {
	t.Helper()
	list, err := e.ContainerList(t.Context(), client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", executor.ReservedPrefix+"fetches", driver.LabelOwner+"="+owner),
	})
	if err != nil {
		t.Fatal(err)
	}
	var found []container.InspectResponse
	for _, c := range list.Items {
		i, err := e.ContainerInspect(t.Context(), c.ID, client.ContainerInspectOptions{})
		if errdefs.IsNotFound(err) {
			continue // it ended between the two questions
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, i.Container)
	}
	return found
}

// What fetches packages has a network and otherwise what sessions have, and nothing of a user. When it is given up nothing is left, and the
// next one works.
func TestBuilder(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	x := newIndex(t, wheels(t))
	asked, answer := x.Pause(t)
	box := openPackages(t, t.TempDir(), driver.Packages{Allow: allow("*"), IndexURL: x.URL + "/simple", Insecure: true})
	s := create(t, box, executor.Spec{Env: map[string]string{"SECRET": "of-a-user"}})
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gaveUp := make(chan error, 1)
	go func() { // waited for below
		_, err := s.Install(ctx, executor.Packages{Names: []string{"six"}}, nil)
		gaveUp <- err
	}()
	<-asked
	bs := builders(t, e, owner(t))
	if len(bs) != 1 {
		t.Fatalf("got %d builders, want 1", len(bs))
	}
	c := bs[0]
	h := c.HostConfig
	if h.NetworkMode != "bridge" || !h.ReadonlyRootfs || !slices.Equal(h.CapDrop, []string{"ALL"}) || len(h.Binds)+len(h.Mounts)+len(c.Mounts) > 0 || h.Privileged {
		t.Errorf("got %+v, mounts %v", h, c.Mounts)
	}
	if slices.Contains(c.Config.Env, "SECRET=of-a-user") {
		t.Errorf("got the environment %q", c.Config.Env)
	}
	top, err := e.ContainerTop(t.Context(), c.ID, client.ContainerTopOptions{Arguments: []string{"-eo", "uid,pid,args"}})
	if err != nil {
		t.Fatal(err)
	}
	fetches := false
	for _, p := range top.Processes {
		fetches = fetches || strings.Contains(p[2], "pip")
		if p[0] == "0" && strings.Contains(p[2], "pip") {
			t.Errorf("%q runs as root", p)
		}
	}
	if !fetches {
		t.Errorf("no pip among %q", top.Processes)
	}
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if bs := builders(t, e, owner(t)); len(bs) > 0 {
		t.Errorf("left: %s", bs[0].Name)
	}
	close(answer)
	packagestest.Installs(t, s, "six 1.0", "six")
}
