package conformance

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/waittest"
)

// TestLeaks plants one leak at a time: its case fails, and no other.
func TestLeaks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a process holds can be counted on Linux only")
	}
	for name, c := range map[string]struct {
		leak func(t *testing.T, x *T) // its remains are removed at the end of t
		want string
		also string // the case that notices it as well
	}{
		"nothing":  {leak: func(*testing.T, *T) {}},
		"a-moment": {leak: func(*testing.T, *T) { time.AfterFunc(50*time.Millisecond, func() {}) }},
		"goroutines": {want: "TestLeaks", leak: func(t *testing.T, _ *T) {
			end := make(chan struct{})
			t.Cleanup(func() { close(end) })
			go func() { <-end }()
		}},
		"descriptors": {want: "/dev/null", leak: func(t *testing.T, _ *T) {
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Error(err)
			}
			t.Cleanup(func() { f.Close() })
		}},
		"processes": {want: "sleep", also: "leaks/descriptors", leak: func(t *testing.T, _ *T) {
			cmd := exec.Command("sleep", "60")
			if err := cmd.Start(); err != nil {
				t.Error(err)
			}
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		}},
		"temporary-files": {want: "left-over", leak: func(t *testing.T, _ *T) {
			if _, err := os.MkdirTemp("", "left-over"); err != nil {
				t.Error(err)
			}
		}},
		"executors": {want: "close of the Executor: stuck", also: "leaks/sessions", leak: func(*testing.T, *T) {}},
		"backend":   {want: "left at the backend: a volume", leak: func(*testing.T, *T) {}},
		"sessions":  {want: "sandbox s1 of case a is left, running", leak: func(*testing.T, *T) {}},
	} {
		inBubble := func(t *testing.T) { // where a moment is enough for a goroutine to end
			s := stub{caps: executor.Capabilities{
				Features:  []executor.Feature{executor.FeatureList, executor.FeatureAttach},
				Languages: []executor.Runtime{{Language: executor.Python}},
			}}
			var destroyed []string
			l := listing{stub: s, destroyed: &destroyed}
			if name == "executors" {
				l.close = func() error { return errors.New("stuck") }
			}
			if name == "sessions" {
				l.left = "s1"
			}
			target := s.target()
			target.Grace = 100 * time.Millisecond
			target.Open = func(context.Context, map[string]string) (executor.Executor, error) { return l, nil }
			target.Leaks = func(context.Context, map[string]string) ([]string, error) {
				if name == "backend" {
					return []string{"a volume"}, nil
				}
				return nil, nil
			}
			r, err := runDefs(t.Context(), target, append(leakCases(), caseDef{ID: "a", Positive: func(x *T) { c.leak(t, x) }})...)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range r.Cases {
				switch {
				case l.ID == c.also:
				case l.ID != "leaks/"+name:
					if l.Outcome != Passed {
						t.Errorf("%s: got %s, %q", l.ID, l.Outcome, l.Reason)
					}
				case l.Outcome != Failed || !strings.Contains(l.Reason, c.want):
					t.Errorf("%s: got %s, %q, want %q", l.ID, l.Outcome, l.Reason, c.want)
				}
			}
			if name == "sessions" && (len(destroyed) != 1 || destroyed[0] != "s1") {
				t.Errorf("got %q destroyed, want what was left", destroyed)
			}
		}
		t.Run(name, func(t *testing.T) { synctest.Test(t, inBubble) })
	}
}

// listing is a stub that lists a sandbox of the suite for ever.
type listing struct {
	stub
	left      string
	destroyed *[]string
}

func (l listing) Sessions(_ context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		if l.left != "" {
			labels[LabelCase] = "a"
			yield(executor.SessionInfo{Handle: executor.Handle{Session: l.left}, State: executor.SessionRunning, Labels: labels}, nil)
		}
	}
}

func (l listing) Destroy(_ context.Context, h executor.Handle) error {
	*l.destroyed = append(*l.destroyed, h.Session)
	return nil
}

// TestLeaksAreGone checks that nothing is counted again after the count that found nothing: by then
// a backend may have begun something else.
func TestLeaksAreGone(t *testing.T) {
	old := map[string]string{"old": "old"}
	counts := []map[string]string{{"old": "old", "on its way out": ""}, {"old": "old"}}
	now := func(*suite) map[string]string {
		if len(counts) == 0 {
			return map[string]string{"old": "old", "begun since": ""}
		}
		c := counts[0]
		counts = counts[1:]
		return c
	}
	r, err := runDefs(t.Context(), stub{}.target(), caseDef{ID: "a", last: true, Positive: left("thing", now, func(*suite) map[string]string { return old })})
	if l := lineOf(t, r, "a"); err != nil || l.Outcome != Passed {
		t.Errorf("got %s, %q, %v, want passed", l.Outcome, l.Reason, err)
	}
}

// TestOrphansAreSeen starts a process whose parent dies: what a sandbox leaves when the program
// that held it was killed.
func TestOrphansAreSeen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("orphans are adopted on Linux only")
	}
	target := stub{}.target()
	target.Grace = 100 * time.Millisecond
	end := t.TempDir() + "/end"
	defer func() {
		os.WriteFile(end, nil, 0o600)
		// It is a process below this one until it has seen that, and would count for the test after
		// this one.
		waittest.Until(t, "the orphan ends", func() error {
			if left := processes(nil); len(left) > 0 {
				return fmt.Errorf("%q live", left)
			}
			return nil
		})
	}()
	r, err := runDefs(t.Context(), target, append(leakCases(), caseDef{ID: "a", Positive: func(t *T) {
		script := `(while [ ! -e "$1" ]; do sleep 0.05; done) >/dev/null 2>&1 & :`
		if err := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", end).Run(); err != nil {
			t.Abort("%v", err)
		}
	}})...)
	if l := lineOf(t, r, "leaks/processes"); err != nil || l.Outcome != Failed {
		t.Errorf("got %s, %q, %v, want failed", l.Outcome, l.Reason, err)
	}
}

// TestSurroundings checks that the suite leaves the process as it was.
func TestSurroundings(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	before := os.TempDir()
	var during string
	_, err := runDefs(t.Context(), stub{}.target(), caseDef{ID: "a", Positive: func(*T) { during = os.TempDir() }})
	if err != nil || during == before || os.TempDir() != before {
		t.Errorf("got the temporary directory %s during the suite and %s after it, %v, want %s after it", during, os.TempDir(), err, before)
	}
	if _, err := os.Stat(during); !os.IsNotExist(err) {
		t.Errorf("got %v, want the directory of the suite removed", err)
	}
}

// TestLeaksNotApplicable checks that what cannot be counted leaves no hole.
func TestLeaksNotApplicable(t *testing.T) {
	r, err := runDefs(t.Context(), stub{}.target(), leakCases()...)
	if l := lineOf(t, r, "leaks/backend"); err != nil || l.Outcome != Unchecked || !l.NotApplicable || !r.Conformant {
		t.Errorf("got %+v, %v, conformant %v", l, err, r.Conformant)
	}
	if l := lineOf(t, r, "leaks/sessions"); l.Outcome != Refused {
		t.Errorf("got %+v of the sessions of a backend that does not list them", l)
	}
}
