package modal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/sharetest"
	"github.com/execbroker/execbroker/modal/modaltest"
)

// What is called in the life of a session.
const (
	creates = "SandboxCreateV2"
	starts  = "TaskExecStart"
	writes  = "TaskExecStdinWrite"
	reads   = "TaskExecStdioRead"
)

// script is a run that counts how often it is done, in a file of the sandbox.
const script = `import os
with open("/workspace/done", "a") as f: f.write("x")
for i in range(20): print(i, flush=True)
os.path.getsize("/workspace/done")`

// wanted is what script prints.
var wanted = func() (text string) {
	for i := range 20 {
		text += fmt.Sprintln(i)
	}
	return text
}()

// once runs script and fails the test unless it was done once, and every line came once.
func once(t testing.TB, s executor.Session) {
	t.Helper()
	r, err := s.Run(t.Context(), executor.Request{Language: executor.Python, Code: script}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != executor.StatusOK || r.Stdout.String() != wanted {
		t.Errorf("got %s, %q", r.Status, r.Stdout.String())
	}
	mustRun(t, s, `os.path.getsize("/workspace/done")`, "1")
}

// What Modal does now and then does not keep a session from being created and used: one Sandbox,
// one container, each run once, and nothing left.
func TestRecovers(t *testing.T) {
	t.Parallel()
	switches := []modaltest.Switch{
		modaltest.Lost(creates).Times(1),
		modaltest.Refused(codes.Unavailable, "try again", creates).Times(1),
		modaltest.Throttled(100*time.Millisecond, creates).Times(2),
		modaltest.Throttled(50 * time.Millisecond).Times(4),
		modaltest.Refused(codes.Unavailable, "try again", "AppGetOrCreate", "ImageGetOrCreate", "EnvironmentGetOrCreate").Times(3),
		modaltest.Refused(codes.Unavailable, "try again", "AuthTokenGet").Times(2),
		modaltest.Lost("SandboxTerminateV2").Times(1),
		modaltest.Refused(codes.Internal, "try again", "SandboxTerminateV2", "SandboxWaitV2").Times(3),
		modaltest.Lost(starts).Times(1),
		modaltest.Refused(codes.Unavailable, "try again", starts).Times(3),
		modaltest.Lost(writes).Times(3),
		modaltest.Lost(writes).Skip(1).Times(3),
		modaltest.Refused(codes.Unavailable, "try again", writes).Skip(2).Times(3),
		modaltest.Throttled(50*time.Millisecond, starts).Times(2), // which the SDK does not repeat
		modaltest.Throttled(50*time.Millisecond, writes).Skip(1).Times(1),
		modaltest.Throttled(50*time.Millisecond, writes).Skip(2).Times(1),
		modaltest.Throttled(50*time.Millisecond, writes).Skip(4).Times(1),
		modaltest.Refused(codes.Unauthenticated, "expired", writes).Times(1),
		modaltest.Refused(codes.Unauthenticated, "expired", reads).Times(1),
		modaltest.Cut(0, "ImageJoinStreaming").Times(2),
		modaltest.Cut(1, "ImageJoinStreaming").Times(2),
		modaltest.UnknownFields(),
	}
	for n := range 8 { // behind each of the first messages
		switches = append(switches, modaltest.Cut(n, reads).Times(2))
	}
	worlds := sharetest.New(func() *world { return newWorld(t) })
	for i, sw := range switches {
		t.Run(fmt.Sprintf("%d-%s", i, sw), func(t *testing.T) {
			t.Parallel()
			w := worlds.Take(t)
			before := w.Counts()
			off := w.Switch(sw)
			defer off()
			s := create(t, w.open(t, plain), executor.Spec{})
			once(t, s)
			if at, err := w.Containers(t.Context()); err != nil || len(at) != 1 || at[0] != sandboxOf(t, s) {
				t.Errorf("got containers %q, %v, want that of %s", at, err, sandboxOf(t, s))
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			off()
			w.empty(t)
			after := w.Counts()
			if n := after["sandboxes"] - before["sandboxes"]; n != 1 {
				t.Errorf("got %d Sandboxes, want one", n)
			}
			if n := after["processes"] - before["processes"]; n != 1 {
				t.Errorf("got %d processes, want the opener alone", n)
			}
		})
	}
}

// Every message of a run may be the last one of a stream: what was printed comes once, and in
// order.
func TestCutEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	off := w.Switch(modaltest.Cut(1, reads)) // each stream has one message
	s := create(t, w.open(t, plain), executor.Spec{})
	for range 3 {
		r, err := s.Run(t.Context(), executor.Request{Code: "for i in range(20): print(i, flush=True)"}, nil)
		if err != nil || r.Status != executor.StatusOK || r.Stdout.String() != wanted {
			t.Errorf("got %+v, %v", r, err)
		}
	}
	off()
	if n := w.Counts(); n[reads] < 5 {
		t.Errorf("got %d streams, want that they were cut", n[reads])
	}
	w.sole(t, s)
}

// A connection that is lost for good is opened anew, in the same Sandbox, and the run goes on.
func TestConnectsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := create(t, w.open(t, plain), executor.Spec{})
	var off func()
	r, err := s.Run(t.Context(), executor.Request{Code: "import time\nfor i in range(20):\n    print(i, flush=True); time.sleep(0.1)"}, func(ev executor.Event) error {
		if ev.Kind == executor.EventStdout && off == nil {
			off = w.Switch(modaltest.Refused(codes.DataLoss, "forgotten", reads).Times(1))
			w.Switch(modaltest.Cut(1, reads).Times(1))
		}
		return nil
	})
	if err != nil || r.Status != executor.StatusOK || r.Stdout.String() != wanted {
		t.Errorf("got %+v, %v", r, err)
	}
	w.sole(t, s)
}

