package e2b

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/sharetest"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// Every fault of E2B that the stand-in knows is turned on, during a whole life of a session: what
// can be survived is, and the rest is an error that says what it is. Those of the code interpreter
// have a test of their own.
func TestSwitches(t *testing.T) {
	t.Parallel()
	worlds := sharetest.New(func() *world { return newWorld(t) })
	for _, c := range switches {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := worlds.Take(t).in(t)
			w.SetFaults(c.f)
			s, err := w.x.Create(t.Context(), executor.Spec{})
			var e *executor.Error
			if c.kind != nil {
				if !errors.As(err, &e) || e.Kind != c.kind || e.Ran != executor.RanNo {
					t.Errorf("got %v, want %v", err, c.kind)
				}
				if err == nil {
					s.Close()
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			w.life(s)
		})
	}
}

// switches are those that need no kernel of E2B's.
var switches = []struct {
	name string
	f    e2btest.Faults
	kind error // of Create; nil: the life goes well
}{
	{"rate-limited", e2btest.Faults{RateLimited: 2, RetryAfter: time.Second}, nil},
	{"rate-limited-for-long", e2btest.Faults{RateLimited: 1, RetryAfter: time.Hour}, executor.ErrExhausted},
	{"quota", e2btest.Faults{QuotaExceeded: 1}, executor.ErrExhausted},
	{"no-capacity", e2btest.Faults{NoCapacity: 2}, nil},
	{"no-capacity-for-long", e2btest.Faults{NoCapacity: 100}, executor.ErrUnavailable},
	{"changing", e2btest.Faults{Changing: 3}, nil},
	{"placement-failed", e2btest.Faults{PlacementFailed: 1}, executor.ErrUnavailable},
	{"lost-answer", e2btest.Faults{LostAnswers: 1}, executor.ErrUnavailable},
	{"lost-answer-without-idempotency", e2btest.Faults{LostAnswers: 1, NoIdempotency: true}, executor.ErrUnavailable},
	{"foreign-error", e2btest.Faults{ForeignErrors: 1}, executor.ErrUnavailable},
	{"old-paths", e2btest.Faults{OldPaths: true}, nil},
	{"no-idempotency", e2btest.Faults{NoIdempotency: true}, nil},
	{"clamped-timeouts", e2btest.Faults{ClampedTimeouts: true}, nil},
	{"sandbox-not-found", e2btest.Faults{BadGateway: e2btest.SandboxNotFound}, executor.ErrNotFound},
	{"port-not-open", e2btest.Faults{BadGateway: e2btest.PortNotOpen, BadGateways: 2}, nil},
	{"route-failed", e2btest.Faults{BadGateway: e2btest.RouteFailed}, executor.ErrUnavailable},
	{"html", e2btest.Faults{BadGateway: e2btest.BrokenInBrowsers}, executor.ErrUnavailable},
	{"too-many-open", e2btest.Faults{TooManyOpen: 1}, executor.ErrExhausted},
	{"cut-at-once", e2btest.Faults{CutAfter: 1}, executor.ErrUnavailable},
	{"cut-in-good-order", e2btest.Faults{CutAfter: 40, CutInGoodOrder: true}, executor.ErrUnavailable},
	{"cut-once", e2btest.Faults{CutAfter: 40, CutPort: daemonPort, Cuts: 1}, nil}, // another sandbox takes its place
	{"torn-uploads", e2btest.Faults{TornUploads: true}, nil},
	{"packed-downloads", e2btest.Faults{PackedDownloads: true}, nil},
	{"detached-output", e2btest.Faults{DetachedOutput: true}, nil},
	{"one-tag", e2btest.Faults{OneTag: true}, nil},
	{"fatal-pings", e2btest.Faults{FatalPings: true}, nil},
	{"late-envd", e2btest.Faults{LateEnvd: 3}, nil},
}

// A switch that the stand-in gets is turned on here as well.
func TestEverySwitchIsTurnedOn(t *testing.T) {
	all := reflect.TypeFor[e2btest.Faults]()
	for i := range all.NumField() {
		on := false
		for _, c := range switches {
			on = on || !reflect.ValueOf(c.f).Field(i).IsZero()
		}
		for _, c := range interpreterSwitches {
			on = on || !reflect.ValueOf(c.f).Field(i).IsZero()
		}
		if !on {
			t.Errorf("no test turns on %s", all.Field(i).Name)
		}
	}
}

// life uses a session for what there is.
func (w *world) life(s executor.Session) {
	w.Helper()
	ctx := w.Context()
	check := func(err error) {
		w.Helper()
		if err != nil {
			w.Error(err)
		}
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<15)
	check(s.Files().Write(ctx, "in.bin", bytes.NewReader(data), 0))
	res, err := s.Run(ctx, executor.Request{Code: "open('out.bin', 'wb').write(open('in.bin', 'rb').read())"}, nil)
	check(err)
	if err == nil {
		check(res.Err())
	}
	rc, err := s.Files().Read(ctx, "out.bin")
	check(err)
	if err == nil {
		got, rerr := io.ReadAll(rc)
		if check(errors.Join(rerr, rc.Close())); !bytes.Equal(got, data) {
			w.Errorf("got %d bytes back", len(got))
		}
	}
	if _, err := s.KeepAlive(ctx, 10*time.Minute); err != nil {
		check(err)
	}
	h := s.Info().Handle
	check(s.Detach())
	again, err := w.x.Attach(ctx, h)
	check(err)
	if err != nil {
		check(w.x.Destroy(ctx, h))
		return
	}
	res, err = again.Run(ctx, executor.Request{Code: "import os; print(os.path.getsize('out.bin'))"}, nil)
	check(err)
	if err == nil && string(res.Stdout) != "524288\n" {
		w.Errorf("got %q after attaching", res.Stdout)
	}
	check(again.Close())
}
