package bubblewrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// TestDoctor starts a sandbox for each root and language, and says what is missing.
func TestDoctor(t *testing.T) {
	t.Parallel()
	version(t)
	both := []executor.Language{executor.Python, executor.JavaScript}
	closed := t.TempDir()
	check(t, os.Chmod(closed, 0o700))
	for name, c := range map[string]struct {
		cfg    Config
		bad    string // the check that fails; "": none
		detail string // in the check that fails, or else in any
	}{
		"both":      {cfg: Config{Languages: both}, detail: "Python 3."},
		"node":      {cfg: Config{Languages: both}, detail: "v"},
		"isolation": {detail: "the kernel of this machine is shared"},
		"unlimited": {cfg: Config{Cgroup: noCgroup}, detail: "memory, processes and CPU are not limited"},
		"no-root":   {cfg: Config{Root: "/var/empty/none"}, bad: "sandbox with python", detail: "no such file"},
		"closed":    {cfg: Config{Root: closed}, bad: "sandbox with python", detail: "other users cannot enter it"},
		"template":  {cfg: Config{Templates: map[string]Template{"a": {Root: "/var/empty/none"}}}, bad: "sandbox with python of template a", detail: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			found := false
			for _, got := range Doctor(t.Context(), driver.Env{}, c.cfg) {
				if got.OK != (got.Name != c.bad) {
					t.Errorf("got %+v", got)
				}
				found = found || strings.Contains(got.Detail, c.detail) && (c.bad == "" || c.bad == got.Name)
			}
			if !found {
				t.Errorf("no check says %q", c.detail)
			}
		})
	}
}

// TestWithoutControlGroups declares no limit but that of disk, refuses the others, and says so
// once.
func TestWithoutControlGroups(t *testing.T) {
	t.Parallel()
	version(t)
	var log strings.Builder
	x, err := Open(t.Context(), driver.Env{Owner: "test", Log: slog.New(slog.NewTextHandler(&log, nil))}, Config{Cgroup: noCgroup})
	check(t, err)
	t.Cleanup(func() { check(t, x.Close()) })
	for _, l := range []executor.Limits{{MemoryBytes: 1 << 30}, {CPUs: 1}, {Processes: 10}} {
		if _, err := x.Create(t.Context(), executor.Spec{Limits: l}); !errors.Is(err, executor.ErrUnsupported) {
			t.Errorf("%+v: got %v", l, err)
		}
	}
	for range 2 {
		s := create(t, x, executor.Spec{Limits: executor.Limits{DiskBytes: 1 << 20}})
		l := s.Info().Limits
		if l.MemoryBytes != 0 || l.CPUs != 0 || l.Processes != 0 || l.DiskBytes < 1<<20 {
			t.Errorf("got %+v", l)
		}
		if got := says(t, s, "import os\nprint(os.path.exists('/sys/fs/cgroup'))"); got != "False" {
			t.Errorf("a control group is in the sandbox: %s", got)
		}
		check(t, s.Close())
	}
	if n := strings.Count(log.String(), "are not limited"); n != 1 {
		t.Errorf("said %d times: %s", n, &log)
	}
}

// TestLimitsInForce reads in the sandbox what was asked for.
func TestLimitsInForce(t *testing.T) {
	t.Parallel()
	x, _ := open(t, func(*Config) {})
	s := create(t, x, executor.Spec{Limits: executor.Limits{MemoryBytes: 100 << 20, DiskBytes: 10 << 20, CPUs: 0.5, Processes: 20}})
	l := s.Info().Limits
	got := says(t, s, `import os, resource
def read(*names):
    for name in names:
        if os.path.exists(name): return open(name).read().split()
print(read("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max")[0])
print(read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu.max")[0])
print(read("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max")[0])
v = os.statvfs("/workspace")
print(v.f_frsize * v.f_blocks, resource.getrlimit(resource.RLIMIT_NPROC)[1])`)
	want := fmt.Sprintf("%d\n50000\n%d\n%d 20", l.MemoryBytes, 20+supervisorProcesses, 10<<20)
	if got != want || l.MemoryBytes < 110<<20 || l.CPUs != 0.5 || l.Processes != 20 {
		t.Errorf("got %q of %+v, want %q", got, l, want)
	}
}

// TestAttachLooksAtOneProcess: a handle has the number of a process, and the table of processes is
// not read. The note of that process decides, so a forged handle finds nothing. A handle of an
// earlier program is found in the table.
func TestAttachLooksAtOneProcess(t *testing.T) {
	t.Parallel()
	x, _ := open(t, func(*Config) {})
	s, other := create(t, x, executor.Spec{}), create(t, x, executor.Spec{})
	for name, c := range map[string]struct {
		state json.RawMessage
		found bool
	}{
		"its own":           {s.Info().Handle.State, true},
		"another sandbox":   {other.Info().Handle.State, false},
		"no sandbox":        {state(os.Getpid(), here(t)), false},
		"another namespace": {state(1, "pid:[1]"), true},
		"nothing":           {nil, true},
		"hostile":           {json.RawMessage(`{"ns":[],"monitor":"../1"}`), true},
	} {
		h := s.Info().Handle
		h.State = c.state
		a, err := x.Attach(t.Context(), h)
		if c.found != (err == nil) || err != nil && !errors.Is(err, executor.ErrNotFound) {
			t.Errorf("%s: got %v", name, err)
		}
		if err == nil {
			if got := string(a.Info().Handle.State); got != string(s.Info().Handle.State) {
				t.Errorf("%s: got the state %s", name, got)
			}
			check(t, a.Detach())
		}
	}
	check(t, errors.Join(s.Close(), other.Close()))
}

