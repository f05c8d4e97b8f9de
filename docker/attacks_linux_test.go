package docker

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/attempttest"
)

// weakness is what is left of a sandbox when one protection has been taken away.
type weakness struct {
	edit func(host map[string]any) // of the HostConfig of the container
	user string                    // who makes the attempt: "" the user of the code, by way of the engine
	run  bool                      // by way of the supervisor
	prep []string                  // a command that root runs before
}

const root = "0:0"

// capabilities are all that attempts want. "ALL" fails where the engine itself lacks one.
var capabilities = strings.Fields("SETUID SETGID KILL SYS_ADMIN SYS_PTRACE SYS_MODULE NET_ADMIN NET_RAW SYS_TIME SYS_BOOT SYS_NICE SYSLOG " +
	"DAC_READ_SEARCH DAC_OVERRIDE CHOWN FOWNER MKNOD SYS_CHROOT SYS_PACCT SYS_TTY_CONFIG")

// weaknesses are the protections, one by one. The names are those of docs/security/docker.md.
func weaknesses(socketFile string) map[string]weakness {
	opt := func(keep ...any) func(map[string]any) {
		return func(h map[string]any) { h["SecurityOpt"] = keep }
	}
	set := func(k string, v any) func(map[string]any) {
		return func(h map[string]any) { h[k] = v }
	}
	unlimited := func(h map[string]any) {
		h["PidsLimit"], h["Memory"], h["MemorySwap"] = 1000, int64(2<<30), int64(2<<30)
		h["Ulimits"] = []map[string]any{{"Name": "nofile", "Soft": descriptors + 2000, "Hard": descriptors + 2000}, {"Name": "memlock", "Soft": 4 << 20, "Hard": 4 << 20}, {"Name": "msgqueue", "Soft": 800_000, "Hard": 800_000}, {"Name": "core", "Soft": 4096, "Hard": 4096}}
		delete(h, "NanoCpus")
		h["Tmpfs"] = map[string]string{executor.Workdir: "rw,mode=1777,size=256m", tempDir: "rw,mode=1777,exec,size=256m", shmDir: "rw,mode=1777,size=256m", namesDir: "rw,mode=755"}
	}
	return map[string]weakness{
		"uid":               {user: root},
		"capabilities":      {user: root, edit: func(h map[string]any) { h["CapAdd"], h["SecurityOpt"] = capabilities, []string{"apparmor=unconfined"} }},
		"seccomp":           {edit: opt("no-new-privileges", "seccomp=unconfined")},
		"no-new-privileges": {edit: opt()},
		"seccomp and capabilities": {user: root, edit: func(h map[string]any) {
			h["CapAdd"], h["SecurityOpt"] = capabilities, []string{"apparmor=unconfined", "seccomp=unconfined"}
		}},
		"masks": {user: root, edit: func(h map[string]any) { // with what a privileged container has besides
			h["CapAdd"], h["SecurityOpt"], h["MaskedPaths"], h["ReadonlyPaths"] = capabilities, []string{"apparmor=unconfined"}, []string{}, []string{}
		}, prep: []string{python, "-c", `
import ctypes
for line in open("/proc/mounts"):
    # Writable: the sysfs, which is of this network namespace alone, and of the control groups nothing but this mount.
    place = line.split()[1]
    if place.startswith("/sys") and ctypes.CDLL(None).mount(None, place.encode(), None, 32 if place == "/sys" else 32 | 4096, None):
        raise SystemExit(line)`}},
		"devices": {user: root, edit: func(h map[string]any) {
			h["CapAdd"], h["DeviceCgroupRules"] = capabilities, []string{"a *:* rwm"}
			h["Devices"] = []map[string]string{{"PathOnHost": "/dev/kmsg", "PathInContainer": "/dev/kmsg", "CgroupPermissions": "rwm"}}
		}},
		"read-only":     {user: root, edit: set("ReadonlyRootfs", false)},
		"network":       {edit: set("NetworkMode", "host")},
		"pid-namespace": {edit: set("PidMode", "host")},
		"ipc-namespace": {edit: set("IpcMode", "host")},
		"no-mounts":     {user: root, edit: set("Binds", []string{socketFile + ":/run/docker.sock"})},
		"rights":        {run: true, edit: set("ReadonlyRootfs", false), prep: []string{"chmod", "-R", "a+rwX", "/etc", "/opt", "/root"}},
		"limits":        {edit: unlimited},
		"seccomp and limits": {edit: func(h map[string]any) {
			unlimited(h)
			h["SecurityOpt"] = []string{"no-new-privileges", "seccomp=unconfined"}
		}},
	}
}

