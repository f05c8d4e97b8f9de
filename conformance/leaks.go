package conformance

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// leakCases count what is left when all sessions and Executors of the suite are closed: at the
// backend, and in and below this process.
func leakCases() []caseDef {
	return []caseDef{
		{
			ID: "leaks/sessions", last: true, Feature: executor.FeatureList,
			Doc:      "No sandbox that the suite created is listed after its session was closed.",
			Positive: leftSessions,
			Negative: func(t *T) {
				for _, err := range t.Open(nil).Sessions(t.Context(), nil) {
					t.Refused("sessions", err, executor.FeatureList)
				}
			},
		},
		{
			ID: "leaks/backend", last: true, unsuited: func(s *suite) string {
				if s.target.Leaks == nil {
					return "the target has nothing to look at: Target.Leaks"
				}
				return ""
			},
			Doc:      "Nothing that the suite made is left at the backend.",
			Positive: leftAtBackend,
		},
		{
			ID: "leaks/executors", last: true,
			Doc: "Executors close in time and without an error.",
			Positive: func(t *T) {
				for _, err := range t.s.closeErrs {
					t.Errorf("%s", err)
				}
			},
		},
		{
			ID: "leaks/goroutines", last: true,
			Doc:      "No goroutine is left when every Executor is closed.",
			Positive: left("goroutine", goroutines, func(s *suite) map[string]string { return s.before.goroutines }),
		},
		{
			ID: "leaks/descriptors", last: true, unsuited: needsProc,
			Doc:      "No file descriptor is left open when every Executor is closed.",
			Positive: left("descriptor", descriptors, func(s *suite) map[string]string { return s.before.descriptors }),
		},
		{
			ID: "leaks/processes", last: true, unsuited: needsProc,
			Doc:      "No process is left below this one when every Executor is closed and every child of the suite has ended.",
			Positive: left("process", processes, func(s *suite) map[string]string { return s.before.processes }),
		},
		{
			ID: "leaks/temporary-files", last: true,
			Doc:      "No file is left in the temporary directory when every Executor is closed.",
			Positive: left("file", temporaryFiles, func(s *suite) map[string]string { return s.before.files }),
		},
	}
}

// needsProc says why a case cannot run where the kernel does not tell what a process holds.
func needsProc(*suite) string {
	if runtime.GOOS != "linux" {
		return "can be counted on Linux only"
	}
	return ""
}

// census says what the process holds, by keys that tell an old thing from a new one.
type census struct{ goroutines, descriptors, processes, files map[string]string }

func takeCensus(s *suite) census {
	// The first use of the poller opens descriptors that stay.
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	c := census{descriptors: descriptors(s), processes: processes(s), files: temporaryFiles(s)}
	counted := make(chan struct{})
	go func() { // because the calling goroutine is not counted, and that of Run is to be
		defer close(counted)
		c.goroutines = goroutines(s)
	}()
	<-counted
	return c
}

// left makes the form of a case that compares two counts. What is on its way out has a moment to
// go.
func left(what string, now func(*suite) map[string]string, before func(*suite) map[string]string) func(*T) {
	return func(t *T) {
		t.needWhole()
		var news map[string]string
		t.settle(func() bool {
			news = now(t.s)
			maps.DeleteFunc(news, func(k, _ string) bool { _, ok := before(t.s)[k]; return ok })
			return len(news) == 0
		})
		for _, k := range slices.Sorted(maps.Keys(news)) {
			t.Errorf("%s is left: %s", what, news[k])
		}
	}
}

// needWhole ends the case if another one was left behind: what that one holds says nothing about
// the contract, beyond what its own line says.
func (t *T) needWhole() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if len(t.s.abandoned) > 0 {
		t.find(Errored, "cannot be counted, since these cases did not return: "+strings.Join(t.s.abandoned, ", "))
		runtime.Goexit()
	}
}

// settle waits until f holds, for at most two Graces. What the last call of f has seen decides: a
// count after it may meet work of the backend that begins only then.
func (t *T) settle(f func() bool) {
	end := time.Now().Add(2 * t.Grace())
	for pause := time.Millisecond; !f() && time.Now().Before(end); pause = min(2*pause, 100*time.Millisecond) {
		time.Sleep(pause)
	}
}