// What cannot be helped is an error that says what it is, within the time limit of the caller, and
// leaves nothing.
func TestRefuses(t *testing.T) {
	t.Parallel()
	worlds := sharetest.New(func() *world { return newWorld(t) })
	const some = 6 * time.Second // for creates that do not come to an end by themselves
	for i, c := range []struct {
		sw   modaltest.Switch
		kind error
		want string
	}{
		{modaltest.Refused(codes.Unauthenticated, "Token is invalid", "AuthTokenGet"), executor.ErrAuth, "modal token new"},
		{modaltest.Refused(codes.PermissionDenied, "no", creates), executor.ErrAuth, "modal token new"},
		{modaltest.Refused(codes.ResourceExhausted, "quota", creates), executor.ErrExhausted, "a quota"},
		{modaltest.Refused(codes.InvalidArgument, "no such region", creates), executor.ErrInvalid, "no such region"},
		{modaltest.Refused(codes.NotFound, "no image", creates), executor.ErrInvalid, "no image"},
		{modaltest.Refused(codes.Unavailable, "down", creates), executor.ErrUnavailable, "down"},
		{modaltest.Refused(codes.Unavailable, "down", starts), executor.ErrUnavailable, "down"},
		{modaltest.BuildFails(), executor.ErrUnavailable, "the build has failed"},
		{modaltest.Throttled(time.Hour, creates), executor.ErrExhausted, "Rate limit"},
		{modaltest.Throttled(500*time.Millisecond, creates), executor.ErrExhausted, "Rate limit"},
		{modaltest.Silent(creates), executor.ErrUnavailable, "Sandbox "},
		{modaltest.Silent(starts), executor.ErrUnavailable, "Sandbox "},
		{modaltest.Silent(reads), executor.ErrUnavailable, "Sandbox "},
		{modaltest.Silent("AppGetOrCreate"), executor.ErrUnavailable, "app sandboxes"},
	} {
		t.Run(fmt.Sprintf("%d-%s", i, c.sw), func(t *testing.T) {
			t.Parallel()
			w := worlds.Take(t)
			before := w.Counts()["sandboxes"]
			box := w.open(t, plain, func(cfg *Config) {
				cfg.MaxThrottleWait = driver.Duration(2 * time.Second)
				if strings.HasPrefix(c.sw.String(), "silent") {
					cfg.Timeout = driver.Duration(some)
				}
			})
			off := w.Switch(c.sw)
			defer off()
			s, err := box.Create(t.Context(), executor.Spec{})
			if s != nil {
				s.Close()
			}
			var e *executor.Error
			if !errors.As(err, &e) || e.Kind != c.kind || e.Ran != executor.RanNo || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %v and %q", err, c.kind, c.want)
			}
			if _, secret := w.Token(); err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the error has the token: %v", err)
			}
			off()
			w.empty(t)
			if n := w.Counts()["sandboxes"] - before; n > attempts {
				t.Errorf("got %d Sandboxes, want at most %d", n, attempts)
			}
		})
	}
}

// What somebody does to the app while the backend is open does not keep it from making sessions.
func TestStoppedApp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.open(t, plain)
	s := create(t, box, executor.Spec{})
	w.StopApp(testApp)
	w.empty(t)
	mustRun(t, create(t, box, executor.Spec{}), "6 * 7", "42")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A server that never comes to an end is neither asked without a pause nor for ever.
func TestEndless(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	off := w.Switch(modaltest.Ended("ImageJoinStreaming"))
	if _, err := w.open(t, plain, func(c *Config) { c.Timeout = driver.Duration(2 * time.Second) }).Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("create: got %v", err)
	}
	off()
	if n := w.Counts()["ImageJoinStreaming"]; n == 0 || n > 10 {
		t.Errorf("the build was joined %d times in two seconds", n)
	}
	create(t, w.open(t, plain), executor.Spec{})
	w.Switch(modaltest.SamePage())
	n := 0
	var last error
	for _, err := range w.backend(t).Sessions(t.Context(), nil) {
		if last = err; err != nil || n == 100 {
			break
		}
		n++
	}
	if n != 1 || !errors.Is(last, executor.ErrUnavailable) || !strings.Contains(last.Error(), "again and again") {
		t.Errorf("list: got %d sessions, then %v", n, last)
	}
}

