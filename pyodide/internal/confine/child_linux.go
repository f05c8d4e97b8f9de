//go:build linux && (amd64 || arm64)

package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A process that was started under childName never reaches main: it sets up the confinement and
// then executes the program. This is an init function because a library cannot require the program
// that uses it to call something first.
func init() {
	if len(os.Args) != 1 || os.Args[0] != childName {
		return
	}
	err := errSecure
	if !secure() {
		err = becomeProgram()
	}
	fmt.Fprintln(os.Stderr, childName+":", err)
	os.Exit(126)
}

var errSecure = errors.New("this program has more rights than the process that started it, and so refuses its instructions")

// secure reports whether the kernel has given this process rights that the process that started it
// does not have, by a set-user-ID bit or file capabilities. If that cannot be found out, it returns
// true.
func secure() bool {
	const atSecure = 23
	values, err := unix.Auxv()
	i := slices.IndexFunc(values, func(v [2]uintptr) bool { return v[0] == atSecure })
	return err != nil || i < 0 || values[i][1] != 0
}

// readPlan reads the plan and closes its file, which the program must not inherit.
func readPlan() (p plan, err error) {
	f := os.NewFile(planFD, "plan")
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return p, fmt.Errorf("plan: %w", err)
	}
	return p, nil
}

// becomeProgram returns only if it fails. It changes privileges with plain system calls on this
// thread: init functions run on the thread that executes the program, and exec ends all other
// threads.
func becomeProgram() error {
	p, err := readPlan()
	if err != nil {
		return err
	}
	if err := setLimits(p.Limits); err != nil {
		return err
	}
	if err := keepStandardStreams(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no-new-privileges: %w", err)
	}
	switch p.Method {
	case None:
		return unix.Exec(p.Path, append([]string{p.Path}, p.Args...), p.Env)
	case Bubblewrap:
		return becomeBubblewrap(p)
	}
	if err := privateRoot(p.Read, p.Path); err != nil {
		return err
	}
	if err := giveUp(p.User); err != nil {
		return err
	}
	if err := installFilter(); err != nil {
		return err
	}
	return unix.Exec(p.Path, append([]string{p.Path}, p.Args...), p.Env)
}

func setLimits(l Limits) error {
	set := func(name string, which int, soft, hard uint64) error {
		if err := unix.Setrlimit(which, &unix.Rlimit{Cur: soft, Max: hard}); err != nil {
			return fmt.Errorf("limit %s: %w", name, err)
		}
		return nil
	}
	errs := []error{set("core", unix.RLIMIT_CORE, 0, 0)}
	if l.DataBytes > 0 {
		errs = append(errs, set("data", unix.RLIMIT_DATA, l.DataBytes, l.DataBytes))
	}
	if l.CPUTime > 0 {
		s := seconds(l.CPUTime)
		errs = append(errs, set("cpu", unix.RLIMIT_CPU, s, s+1))
	}
	if l.Files > 0 {
		errs = append(errs, set("files", unix.RLIMIT_NOFILE, l.Files, l.Files))
	}
	if l.FileBytes > 0 {
		errs = append(errs, set("file size", unix.RLIMIT_FSIZE, l.FileBytes, l.FileBytes))
	}
	if l.Threads > 0 {
		errs = append(errs, set("threads", unix.RLIMIT_NPROC, l.Threads, l.Threads))
	}
	return errors.Join(errs...)
}

// selfLink is where programs look for their own path. It is the only entry in /proc, because the
// proc file system is not mounted.
const selfLink = "/proc/self/exe"

