package backends_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

func TestRunsAsText(t *testing.T) {
	for text, want := range map[string]backends.Runs{"1 run": 1, "5 runs": 5, "999999 runs": 999999, "0 runs": 0, "5": 0, "-1 runs": 0, "5 runs ": 0, "1000000 runs": 0} {
		var got backends.Runs
		err := got.UnmarshalText([]byte(text))
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
		if again, err := got.MarshalText(); want != 0 && (err != nil || string(again) != text) {
			t.Errorf("%q: got %q, %v", text, again, err)
		}
	}
}

// TestCheckpointKey: a configuration is refused if its key is not there or is too short.
func TestCheckpointKey(t *testing.T) {
	for _, key := range []string{"", strings.Repeat("k", 31)} {
		t.Setenv("CHECKPOINT_KEY", key)
		bubble(t, fake.Options{}, func(w *world) {
			cfg := parse(w.T, "backends: {a: {type: fake, on: a}}\nsessions: {checkpoint: {every: 5 runs, key: {env: CHECKPOINT_KEY}}}")
			_, err := backends.Open(w.Context(), driver.Env{Owner: "me"}, w.reg, cfg)
			if err == nil || !strings.Contains(err.Error(), "sessions.checkpoint.key") {
				w.Errorf("got %v", err)
			}
		})
	}
}

// TestCheckpointsAreNoTurns: a run that makes or restores a checkpoint counts in quotas and audits,
// and is not a turn of the user.
func TestCheckpointsAreNoTurns(t *testing.T) {
	t.Setenv("CHECKPOINT_KEY", strings.Repeat("k", 32))
	bubble(t, fake.Options{}, func(w *world) {
		var mu sync.Mutex // the end of a sandbox that is gone is audited in the background
		ops := map[string]int{}
		b := w.open(`
backends: {a: {type: fake, on: a}}
sessions: {checkpoint: {every: 2 runs, key: {env: CHECKPOINT_KEY}}}
guard: {runs_per_minute: 7}`, backends.WithAudit(func(a backends.Audit) {
			mu.Lock()
			defer mu.Unlock()
			ops[a.Op+" "+a.Error]++
		}))
		defer w.close(b)
		turn := func(want error) {
			w.Helper()
			l, err := b.Manager().Acquire(w.Context(), "chat", executor.Spec{Subject: "u"})
			if err == nil {
				_, err = l.Run(w.Context(), executor.Request{Code: `n = recall("n", 0) + 1`}, nil)
				err = errors.Join(err, l.Release())
			}
			if !errors.Is(err, want) {
				w.Errorf("got %v, want %v", err, want)
			}
		}
		turn(nil)
		turn(nil) // and a checkpoint
		for _, id := range w.at["a"].Sandboxes() {
			w.at["a"].Break(id)
		}
		turn(nil) // restores it first
		turn(nil) // and a checkpoint, which is the seventh run
		turn(executor.ErrDenied)
		mu.Lock()
		defer mu.Unlock()
		if ops["run "] != 4 || ops["checkpoint "] != 3 || ops["run denied"] != 1 {
			w.Errorf("got %v", ops)
		}
		turns := int64(0)
		for _, a := range b.Stats().Arms {
			turns += a.Turns
		}
		if turns != 5 {
			w.Errorf("got %d turns: %s", turns, fmt.Sprint(b.Stats()))
		}
	})
}
