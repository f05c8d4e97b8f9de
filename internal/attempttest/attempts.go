// Package attempttest is the list of attacks from inside a sandbox. The tests of every backend
// whose sandboxes run programs use the same list, and docs/security/attempts.md is generated from
// it.
package attempttest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Attempt is an attack from inside a sandbox. On Docker it is made twice: in a session, where it
// must be stopped as described here, and without one protection, to check that it is a real attack
// and that this protection stops it. On other backends it is made only in a session.
type Attempt struct {
	Name    string
	Code    string // Python code, which runs after attack.py
	Stopped string // the possible results in a session, separated by "|"
	Without string // the protection without which it works on Docker
	Works   string // the possible results without that protection
}

// Group is a section of the list.
type Group struct {
	Name     string
	Aim      string // what its attempts aim at, for people
	Claim    string // the sentence that they try to make false: see Says
	Attempts []Attempt
}

// The names of the groups.
const (
	Kernel     = "kernel"
	Network    = "network"
	Files      = "files"
	Supervisor = "supervisor"
	Floods     = "floods"
	Packages   = "packages"
	Outliving  = "outliving"
)

// Groups returns the list.
func Groups() []Group {
	return []Group{
		{Kernel, "Use what the kernel offers to those who may.", "the kernel's namespaces, cgroups and system-call filter", kernel},
		{Network, "Reach what is outside, and others by way of the kernel. Listeners of the test count what comes out.", "Without a network policy there is no network.", network},
		{Files, "Leave the directories of the code.", "read-only roots, namespaces, or WebAssembly without files of the host", files},
		{Supervisor, "Speak for the main process of the sandbox, read it, change it, end it.", "the supervisor has another user, and code cannot trace it", supervisor},
		{Floods, "Take more than a sandbox may have.", "limits that every session has", floods},
		{Packages, "Change what was installed.", "builders and caches are apart from sessions", packages},
		{Outliving, "Be there after the run.", "Code that leaves a sandbox, or gets more than its limits, its network or its user may have, is a vulnerability", outliving},
	}
}

// Says returns an error if neither SECURITY.md nor the threat model says a sentence. root is the
// directory of the repository.
func Says(root, sentence string) error {
	var text string
	for _, name := range []string{"SECURITY.md", "docs/security/threat-model.md"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		text += strings.Join(strings.Fields(string(data)), " ")
	}
	if sentence == "" || !strings.Contains(text, sentence) {
		return fmt.Errorf("neither SECURITY.md nor the threat model says %q, which attempts are about", sentence)
	}
	return nil
}