func here(t *testing.T) string {
	ns, err := namespace()
	check(t, err)
	return ns
}

// TestAliasesHideNothing refuses names that would hide something of the root.
func TestAliasesHideNothing(t *testing.T) {
	t.Parallel()
	x, _ := open(t, func(*Config) {})
	for _, alias := range []string{"/usr/data", "/etc/data", "/lib/data"} {
		_, err := x.Create(t.Context(), executor.Spec{Aliases: []string{alias}})
		if !errors.Is(err, executor.ErrUnsupported) && !errors.Is(err, executor.ErrInvalid) {
			t.Errorf("%s: got %v", alias, err)
		}
	}
}

// Mounts and groups as kernels tell of them: version 1, both, version 2 in a container.
const (
	mounts1 = `30 22 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
34 30 0:31 /docker/a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
38 30 0:35 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
40 30 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`
	own1    = "9:name=systemd:/\n8:pids:/\n4:memory:/docker/a/b\n1:cpu,cpuacct:/user\n0::/\n"
	mounts2 = "31 30 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
	own2    = "0::/user.slice/user-1000.slice/app.scope\n"
)

func TestControlGroupsOfTheKernel(t *testing.T) {
	mounts, own := parseMounts(mounts1), parseOwn(own1)
	for c, want := range map[string]string{
		"memory": "/sys/fs/cgroup/memory/b", "pids": "/sys/fs/cgroup/pids", "cpu": "/sys/fs/cgroup/cpu,cpuacct/user",
	} {
		i := slices.IndexFunc(mounts, func(m cgroupMount) bool { return slices.Contains(m.controllers, c) })
		if got := mounts[i].below(own[c]); got != want {
			t.Errorf("%s: got %s, want %s", c, got, want)
		}
	}
	mounts, own = parseMounts(mounts2), parseOwn(own2)
	if got := mounts[0].below(own[""]); mounts[0].controllers != nil || got != "/sys/fs/cgroup/user.slice/user-1000.slice/app.scope" {
		t.Errorf("got %s", got)
	}
	if m := parseMounts("\nnonsense - x\n1 2 3:4 / - cgroup2\n"); len(m) > 0 {
		t.Errorf("got %+v of nonsense", m)
	}
	for name, mounts := range map[string][]cgroupMount{"none": nil, "not-all": {{"/", t.TempDir(), []string{"memory"}}}} {
		if g, err := chooseGroups(mounts, map[string]string{}, ""); g != nil || err == nil {
			t.Errorf("%s: got %+v, %v", name, g, err)
		}
	}
}

// TestControlGroupsOfVersion2 writes limits to files as a kernel has them. No machine of the tests
// has the controllers of that version.
func TestControlGroupsOfVersion2(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "memory.swap.max"), nil, 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "memory.events"), []byte("oom 1\noom_kill 2\n"), 0o600))
	for _, name := range []string{"memory.max", "pids.max", "cpu.max", "cgroup.procs"} {
		check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	x := &group{2, []string{dir}}
	check(t, x.limit(executor.Limits{MemoryBytes: 100 << 20, CPUs: 1.5}, 36))
	check(t, x.add(4711))
	for name, want := range map[string]string{
		"memory.max": "104857600", "memory.swap.max": "0", "pids.max": "36", "cpu.max": "150000 100000", "cgroup.procs": "4711",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	if !x.outOfMemory() {
		t.Error("what was killed is not counted")
	}
	if at := x.binds()["/sys/fs/cgroup"]; at != dir {
		t.Errorf("the sandbox sees %q", at)
	}
}

// TestSurroundings lists what code finds: of the machine nothing but programs and what they need,
// all of it read-only, and no variable that is not ours.
func TestSurroundings(t *testing.T) {
	t.Parallel()
	x, _ := open(t, func(*Config) {})
	s := create(t, x, executor.Spec{})
	list := func(code string) []string { return strings.Fields(says(t, s, code)) }
	for code, allowed := range map[string]string{
		"import os; print(*os.listdir('/'))":    "bin dev etc lib lib32 lib64 libx32 proc sbin sys tmp usr workspace",
		"import os; print(*os.listdir('/etc'))": "alternatives ca-certificates group hosts ld.so.cache localtime nsswitch.conf passwd pki ssl",
		"import os; print(*os.listdir('/dev'))": "console core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero",
		"import os; print(*os.environ)":         "PATH HOME TMPDIR TZ LANG USER LOGNAME MPLBACKEND",
		// That can be written to, by whoever has the rights.
		"print(*[l.split()[1] for l in open('/proc/mounts') if 'ro' not in l.split()[3].split(',')])": "/dev /dev/console /dev/full " +
			"/dev/null /dev/pts /dev/random /dev/shm /dev/tty /dev/urandom /dev/zero /proc /tmp /workspace",
		// That programs may give rights in.
		"print(*[l.split()[1] for l in open('/proc/mounts') if 'nosuid' not in l.split()[3].split(',')])": "",
	} {
		for _, got := range list(code) {
			if !slices.Contains(strings.Fields(allowed), got) {
				t.Errorf("%s: found %s", code, got)
			}
		}
	}
	if got := says(t, s, "import os, pwd; print(pwd.getpwuid(os.getuid()).pw_name, pwd.getpwuid(0).pw_name, os.uname().nodename)"); got != "user root sandbox" {
		t.Errorf("got %s", got)
	}
}