// keepStandardStreams marks all other descriptors to be closed by exec, because this program may
// have inherited some.
func keepStandardStreams() error {
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range dir {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// privateRoot replaces the file system by one that contains only the given paths, read-only.
func privateRoot(paths []string, self string) error {
	const stage = "/tmp" // any directory that exists on every machine; the mount is visible only in this namespace
	sources, err := openAll(paths)
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", stage, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	for _, s := range sources {
		if err := s.bind(stage + s.path); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(stage+selfLink), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(self, stage+selfLink); err != nil {
		return err
	}
	if err := unix.Chdir(stage); err != nil {
		return err
	}
	// Both names are the same directory: the old root is mounted on top of the new one and is then
	// unmounted.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("old root: %w", err)
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV)
	if err := unix.Mount("", "/", "", flags, ""); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	return unix.Chdir("/")
}

// source is a file or directory that was opened before mounts changed its path.
type source struct {
	path string
	fd   int
	dir  bool
}

func openAll(paths []string) ([]source, error) {
	var out []source
	for _, p := range paths {
		fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		out = append(out, source{p, fd, st.Mode&unix.S_IFMT == unix.S_IFDIR})
	}
	return out, nil
}

func (s source) name() string { return "/proc/self/fd/" + strconv.Itoa(s.fd) }

// bind mounts s at a path, which it creates.
func (s source) bind(at string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if s.dir {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
	} else {
		f, err := os.OpenFile(at, os.O_CREATE|os.O_RDONLY, 0o444)
		if err != nil {
			return err
		}
		f.Close()
	}
	if err := unix.Mount(s.name(), at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	// A remount must repeat the flags of the mount, or the kernel refuses it to an unprivileged
	// process.
	var fs unix.Statfs_t
	if err := unix.Statfs(at, &fs); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	keep := uintptr(fs.Flags) & (unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME)
	flags := keep | unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID
	if err := unix.Mount("", at, "", flags, ""); err != nil {
		return fmt.Errorf("%s: read-only: %w", s.path, err)
	}
	return nil
}

// giveUp drops all privileges irreversibly. Real root also becomes another user.
func giveUp(user uint32) error {
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("bounding set: %w", err)
		}
	}
	// Without these, user ID 0, which the unprivileged case has inside its namespace, would get all
	// capabilities back at exec.
	const noRoot = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<6 | 1<<7 // NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE, each locked
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, noRoot, 0, 0, 0); err != nil {
		return fmt.Errorf("secure bits: %w", err)
	}
	if user != 0 {
		if err := become(uintptr(user)); err != nil {
			return err
		}
	}
	return dropCapabilities()
}

// become changes the user and group of this thread.
func become(id uintptr) error {
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return fmt.Errorf("groups: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id); e != 0 {
		return fmt.Errorf("group: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); e != 0 {
		return fmt.Errorf("user: %w", e)
	}
	return nil
}

func dropCapabilities() error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&h, &none[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// becomeBubblewrap executes bwrap. Real root first becomes another user, who has no rights outside
// either. That user may not be able to enter the directories above the files, so the files are
// passed through mounts that only this process has.
func becomeBubblewrap(p plan) error {
	from := make([]string, len(p.Read))
	copy(from, p.Read)
	if p.User != 0 {
		const stage = "/tmp"
		sources, err := openAll(p.Read)
		if err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("mounts: %w", err)
		}
		if err := unix.Mount("tmpfs", stage, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
			return fmt.Errorf("stage: %w", err)
		}
		for i, s := range sources {
			from[i] = filepath.Join(stage, strconv.Itoa(i))
			if err := s.bind(from[i]); err != nil {
				return err
			}
		}
		if err := become(uintptr(p.User)); err != nil {
			return err
		}
	}
	filter, err := filterFile()
	if err != nil {
		return err
	}
	args := strings.Fields("bwrap --unshare-all --die-with-parent --as-pid-1 --new-session --cap-drop ALL --clearenv")
	for _, e := range p.Env {
		k, v, _ := strings.Cut(e, "=")
		args = append(args, "--setenv", k, v)
	}
	for i, path := range p.Read {
		args = append(args, "--ro-bind", from[i], path)
	}
	args = append(args, "--symlink", p.Path, selfLink)
	args = append(args, "--remount-ro", "/", "--chdir", "/", "--seccomp", strconv.Itoa(filter), "--", p.Path)
	return unix.Exec(p.Bwrap, append(args, p.Args...), []string{})
}
