package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// The filter allows nothing of what has to be closed, and each call once, with or without
// conditions.
func TestProfile(t *testing.T) {
	t.Parallel()
	for _, allow := range []bool{false, true} {
		t.Run(fmt.Sprintf("code-filters-%v", allow), func(t *testing.T) {
			var p profile
			check(t, json.Unmarshal([]byte((&Config{AllowCodeFilters: allow}).profile()), &p))
			checkProfile(t, p, allow)
		})
	}
}

func checkProfile(t *testing.T, p profile, codeFilters bool) {
	free, asked := []string{}, []string{}
	for _, r := range p.Syscalls {
		switch {
		case len(r.Includes) > 0: // of one architecture
		case r.Action == "SCMP_ACT_ALLOW" && len(r.Args) == 0:
			free = append(free, r.Names...)
		case r.Action == "SCMP_ACT_ALLOW":
			asked = append(asked, r.Names...)
		}
	}
	slices.Sort(free)
	if n := len(slices.Compact(slices.Clone(free))); n != len(free) {
		t.Errorf("%d names are repeated", len(free)-n)
	}
	for _, name := range asked {
		if slices.Contains(free, name) {
			t.Errorf("%s is allowed without its conditions", name)
		}
	}
	for _, name := range strings.Fields(`add_key bpf clone3 fanotify_init fsopen io_setup io_uring_setup io_uring_enter ioperm iopl ipc kcmp
		kexec_load keyctl memfd_secret modify_ldt mount move_mount open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root
		process_vm_readv process_vm_writev request_key setns socketcall sync syncfs umount2 unshare userfaultfd`) {
		if slices.Contains(free, name) || slices.Contains(asked, name) {
			t.Errorf("%s is allowed", name)
		}
	}
	for _, name := range []string{"mmap", "memfd_create", "setsockopt", "shmget", "socket"} {
		if !slices.Contains(asked, name) {
			t.Errorf("%s is not allowed with any arguments", name)
		}
	}
	if slices.Contains(asked, "seccomp") != codeFilters || slices.Contains(free, "prctl") != codeFilters {
		t.Errorf("filters of code: got %v and %v, want %v", slices.Contains(asked, "seccomp"), slices.Contains(free, "prctl"), codeFilters)
	}
}

// TestSocketsWithoutCtypes runs images in which the runner cannot install its filter. With that of
// the engine alone sockets are narrowed as well; without it there is no session, unless the
// configuration allows it.
func TestSocketsWithoutCtypes(t *testing.T) {
	t.Parallel()
	const made = `import socket
def made(*a):
    try: socket.socket(*a).close(); return True
    except OSError: return False
print(made(1), made(2), made(16, 3, 0), made(16, 3, 15), made(40, 1), made(38, 5))`
	image := func(c *Config) { c.Image = dockertest.NoCtypes }
	says(t, create(t, open(t, image), executor.Spec{}), made, "True True True False False False")

	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	p, err := dockertest.NewProxy(host, func(c map[string]any) {
		if h, ok := c["HostConfig"].(map[string]any); ok {
			h["SecurityOpt"] = []string{"no-new-privileges", "seccomp=unconfined"}
		}
	})
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	for _, weak := range []bool{false, true} {
		x, err := Open(t.Context(), driver.Env{Owner: owner(t)}, Config{Host: p.Host, Image: dockertest.NoCtypes, Pull: PullNever, AllowWeak: weak})
		check(t, err)
		t.Cleanup(func() { check(t, x.Close()) })
		if weak {
			says(t, create(t, x, executor.Spec{}), made[:strings.LastIndex(made, "made(40")-2]+")", "True True True True")
		} else if _, err := x.Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrUnsupported) || !strings.Contains(err.Error(), "allow_weak") {
			t.Errorf("got %v", err)
		}
	}
}
