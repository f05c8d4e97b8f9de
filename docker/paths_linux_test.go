package docker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// traps are files with which code waits for the host to come and fetch or bring something.
const traps = `
import os
for name, to in (("etc", "/etc"), ("shadow", "/etc/shadow"), ("zero", "/dev/zero"), ("memory", "/proc/1/mem"), ("kernel", "/proc/kcore"), ("loop", "loop"), ("root", "/proc/1/root")):
    os.symlink(to, name)
os.mkfifo("fifo")
open("plain", "w").write("plain")
os.mkdir("sub")
os.symlink("../../../etc", "sub/up")`

// TestPaths uses the names that code and callers might use to get out of the sandbox's directories
// by way of file operations. Where the directories are open to everybody, what only rights have
// stopped works.
func TestPaths(t *testing.T) {
	t.Parallel()
	read := func(name string) func(context.Context, executor.Session) error {
		return func(ctx context.Context, s executor.Session) error {
			r, err := s.Files().Read(ctx, name)
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.CopyN(io.Discard, r, 1)
			return err
		}
	}
	write := func(name string) func(context.Context, executor.Session) error {
		return func(ctx context.Context, s executor.Session) error {
			return s.Files().Write(ctx, name, strings.NewReader("x"), 0o644)
		}
	}
	// By what errors.Is says of them. A way that no right opens has no second answer.
	var (
		denied  = []error{fs.ErrPermission}
		refused = []error{fs.ErrInvalid, executor.ErrInvalid, fs.ErrPermission, fs.ErrNotExist}
		works   = []error{nil}
	)
	a := newArena(t, hostileImage(t), executor.Spec{})
	open := a.weakened(t, "rights")
	for _, s := range []executor.Session{a.whole, open} {
		says(t, s, traps, "")
	}
	for _, c := range []struct {
		name       string
		do         func(context.Context, executor.Session) error
		want, then []error
	}{
		{"read-absolute", read("/etc/shadow"), denied, works},
		{"read-dot-dot", read("../etc/shadow"), append(denied, refused...), append(works, refused...)},
		{"read-link", read("shadow"), denied, works},
		{"read-link-to-directory", read("etc/shadow"), denied, works},
		{"read-link-up", read("sub/up/shadow"), denied, works},
		{"read-root-of-supervisor", read("root/etc/shadow"), denied, denied},
		{"read-memory", read("memory"), refused, refused},
		{"read-kernel", read("kernel"), refused, refused},
		{"read-device", read("zero"), refused, refused},
		{"read-fifo", read("fifo"), refused, refused},
		{"read-loop", read("loop"), nil, nil},
		{"read-no-name", read("a\x00b"), refused, refused},
		{"write-absolute", write("/etc/x"), denied, works},
		{"write-dot-dot", write("../etc/x"), append(denied, refused...), append(works, refused...)},
		{"write-link", write("etc/x"), denied, works},
		{"write-link-up", write("sub/up/x"), denied, works},
		{"write-device", write("/dev/x"), denied, denied},
		{"write-kernel", write("/proc/sys/kernel/core_pattern"), refused, refused},
		{"list", func(ctx context.Context, s executor.Session) error {
			for _, err := range s.Files().List(ctx, "/root") {
				return err
			}
			return nil
		}, denied, works},
		{"mkdir", func(ctx context.Context, s executor.Session) error { return s.Files().Mkdir(ctx, "etc/d") }, denied, works},
		{"remove", func(ctx context.Context, s executor.Session) error { return s.Files().Remove(ctx, "/opt/capable") }, denied, works},
		{"rename-in", func(ctx context.Context, s executor.Session) error {
			return s.Files().Rename(ctx, "/opt/become", "/opt/other")
		}, denied, works},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, s := range []executor.Session{a.whole, open} {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				err := c.do(ctx, s)
				want := [][]error{c.want, c.then}[i]
				ok := want == nil && err != nil
				for _, w := range want {
					ok = ok || errors.Is(err, w) && (err == nil) == (w == nil)
				}
				if !ok || ctx.Err() != nil {
					t.Errorf("%s: got %v, want one of %v", []string{"in a session", "where everybody may"}[i], err, want)
				}
				cancel()
			}
		})
	}
	t.Run("artifacts", func(t *testing.T) {
		const code = `
import os
for name in os.listdir(): 
    if os.path.islink(name) or name == "fifo": os.utime(name, follow_symlinks=False) if name != "loop" else None
os.symlink("/etc/shadow", "new-link"); os.mkfifo("new-fifo"); os.link("new-link", "new-hard-link", follow_symlinks=False)
open("new-plain", "w").write("plain")
os.symlink("new-plain", "new-inside")`
		for _, s := range []executor.Session{a.whole, open} {
			r, err := s.Run(t.Context(), executor.Request{Code: code, Artifacts: &executor.ArtifactRequest{Globs: []string{"**", "new*"}, Contents: true}}, nil)
			if err != nil || r.Status != executor.StatusOK {
				t.Fatalf("got %+v, %v", outcomeOf(r, err), err)
			}
			if len(r.Artifacts) != 1 || r.Artifacts[0].Name != "new-plain" || !bytes.Equal(r.Artifacts[0].Data, []byte("plain")) {
				t.Errorf("got %+v, want new-plain only", r.Artifacts)
			}
		}
	})
	a.unharmed(t)
}
