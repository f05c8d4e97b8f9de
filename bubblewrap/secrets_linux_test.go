package bubblewrap

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/executor"
)

// search looks for a word in the names of all files, in the contents of those that are not
// programs, in what processes say of themselves, and in its own environment and descriptors; and it
// connects to sockets. It prints where it has found something.
const search = `
import json, os, socket, stat, sys
word, root, paths, abstract = sys.argv[1].encode(), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
found = set()

def read(name, where):
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        if word in os.read(fd, 1 << 16): found.add(where)
    except OSError:
        pass
    os.close(fd)

def connect(address, where):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    try:
        s.connect(address)
        if word in s.recv(100): found.add(where)
    except OSError:
        pass
    s.close()

for path in paths:  # by the names that they have outside
    read(path, path)
    connect(path, path)
connect("\0" + abstract, "abstract socket")
for base, dirs, files in os.walk(root):
    dirs[:] = [d for d in dirs if base != root or d not in ("proc", "sys", "usr")]
    for name in dirs + files:
        path = os.path.join(base, name)
        if word in os.fsencode(name): found.add(path)
        if name in files and stat.S_ISREG(os.lstat(path).st_mode): read(path, path)
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("cmdline", "environ"): read("/proc/%s/%s" % (pid, name), name)
if any(word in os.fsencode(k + v) for k, v in os.environ.items()): found.add("environment")
for fd in os.listdir("/proc/self/fd"):
    try:
        if int(fd) > 2 and word in os.pread(int(fd), 1 << 16, 0): found.add("descriptor")
    except OSError:
        pass
print(json.dumps(sorted(found)))
`

// TestSecrets plants secrets and sockets in every place that a sandbox must not have, and lets code
// look for them. The same search finds each of them outside.
func TestSecrets(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it plants secrets in the directories of others")
	}
	word := "execbroker-secret-" + strings.ToLower(rand.Text())
	places, paths := t.TempDir(), []string{}
	for _, dir := range []string{"/home", "/root", "/run", "/var", "/var/tmp", "/tmp", "/etc", "/srv", "/opt", "/mnt", "/dev/shm"} {
		if _, err := os.Stat(dir); err != nil {
			t.Fatalf("%v: this test plants something there", err)
		}
		path := filepath.Join(dir, word)
		check(t, os.WriteFile(path, []byte(word), 0o644))
		t.Cleanup(func() { os.Remove(path) })
		paths = append(paths, path)
	}
	answer := func(l net.Listener, err error) {
		check(t, err)
		done := make(chan struct{})
		t.Cleanup(func() { l.Close(); <-done })
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(c, word)
				c.Close()
			}
		}()
	}
	for _, dir := range []string{"/run", "/tmp", "/var/tmp", "/root", "/home"} {
		path := filepath.Join(dir, word+".socket")
		answer(net.Listen("unix", path))
		check(t, os.Chmod(path, 0o777))
		paths = append(paths, path)
	}
	answer(net.Listen("unix", "@"+word))
	t.Setenv("EXECBROKER_TEST_SECRET", word)
	sleeper := exec.CommandContext(t.Context(), "sh", "-c", "read wait # "+word)
	input, err := sleeper.StdinPipe()
	check(t, err)
	check(t, sleeper.Start())
	t.Cleanup(func() { input.Close(); sleeper.Wait() })
	// What a program has inherited, and every program that it starts inherits.
	file := filepath.Join(places, "inherited")
	check(t, os.WriteFile(file, []byte(word), 0o600))
	fd, err := unix.Open(file, unix.O_RDONLY, 0)
	check(t, err)
	t.Cleanup(func() { unix.Close(fd) })

	list, err := json.Marshal(paths)
	check(t, err)
	argv := []string{"/usr/bin/python3", "-c", search, word, "/", string(list), word}
	outside := exec.CommandContext(t.Context(), argv[0], append(slices.Clone(argv[1:4]), places, string(list), word)...)
	outside.ExtraFiles = []*os.File{os.NewFile(uintptr(dup(t, fd)), "inherited")}
	out, err := outside.Output()
	check(t, err)
	var found []string
	check(t, json.Unmarshal(out, &found))
	for _, want := range append([]string{"abstract socket", "cmdline", "environ", "environment", "descriptor"}, paths...) {
		if !slices.Contains(found, want) {
			t.Errorf("outside the search does not find: %s", want)
		}
	}

	x, _ := open(t, func(*Config) {})
	s := create(t, x, executor.Spec{})
	r, err := s.Run(t.Context(), executor.Request{Command: argv}, nil)
	check(t, err)
	// The search itself has the word in its command line.
	if got := strings.TrimSpace(r.Stdout.String()); got != `["cmdline"]` {
		t.Errorf("inside: found %s %s", got, r.Stderr)
	}
	links, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid(t, s)))
	check(t, err)
	for _, l := range links {
		name := fmt.Sprintf("/proc/%d/fd/%s", pid(t, s), l.Name())
		if to, err := os.Readlink(name); err == nil && to == file {
			t.Errorf("the supervisor has inherited descriptor %s", l.Name())
		}
	}
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	check(t, err)
	return d
}

// TestUsers looks at the processes of a sandbox from outside: none has the user of root or of this
// program, code has no right, and the supervisor has those that it needs.
func TestUsers(t *testing.T) {
	t.Parallel()
	x, _ := open(t, func(*Config) {})
	s := create(t, x, executor.Spec{})
	says(t, s, "import subprocess; p = subprocess.Popen(['sleep', '100'])")
	first := pid(t, s)
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", first))
	check(t, err)
	dirs, err := filepath.Glob("/proc/[0-9]*")
	check(t, err)
	users := map[string]bool{}
	seen := 0
	for _, dir := range dirs {
		if at, err := os.Readlink(dir + "/ns/pid"); err != nil || at != namespace {
			continue
		}
		st := status(t, dir)
		seen++
		for _, id := range append(strings.Fields(st["Uid"]), strings.Fields(st["Gid"])...) {
			if n, err := strconv.Atoi(id); err != nil || n == 0 || n == os.Getuid() {
				t.Errorf("%s: user or group %s", dir, id)
			}
		}
		allowed := uint64(0)
		uid := strings.Fields(st["Uid"])
		if uid[0] == strings.Fields(status(t, fmt.Sprintf("/proc/%d", first))["Uid"])[0] {
			allowed = 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID
		}
		users[uid[0]] = true
		caps, err := strconv.ParseUint(st["CapPrm"], 16, 64)
		check(t, err)
		if caps&^allowed != 0 || st["NoNewPrivs"] != "1" || st["Seccomp"] != "2" {
			t.Errorf("%s: capabilities %s, no-new-privileges %s, filter %s", dir, st["CapPrm"], st["NoNewPrivs"], st["Seccomp"])
		}
	}
	if len(users) != 2 || seen < 3 {
		t.Errorf("%d processes of %d users", seen, len(users))
	}
	other := create(t, x, executor.Spec{})
	if uid := status(t, fmt.Sprintf("/proc/%d", pid(t, other)))["Uid"]; users[strings.Fields(uid)[0]] {
		t.Error("two sandboxes have the same user")
	}
}

// status reads what the kernel says of a process.
func status(t *testing.T, dir string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(dir + "/status")
	check(t, err)
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(line, ":")
		found[k] = strings.TrimSpace(v)
	}
	return found
}
