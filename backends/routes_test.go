package backends_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/router"
	"github.com/execbroker/execbroker/internal/fake"
)

const twoRoutes = `
backends: {a: {type: fake, on: a}, b: {type: fake, on: b}, c: {type: fake, on: c}}
routes:
  - {name: premium, match: {attributes: {plan: pro}}, salt: x, split: [{backend: a, weight: 50}, {backend: b, weight: 50}], fallback: [c]}
  - {name: rest, split: [{backend: c, weight: 1}]}
`

func TestRoutes(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(twoRoutes)
		defer w.close(b)
		seen := map[string]int{}
		for i := range 100 {
			spec := executor.Spec{Subject: fmt.Sprint("user", i), Attributes: map[string]string{"plan": "pro"}}
			d, err := b.Decide(spec)
			if err != nil {
				w.Fatal(err)
			}
			s := w.create(b, spec)
			r := w.says(s, "print(1)", "1\n")
			if got, want := r.Origin, (executor.Origin{Backend: d.Assigned, Session: s.Info().Handle.Session, Route: "premium", Assigned: d.Assigned}); got != want {
				w.Errorf("got %+v, want %+v", got, want)
			}
			seen[d.Assigned]++
			s.Close()
		}
		if seen["a"]+seen["b"] != 100 || seen["a"] < 30 || seen["b"] < 30 {
			w.Errorf("got %v", seen)
		}
		s := w.create(b, executor.Spec{})
		if got := s.Info().Handle.Backend; got != "c" {
			w.Errorf("got %s", got)
		}
		s.Close()
	})
}

func TestFallback(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(twoRoutes)
		defer w.close(b)
		w.at["a"].Fail(fake.OpCreate, -1, unavailable)
		w.at["b"].Fail(fake.OpCreate, -1, unavailable)
		spec := executor.Spec{Subject: "u", Attributes: map[string]string{"plan": "pro"}}
		s := w.create(b, spec)
		d, _ := b.Decide(spec)
		if o := w.says(s, "print(1)", "1\n").Origin; o.Backend != "c" || o.Assigned != d.Assigned || o.Route != "premium" {
			w.Errorf("got %+v", o)
		}
		s.Close()
		w.at["c"].Fail(fake.OpCreate, -1, unavailable)
		_, err := b.Create(w.Context(), spec)
		w.fails(err, executor.ErrUnavailable)
		arms := b.Stats().Arms
		if len(arms) != 2 {
			w.Fatalf("got %+v", arms)
		}
		if a := arms[0]; a.Backend != "" || a.Assigned != d.Assigned || a.Creates != 1 || !reflect.DeepEqual(a.CreateErrors, map[string]int64{"unavailable": 1}) {
			w.Errorf("got %+v of what nobody served", a)
		}
		if a := arms[1]; a.Backend != "c" || a.Assigned != d.Assigned || a.Creates != 1 || a.Runs[executor.StatusOK] != 1 || a.CreateErrors != nil {
			w.Errorf("got %+v of what was served elsewhere", a)
		}
		for _, want := range []string{"1 (1 unavailable)", "ASSIGNED"} {
			if got := b.Stats().String(); !strings.Contains(got, want) {
				w.Errorf("got\n%s\nwithout %q", got, want)
			}
		}
	})
}

func TestBackendGoesPastTheRoutes(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(twoRoutes + "guard: {code_bytes: 10}")
		defer w.close(b)
		x, _ := b.Backend("b")
		s := w.create(x, executor.Spec{})
		if got := w.says(s, "print(1)", "1\n").Origin; got.Backend != "b" || got.Route != "" {
			w.Errorf("got %+v", got)
		}
		_, err := s.Run(w.Context(), executor.Request{Code: "print(1234)"}, nil)
		w.fails(err, executor.ErrDenied)
		listed := 0
		for i, err := range x.Sessions(w.Context(), nil) {
			if err != nil || i.Handle.Backend != "b" {
				w.Errorf("got %+v, %v", i, err)
			}
			listed++
		}
		if listed != 1 || x.Info().Name != "b" || b.Info().Type != "router" {
			w.Errorf("got %d of %+v, %+v", listed, x.Info(), b.Info())
		}
		if err := x.Close(); err != nil {
			w.Error(err)
		}
		w.says(s, "print(2)", "2\n")
		s.Close()
	})
}

