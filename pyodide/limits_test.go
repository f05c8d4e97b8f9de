package pyodide

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// peak returns the peak memory of a process in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	kb, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// deno returns the Deno process of a session, which may be a child of the process that confines it.
func deno(t *testing.T, s executor.Session) int {
	t.Helper()
	pid := process(t, s)
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			t.Fatal(err)
		}
		children := strings.Fields(string(b))
		if len(children) == 0 {
			return pid
		}
		if pid, err = strconv.Atoi(children[0]); err != nil {
			t.Fatal(err)
		}
	}
}

// Memory beyond the limit is a Python exception, if Python allocates it.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{Limits: executor.Limits{MemoryBytes: 128 * mib}})
	for _, c := range []struct{ name, code string }{
		{"at-once", "b = bytearray(200 << 20)"},
		{"bit-by-bit", "l = []\nwhile True: l.append(bytearray(1 << 20))"},
		{"in-the-library", "'x' * (200 << 20)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runCode(t, s, c.code, within(30*time.Second))
			if r.Status != executor.StatusFailed || r.Exception == nil || r.Exception.Type != "MemoryError" || r.StateLost {
				t.Errorf("got %s, lost %v", describeResult(r), r.StateLost)
			}
			output(t, s, "l = b = x = None; import gc; gc.collect()")
		})
	}
	if got := output(t, s, "b = bytearray(60 << 20); print(len(b))"); got != "62914560\n" {
		t.Errorf("less than the limit: got %q", got)
	}
	if runtime.GOOS == "linux" {
		if got := peak(t, deno(t, s)); got > 500*mib {
			t.Errorf("the process had %d MiB", got/mib)
		}
	}
	// Small objects fill memory to the last byte. Then nothing works any more, not even an error
	// message.
	r := runCode(t, s, "x = []\nwhile True: x = [x, x[:]]", within(30*time.Second))
	if r.Status != executor.StatusKilled || r.Reason != executor.ReasonMemory || !r.StateLost {
		t.Errorf("got %s, lost %v", describeResult(r), r.StateLost)
	}
	output(t, s, "1")
}

// The files of a session have a quota, however they grow, and deleted files no longer count.
func TestDiskLimit(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{Limits: executor.Limits{DiskBytes: 16 * mib}})
	const full = "[Errno 51] No space left on device"
	for _, c := range []struct{ name, code, want string }{
		{"at-once", "open('f', 'wb').write(bytes(17 << 20))", full},
		{"bit-by-bit", "f = open('f', 'wb', 0)\nwhile True: f.write(bytes(1 << 20))", full},
		{"appended", "while True: open('f', 'ab').write(bytes(1 << 20))", full},
		{"sparse", "f = open('f', 'wb', 0); f.seek(1 << 40); f.write(b'x')", full},
		{"truncated-longer", "open('f', 'wb').truncate(1 << 50)", full},
		{"several", "for i in range(100): open(f'f{i}', 'wb').write(bytes(1 << 20))", full},
		{"elsewhere", "for i in range(100): open(f'/lib/f{i}', 'wb').write(bytes(1 << 20))", full},
		{"deleted-but-open", "import os\nl = []\nfor i in range(100):\n  l.append(open('f', 'wb', 0)); l[-1].write(bytes(1 << 20)); os.remove('f')", full},
		{"links", "import os\nfor i in range(10**6): os.symlink('x' * 4000, f'l{i}')", full},
		{"many", "for i in range(10**6): open(f'f{i}', 'w').close()", full},
		{"directories", "import os\nfor i in range(10**6): os.mkdir(f'd{i}')", full},
		{"deep", "import os\nfor i in range(10**6): os.mkdir('d' * 100); os.chdir('d' * 100)", "[Errno 37] Filename too long"},
		{"long-name", "open('n' * 256, 'w')", "[Errno 37] Filename too long: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runCode(t, s, c.code, within(30*time.Second))
			if r.Status != executor.StatusFailed || r.Exception == nil || !strings.HasPrefix(r.Exception.Message, c.want) || r.StateLost {
				t.Errorf("got %s, lost %v", describeResult(r), r.StateLost)
			}
			output(t, s, `
import os, shutil, gc
l = f = None
os.chdir("/workspace")
for d in ("/workspace", "/tmp"):
    for e in os.scandir(d): shutil.rmtree(e.path) if e.is_dir(follow_symlinks=False) else os.remove(e.path)
for e in os.scandir("/lib"):
    if e.name.startswith("f"): os.remove(e.path)
gc.collect()`)
		})
	}
	// The whole quota can be used, again and again.
	if got := output(t, s, `
import os, shutil
for i in range(5):
    with open("f", "wb") as f: f.write(bytes(15 << 20))
    os.remove("f")
for i in range(15): open(f"g{i}", "wb").write(bytes(1 << 20))
for i in range(15): os.replace(f"g{i}", "g")
print(shutil.disk_usage("/workspace").total >> 20, os.listdir())`); got != "16 ['g']\n" {
		t.Errorf("got %q", got)
	}
}

// Code that takes memory outside of Python's own reaches the limits of the process, and only its
// session is lost.
func TestFloods(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("resource limits of a process need Linux")
	}
	x := open(t, Config{})
	bystander := create(t, x, executor.Spec{})
	output(t, bystander, "state = 1")
	for _, c := range []struct{ name, code string }{
		{"buffers-of-javascript", "from pyodide.ffi import to_js\nl = []\nwhile True: l.append(to_js(bytes(10_000_000)))"},
		{"objects-of-javascript", "from pyodide.ffi import to_js\nl = []\nwhile True: l.append(to_js([[i] for i in range(10000)]))"},
		{"proxies", "from pyodide.ffi import create_proxy\nl = []\nwhile True: l.append(create_proxy([]))"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := create(t, x, executor.Spec{Limits: executor.Limits{MemoryBytes: 128 * mib, DiskBytes: 16 * mib}})
			output(t, s, "open('kept', 'w').close()")
			pid := deno(t, s)
			var most int64
			req := executor.Request{Code: "print('on', flush=True)\n" + c.code, Limits: executor.RunLimits{WallTime: 20 * time.Second}}
			stop := make(chan struct{})
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-stop:
						return
					case <-tick.C:
						if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)); err == nil {
							var size, rss int64
							fmt.Sscan(string(b), &size, &rss)
							most = max(most, rss*int64(os.Getpagesize()))
						}
					}
				}
			}()
			r, err := s.Run(t.Context(), req, nil)
			close(stop)
			<-watched
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %s, lost %v, at most %d MiB", r.Status, r.Reason, r.StateLost, most/mib)
			switch {
			case r.Status == executor.StatusFailed && !r.StateLost: // an exception
			case r.Status == executor.StatusTimedOut: // Python spends most of the time collecting garbage before it gives up
			case r.Status == executor.StatusKilled && r.Reason == executor.ReasonMemory && r.StateLost:
			default:
				t.Errorf("got %s, lost %v", describeResult(r), r.StateLost)
			}
			if most > 1500*mib {
				t.Errorf("the process had %d MiB", most/mib)
			}
			if got := output(t, s, "import os; print(os.listdir())"); got != "['kept']\n" {
				t.Errorf("got %q", got)
			}
		})
	}
	if got := output(t, bystander, "print(state)"); got != "1\n" {
		t.Errorf("the other session: got %q", got)
	}
}
