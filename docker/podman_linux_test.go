package docker

import (
	"archive/tar"
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// TestPodman: Podman is refused before it is asked for a sandbox, and each reason that the refusal
// has is one. When Podman takes what it is asked for here, the reason has gone.
func TestPodman(t *testing.T) {
	if _, err := exec.LookPath("podman"); err != nil || os.Geteuid() != 0 {
		t.Skip("no podman in PATH, or not root\n\tto prepare it: go run ./internal/ci prepare")
	}
	dir, err := os.MkdirTemp("", "podman") // t.TempDir is too long for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	host, stop, err := dockertest.StartPodman(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})

	x, err := Open(t.Context(), driver.Env{Owner: owner(t)}, Config{Host: host, Image: dockertest.Python, Pull: PullNever})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	_, err = x.Create(t.Context(), executor.Spec{})
	var e *executor.Error
	if !errors.As(err, &e) || !errors.Is(e.Kind, executor.ErrUnsupported) || !slices.Equal(e.Missing, []string{"engine"}) ||
		!strings.Contains(err.Error(), "the engine is Podman") {
		t.Errorf("got %v, want a refusal of Podman", err)
	}

	c, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const image = "localhost/empty:latest"
	var root bytes.Buffer
	if err := tar.NewWriter(&root).Close(); err != nil {
		t.Fatal(err)
	}
	made, err := c.ImageImport(t.Context(), client.ImageImportSource{Source: &root, SourceName: "-"}, image, client.ImageImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = root.ReadFrom(made) // its end is that of the import
	if err = errors.Join(err, made.Close()); err != nil {
		t.Fatal(err)
	}
	tmpfs := func(options string) container.HostConfig {
		return container.HostConfig{Tmpfs: map[string]string{executor.Workdir: options}}
	}
	cases := map[string]struct {
		host container.HostConfig
		says string // "": it takes it
	}{
		"size":    {tmpfs("rw,size=8388608,mode=755"), ""},
		"owner":   {tmpfs("rw,size=8388608,uid=1000"), `unknown mount option "uid=1000"`},
		"files":   {tmpfs("rw,size=8388608,nr_inodes=2048"), `unknown mount option "nr_inodes=2048"`},
		"seccomp": {container.HostConfig{SecurityOpt: []string{"seccomp=" + strictProfile()}}, "opening seccomp profile failed"},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			o := cases[name]
			o.host.NetworkMode = "none"
			_, err := c.ContainerCreate(t.Context(), client.ContainerCreateOptions{
				Name: "execbroker-test-" + name, HostConfig: &o.host, Config: &container.Config{Image: image, Cmd: []string{"/none"}},
			})
			switch {
			case o.says == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case o.says != "" && (err == nil || !strings.Contains(err.Error(), o.says)):
				t.Errorf("got %v, want %q: the reason that the adapter gives has changed", err, o.says)
			}
		})
	}
}
