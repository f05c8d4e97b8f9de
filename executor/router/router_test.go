package router_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/router"
	"github.com/execbroker/execbroker/internal/fake"
)

// world is a few backends by name.
type world struct {
	fakes map[string]*fake.Backend
	execs map[string]executor.Executor
}

func build(t testing.TB, opts map[string]fake.Options) world {
	t.Helper()
	w := world{map[string]*fake.Backend{}, map[string]executor.Executor{}}
	for name, o := range opts {
		b := fake.New(o)
		x, err := b.Open(driver.Env{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
			if left := b.Sandboxes(); len(left) > 0 {
				t.Errorf("%s: %d sandboxes left", name, len(left))
			}
		})
		w.fakes[name], w.execs[name] = b, x
	}
	return w
}

func (w world) router(t testing.TB, routes ...router.Route) *router.Router {
	t.Helper()
	r, err := router.New("front", w.execs, router.Config{Routes: routes}, executor.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func shares(pairs ...any) (out []router.Share) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, router.Share{Backend: pairs[i].(string), Weight: pairs[i+1].(int)})
	}
	return out
}

func TestMatch(t *testing.T) {
	w := build(t, map[string]fake.Options{"a": {}, "b": {}})
	r := w.router(t,
		router.Route{Name: "pro", Match: router.Match{Attributes: map[string]string{"plan": "pro"}}, Split: shares("a", 1)},
		router.Route{Name: "any-team", Match: router.Match{Attributes: map[string]string{"team": "*"}}, Split: shares("a", 1)},
		router.Route{Name: "js", Match: router.Match{Languages: []executor.Language{executor.JavaScript}}, Split: shares("a", 1)},
		router.Route{Name: "science", Match: router.Match{Templates: []string{"data-science"}}, Split: shares("a", 1)},
		router.Route{Name: "files", Match: router.Match{Require: []executor.Feature{executor.FeatureFiles}}, Split: shares("a", 1)},
		router.Route{Name: "label", Match: router.Match{Labels: map[string]string{"app": "shop"}}, Split: shares("a", 1)},
		router.Route{Name: "rest", Split: shares("b", 1)},
	)
	for want, spec := range map[string]executor.Spec{
		"pro":      {Attributes: map[string]string{"plan": "pro", "team": "x"}},
		"any-team": {Attributes: map[string]string{"plan": "free", "team": "x"}},
		"js":       {Languages: []executor.Language{executor.Python, executor.JavaScript}},
		"science":  {Template: "data-science"},
		"files":    {Require: []executor.Feature{executor.FeatureState, executor.FeatureFiles}},
		"label":    {Labels: map[string]string{"app": "shop"}},
		"rest":     {Attributes: map[string]string{"plan": ""}},
	} {
		d, err := r.Decide(spec)
		if err != nil || d.Route != want {
			t.Errorf("%s: got %+v %v", want, d, err)
		}
	}
	only := w.router(t, router.Route{Name: "pro", Match: router.Match{Attributes: map[string]string{"plan": "pro"}}, Split: shares("a", 1)})
	if _, err := only.Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrInvalid) {
		t.Errorf("no route: got %v, want %v", err, executor.ErrInvalid)
	}
}

// subjects returns many subjects, so that counts of them show the parts.
func subjects(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("user-%d", i)
	}
	return out
}

func assignments(t *testing.T, r *router.Router, subjects []string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, s := range subjects {
		d, err := r.Decide(executor.Spec{Subject: s})
		if err != nil {
			t.Fatal(err)
		}
		out[s] = d.Assigned
	}
	return out
}

