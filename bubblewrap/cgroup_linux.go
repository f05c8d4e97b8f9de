package bubblewrap

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// controllers are those that a sandbox is limited by.
var controllers = []string{"memory", "pids", "cpu"}

// groups is where this program makes the control groups of its sandboxes.
type groups struct {
	version int
	parents []string // of version 1 a directory for each of controllers, of version 2 one for all
}

// group is the control group of a sandbox.
type group struct {
	version int
	dirs    []string // as groups.parents
}

const groupPrefix = "execbroker-"

// cgroupMount is a mounted hierarchy of control groups.
type cgroupMount struct {
	root, dir   string
	controllers []string // nil: version 2
}

// findGroups looks for control groups below which this program can make others: at a path that the
// configuration names, or at its own or, with version 2, above it. The error says why there is
// none.
func findGroups(path string) (*groups, error) {
	if path == noCgroup {
		return nil, errors.New("the configuration wants none")
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	return chooseGroups(parseMounts(string(info)), parseOwn(string(own)), path)
}

// chooseGroups tries version 1 if a hierarchy of it has the memory, and version 2 otherwise.
func chooseGroups(mounts []cgroupMount, own map[string]string, path string) (*groups, error) {
	g := &groups{version: 1}
	for _, c := range controllers {
		i := slices.IndexFunc(mounts, func(m cgroupMount) bool { return slices.Contains(m.controllers, c) })
		if i < 0 {
			continue
		}
		at := own[c]
		if path != "" {
			at = path
		}
		g.parents = append(g.parents, mounts[i].below(at))
	}
	if len(g.parents) == len(controllers) {
		return tried(g)
	}
	i := slices.IndexFunc(mounts, func(m cgroupMount) bool { return m.controllers == nil })
	if i < 0 || len(g.parents) > 0 {
		return nil, fmt.Errorf("no hierarchy of control groups has %s", strings.Join(controllers, ", "))
	}
	if path != "" {
		return tried(&groups{2, []string{path}})
	}
	var errs []error
	for at := own[""]; ; at = filepath.Dir(at) {
		g, err := tried(&groups{2, []string{mounts[i].below(at)}})
		if err == nil {
			return g, nil
		}
		if errs = append(errs, err); at == "/" || at == "." {
			return nil, errors.Join(errs...)
		}
	}
}

// parseMounts finds hierarchies in what the kernel says of the mounts of a process.
func parseMounts(info string) (mounts []cgroupMount) {
	for line := range strings.Lines(info) {
		before, after, _ := strings.Cut(line, " - ")
		f, kind := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(kind) < 3 {
			continue
		}
		switch m := (cgroupMount{root: f[3], dir: f[4]}); kind[0] {
		case "cgroup":
			m.controllers = strings.Split(kind[2], ",")
			mounts = append(mounts, m)
		case "cgroup2":
			mounts = append(mounts, m)
		}
	}
	return mounts
}

// parseOwn returns the groups of a process by controller; that of version 2 has the empty name.
func parseOwn(text string) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 {
			for _, c := range strings.Split(f[1], ",") {
				own[c] = f[2]
			}
		}
	}
	return own
}

// below returns the directory of a group, which may be only partly visible.
func (m cgroupMount) below(path string) string {
	if rel, err := filepath.Rel(m.root, path); err == nil && !strings.HasPrefix(rel, "..") {
		return filepath.Join(m.dir, rel)
	}
	return m.dir
}

// tried returns g if a group could be made and removed there.
func tried(g *groups) (*groups, error) {
	x, err := g.make(fmt.Sprintf("try-%d-%d", os.Getpid(), time.Now().UnixNano()), executor.Limits{MemoryBytes: 64 << 20, CPUs: 1}, 16)
	if err != nil {
		return nil, err
	}
	return g, x.remove()
}

