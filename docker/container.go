package docker

import (
	"fmt"
	"hash/fnv"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/packages"
)

// The limits of sessions whose configuration has none.
const (
	defaultCPUs      = 1
	defaultMemory    = 512 << 20
	defaultDisk      = 256 << 20
	defaultProcesses = 128
)

// What the supervisor needs besides what the code may use: it shares the container's limits with
// the code.
const (
	supervisorMemory    = 48 << 20
	supervisorProcesses = 16
)

// gvisorTasks is how many tasks of the host gVisor may have for each process that code should have.
// It takes several for one, and some for itself; when it gets no more it ends, and the sandbox with
// it.
const gvisorTasks = 16

// When the whole machine runs out of memory, sandboxes go before what it is there for. When a
// sandbox does, code goes before the supervisor.
const (
	boxOOMScore  = 500
	codeOOMScore = 1000
)

const (
	scratch     = 64 << 20 // of the temporary directory, home included
	shared      = 16 << 20 // of /dev/shm, for multiprocessing
	minMemory   = 32 << 20 // below it an interpreter does not start
	minCPUs     = 0.01     // the engine's
	inodeBytes  = 4 << 10  // of disk for each inode: a million empty files are memory of the kernel, too
	descriptors = 4096
	locked      = 64 << 10
	pageSize    = 4 << 10
	maxBytes    = 1 << 50 // more than any machine has, and sums of it still fit
)

// The directories of a sandbox that can be written to. They are tmpfs: an engine enforces their
// sizes everywhere, and nothing of them is left on the disk of the host.
const (
	tempDir = "/tmp"
	shmDir  = "/dev/shm"
	// namesDir is where C libraries ask for names of users before they look into files, by its name
	// /var/run/nscd.
	namesDir = "/run/nscd"
)

// limits returns what a session gets: what it asks for, or else what the template or the
// configuration says.
func (c *Config) limits(spec *executor.Spec, f *facts) executor.Limits {
	l := spec.Limits
	for _, d := range []executor.Limits{
		c.Templates[spec.Template].Limits.Executor(), c.Limits.Executor(),
		{CPUs: min(defaultCPUs, float64(f.info.NCPU)), MemoryBytes: defaultMemory, DiskBytes: defaultDisk, Processes: defaultProcesses},
	} {
		l = l.Or(d)
	}
	l.MemoryBytes, l.DiskBytes = min(l.MemoryBytes, maxBytes), min(l.DiskBytes, maxBytes)
	return l
}

// box is a container to be made.
type box struct {
	id       string // Create.ID
	image    image
	labels   map[string]string
	command  []string
	runtime  string
	network  string
	want     executor.Limits // none is zero
	packages int64           // bytes for installed packages of each language of installs
	installs []executor.Language
	aliases  []string
	seccomp  string // the profile
	uid      int    // of the code
	mapped   bool   // the engine has few uids
}

// gvisor reports whether the processes of the code are those of gVisor's kernel, which does not
// count them.
func (b *box) gvisor() bool { return isolationOf(b.runtime) == executor.IsolationGVisor }

// mounts returns the sizes of the writable directories.
func (b *box) mounts() map[string]int64 {
	return map[string]int64{executor.Workdir: pages(b.want.DiskBytes), tempDir: scratch, shmDir: shared}
}

// limits returns what is in force once b.want has been rounded up. Files are memory, so the code
// may use as memory what it does not use as disk.
func (b *box) limits() executor.Limits {
	l := executor.Limits{CPUs: max(b.want.CPUs, minCPUs), Processes: b.want.Processes}
	switch {
	case b.gvisor():
		l.Processes = 0
	case b.mapped:
		l.Processes += supervisorProcesses
	}
	for _, size := range b.mounts() {
		l.DiskBytes += size
	}
	l.MemoryBytes = pages(max(b.want.MemoryBytes, minMemory)) + l.DiskBytes + b.packages*int64(len(b.installs)) + supervisorMemory
	return l
}