// A create that gets no answer ends with its caller's time, and what it made is removed after that.
func TestUnansweredCreate(t *testing.T) {
	t.Parallel()
	for _, sw := range []modaltest.Switch{modaltest.Silent(creates), modaltest.Unanswered(creates)} {
		t.Run(sw.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			box := w.open(t, plain)
			off := w.Switch(sw)
			defer off()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			begun := time.Now()
			_, err := box.Create(ctx, executor.Spec{})
			if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second+lookFor/2 {
				t.Errorf("got %v after %v", err, took)
			}
			w.empty(t)
			if n := w.Counts()["sandboxes"]; (n == 1) != (sw.String() == "unanswered") {
				t.Errorf("got %d Sandboxes", n)
			}
		})
	}
}

// A Sandbox of v1 that gets no machine is no session, and not left.
func TestSlowScheduling(t *testing.T) {
	w := newWorld(t)
	t.Setenv("MODAL_SANDBOX_V2", "0")
	box := w.open(t, plain, func(c *Config) { c.Generation, c.Timeout = V1, driver.Duration(6*time.Second) })
	off := w.Switch(modaltest.SlowScheduling())
	defer off()
	if _, err := box.Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrUnavailable) || !strings.Contains(err.Error(), "has no machine yet") {
		t.Errorf("got %v", err)
	}
	w.empty(t)
}

// A Sandbox that ends in the middle of a run ends the run with what is known of the reason.
func TestPreempted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.open(t, plain)
	for name, c := range map[string]struct {
		end  func(ctx context.Context, id string) error
		kind error // of the run; nil: it was killed
	}{
		"preempted":  {w.Preempt, executor.ErrUnavailable},
		"terminated": {func(ctx context.Context, id string) error { return terminate(ctx, w.backend(t), id) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := create(t, box, executor.Spec{})
			id := sandboxOf(t, s)
			r, err := s.Run(t.Context(), executor.Request{Code: "print('on', flush=True)\nwhile True: pass"}, func(ev executor.Event) error {
				if ev.Kind == executor.EventStdout {
					return c.end(t.Context(), id)
				}
				return nil
			})
			if !errors.Is(err, c.kind) || err == nil && (r.Status != executor.StatusKilled || r.Stdout.String() != "on\n") {
				t.Errorf("got %+v, %v, want %v", r, err, c.kind)
			}
			if again, err := box.Attach(t.Context(), s.Info().Handle); !errors.Is(err, executor.ErrNotFound) {
				t.Errorf("Attach: got %v, %v, want not found", again, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			w.empty(t)
		})
	}
}

// terminate ends a Sandbox as somebody else who has a token.
func terminate(ctx context.Context, b *backend, id string) error {
	sb, err := b.sdk.Sandboxes.FromID(ctx, id, nil)
	if err == nil {
		_, err = sb.Terminate(ctx, nil)
	}
	return err
}

// faults are what may happen to any request of any session, at any time.
var faults = []func() modaltest.Switch{
	func() modaltest.Switch { return modaltest.Lost() },
	func() modaltest.Switch { return modaltest.Lost(creates, starts, writes) },
	func() modaltest.Switch { return modaltest.Throttled(50 * time.Millisecond) },
	func() modaltest.Switch { return modaltest.Refused(codes.Unavailable, "try again") },
	func() modaltest.Switch { return modaltest.Refused(codes.Internal, "try again") },
	func() modaltest.Switch { return modaltest.Cut(rand.IntN(6), reads) },
}

// TestCycles creates and destroys sessions while faults happen at random. Whatever the outcome,
// errors are of the kinds that say what is the matter, no run is done twice, and in the end nothing
// is left.
func TestCycles(t *testing.T) {
	t.Parallel()
	const n = 60
	var begun atomic.Int64
	var workers sync.WaitGroup
	for range 4 {
		w := newWorld(t) // with its own faults: those of all together are more than anybody gets over
		box := w.open(t, plain)
		workers.Go(func() {
			defer w.empty(t)
			struck, refused := 0, 0
			for begun.Add(1) <= n {
				off, fault := func() {}, "none"
				if rand.IntN(3) > 0 {
					times := 1 + rand.IntN(2)
					sw := faults[rand.IntN(len(faults))]().Times(times)
					struck += times
					off, fault = w.Switch(sw), sw.String()
				}
				s, err := box.Create(t.Context(), executor.Spec{})
				for ; err != nil; s, err = box.Create(t.Context(), executor.Spec{}) {
					t.Logf("with fault %s: %v", fault, err)
					if !errors.Is(err, executor.ErrUnavailable) && !errors.Is(err, executor.ErrExhausted) {
						t.Errorf("create: %v", err)
					}
					if refused++; refused > struck {
						t.Error("more creates were refused than there were faults: one lasts")
						off()
						return
					}
				}
				r, err := s.Run(t.Context(), executor.Request{Code: script}, nil)
				if err != nil || r.Status != executor.StatusOK || r.Stdout.String() != wanted {
					t.Errorf("run: got %+v, %v", r, err)
				}
				off()
				if done, err := fs.ReadFile(executor.FS(t.Context(), s), "done"); err != nil || string(done) != "x" {
					t.Errorf("done %q, %v, want once", done, err)
				}
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}
		})
	}
	workers.Wait()
}