// arena is where attempts are made: a session, a neighbour of it, and sessions that lack a
// protection, made when they are needed.
type arena struct {
	t     *testing.T
	out   *attempttest.Outside
	image string
	cache string // of packages, the same for all
	edit  func(*Config)
	x     executor.Executor
	spec  executor.Spec
	whole executor.Session
	near  executor.Session
	weak  map[string]executor.Session
	all   map[string]weakness
}

func newArena(t *testing.T, image string, spec executor.Spec) *arena {
	t.Helper()
	return newArenaOf(t, image, spec, func(*Config) {}, t.TempDir())
}

// newArenaOf is newArena with a configuration and a cache.
func newArenaOf(t *testing.T, image string, spec executor.Spec, edit func(*Config), cache string) *arena {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	x := openPackages(t, cache, driver.Packages{}, func(c *Config) {
		c.Image = image
		edit(c)
	})
	a := &arena{t: t, out: attempttest.NewOutside(t), image: image, cache: cache, edit: edit, x: x, spec: spec, weak: map[string]executor.Session{}}
	a.all = weaknesses(strings.TrimPrefix(host, "unix://"))
	a.whole, a.near = create(t, x, spec), create(t, x, executor.Spec{})
	says(t, a.near, "near = 4711", "")
	return a
}

// weakened returns a session that lacks a protection.
func (a *arena) weakened(t *testing.T, name string) executor.Session {
	t.Helper()
	if s := a.weak[name]; s != nil {
		return s
	}
	w, ok := a.all[name]
	if !ok {
		t.Fatalf("no protection %q", name)
	}
	host, err := dockertest.Host()
	check(t, err)
	p, err := dockertest.NewProxy(host, func(c map[string]any) {
		if h, ok := c["HostConfig"].(map[string]any); ok && w.edit != nil {
			w.edit(h)
		}
	})
	check(t, err)
	a.t.Cleanup(func() { check(a.t, p.Close()) })
	owner := owner(a.t) + "-without-" + name
	cfg := Config{Host: p.Host, Image: a.image, Pull: PullNever}
	a.edit(&cfg)
	x, err := Open(t.Context(), driver.Env{Owner: owner, CacheDir: a.cache}, cfg)
	check(t, err)
	a.t.Cleanup(func() {
		check(a.t, x.Close())
		if left := containers(a.t, host, owner); len(left) > 0 {
			a.t.Errorf("containers are left: %q", left)
		}
	})
	s := create(t, x, a.spec)
	if w.prep != nil {
		if out := execAs(t, s, root, w.prep...); out != "" {
			t.Fatal(out)
		}
	}
	a.weak[name] = s
	return s
}

// make makes attempts in one go and returns the words that they end with.
func (a *arena) make(t *testing.T, made []attempttest.Attempt, how func(command []string) string) []string {
	t.Helper()
	said := how(attempttest.Command(python, made, a.out.Vars))
	words := strings.Split(said, "\n")
	if len(words) != len(made) {
		t.Fatalf("%d attempts said %q", len(made), said)
	}
	return words
}

// run makes an attempt the usual way and returns the word that it ends with.
func run(t *testing.T, s executor.Session, command []string) string {
	t.Helper()
	r, err := s.Run(t.Context(), executor.Request{Command: command}, nil)
	switch {
	case err != nil:
		return err.Error()
	case r.Reason != "":
		return string(r.Reason)
	case r.Signal != "":
		return r.Signal
	}
	return strings.TrimSpace(r.Stdout.String() + r.Stderr.String())
}