// leftSessions looks for sandboxes with the label of the run, and removes them: nothing else does.
func leftSessions(t *T) {
	x := t.Open(nil)
	list := func() (infos []executor.SessionInfo) {
		for i, err := range x.Sessions(t.Context(), map[string]string{LabelRun: t.s.run}) {
			if err != nil {
				t.Fatalf("sessions: %v", err)
			}
			if !slices.Contains(t.s.abandoned, i.Labels[LabelCase]) {
				infos = append(infos, i)
			} else if err := x.Destroy(t.Context(), i.Handle); err != nil {
				t.Logf("destroy of a sandbox of %s, which did not return: %v", i.Labels[LabelCase], err)
			}
		}
		return infos
	}
	var infos []executor.SessionInfo
	t.settle(func() bool { infos = list(); return len(infos) == 0 })
	for _, i := range infos {
		t.Errorf("sandbox %s of case %s is left, %s", i.Handle.Session, i.Labels[LabelCase], i.State)
		if !t.Has(executor.FeatureAttach) {
			continue
		}
		if err := x.Destroy(t.Context(), i.Handle); err != nil {
			t.Errorf("destroy of what is left: %v", err)
		}
	}
}

func leftAtBackend(t *T) {
	t.needWhole()
	var found []string
	t.settle(func() bool {
		var err error
		if found, err = t.s.target.Leaks(t.Context(), t.s.params); err != nil {
			t.Abort("leaks: %v", err)
		}
		return len(found) == 0
	})
	for _, what := range found {
		t.Errorf("left at the backend: %s", what)
	}
}

// goroutines returns the stacks of the goroutines by their number, but for the calling one and
// those that the runtime's signal handling keeps.
func goroutines(*suite) map[string]string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	all := map[string]string{}
	for i, g := range bytes.Split(buf, []byte("\n\n")) {
		head, _, _ := bytes.Cut(g, []byte(" ["))
		if i > 0 && !bytes.Contains(g, []byte("os/signal.signal_recv")) && !bytes.Contains(g, []byte("runtime.ensureSigM")) {
			all[string(head)] = string(g)
		}
	}
	return all
}

// descriptors returns what the open descriptors of this process refer to. It is empty where /proc
// is missing.
func descriptors(*suite) map[string]string {
	all := map[string]string{}
	const dir = "/proc/self/fd"
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		// The descriptor of the listing itself is gone by now.
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			what := e.Name() + " -> " + to
			all[what] = what
		}
	}
	return all
}

// processes returns the living processes below this one by number and start time. It is empty where
// /proc is missing.
func processes(*suite) map[string]string {
	type process struct {
		parent    int
		start     string
		name      string
		isRunning bool
	}
	all := map[int]process{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if err != nil || open < 0 || end < open {
			continue // it has ended
		}
		const state, parent, start = 0, 1, 19 // after the name, which may hold anything
		fields := strings.Fields(string(stat[end+1:]))
		if len(fields) <= start {
			continue
		}
		ppid, _ := strconv.Atoi(fields[parent])
		all[pid] = process{ppid, fields[start], string(stat[open+1 : end]), fields[state] != "Z" && fields[state] != "X"}
	}
	below := map[string]string{}
	for pid, p := range all {
		for up, depth := p.parent, 0; up > 0 && depth < 1000; up, depth = all[up].parent, depth+1 {
			if up == os.Getpid() && p.isRunning {
				below[fmt.Sprintf("%d@%s", pid, p.start)] = fmt.Sprintf("%d %s", pid, p.name)
			}
		}
	}
	return below
}

// temporaryFiles returns the entries of the temporary directory of the suite.
func temporaryFiles(s *suite) map[string]string {
	all := map[string]string{}
	entries, _ := os.ReadDir(s.tempDir)
	for _, e := range entries {
		all[e.Name()] = e.Name()
	}
	return all
}

// surround prepares the process for counting what is left: a temporary directory in which nobody
// else works, and on Linux the adoption of processes that lost their parent.
func (s *suite) surround() (restore func(), err error) {
	key := "TMPDIR"
	if runtime.GOOS == "windows" {
		key = "TMP"
	}
	old, had := os.LookupEnv(key)
	if s.tempDir, err = os.MkdirTemp("", "conformance-"); err != nil {
		return nil, err
	}
	if err := os.Setenv(key, s.tempDir); err != nil {
		return nil, err
	}
	adoptOrphans(true)
	return func() {
		adoptOrphans(false)
		if had {
			os.Setenv(key, old)
		} else {
			os.Unsetenv(key)
		}
		os.RemoveAll(s.tempDir)
	}, nil
}
