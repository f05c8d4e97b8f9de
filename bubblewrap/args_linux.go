package bubblewrap

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// What the supervisor needs besides what the code may use: it shares the control group with the
// code.
const (
	supervisorMemory    = 48 << 20
	supervisorProcesses = 16
)

const (
	scratch     = 64 << 20 // of the temporary directory, home included
	shared      = 16 << 20 // of /dev/shm, for multiprocessing
	minMemory   = 32 << 20 // below it an interpreter does not start
	minCPUs     = 0.01     // the kernel's
	descriptors = 4096
	locked      = 64 << 10
	pageSize    = 4 << 10
)

// The directories of a sandbox that can be written to, besides executor.Workdir. They are tmpfs
// with a size, so nothing of them is left on the disk of the host.
const (
	tempDir = "/tmp"
	shmDir  = "/dev/shm"
)

// searched is PATH in sandboxes.
const searched = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// rootLinks are what a system has beside /usr, as links into it or, on some systems, as
// directories.
var rootLinks = []string{"bin", "lib", "lib32", "lib64", "libx32", "sbin"}

// shownEtc is what sandboxes have of /etc of the machine: what programs need to find libraries,
// other programs, the time and whom to trust. None of it says who uses the machine or what for.
var shownEtc = []string{
	"ld.so.cache", "alternatives", "localtime", "ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted", "ca-certificates/extracted",
}

// maskedFiles and maskedDirs are what procfs tells of the machine and not of the sandbox, as
// container engines mask it.
var (
	maskedFiles = strings.Fields("kcore keys latency_stats timer_list timer_stats sched_debug")
	maskedDirs  = strings.Fields("acpi asound pressure scsi")
)

// pages rounds up to whole pages of memory.
func pages(n int64) int64 { return (n + pageSize - 1) / pageSize * pageSize }

// box is a sandbox to be made.
type box struct {
	root        string // "": /usr of this machine
	want        executor.Limits
	limited     bool // there is a control group
	aliases     []string
	codeFilters bool // code may install filters of system calls
	who         identity
	group       *group // nil: none
	note        string // for whom looks for sandboxes
}

// limits returns what is in force once b.want has been rounded up. Files are memory, so the code
// may use as memory what it does not use as disk.
func (b *box) limits() executor.Limits {
	l := executor.Limits{DiskBytes: pages(b.want.DiskBytes) + scratch + shared}
	if b.limited {
		l.CPUs, l.Processes = max(b.want.CPUs, minCPUs), b.want.Processes
		l.MemoryBytes = pages(max(b.want.MemoryBytes, minMemory)) + l.DiskBytes + supervisorMemory
	}
	return l
}

// missing returns what the machine is too small for.
func (b *box) missing(cpus int, memory int64) (missing []string) {
	l := b.limits()
	if l.CPUs > float64(cpus) {
		missing = append(missing, fmt.Sprintf("cpus<=%d", cpus))
	}
	if l.MemoryBytes > memory {
		missing = append(missing, fmt.Sprintf("memory<=%d", memory-(l.MemoryBytes-b.want.MemoryBytes)))
	}
	return missing
}

// signals is how many signals and timers of a sandbox may wait. The kernel counts them for the user
// who has made the namespace as well, whose limit is the default of the machine: about 4 for each
// MiB of memory.
const signals = 4096

// rlimits are those of the code alone. That on processes leaves the supervisor the rest of what the
// group may have. Where the user of the code is that of this program, it would count what else he
// runs.
func (b *box) rlimits() map[string]int64 {
	r := map[string]int64{"core": 0, "nofile": descriptors, "memlock": locked, "msgqueue": 0, "sigpending": signals}
	if !b.who.same {
		r["nproc"] = int64(max(b.want.Processes, defaultProcesses))
		if b.limited {
			r["nproc"] = int64(b.want.Processes)
		}
	}
	return r
}

// data is a file that bwrap copies into the sandbox.
type data struct{ name, text string }

// args are those that make it a file that everybody can read.
func (d data) args(number func(data) string) []string {
	return within(d.name, "--perms", "0644", "--ro-bind-data", number(d))
}

// within returns an option whose last argument is a name, in a directory that everybody can enter:
// bwrap would make it for root only.
func within(name string, option ...string) []string {
	dir := path.Dir(name)
	if dir == "/" {
		return append(option, name)
	}
	return append(append([]string{"--perms", "0755", "--dir", dir}, option...), name)
}