// Aimed returns the lines of a page that say which sentence attempts try to make false.
func Aimed(sentence string) string {
	var b strings.Builder
	column := 0
	for _, word := range append(strings.Fields("They try to make this false: “"+sentence+"”"), "<!-- no claim -->") {
		switch n := utf8.RuneCountInString(word); {
		case column == 0:
			column = n
		case column+1+n > 100:
			b.WriteByte('\n')
			column = n
		default:
			b.WriteByte(' ')
			column += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}

// Of returns the attempts of a group for a backend.
func Of(group, backend string) []Attempt {
	for _, g := range Groups() {
		if g.Name == group {
			all := slices.Clone(g.Attempts)
			for i := range all {
				if e, ok := elsewhere[backend][group+"/"+all[i].Name]; ok {
					all[i].Stopped = e
				}
			}
			return all
		}
	}
	panic("no group " + group)
}

// IsStopped reports whether word is a result that means that the attempt was stopped.
func (a Attempt) IsStopped(word string) bool {
	return slices.Contains(strings.Split(a.Stopped, "|"), word)
}

// Image is a Python program that root runs to create an image with programs that give additional
// rights to their users.
const Image = `
import os, shutil, struct
for name in ("become", "capable"):
    shutil.copy(os.path.realpath("/usr/bin/python3"), "/opt/" + name)
os.chmod("/opt/become", 0o4755)
os.chmod("/opt/capable", 0o755)
os.setxattr("/opt/capable", "security.capability", struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0))  # SETUID, permitted and effective
`

//go:embed attack.py
var prelude string

// Prelude returns the code in front of the code of attempts.
func Prelude() string { return prelude }

// Command returns the command that makes attempts, each in a separate process, and prints a line
// with the result of each. vars are variables for their code.
func Command(python string, attempts []Attempt, vars map[string]any) []string {
	where := strings.Builder{}
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		v, _ := json.Marshal(vars[k]) // impossible: the values come from the tests
		fmt.Fprintf(&where, "%q: %s,", k, v)
	}
	var codes []string
	for _, a := range attempts {
		codes = append(codes, a.Code)
	}
	text, _ := json.Marshal(codes) // impossible: codes are strings
	return []string{python, "-I", "-S", "-c", fmt.Sprintf("%s\nattempts(%s, {%s})", prelude, text, where.String())}
}

// own returns the results of attempts that take from a kernel which the sandbox has for itself.
func own(more map[string]string) map[string]string {
	for _, name := range []string{"", "-of-all-threads", "-by-prctl", "-by-a-wide-number"} {
		more["kernel/call-filter"+name] = "ok"
	}
	for _, name := range []string{"cpu", "memory", "disk"} {
		more["kernel/pressure-trigger-"+name] = "ok|EOPNOTSUPP|ENOENT"
	}
	more["kernel/call-filter-kept-by-a-listener"] = "EPERM"
	more["kernel/write-proc-and-sys"] = "True|False"
	return more
}

// elsewhere has, for each backend, the attempts that end with other results there.
var elsewhere = map[string]map[string]string{
	// A user namespace has no other users, masked files cannot be opened at all, and there is no
	// sysfs. Its tmpfs bounds bytes; inodes count as memory.
	"bubblewrap": {
		"kernel/proc-keys":          "EACCES",
		"kernel/sys-power":          "ENOENT",
		"supervisor/become-another": "EINVAL",
		"floods/inodes":             "ok",
		"floods/directories":        "ok",
	},
	// gVisor is a kernel of the sandbox's own, which knows fewer calls and hides less of a process
	// from another user. What is read there of the supervisor has no secret: see
	// docs/security/docker.md.
	"gvisor": {
		"kernel/add-key":                        "EACCES",
		"kernel/addresses-of-memory":            "ENOENT",
		"kernel/aio":                            "ok",
		"kernel/call-filter":                    "ok",
		"kernel/call-filter-by-a-wide-number":   "ok",
		"kernel/call-filter-by-prctl":           "ok",
		"kernel/call-filter-kept-by-a-listener": "EPERM",
		"kernel/call-filter-of-all-threads":     "ok",
		"kernel/cgroup-limit":                   "ENOENT",
		"kernel/clone-user":                     "ok",
		"kernel/clone-user-mount":               "ok",
		"kernel/clone-user-network":             "ok",
		"kernel/clone-user-pid":                 "ok",
		"kernel/descriptor-of-itself":           "ENOSYS",
		"kernel/drop-caches":                    "ENOENT",
		"kernel/fanotify":                       "ENOSYS",
		"kernel/fsconfig":                       "ENOSYS",
		"kernel/fsmount":                        "ENOSYS",
		"kernel/fsopen":                         "ENOSYS",
		"kernel/fspick":                         "ENOSYS",
		"kernel/handle-of-a-file":               "ENOTSUP",
		"kernel/highest-file":                   "ENOENT",
		"kernel/highest-process":                "ENOENT",
		"kernel/interrupts":                     "ENOENT",
		"kernel/kernel-log":                     "ok",
		"kernel/memory-binding":                 "ok",
		"kernel/memory-policy":                  "ok",
		"kernel/memory-policy-of":               "ok",
		"kernel/move-mount":                     "ENOSYS",
		"kernel/open-by-handle":                 "ENOTSUP",
		"kernel/open-tree":                      "ENOSYS",
		"kernel/panic":                          "ENOENT",
		"kernel/perf-event":                     "ENODEV",
		"kernel/personality":                    "EINVAL",
		"kernel/personality-all-executable":     "EINVAL",
		"kernel/personality-of-32-bits":         "EINVAL",
		"kernel/personality-old-kernel":         "EINVAL",
		"kernel/printk":                         "ENOENT",
		"kernel/priority":                       "ok",
		"kernel/proc-keys":                      "ENOENT",
		"kernel/process-madvise":                "ENOSYS",
		"kernel/push-terminal":                  "ENOTTY",
		"kernel/randomization":                  "ENOENT",
		"kernel/remap-pages":                    "ENOSYS",
		"kernel/request-key":                    "EACCES",
		"kernel/session-keyring":                "EACCES",
		"kernel/setns":                          "ENOENT",
		"kernel/sys-power":                      "ENOENT",
		"kernel/timer-list":                     "ENOENT",
		"kernel/unshare-cgroup":                 "ok",
		"kernel/unshare-mount":                  "ok",
		"kernel/unshare-time":                   "ok",
		"kernel/unshare-user":                   "ok",
		"kernel/userfaultfd":                    "ENOSYS",
		"kernel/vm-read-itself":                 "ENOSYS",
		"kernel/vm-write-itself":                "ENOSYS",
		"kernel/vmsplice":                       "ENOSYS",
		"network/interface-address":             "ENOTTY",
		"network/interface-flags":               "ENOTTY",
		"network/large-send-buffer":             "ok",
		"network/mark":                          "ok",
		"network/metadata":                      "EHOSTUNREACH",
		"network/netlink":                       "EACCES",
		"network/network-of-the-engine":         "EHOSTUNREACH",
		"network/packet-priority":               "ok",
		"network/private-network":               "EHOSTUNREACH",
		"network/route":                         "EHOSTUNREACH",
		"network/transparent":                   "ok",
		"supervisor/affinity":                   "ok",
		"supervisor/descriptors":                "ok",
		"supervisor/environment":                "ok",
		"supervisor/execution-domain":           "ENOENT",
		"supervisor/facts-of-descriptors":       "ok",
		"supervisor/mapped-files":               "ENOENT",
		"supervisor/maps":                       "ok",
		"supervisor/maps-of-a-thread":           "ok",
		"supervisor/namespaces":                 "ok",
		"supervisor/parts-of-memory":            "ok",
		"supervisor/priority":                   "ok",
		"supervisor/scheduling":                 "EINVAL",
		"supervisor/signal-by-descriptor":       "ENOSYS",
		"supervisor/socket":                     "TimeoutError",
		"supervisor/take-descriptor":            "ENOSYS",
		"supervisor/vectors":                    "ok",
		"supervisor/vm-read":                    "ENOSYS",
		"supervisor/vm-write":                   "ENOSYS",
	},
	// A Machine has a separate kernel. What that kernel allows to everybody it also allows to code:
	// there is no engine with a list of system calls.
	"e2b": own(map[string]string{}),
	"flymachines": own(map[string]string{
		"kernel/aio":                        "ok",
		"kernel/clone-user":                 "ok",
		"kernel/clone-user-mount":           "ok",
		"kernel/clone-user-network":         "ok",
		"kernel/clone-user-pid":             "ok",
		"kernel/clone3":                     "EINVAL",
		"kernel/descriptor-of-itself":       "ok",
		"kernel/fsconfig":                   "EINVAL|EPERM",
		"kernel/handle-of-a-file":           "ENOTSUP|EOVERFLOW",
		"kernel/kcmp-itself":                "ok",
		"kernel/memfd-secret":               "ok|ENOSYS",
		"kernel/memory-binding":             "ok|ENOSYS",
		"kernel/memory-policy":              "ok|ENOSYS",
		"kernel/memory-policy-of":           "ok|ENOSYS",
		"kernel/modify-ldt":                 "ok|ENOSYS",
		"kernel/mount-setattr":              "EINVAL|ENOSYS",
		"kernel/perf-event":                 "EACCES|EPERM",
		"kernel/personality-of-32-bits":     "ok",
		"kernel/personality-old-kernel":     "ok",
		"kernel/process-madvise":            "EBADF",
		"kernel/process-release":            "EBADF|ENOSYS",
		"kernel/quota":                      "ENOENT|EPERM",
		"kernel/read-adjustment":            "ok",
		"kernel/read-adjustment-of-a-clock": "ok",
		"kernel/remap-pages":                "EINVAL",
		"kernel/unshare-user":               "ok",
		"kernel/vm-read-itself":             "ok",
		"kernel/vm-write-itself":            "ok",
		"kernel/vmsplice":                   "ok",
		"supervisor/socket":                 "ECONNREFUSED", // there is no such socket
	}),
}
