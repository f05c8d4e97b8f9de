package kubernetes

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages/packagestest"
	"github.com/execbroker/execbroker/kubernetes/podtest"
)

// TestPackages: a pod with a network fetches packages once, sessions without one have them where
// code cannot change them, and those of a template are there from the beginning. What fetches is
// nobody's session, and gone whatever becomes of it.
func TestPackages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := dockertest.Listen(t.Context())
	if err == nil {
		err = packagestest.WriteWheels(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	index := packagestest.StartIndex(l, dir)
	t.Cleanup(index.Close)
	s := emulator(t, podtest.Config{})
	cfg := testConfig(s.Kubeconfig, "sandboxes")
	cfg.Packages = driver.Packages{
		Allow:    map[executor.Language][]string{executor.Python: {"beta", "six"}},
		IndexURL: index.URL + "/simple", Insecure: true, Size: 4 << 20,
	}
	cfg.Templates = map[string]Template{"data": {Image: dockertest.Python, Packages: map[executor.Language][]string{executor.Python: {"gamma"}}}}
	cache := t.TempDir()
	again := func() executor.Executor {
		x, err := Open(t.Context(), driver.Env{Owner: "tests", CacheDir: cache}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { x.Close() })
		return x
	}
	x := again()
	box := create(t, x, executor.Spec{})
	if _, err := box.Install(t.Context(), executor.Packages{Names: []string{"gamma"}}, nil); !errors.Is(err, executor.ErrDenied) {
		t.Errorf("what is not on the list: got %v", err)
	}
	packagestest.Installs(t, box, "alpha 1.0 beta 1.0", "beta")
	if got := run(t, box, `import alpha, beta, os, socket
print(alpha.version, beta.__file__, [i[1] for i in socket.if_nameindex() if int(open("/sys/class/net/%s/flags" % i[1]).read(), 16) & 1])
for f in (lambda: open("/opt/packages/alpha.py", "w"), lambda: open("/opt/packages/new.py", "w"), lambda: os.chmod("/opt/packages", 0o777)):
    try: f(); print("done")
    except OSError as e: print(e.strerror)`); got != "1.0 /opt/packages/beta.py ['lo']\nPermission denied\nPermission denied\nOperation not permitted\n" {
		t.Errorf("got %q", got)
	}
	left(t, s, 1)
	packagestest.GivesUp(t, x, box, index, func(after string) {
		t.Log(after)
		left(t, s, 1)
	})
	packagestest.Installs(t, box, "six 1.0", "six")
	data := create(t, x, executor.Spec{Template: "data"})
	if got := run(t, data, "import alpha, gamma; print(alpha.version)"); got != "2.0\n" {
		t.Errorf("of a template: got %q", got)
	}
	index.Down.Store(true)
	other := create(t, again(), executor.Spec{Packages: []executor.Packages{{Language: executor.Python, Names: []string{"beta"}}}})
	if got := run(t, other, "import beta; print(beta.version)"); got != "1.0\n" {
		t.Errorf("without the index: got %q", got)
	}
}

// TestBuilder: what fetches packages has a network that policies tell from that of code, and
// otherwise no more than a session.
func TestBuilder(t *testing.T) {
	cfg := &Config{Namespace: "a", Packages: driver.Packages{Allow: map[executor.Language][]string{executor.Python: {"six"}}, Size: 4 << 20}}
	session, builder := testBox(cfg, executor.NetworkNone), testBox(cfg, executor.NetworkFull)
	session.installs, builder.fetches = cfg.installs(), true
	p, c := builder.pod(), builder.pod().Spec.Containers[0]
	if got := p.Labels[labelNetwork]; got != fetches {
		t.Errorf("policies find it by %q", got)
	}
	if x := c.SecurityContext; *x.Privileged || *x.AllowPrivilegeEscalation || !*x.ReadOnlyRootFilesystem || len(x.Capabilities.Add) != 4 || *p.Spec.AutomountServiceAccountToken {
		t.Errorf("it can do more than a session: %+v", x)
	}
	room := func(p *corev1.Pod) (found bool) {
		for _, m := range p.Spec.Containers[0].VolumeMounts {
			found = found || m.MountPath == "/opt/packages"
		}
		return found
	}
	if room(p) || !room(session.pod()) {
		t.Error("want room for packages in a session, and only there")
	}
	if more := session.limits().MemoryBytes - testBox(cfg, executor.NetworkNone).limits().MemoryBytes; more != 4<<20 {
		t.Errorf("packages are memory: got %d bytes more", more)
	}
	if command := strings.Join(session.pod().Spec.Containers[0].Command, " "); !strings.Contains(command, " /opt/packages ") {
		t.Errorf("the room is everybody's: %q", command)
	}
}
