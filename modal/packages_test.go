package modal

import (
	"errors"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages/packagestest"
	"github.com/execbroker/execbroker/modal/modaltest"
)

// An index is asked once, from a Sandbox of its own, which is gone whatever becomes of it. Sessions
// get what it gave without a network, where code cannot change it.
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
	w := newWorld(t)
	box := w.open(t, func(c *Config) {
		c.Packages = driver.Packages{
			Allow: map[executor.Language][]string{executor.Python: {"beta", "alpha<2", "six", "nowhere"}}, IndexURL: index.URL + "/simple", Insecure: true, Size: 8 << 20,
		}
		c.Templates = map[string]Template{"ready": {Image: DefaultImage, Packages: map[executor.Language][]string{executor.Python: {"beta"}}}}
	})
	s := create(t, box, executor.Spec{})
	mustRun(t, s, "import socket; [i[1] for i in socket.if_nameindex()]", "['lo']")
	for name, want := range map[string]error{"gamma": executor.ErrDenied, "alpha==2.0": executor.ErrDenied, "--pre": executor.ErrInvalid} {
		if _, err := s.Install(t.Context(), executor.Packages{Names: []string{"beta", name}}, nil); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	if n := index.Served.Load(); n != 0 {
		t.Errorf("the index was asked %d times for what nobody may have", n)
	}
	packagestest.GivesUp(t, box, s, index, func(string) { w.left(t, 1) })
	off := w.Switch(modaltest.Throttled(-1, creates))
	if _, err := s.Install(t.Context(), executor.Packages{Names: []string{"six"}}, nil); !errors.Is(err, executor.ErrExhausted) {
		t.Errorf("no capacity: got %v, want %v", err, executor.ErrExhausted)
	}
	off()
	packagestest.Installs(t, s, "alpha 1.0 beta 1.0", "beta")
	mustRun(t, s, `import alpha, os
said = []
for f in (lambda: open("/opt/packages/alpha.py", "w"), lambda: open("/opt/packages/new.py", "w"), lambda: os.chmod("/opt/packages", 0o777)):
    try: f(); said.append("done")
    except OSError as e: said.append(type(e).__name__)
alpha.__file__, said`, "('/opt/packages/alpha.py', ['PermissionError', 'PermissionError', 'PermissionError'])")
	w.left(t, 1)

	// Another session needs neither index nor Sandbox for it, nor does one of a template.
	asked, made := index.Served.Load(), w.Counts()["sandboxes"]
	index.Down.Store(true)
	for _, spec := range []executor.Spec{{Packages: []executor.Packages{{Language: executor.Python, Names: []string{"beta"}}}}, {Template: "ready"}} {
		mustRun(t, create(t, box, spec), "import alpha; alpha.version", "'1.0'")
	}
	if index.Served.Load() != asked || w.Counts()["sandboxes"] != made+2 {
		t.Errorf("got %d files from the index, then %d; %d Sandboxes, then %d", asked, index.Served.Load(), made, w.Counts()["sandboxes"])
	}
}