// make makes a group with limits. processes are those of the supervisor, too.
func (g *groups) make(id string, l executor.Limits, processes int) (*group, error) {
	x := &group{version: g.version}
	for _, p := range g.parents {
		dir := filepath.Join(p, groupPrefix+id)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, errors.Join(err, x.remove())
		}
		x.dirs = append(x.dirs, dir)
	}
	if err := x.limit(l, processes); err != nil {
		return nil, errors.Join(err, x.remove())
	}
	return x, nil
}

const cpuPeriod = 100_000 // microseconds

func (x *group) limit(l executor.Limits, processes int) error {
	memory, pids := strconv.FormatInt(l.MemoryBytes, 10), strconv.Itoa(processes)
	quota := strconv.Itoa(int(math.Ceil(l.CPUs * cpuPeriod)))
	if x.version == 2 {
		dir := x.dirs[0]
		return errors.Join(
			write(dir, "memory.max", memory), writeIf(dir, "memory.swap.max", "0"), write(dir, "pids.max", pids),
			write(dir, "cpu.max", quota+" "+strconv.Itoa(cpuPeriod)),
		)
	}
	// Without accounting for swap, the memory of a group is kept out of the swap space.
	return errors.Join(
		write(x.dirs[0], "memory.limit_in_bytes", memory), writeIf(x.dirs[0], "memory.memsw.limit_in_bytes", memory),
		writeIf(x.dirs[0], "memory.swappiness", "0"), write(x.dirs[1], "pids.max", pids),
		write(x.dirs[2], "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)), write(x.dirs[2], "cpu.cfs_quota_us", quota),
	)
}

func write(dir, name, value string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(value), 0) // it exists
}

// writeIf leaves out what a kernel does not have.
func writeIf(dir, name, value string) error {
	if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
		return nil //nolint:nilerr // see above
	}
	return write(dir, name, value)
}

// add moves a process into the group.
func (x *group) add(pid int) error {
	var errs []error
	for _, dir := range x.dirs {
		errs = append(errs, write(dir, "cgroup.procs", strconv.Itoa(pid)))
	}
	return errors.Join(errs...)
}

// binds returns where the sandbox sees which directory, as programs look for their limits.
func (x *group) binds() map[string]string {
	if x.version == 2 {
		return map[string]string{"/sys/fs/cgroup": x.dirs[0]}
	}
	at := map[string]string{}
	for i, dir := range x.dirs {
		at["/sys/fs/cgroup/"+controllers[i]] = dir
	}
	return at
}

// outOfMemory reports whether the kernel has killed something in the group because its memory ran
// out.
func (x *group) outOfMemory() bool {
	for _, name := range []string{"memory.oom_control", "memory.events"} {
		text, err := os.ReadFile(filepath.Join(x.dirs[0], name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
				return n != "0"
			}
		}
	}
	return false
}

// removeTime is how long the kernel may count what has just ended.
const removeTime = 10 * time.Second

// remove removes a group whose processes have ended. One that is gone is not an error.
func (x *group) remove() error {
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	var errs []error
	for _, dir := range x.dirs {
		for begin := time.Now(); ; <-poll.C {
			err := os.Remove(dir)
			if err == nil || errors.Is(err, os.ErrNotExist) {
				break
			}
			if time.Since(begin) > removeTime {
				errs = append(errs, err)
				break
			}
		}
	}
	return errors.Join(errs...)
}

// youngGroup is how long a group may be empty because its sandbox is only just being started.
const youngGroup = time.Minute

// sweep removes groups of sandboxes that have ended when the program that made them was gone. They
// are empty, so they hold nothing but a name.
func (g *groups) sweep(now time.Time) error {
	var errs []error
	for _, p := range g.parents {
		entries, err := os.ReadDir(p)
		errs = append(errs, err)
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || !e.IsDir() || !strings.HasPrefix(e.Name(), groupPrefix) || now.Sub(info.ModTime()) < youngGroup {
				continue
			}
			_ = os.Remove(filepath.Join(p, e.Name())) // the kernel refuses it while it has processes
		}
	}
	return errors.Join(errs...)
}
