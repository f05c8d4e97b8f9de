package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/attempttest"
)

// commit makes an image of what a program, run by root, makes of an image of the tests.
func commit(t *testing.T, program string, changes ...string) string {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	name := "execbroker-test/" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())) + ":hostile"
	remove, err := dockertest.Commit(t.Context(), host, name, dockertest.Trixie, program, changes...)
	check(t, err)
	t.Cleanup(func() { check(t, remove()) })
	return name
}

// hostileImage has programs that give rights to whoever runs them.
func hostileImage(t *testing.T) string {
	t.Helper()
	return commit(t, attempttest.Image)
}

// plain runs a command in a container that is made of an image as it is, and returns what it
// prints.
func plain(t *testing.T, image string, command ...string) string {
	t.Helper()
	e := testEngine(t)
	made, err := e.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Config: &container.Config{Image: image, Cmd: command, AttachStdout: true, AttachStderr: true}, HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	check(t, err)
	defer e.ContainerRemove(context.WithoutCancel(t.Context()), made.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	at, err := e.ContainerAttach(t.Context(), made.ID, client.ContainerAttachOptions{Stream: true, Stdout: true, Stderr: true})
	check(t, err)
	defer at.Close()
	_, err = e.ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{})
	check(t, err)
	conn := newStdio(at.Conn)
	out, err := io.ReadAll(conn)
	check(t, err)
	return string(out) + conn.stderr()
}

// TestHostileConfiguration uses an image whose configuration is made to take part. A container that
// is made of it as it is obeys.
func TestHostileConfiguration(t *testing.T) {
	t.Parallel()
	image := commit(t, `
import os
os.mkdir("/evil")
open("/evil/sitecustomize.py", "w").write("print('evil sitecustomize', flush=True)")
open("/evil/start", "w").write('#!/bin/sh\necho evil entrypoint\nexec "$@"\n')
os.chmod("/evil/start", 0o755)
`, `ENTRYPOINT ["/evil/start"]`, "ENV LD_PRELOAD=/evil/preload.so LD_AUDIT=/evil/audit.so PYTHONPATH=/evil PYTHONSTARTUP=/evil/sitecustomize.py PYTHONINSPECT=1 BASH_ENV=/evil/start",
		"USER 65534", "WORKDIR /evil", "VOLUME /evil/volume /workspace /tmp/deep", `HEALTHCHECK --interval=1s CMD ["/evil/start"]`, "LABEL execbroker.owner=evil")
	if got := plain(t, image, "/bin/true"); !strings.Contains(got, "evil entrypoint") || !strings.Contains(got, "/evil/preload.so") || !strings.Contains(got, "/evil/audit.so") {
		t.Errorf("the image as it is: got %q, want its entrypoint and what it loads ahead", got)
	}
	if got := plain(t, image, "python3", "-c", "0"); !strings.Contains(got, "evil sitecustomize") {
		t.Errorf("the image as it is: got %q, want its module", got)
	}
	if got := plain(t, image, "sh", "-c", "id -u; mkdir /evil/volume/d && echo written"); !strings.Contains(got, "65534") {
		t.Errorf("the image as it is: got %q, want its user", got)
	}
	s := create(t, open(t, func(c *Config) { c.Image = image }), executor.Spec{})
	says(t, s, `
import os, sys
print([k for k in os.environ if k.startswith(("LD_", "PYTHONS", "PYTHONPATH", "PYTHONI", "BASH"))], "evil" in str(sys.modules.get("sitecustomize")), os.getcwd())`, "[] False /workspace")
	for code, want := range map[string]string{
		`open("/evil/volume/x", "w")`:        "EROFS|EACCES",
		`open("/workspace/x", "w")`:          "ok",
		`open("/evil/y", "w")`:               "EROFS|EACCES",
		`open("/tmp/deep/x", "w")`:           "EROFS|EACCES|ok",
		`say(os.getuid() not in (0, 65534))`: "True",
	} {
		c := attempttest.Attempt{Code: code, Stopped: want}
		if got := run(t, s, attempttest.Command(python, []attempttest.Attempt{c}, nil)); !c.IsStopped(got) {
			t.Errorf("%s: got %s, want %s", code, got, want)
		}
	}
	if got := run(t, s, []string{"python3", "-c", "print('mine')"}); got != "mine" {
		t.Errorf("a program of the code: got %q", got)
	}
}

// TestHostilePython uses images whose python3 is something else. The session does not come up,
// Create says so in time and without memory, and nothing is left, for which open looks.
//
// It is not parallel to other tests, whose memory would count as well.
func TestHostilePython(t *testing.T) {
	e := testEngine(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	t.Cleanup(func() { // after all of them
		runtime.ReadMemStats(&after)
		if n := int64(after.Sys) - int64(before.Sys); n > 64<<20 {
			t.Errorf("this process has grown by %d bytes", n)
		}
	})
	for name, c := range map[string]struct {
		program string
		kinds   []error
	}{
		"ends":          {"exit 0", []error{executor.ErrUnavailable, executor.ErrUnsupported}},
		"fails":         {"echo cannot >&2; exit 3", []error{executor.ErrUnsupported}},
		"hangs":         {"while :; do :; done", []error{context.DeadlineExceeded}},
		"ignores":       {"trap '' TERM INT HUP; cat >/dev/null; while :; do sleep 1; done", []error{context.DeadlineExceeded}},
		"endless-noise": {"exec yes", []error{executor.ErrUnavailable, executor.ErrInternal}},
		"endless-error": {"exec yes >&2", []error{context.DeadlineExceeded}},
		"long-frame":    {`printf '\001\000\000\000\000\000\000\000\377\377\377\377'; exec yes`, []error{executor.ErrUnavailable, executor.ErrInternal}},
		"false-hello":   {`printf '\001\000\000\000\000\000\000\000\000\000\000\005m\000\000\000\000'; exec cat`, []error{executor.ErrUnavailable, executor.ErrInternal, executor.ErrUnsupported}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := commit(t, fmt.Sprintf("import os\nos.unlink('/usr/bin/python3')\nopen('/usr/bin/python3', 'w').write(%q)\nos.chmod('/usr/bin/python3', 0o755)", "#!/bin/sh\n"+c.program+"\n"))
			x := open(t, func(cfg *Config) { cfg.Image = image })
			patience := 2 * time.Minute
			if slices.Contains(c.kinds, context.DeadlineExceeded) {
				patience = 2 * time.Second // of the caller: it would not end
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s, err := x.Create(ctx, executor.Spec{})
			if err == nil {
				s.Close()
			}
			var de *executor.Error
			if !slices.ContainsFunc(c.kinds, func(k error) bool { return errors.Is(err, k) }) || !errors.As(err, &de) || de.Ran != executor.RanNo {
				t.Errorf("got %v, want one of %v with RanNo", err, c.kinds)
			}
			// The engine serves others.
			if _, err := e.Ping(t.Context(), client.PingOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}