// parents returns the directories that aliases are in. The root file system is read-only, so each
// is a tmpfs.
func (b *box) parents() (dirs []string) {
	for _, a := range b.aliases {
		if dir := path.Dir(a); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// masked is what /proc and /sys tell of the machine and not of the container: what engines mask by
// themselves, and the triggers of /proc/pressure, which everybody could set and which are threads
// and memory of the kernel.
var masked = strings.Fields(`/proc/acpi /proc/asound /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats /proc/pressure
	/proc/sched_debug /proc/scsi /proc/timer_list /proc/timer_stats /sys/devices/virtual/powercap /sys/firmware`)

// pages rounds up to whole pages of memory.
func pages(n int64) int64 { return (n + pageSize - 1) / pageSize * pageSize }

// userID returns the uid of the code of a session. The kernel counts some things for each uid on
// the whole machine: processes, inotify instances, pipe buffers. So sessions do not share one. Only
// an engine in a user namespace has too few for that.
func (f *facts) userID(id string) int {
	h := fnv.New32a()
	h.Write([]byte(id))
	if f.mapped() {
		return 20000 + int(h.Sum32()%40000)
	}
	return 1<<20 + int(h.Sum32()>>1)
}

// mapped reports whether the engine has 65536 uids only.
func (f *facts) mapped() bool {
	return slices.ContainsFunc(f.info.SecurityOptions, func(s string) bool { return slices.Contains([]string{"rootless", "userns"}, securityName(s)) })
}

// rlimits are those of the code alone. That on processes leaves the supervisor the rest of what the
// container may have.
func (b *box) rlimits() map[string]int64 {
	if b.mapped {
		return nil // uids may be shared
	}
	return map[string]int64{"nproc": int64(b.want.Processes)}
}

// missing returns what the machine of the engine is too small for.
func (b *box) missing(f *facts) (missing []string) {
	l := b.limits()
	if n := f.info.NCPU; n > 0 && l.CPUs > float64(n) {
		missing = append(missing, fmt.Sprintf("cpus<=%d", n))
	}
	if m := f.info.MemTotal; m > 0 && l.MemoryBytes > m {
		missing = append(missing, fmt.Sprintf("memory<=%d", m-(l.MemoryBytes-b.want.MemoryBytes)))
	}
	return missing
}

// options returns everything that makes the container. What each line stops is told in
// docs/security/docker.md.
func (b *box) options(f *facts) client.ContainerCreateOptions {
	no := false
	l := b.limits()
	pids := int64(b.want.Processes + supervisorProcesses)
	if b.gvisor() {
		pids *= gvisorTasks
	}
	tmpfs := map[string]string{}
	for dir, size := range b.mounts() {
		owner, exec := "mode=1777", "exec" // what people install has shared libraries in it
		switch dir {
		case executor.Workdir:
			owner = fmt.Sprintf("mode=755,uid=%d,gid=%[1]d", b.uid)
		case shmDir:
			exec = "noexec" // as engines have it
		}
		tmpfs[dir] = fmt.Sprintf("rw,nosuid,nodev,%s,size=%d,nr_inodes=%d,%s", exec, size, max(size/inodeBytes, 256), owner)
	}
	// Only a socket is there. The root file system is read-only, and so is its list of users.
	tmpfs[namesDir] = "rw,nosuid,nodev,noexec,size=4096,nr_inodes=4,mode=755"
	// The supervisor makes a link in each. start sees to it that they hide nothing of the image.
	for _, dir := range b.parents() {
		tmpfs[dir] = "rw,nosuid,nodev,noexec,size=16384,nr_inodes=16,mode=755"
	}
	for _, l := range b.installs { // root's, and executable because it has shared libraries
		tmpfs[packages.Dirs[l]] = fmt.Sprintf("rw,nosuid,nodev,exec,size=%d,nr_inodes=%d,mode=755", b.packages, max(b.packages/inodeBytes, 256))
	}
	for _, v := range b.image.volumes {
		if _, ok := tmpfs[v]; !ok { // the engine would make a writable directory of any size on the disk of the host
			tmpfs[v] = "ro,nosuid,nodev,noexec,size=4096,nr_inodes=2"
		}
	}
	host := &container.HostConfig{
		AutoRemove:     true,
		LogConfig:      container.LogConfig{Type: "none"}, // what the runner says is frames, and may be gigabytes
		NetworkMode:    container.NetworkMode(b.network),
		CapDrop:        []string{"ALL"},
		CapAdd:         []string{"SETUID", "SETGID", "KILL"}, // the supervisor's; code has none
		SecurityOpt:    []string{"no-new-privileges", "seccomp=" + b.seccomp},
		MaskedPaths:    masked,
		ReadonlyRootfs: true,
		Tmpfs:          tmpfs,
		IpcMode:        "none", // with a /dev/shm of our own size instead of the engine's
		CgroupnsMode:   "private",
		Runtime:        b.runtime,
		Init:           &no, // the supervisor is the main process: with it everything ends
		OomScoreAdj:    boxOOMScore,
		Resources: container.Resources{
			NanoCPUs:  int64(math.Ceil(l.CPUs * 1e9)),
			Memory:    l.MemoryBytes,
			PidsLimit: &pids,
			Ulimits: []*container.Ulimit{
				{Name: "core"}, // none
				{Name: "nofile", Soft: descriptors, Hard: descriptors},
				{Name: "memlock", Soft: locked, Hard: locked},
				{Name: "msgqueue"}, // they would be files of the kernel beside the sized ones
			},
		},
	}
	if f.info.SwapLimit {
		host.MemorySwap = host.Memory // the sum of both: none
	} else if f.info.CgroupVersion == "1" {
		// Without swap accounting this keeps a control group's memory out of the swap space.
		never := int64(0)
		host.MemorySwappiness = &never
	}
	return client.ContainerCreateOptions{
		Name:       containerName(b.id),
		HostConfig: host,
		Config: &container.Config{
			Image:        b.image.id,
			User:         "0:0",
			Hostname:     "sandbox",
			Entrypoint:   b.command,
			WorkingDir:   "/",
			Env:          []string{"LD_PRELOAD", "LD_AUDIT"}, // a name alone takes the image's away
			Labels:       b.labels,
			OpenStdin:    true,
			AttachStdin:  true,
			AttachStdout: true,
			AttachStderr: true,
			Healthcheck:  &container.HealthConfig{Test: []string{"NONE"}},
			// An engine that shuts down need not wait. No StopTimeout: it is also how long an
			// engine waits for the news of an end that it finds out about itself, and one that does
			// not wait handles that end twice, the second time maybe after the removal.
			StopSignal: "SIGKILL",
		},
	}
}

// containerName is the name of the container of a session, and the key by which a repeated create
// finds it.
func containerName(id string) string { return "execbroker-" + id }
