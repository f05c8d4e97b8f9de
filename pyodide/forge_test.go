package pyodide

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// forged are sequences of frames that a worker sends only if its code controls it, with their names
// in testdata/forge and the end of a run that gets them. Each has a defined end, whatever the
// worker does.
var forged = []struct {
	name   string
	status executor.Status
	reason executor.Reason
}{
	// Until the end of the code the clocks of the run apply, and after it the clock for the
	// transfer of files.
	{"good", executor.StatusOK, ""},
	{"no-answer-after-the-run", executor.StatusOK, ""},
	{"spans-backwards", executor.StatusKilled, executor.ReasonSandbox},
	{"spans-byte-by-byte", executor.StatusKilled, executor.ReasonSandbox},
	{"spans-with-gaps", executor.StatusKilled, executor.ReasonSandbox},
	{"span-over-and-over", executor.StatusKilled, executor.ReasonSandbox},
	{"file-over-and-over", executor.StatusKilled, executor.ReasonSandbox},
	{"files-without-end", executor.StatusKilled, executor.ReasonSandbox},
	{"directories-without-end", executor.StatusKilled, executor.ReasonSandbox},
	{"gone-without-end", executor.StatusKilled, executor.ReasonSandbox},
	{"files-before-the-end", executor.StatusKilled, executor.ReasonSandbox},
	{"files-among-the-names", executor.StatusKilled, executor.ReasonSandbox},
	{"nothing-after-the-end", executor.StatusKilled, executor.ReasonSandbox},
	{"kicks-after-the-end", executor.StatusKilled, executor.ReasonSandbox},
	{"values-of-nothing", executor.StatusTimedOut, executor.ReasonWallTime},
	{"values-in-empty-parts", executor.StatusTimedOut, executor.ReasonWallTime},
	{"values-broken", executor.StatusTimedOut, executor.ReasonWallTime},
	{"values-of-nonsense", executor.StatusKilled, executor.ReasonSandbox},
	{"texts-of-nothing", executor.StatusTimedOut, executor.ReasonWallTime},
	{"texts-of-one-byte", executor.StatusKilled, executor.ReasonOutput},
	{"input-without-end", executor.StatusKilled, executor.ReasonSandbox}, // it was given none,
	{"names-of-nothing", executor.StatusTimedOut, executor.ReasonWallTime},
	{"names-without-end", executor.StatusKilled, executor.ReasonSandbox},
	{"names-of-nonsense", executor.StatusKilled, executor.ReasonSandbox},
	{"end-in-empty-parts", executor.StatusKilled, executor.ReasonSandbox},
	{"end-broken", executor.StatusKilled, executor.ReasonSandbox},
	{"end-of-nonsense", executor.StatusKilled, executor.ReasonSandbox},
	{"end-of-many-names", executor.StatusKilled, executor.ReasonSandbox},
	{"end-twice", executor.StatusKilled, executor.ReasonSandbox},
	{"started-twice", executor.StatusKilled, executor.ReasonSandbox},
	{"synced-at-once", executor.StatusKilled, executor.ReasonSandbox},
	{"ready-again", executor.StatusKilled, executor.ReasonSandbox},
	{"reply-to-a-run", executor.StatusKilled, executor.ReasonSandbox},
	{"reply-to-nobody", executor.StatusKilled, executor.ReasonSandbox},
	{"text-for-another", executor.StatusKilled, executor.ReasonSandbox},
	{"text-of-earlier", executor.StatusKilled, executor.ReasonSandbox},
	{"late", executor.StatusKilled, executor.ReasonSandbox},
	{"given-again", executor.StatusKilled, executor.ReasonSandbox},
	{"stuck", executor.StatusKilled, executor.ReasonSandbox},
	{"type-unknown", executor.StatusKilled, executor.ReasonSandbox},
	{"type-zero", executor.StatusKilled, executor.ReasonSandbox},
	{"channel-unknown", executor.StatusKilled, executor.ReasonSandbox},
	{"flag-unknown", executor.StatusKilled, executor.ReasonSandbox},
	{"stream-zero", executor.StatusKilled, executor.ReasonSandbox},
	{"fatal", executor.StatusKilled, executor.ReasonSandbox},
	{"fatal-of-nonsense", executor.StatusKilled, executor.ReasonSandbox},
	{"length-zero", executor.StatusKilled, executor.ReasonSandbox},
	{"length-of-all", executor.StatusKilled, executor.ReasonSandbox},
	{"half-a-frame", executor.StatusTimedOut, executor.ReasonWallTime},
	{"byte-by-byte", executor.StatusKilled, executor.ReasonOutput},
	{"more-than-there-is", executor.StatusKilled, executor.ReasonSandbox},
	{"read-again", executor.StatusTimedOut, executor.ReasonWallTime},
	{"credit-without-end", executor.StatusKilled, executor.ReasonOutput},
	{"kicks", executor.StatusTimedOut, executor.ReasonWallTime},
	{"words-of-nonsense", "", ""}, // the worker may wait for what it has written to the words
}

// TestForgedFrames: whatever an attacker's worker sends, its run ends as killed or timed out, never
// as ok and never as a failure of the infrastructure, and the session continues in another process.
func TestForgedFrames(t *testing.T) {
	if !javascriptHere {
		t.Skip("the worker that forges is one of JavaScript, which this system does not have")
	}
	t.Parallel()
	x := open(t, Config{OSLayer: "none"})
	spec := executor.Spec{Languages: []executor.Language{executor.JavaScript}}
	d := driverSession(create(t, x, spec)).d
	d.ready.assets = forgery(t, d.ready.assets)
	d.ready.denoDir = ""
	d.patience.change = 2 * time.Second
	for _, c := range forged {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := create(t, x, spec)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			req := executor.Request{
				Code: c.name, Limits: executor.RunLimits{WallTime: 30 * time.Second, OutputBytes: 1 << 17},
			}
			// The other ends do not depend on the speed of the machine.
			if c.status != executor.StatusKilled && !strings.HasSuffix(c.name, "after-the-end") {
				req.Limits.WallTime = 3 * time.Second
			}
			r, err := s.Run(ctx, req, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.status != "" && (r.Status != c.status || r.Reason != c.reason) {
				t.Errorf("got %s %s", r.Status, r.Reason)
			}
			if r.StateLost != (r.Status != executor.StatusOK) {
				t.Errorf("lost %v, %s", r.StateLost, r.Status)
			}
			if r, err := s.Run(ctx, executor.Request{Code: "good"}, nil); err != nil || string(r.Stdout) != "good\n" {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// forgery makes a directory with a host program whose worker forges frames.
func forgery(t *testing.T, assets string) string {
	t.Helper()
	dir := t.TempDir()
	names, err := filepath.Glob(filepath.Join(assets, "*.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range append(names, filepath.Join(assets, "importmap.json"), "testdata/forge/worker-javascript.mjs") {
		if strings.HasPrefix(filepath.Base(from), "pyodide") {
			continue
		}
		if err := copyFile(filepath.Join(dir, filepath.Base(from)), from); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