// args returns the arguments of bwrap, up to the command. Descriptors are given by what is numbered
// by number. What each stops is told in docs/security/bubblewrap.md.
func (b *box) args(number func(data) string) ([]string, error) {
	args := strings.Fields("--unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup-try --hostname sandbox " +
		"--new-session --as-pid-1 --clearenv --cap-drop ALL")
	add := func(more ...string) { args = append(args, more...) }
	add("--setenv", "PATH", searched)
	if !b.who.same {
		for _, c := range []string{"SETUID", "SETGID", "KILL", "CHOWN"} { // the supervisor's, who gives the last up
			add("--cap-add", "CAP_"+c)
		}
	}
	tmpfs := func(dir string, size int64, mode string) {
		add("--perms", mode, "--size", strconv.FormatInt(size, 10), "--tmpfs", dir)
	}
	root, err := b.rootArgs(number)
	if err != nil {
		return nil, err
	}
	add(root...)
	add("--proc", "/proc")
	for _, name := range maskedFiles {
		if exists("/proc/" + name) {
			add("--ro-bind", "/dev/null", "/proc/"+name)
		}
	}
	for _, name := range maskedDirs {
		if exists("/proc/" + name) {
			tmpfs("/proc/"+name, pageSize, "0555")
			add("--remount-ro", "/proc/"+name)
		}
	}
	add("--dev", "/dev")
	tmpfs(shmDir, shared, "1777")
	if b.who.same { // else nobody but the supervisor can write there
		add("--remount-ro", "/dev")
	}
	tmpfs(tempDir, scratch, "1777")
	tmpfs(executor.Workdir, pages(b.want.DiskBytes), "0755") // the supervisor gives it to the code
	if b.group != nil {
		binds := b.group.binds()
		for _, at := range slices.Sorted(maps.Keys(binds)) {
			add(within(at, "--ro-bind", binds[at])...)
		}
	}
	for _, a := range b.aliases {
		add(within(a, "--symlink", executor.Workdir)...)
	}
	add("--remount-ro", "/", "--chdir", "/")
	return args, nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// made are the directories of a sandbox that are not those of its root.
var made = []string{"dev", "proc", "run", "sys", "tmp", strings.TrimPrefix(executor.Workdir, "/")}

// rootArgs returns the arguments that make the root directory. Everything in it is read-only.
func (b *box) rootArgs(number func(data) string) (args []string, err error) {
	add := func(more ...string) { args = append(args, more...) }
	bind := func(from, name string) {
		if target, err := os.Readlink(from); err == nil {
			add("--symlink", target, "/"+name)
		} else if exists(from) {
			add("--ro-bind", from, "/"+name)
		}
	}
	if b.root == "" {
		add("--ro-bind", "/usr", "/usr")
		for _, name := range rootLinks {
			bind("/"+name, name)
		}
		for _, name := range shownEtc {
			if exists("/etc/" + name) {
				add(within("/etc/"+name, "--ro-bind", "/etc/"+name)...)
			}
		}
		for _, d := range []data{
			{"/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"},
			{"/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"},
		} {
			add(d.args(number)...)
		}
	} else {
		entries, err := os.ReadDir(b.root)
		if err != nil {
			return nil, fmt.Errorf("root: %w", err)
		}
		for _, e := range entries {
			if !slices.Contains(made, e.Name()) {
				bind(filepath.Join(b.root, e.Name()), e.Name())
			}
		}
	}
	user := fmt.Sprintf("user:x:%d:%[1]d::%s:/bin/sh\n", codeID, executor.Home)
	for _, d := range []data{{"/etc/passwd", user}, {"/etc/group", fmt.Sprintf("user:x:%d:\n", codeID)}} {
		known := "root:x:0:0:root:/root:/bin/sh\n"
		if d.name == "/etc/group" {
			known = "root:x:0:\n"
		}
		if b.root != "" {
			text, err := os.ReadFile(filepath.Join(b.root, d.name))
			if errors.Is(err, os.ErrNotExist) {
				continue // there is nothing to cover
			}
			if err != nil {
				return nil, fmt.Errorf("root: %w", err)
			}
			known = strings.TrimRight(string(text), "\n") + "\n"
		}
		add(data{d.name, known + d.text}.args(number)...)
	}
	return args, nil
}

// covered refuses aliases that a sandbox could only have over something, or below something that is
// read-only.
func (b *box) covered() error {
	for _, a := range b.aliases {
		top, _, _ := strings.Cut(strings.TrimPrefix(a, "/"), "/")
		taken := top == "usr" || top == "etc" || slices.Contains(rootLinks, top)
		if b.root != "" {
			taken = exists(filepath.Join(b.root, top))
		}
		if taken || slices.Contains([]string{"dev", "proc", "sys", "tmp"}, top) {
			return unsupported(fmt.Errorf("aliases: sandboxes have /%s already, and an alias in %s would hide it", top, path.Dir(a)), "alias:"+path.Dir(a))
		}
	}
	return nil
}