func TestSplitIsSticky(t *testing.T) {
	w := build(t, map[string]fake.Options{"a": {}, "b": {}, "c": {}})
	all := subjects(20_000)
	at := func(salt string, split ...any) map[string]string {
		return assignments(t, w.router(t, router.Route{Name: "r", Salt: salt, Split: shares(split...)}), all)
	}
	count := func(m map[string]string) map[string]int {
		n := map[string]int{}
		for _, b := range m {
			n[b]++
		}
		return n
	}
	base := at("s", "a", 70, "b", 30)
	for b, part := range map[string]float64{"a": 0.7, "b": 0.3} {
		// Five standard deviations of a binomial distribution. The subjects are fixed, so the
		// result is always the same.
		if got, dev := float64(count(base)[b]), 5*math.Sqrt(20_000*part*(1-part)); math.Abs(got-20_000*part) > dev {
			t.Errorf("%s: got %v of 20000, want %v ± %v", b, got, 20_000*part, dev)
		}
	}
	t.Run("same-in-any-order", func(t *testing.T) {
		for s, b := range at("s", "b", 30, "a", 70) {
			if base[s] != b {
				t.Fatalf("%s: got %s, want %s", s, b, base[s])
			}
		}
	})
	t.Run("growing-moves-only-to-what-grows", func(t *testing.T) {
		for s, b := range at("s", "a", 70, "b", 60) {
			if b != base[s] && b != "b" {
				t.Fatalf("%s moved from %s to %s", s, base[s], b)
			}
		}
		for s, b := range at("s", "a", 70, "b", 30, "c", 10) {
			if b != base[s] && b != "c" {
				t.Fatalf("%s moved from %s to %s", s, base[s], b)
			}
		}
	})
	t.Run("stays-down-to-its-bucket", func(t *testing.T) {
		decide := func(weight int, subject string) router.Decision {
			d, err := w.router(t, router.Route{Name: "r", Salt: "s", Split: shares("a", weight, "b", 30)}).Decide(executor.Spec{Subject: subject})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		moved := 0
		for _, s := range all[:200] {
			d := decide(70, s)
			if most := map[string]int{"a": 70, "b": 30}[d.Assigned]; d.Bucket < 1 || d.Bucket > most {
				t.Fatalf("%s: got %+v", s, d)
			}
			if d.Assigned != "a" {
				continue
			}
			if kept := decide(d.Bucket, s); kept.Assigned != "a" || kept.Bucket != d.Bucket {
				t.Errorf("%s: with the weight of its bucket, %d, got %+v", s, d.Bucket, kept)
			}
			if decide(d.Bucket-1, s).Assigned != "a" {
				moved++
			}
		}
		if moved == 0 {
			t.Error("with less than the weight of its bucket no subject has moved")
		}
	})
	t.Run("salts-are-independent", func(t *testing.T) {
		same := 0
		for s, b := range at("other", "a", 70, "b", 30) {
			if base[s] == b {
				same++
			}
		}
		// Independent choices agree in 0.7² + 0.3² of the cases.
		if want := 20_000 * 0.58; math.Abs(float64(same)-want) > 400 {
			t.Errorf("got %d the same, want about %v", same, want)
		}
	})
	t.Run("zero-gets-none-and-all-gets-all", func(t *testing.T) {
		if n := count(at("s", "a", 0, "b", 1)); n["b"] != len(all) {
			t.Errorf("got %v", n)
		}
	})
}

// TestAssignmentsAreForEver: a change of these assignments would change every experiment that runs.
func TestAssignmentsAreForEver(t *testing.T) {
	w := build(t, map[string]fake.Options{"a": {}, "b": {}})
	r := w.router(t, router.Route{Name: "r", Salt: "2026-11", Split: shares("a", 1, "b", 1)})
	var got strings.Builder
	for _, s := range subjects(40) {
		d, _ := r.Decide(executor.Spec{Subject: s})
		got.WriteString(d.Assigned)
	}
	if want := "bbbabbbaaaaabaaaaaaaaababbabbababaaabaaa"; got.String() != want {
		t.Errorf("got  %s\nwant %s", got.String(), want)
	}
}

func TestNoSubject(t *testing.T) {
	w := build(t, map[string]fake.Options{"a": {}, "b": {}})
	r := w.router(t, router.Route{Name: "r", Split: shares("a", 1, "b", 1), Fallback: []string{"b"}})
	if d, err := r.Decide(executor.Spec{}); err != nil || d.Assigned != "" || !slices.Equal(d.Eligible, []string{"b"}) {
		t.Errorf("got %+v %v, want nothing assigned", d, err)
	}
	seen := map[string]bool{}
	for range 64 { // the probability that one backend gets them all is 2^-63
		s, err := r.Create(t.Context(), executor.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		seen[s.Info().Handle.Backend] = true
		s.Close()
	}
	if !seen["a"] || !seen["b"] {
		t.Errorf("got %v, want both", seen)
	}
}

func TestFallback(t *testing.T) {
	kinds := map[string]struct {
		kind error
		ran  executor.Ran
		want string // the backend that serves; "": Create returns the error
	}{
		"unavailable": {executor.ErrUnavailable, executor.RanNo, "b"},
		"exhausted":   {executor.ErrExhausted, executor.RanNo, "b"},
		"auth":        {executor.ErrAuth, executor.RanNo, "b"},
		"unsupported": {executor.ErrUnsupported, executor.RanNo, "b"},
		"invalid":     {executor.ErrInvalid, executor.RanNo, ""},
		"denied":      {executor.ErrDenied, executor.RanNo, ""},
		"internal":    {executor.ErrInternal, executor.RanNo, ""},
	}
	for name, c := range kinds {
		t.Run(name, func(t *testing.T) {
			w := build(t, map[string]fake.Options{"a": {}, "b": {}})
			w.fakes["a"].Fail(fake.OpCreate, 1, driver.Fail(c.kind, c.ran, errors.New("told to")))
			r := w.router(t, router.Route{Name: "r", Split: shares("a", 1), Fallback: []string{"a", "b"}})
			s, err := r.Create(t.Context(), executor.Spec{})
			if c.want == "" {
				if !errors.Is(err, c.kind) {
					t.Fatalf("got %v, want %v", err, c.kind)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			h := s.Info().Handle
			if h.Backend != c.want || h.Meta["router.assigned"] != "a" || h.Meta["router.route"] != "r" {
				t.Errorf("got %+v, want %s, assigned a", h, c.want)
			}
		})
	}
}

func TestAllFail(t *testing.T) {
	w := build(t, map[string]fake.Options{"a": {}, "b": {}})
	w.fakes["a"].Fail(fake.OpCreate, -1, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("first cause")))
	w.fakes["b"].Fail(fake.OpCreate, -1, driver.Fail(executor.ErrExhausted, executor.RanNo, errors.New("second cause")))
	r := w.router(t, router.Route{Name: "r", Split: shares("a", 1), Fallback: []string{"b"}})
	_, err := r.Create(t.Context(), executor.Spec{})
	var e *executor.Error
	if !errors.As(err, &e) || e.Kind != executor.ErrExhausted || e.Backend != "b" || !executor.Retryable(err) {
		t.Errorf("got %v, want what b said", err)
	}
	for _, cause := range []string{"first cause", "second cause"} {
		if !strings.Contains(err.Error(), cause) {
			t.Errorf("got %q, want %q in it", err, cause)
		}
	}
}

func TestNoneCan(t *testing.T) {
	poor := fake.Options{Capabilities: fake.Without(fake.All(executor.Python), executor.FeatureLimitMemory, executor.FeatureEnv)}
	w := build(t, map[string]fake.Options{"a": poor, "b": poor, "rich": {}})
	r := w.router(t, router.Route{Name: "r", Split: shares("a", 1), Fallback: []string{"b"}})
	_, err := r.Create(t.Context(), executor.Spec{Limits: executor.Limits{MemoryBytes: 1 << 30}})
	var e *executor.Error
	if !errors.As(err, &e) || e.Kind != executor.ErrUnsupported || !slices.Equal(e.Missing, []string{"limit-memory"}) || e.Ran != executor.RanNo {
		t.Errorf("got %v, want limit-memory missing", err)
	}
	if n := w.fakes["a"].Calls(fake.OpCreate) + w.fakes["b"].Calls(fake.OpCreate); n > 0 {
		t.Errorf("got %d calls, want none", n)
	}
	r = w.router(t, router.Route{Name: "r", Split: shares("a", 1), Fallback: []string{"b", "rich"}})
	s, err := r.Create(t.Context(), executor.Spec{Limits: executor.Limits{MemoryBytes: 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.Info().Handle.Backend; got != "rich" {
		t.Errorf("got %s, want rich", got)
	}
}

// TestCallerGone: the end of the caller's context is not the backend's fault.
func TestCallerGone(t *testing.T) {
	w := build(t, map[string]fake.Options{"a": {}, "b": {}})
	release := w.fakes["a"].Hold(fake.OpCreate)
	defer release()
	r := w.router(t, router.Route{Name: "r", Split: shares("a", 1), Fallback: []string{"b"}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Create(ctx, executor.Spec{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if n := w.fakes["b"].Calls(fake.OpCreate); n > 0 {
		t.Errorf("got %d creations elsewhere, want none", n)
	}
}

func TestOriginSurvivesAttach(t *testing.T) {
	w := build(t, map[string]fake.Options{"a": {}, "b": {}})
	w.fakes["a"].Fail(fake.OpCreate, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, nil))
	routes := []router.Route{{Name: "r", Split: shares("a", 1), Fallback: []string{"b"}}}
	s, err := w.router(t, routes...).Create(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := executor.ParseHandle(s.Info().Handle.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Detach(); err != nil {
		t.Fatal(err)
	}
	// The routes differ now, as after a reload: the session stays where it is.
	s, err = w.router(t, router.Route{Name: "new", Split: shares("a", 1)}).Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	res, err := s.Run(t.Context(), executor.Request{Language: executor.Python, Code: `print("x")`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := executor.Origin{Backend: "b", Session: h.Session, Route: "r", Assigned: "a"}
	if res.Origin != want {
		t.Errorf("got %+v, want %+v", res.Origin, want)
	}
	if i, err := s.Refresh(t.Context()); err != nil || i.Handle.Meta["router.route"] != "r" {
		t.Errorf("got %+v %v", i.Handle, err)
	}
}

func TestHandleOfNobody(t *testing.T) {
	w := build(t, map[string]fake.Options{"a": {}})
	r := w.router(t, router.Route{Name: "r", Split: shares("a", 1)})
	h := executor.Handle{Backend: "gone", Type: "fake", Session: "x"}
	if _, err := r.Attach(t.Context(), h); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("attach: got %v, want %v", err, executor.ErrNotFound)
	}
	if err := r.Destroy(t.Context(), h); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("destroy: got %v, want %v", err, executor.ErrNotFound)
	}
}

func TestSessionsOfAll(t *testing.T) {
	w := build(t, map[string]fake.Options{
		"a": {}, "b": {}, "blind": {Capabilities: fake.Without(fake.All(), executor.FeatureList)},
	})
	r := w.router(t, router.Route{Name: "r", Split: shares("a", 1, "b", 1, "blind", 0)})
	for _, u := range []string{"1", "2", "3", "4"} {
		s, err := r.Create(t.Context(), executor.Spec{Subject: u, Labels: map[string]string{"n": u}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
	}
	found, refused := 0, 0
	for i, err := range r.Sessions(t.Context(), nil) {
		switch {
		case err == nil && i.Labels["n"] != "":
			found++
		case errors.Is(err, executor.ErrUnsupported):
			refused++
		default:
			t.Errorf("got %+v %v", i, err)
		}
	}
	if found != 4 || refused != 1 {
		t.Errorf("got %d found and %d refused, want 4 and 1", found, refused)
	}
	for range r.Sessions(t.Context(), nil) {
		break // the goroutines end nevertheless: see TestMain
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := 0
	for _, err := range r.Sessions(ctx, nil) {
		if errors.Is(err, context.Canceled) {
			ended++
		}
	}
	if ended != 3 {
		t.Errorf("got %d errors of a context that has ended, want one from each backend", ended)
	}
}

func TestInfoIsWhatAllHave(t *testing.T) {
	one := fake.Without(fake.All(executor.Python), executor.FeatureCommand, executor.FeatureStdin)
	one.MaxRun.WallTime, one.Isolation, one.Templates = 60e9, executor.IsolationContainer, []string{"x", "y"}
	one.Languages[0].Version = "3.13"
	two := fake.All(executor.Python, executor.JavaScript)
	two.MaxRun.WallTime, two.Isolation, two.Templates = 30e9, executor.IsolationMicroVM, []string{"y", "z"}
	two.Languages[1].Isolation = executor.IsolationProcess
	w := build(t, map[string]fake.Options{"one": {Capabilities: one}, "two": {Capabilities: two}})
	c := w.router(t, router.Route{Name: "r", Split: shares("one", 1, "two", 1)}).Info().Capabilities
	py, _ := c.Runtime(executor.Python)
	js, _ := c.Runtime(executor.JavaScript)
	for what, ok := range map[string]bool{
		"command varies":             !c.Has(executor.FeatureCommand) && slices.Contains(c.Varies, executor.FeatureCommand),
		"code is there":              c.Has(executor.FeatureCode),
		"stdin varies":               !slices.Contains(py.Features, executor.FeatureStdin) && slices.Contains(py.Varies, executor.FeatureStdin),
		"javascript varies wholly":   len(js.Features) == 0 && slices.Contains(js.Varies, executor.FeatureState),
		"the smaller bound":          c.MaxRun.WallTime == 30e9,
		"the weaker isolation":       c.Isolation == executor.IsolationContainer,
		"that of a language":         js.Isolation == executor.IsolationProcess && py.Isolation == "",
		"the common template":        slices.Equal(c.Templates, []string{"y"}),
		"versions differ, so none":   py.Version == "",
		"what is not used is not in": !slices.Contains(w.router(t, router.Route{Name: "r", Split: shares("two", 1)}).Info().Capabilities.Varies, executor.FeatureCommand),
	} {
		if !ok {
			t.Errorf("%s: got %+v", what, c)
		}
	}
}

func TestClosed(t *testing.T) {
	w := build(t, map[string]fake.Options{"a": {}})
	r := w.router(t, router.Route{Name: "r", Split: shares("a", 1)})
	s, err := r.Create(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrClosed) {
		t.Errorf("got %v, want %v", err, executor.ErrClosed)
	}
	if _, err := s.Refresh(t.Context()); err != nil {
		t.Errorf("a session of it: got %v, want it to live on", err)
	}
}

func TestHooks(t *testing.T) {
	w := build(t, map[string]fake.Options{"a": {}})
	var got []string
	type depth struct{}
	hooks := executor.Hooks{Begin: func(ctx context.Context, op executor.Op) (context.Context, func(executor.Outcome)) {
		return context.WithValue(ctx, depth{}, 1), func(o executor.Outcome) {
			got = append(got, fmt.Sprint(op.Layer, " ", op.Name, " ", o.Origin.Route, " ", o.Err))
		}
	}}
	r, err := router.New("front", w.execs, router.Config{Routes: []router.Route{{Name: "r", Split: shares("a", 1)}}}, hooks)
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Create(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Run(t.Context(), executor.Request{Code: `print("x")`}, nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{"router create r <nil>", "router run r <nil>"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