// execAs makes an attempt beside the supervisor.
func execAs(t *testing.T, s executor.Session, user string, command ...string) string {
	t.Helper()
	var c Container
	if !executor.As(s, &c) {
		t.Fatal("no container")
	}
	if user == "" {
		id := int((&facts{}).userID(s.Info().Handle.Session))
		user = fmt.Sprintf("%d:%[1]d", id)
	}
	made, err := c.Client.ExecCreate(t.Context(), c.ID, client.ExecCreateOptions{
		User: user, AttachStdout: true, AttachStderr: true, WorkingDir: executor.Workdir, Cmd: command,
	})
	check(t, err)
	at, err := c.Client.ExecAttach(t.Context(), made.ID, client.ExecAttachOptions{})
	check(t, err)
	defer at.Close()
	conn := newStdio(at.Conn)
	out, err := io.ReadAll(conn)
	check(t, err)
	return strings.TrimSpace(string(out) + conn.stderr())
}

// try makes attempts that lack the same protection in both places.
func (a *arena) try(t *testing.T, without string, made []attempttest.Attempt) {
	t.Helper()
	a.out.Seen()
	stopped := a.make(t, made, func(command []string) string { return run(t, a.whole, command) })
	if n := a.out.Seen(); n > 0 {
		t.Errorf("%d messages came out of a session", n)
	}
	w, s := a.all[without], a.weakened(t, without)
	works := a.make(t, made, func(command []string) string {
		if w.run {
			return run(t, s, command)
		}
		return execAs(t, s, w.user, command...)
	})
	for i, c := range made {
		t.Run(c.Name, func(t *testing.T) {
			if !c.IsStopped(stopped[i]) {
				t.Errorf("in a session: got %q, want %q", stopped[i], c.Stopped)
			}
			if !slices.Contains(strings.Split(c.Works, "|"), works[i]) {
				t.Errorf("without %s: got %q, want %q", without, works[i], c.Works)
			}
			if works[i] == stopped[i] && works[i] != "ENOENT" && works[i] != "ENOSYS" { // which a kernel says that does not have the thing
				t.Errorf("got %q with and without %s", works[i], without)
			}
		})
	}
}

// unharmed fails the test if the session that was attacked, or its neighbour, is not what it was.
func (a *arena) unharmed(t *testing.T) {
	t.Helper()
	says(t, a.whole, "6 * 7 and print(6 * 7)", "42")
	says(t, a.near, "print(near)", "4711")
}

func (a *arena) table(t *testing.T, group string) {
	by := map[string][]attempttest.Attempt{}
	for _, c := range attempttest.Of(group, Type) {
		by[c.Without] = append(by[c.Without], c)
	}
	for _, without := range slices.Sorted(maps.Keys(by)) {
		a.try(t, without, by[without])
	}
	a.unharmed(t)
}

// TestAttacks makes every attempt of the tables that says with one word how it ended.
func TestAttacks(t *testing.T) {
	t.Parallel()
	a := newArena(t, hostileImage(t), executor.Spec{})
	for _, g := range []string{attempttest.Kernel, attempttest.Network, attempttest.Files, attempttest.Supervisor} {
		t.Run(g, func(t *testing.T) { a.table(t, g) })
	}
}

// TestAttemptsOfGVisor makes in gVisor what attackers try. Its kernel is the sandbox's own.
func TestAttemptsOfGVisor(t *testing.T) {
	needsRuntime(t, dockertest.GVisor)
	image := hostileImage(t)
	s := create(t, open(t, func(c *Config) { c.Image, c.Runtime = image, dockertest.GVisor }), executor.Spec{})
	attempttest.Try(t, s, "gvisor", attempttest.Kernel, attempttest.Network, attempttest.Files, attempttest.Supervisor)
}

// TestOthersAreMade: what one sandbox takes of the kernel stops no other from being made.
func TestOthersAreMade(t *testing.T) {
	t.Parallel()
	attempttest.Beside(t, open(t))
}

// TestBounds: nor does what it takes of tables that are one for the whole machine, up to a quarter.
func TestBounds(t *testing.T) {
	f, err := testEngine(t).facts(t.Context())
	check(t, err)
	attempttest.Bounds(t, open(t), f.info.DockerRootDir)
}