// A backend that does not answer keeps nobody from the sandboxes of the others.
func TestListWithASilentBackend(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(twoRoutes)
		defer w.close(b)
		for _, name := range []string{"a", "b", "c"} {
			x, _ := b.Backend(name)
			s := w.create(x, executor.Spec{})
			defer s.Close()
		}
		release := w.at["a"].Hold(fake.OpSessions)
		var listed []string
		for i, err := range b.Sessions(w.Context(), nil) {
			if err != nil {
				w.Error(err)
			}
			if listed = append(listed, i.Handle.Backend); len(listed) == 2 {
				if slices.Contains(listed, "a") {
					w.Errorf("got %q before a answers", listed)
				}
				release()
			}
		}
		if slices.Sort(listed); !slices.Equal(listed, []string{"a", "b", "c"}) {
			w.Errorf("got %q", listed)
		}
	})
}

func TestDecideWithoutRoutes(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open("backends: {a: {type: fake, on: a}}")
		d, err := b.Decide(executor.Spec{})
		if want := (router.Decision{Route: "default", Assigned: "a", Split: []router.Share{{Backend: "a", Weight: 1}}, Eligible: []string{"a"}}); err != nil || !reflect.DeepEqual(d, want) {
			w.Errorf("got %+v, %v", d, err)
		}
		w.close(b)
		_, err = b.Decide(executor.Spec{})
		w.fails(err, executor.ErrClosed)
		_, err = b.Create(w.Context(), executor.Spec{})
		w.fails(err, executor.ErrClosed)
		b = w.open("backends: {a: {type: fake, on: a}, b: {type: fake, on: b}}")
		defer w.close(b)
		_, err = b.Decide(executor.Spec{})
		w.fails(err, executor.ErrInvalid)
	})
}

func TestStatsOfRuns(t *testing.T) {
	bubble(t, fake.Options{CreateTime: 2 * time.Second}, func(w *world) {
		b := w.open("backends: {a: {type: fake, on: a}}")
		defer w.close(b)
		s := w.create(b, executor.Spec{})
		for range 98 {
			w.says(s, "sleep(100)", "")
		}
		w.says(s, "sleep(5000)", "")
		if r := w.says(s, `throw("ValueError", "x")`, ""); r.Status != executor.StatusFailed {
			w.Errorf("got %+v", r)
		}
		time.Sleep(time.Minute)
		s.Close()
		got := b.Stats().Arms[0]
		within := func(what string, got fmt.Stringer, want time.Duration) {
			d, err := time.ParseDuration(got.String())
			if err != nil || d < want || d > want+want/30 {
				w.Errorf("%s: got %v, want %v", what, got, want)
			}
		}
		within("create", got.Create.P50, 2*time.Second)
		within("run p50", got.Run.P50, 100*time.Millisecond)
		within("run p95", got.Run.P95, 100*time.Millisecond)
		within("run p99", got.Run.P99, 100*time.Millisecond)
		if got.Runs[executor.StatusOK] != 99 || got.Runs[executor.StatusFailed] != 1 || got.Run.Count != 100 || got.Queue.P99 != 0 {
			w.Errorf("got %+v", got)
		}
		if time.Duration(got.SandboxTime) < time.Minute {
			w.Errorf("got sandbox time %v", got.SandboxTime)
		}
	})
}

func TestAudit(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		var log []backends.Audit
		b := w.open(twoRoutes+"guard: {runs_per_minute: 2, packages: {python: [numpy]}}", backends.WithAudit(func(a backends.Audit) { log = append(log, a) }))
		defer w.close(b)
		s := w.create(b, executor.Spec{Subject: "u", Attributes: map[string]string{"k": "v"}})
		w.says(s, "print(1)", "1\n")
		if _, err := s.Install(w.Context(), executor.Packages{Names: []string{"numpy==2"}}, nil); err != nil {
			w.Error(err)
		}
		if _, err := s.Run(w.Context(), executor.Request{Command: []string{"a", "b"}}, nil); !errors.Is(err, executor.ErrDenied) {
			w.Errorf("got %v", err)
		}
		s.Close()
		hash := func(code string) string { h := sha256.Sum256([]byte(code)); return hex.EncodeToString(h[:]) }
		want := []string{
			"create   0 []  ",
			"run python " + hash("print(1)") + " 8 [] ok ",
			"install python  0 [{python [numpy==2]}] ok ",
			"run python " + hash("a\x00b") + " 2 []  denied",
			"end   0 []  ",
		}
		var got []string
		for _, a := range log {
			if a.Time.IsZero() || a.Subject != "u" || a.Origin.Backend != "c" || a.Origin.Route != "rest" || a.Origin.Session != s.Info().Handle.Session {
				w.Errorf("got %+v", a)
			}
			got = append(got, fmt.Sprintf("%s %s %s %d %v %s %s", a.Op, a.Language, a.CodeSHA256, a.CodeBytes, a.Packages, a.Status, a.Error))
		}
		if !slices.Equal(got, want) {
			w.Errorf("got %q, want %q", got, want)
		}
		if log[3].Ran != "no" || log[0].Attributes["k"] != "v" {
			w.Errorf("got %+v", log)
		}
	})
}
