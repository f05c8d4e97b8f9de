package bubblewrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/runner"
)

// The register of sandboxes is the table of processes: each bwrap has a note in its environment,
// which nobody can read but root and the user who has started it. So nothing is stored that could
// be left.

// note is what a process that did not start a sandbox has to know of it. It does not change.
type note struct {
	ID      string   `json:"id"`
	Session string   `json:"session"`           // Start.Note
	Version int      `json:"version,omitempty"` // of the control group
	Groups  []string `json:"groups,omitempty"`
	Same    bool     `json:"same,omitempty"` // code has the user of the supervisor
}

// found is a sandbox in the table of processes.
type found struct {
	note
	info         executor.SessionInfo
	monitor, pid int // the processes of bwrap and of the supervisor
}

func (f *found) process() *process {
	p := &process{monitor: f.monitor, pid: f.pid, same: f.Same}
	if len(f.Groups) > 0 {
		p.group = &group{f.Version, f.Groups}
	}
	return p
}

// place is the State of handles: where the bwrap of the sandbox is in the table of processes.
type place struct {
	Namespace string `json:"ns"` // of the number
	Monitor   int    `json:"monitor"`
}

// state returns the State of the handle of a sandbox.
func state(monitor int, here string) json.RawMessage {
	text, err := json.Marshal(place{here, monitor})
	if err != nil {
		return nil
	}
	return text
}

// find returns a sandbox. The note of the process says whether it is the one of the handle, whose
// State may be forged. Only a handle that says nothing of this namespace makes find read the whole
// table of processes.
func find(h executor.Handle) (f found, ok bool, err error) {
	here, err := namespace()
	if err != nil {
		return f, false, err
	}
	var at place
	if json.Unmarshal(h.State, &at) == nil && at.Namespace == here && at.Monitor > 0 {
		f, ok = look(fmt.Sprintf("/proc/%d", at.Monitor), here)
		return f, ok && f.ID == h.Session, nil
	}
	all, err := running()
	i := slices.IndexFunc(all, func(f found) bool { return f.ID == h.Session })
	if err != nil || i < 0 {
		return f, false, err
	}
	return all[i], true, nil
}

// namespace names the namespace of the numbers of processes.
func namespace() (string, error) { return os.Readlink("/proc/self/ns/pid") }

// running returns the sandboxes that run, of whatever owner.
func running() (all []found, err error) {
	here, err := namespace()
	if err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if f, ok := look(dir, here); ok {
			all = append(all, f)
		}
	}
	return all, nil
}

// look reads the note of a process, if it is one of ours. It must be in this namespace: whatever a
// sandbox contains is in another, so code cannot pose as one.
func look(dir, here string) (f found, ok bool) {
	if comm, err := os.ReadFile(dir + "/comm"); err != nil || string(comm) != "bwrap\n" {
		return f, false
	}
	st, err := os.Stat(dir)
	if err != nil {
		return f, false
	}
	if u, ok := st.Sys().(*syscall.Stat_t); !ok || !ours(int(u.Uid)) {
		return f, false
	}
	if at, err := os.Readlink(dir + "/ns/pid"); err != nil || at != here {
		return f, false
	}
	env, err := os.ReadFile(dir + "/environ")
	if errors.Is(err, os.ErrPermission) { // it belongs to a subordinate user, who we are in the namespace of the sandbox
		env, err = exec.Command("nsenter", "--user="+dir+"/ns/user", "--setuid", "0", "--setgid", "0", "--", "cat", dir+"/environ").Output() //nolint:noctx // it reads a file of the kernel
	}
	if err != nil {
		return f, false
	}
	var text []byte
	for entry := range bytes.SplitSeq(env, []byte{0}) { // a shell adds some of its own
		if note, ok := bytes.CutPrefix(entry, []byte(noteName+"=")); ok {
			text = note
		}
	}
	if text == nil || json.Unmarshal(text, &f.note) != nil {
		return f, false
	}
	if f.info, err = runner.Recall(f.ID, f.Session); err != nil {
		return f, false
	}
	f.monitor, err = strconv.Atoi(filepath.Base(dir))
	f.pid = child(f.monitor)
	f.info.Handle.State = state(f.monitor, here)
	return f, err == nil && f.pid != 0
}

// child returns the number of the supervisor that a bwrap watches over; 0 if it is not there yet or
// no more.
func child(monitor int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", monitor))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
