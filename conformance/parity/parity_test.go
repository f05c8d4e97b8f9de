package parity

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// backend returns a backend whose code is in the language of package fake, without some features.
func backend(t *testing.T, without ...executor.Feature) (*fake.Backend, executor.Executor) {
	t.Helper()
	b := fake.New(fake.Options{Capabilities: fake.Without(fake.All(), without...)})
	x, err := b.Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil || len(b.Sandboxes()) > 0 {
			t.Errorf("got %v, and %v left", err, b.Sandboxes())
		}
	})
	return b, x
}

func load(t *testing.T, files map[string]string) []Program {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	programs, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return programs
}

func TestObserve(t *testing.T) {
	_, x := backend(t)
	programs := load(t, map[string]string{
		"state.py": "x = 1\n# %%\nprint(x)\nx\n", "fails.py": "print(\"a\")\nnothing\n", "input.py": "# %%\n# stdin: \"Ada\\n\"\nprint(readline())\n", "exit.py": "exit(3)\n",
	})
	o, err := Observe(t.Context(), x, programs, 3)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]Fields{
		"state.py": {{"status": "ok"}, {"status": "ok", "stdout": "1\n", "values": "main application/json text/plain 1"}},
		"input.py": {{"status": "ok", "stdout": "Ada\n"}},
		"exit.py":  {{"status": "failed", "exit code": "3"}},
	} {
		if got := o.Programs[name]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if f := o.Programs["fails.py"][0]; f["status"] != "failed" || f["exception"] == "" || f["stdout"] != "a\n" {
		t.Errorf("got %q", f)
	}
}

// TestObserveFailures: what the backend does not do is an observation, and the end of the context is an error.
func TestObserveFailures(t *testing.T) {
	b, x := backend(t, executor.FeatureStdin)
	programs := load(t, map[string]string{"input.py": "# %%\n# stdin: \"Ada\\n\"\nprint(1)\n"})
	o, err := Observe(t.Context(), x, programs, 1)
	if want := []Fields{{"refused": "stdin:python"}}; err != nil || !reflect.DeepEqual(o.Programs["input.py"], want) {
		t.Errorf("got %v, %v", o, err)
	}
	b.Fail(fake.OpCreate, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("down")))
	o, err = Observe(t.Context(), x, programs, 1)
	if err != nil || len(o.Programs["input.py"]) != 1 || o.Programs["input.py"][0]["error"] == "" {
		t.Errorf("got %v, %v", o, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.DeadlineExceeded)
	if _, err := Observe(ctx, x, programs, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestCompare(t *testing.T) {
	programs := []Program{
		{Name: "a"}, {Name: "b"}, {Name: "c", Differs: map[string]string{"y": "so"}}, {Name: "d", Differs: map[string]string{"y": "so", "z": "no"}},
		{Name: "e", Differs: map[string]string{"z": "elsewhere"}},
	}
	same := []Fields{{"status": "ok"}}
	from := &Observation{Backend: "one", Type: "x", Programs: map[string][]Fields{"a": same, "b": same, "c": same, "d": same, "e": same}}
	to := &Observation{Backend: "two", Type: "y", Programs: map[string][]Fields{
		"a": same, "b": {{"status": "failed", "exit code": "1"}, {"status": "ok"}}, "c": {{"status": "failed"}}, "d": same, "e": nil,
	}}
	r := Compare(from, to, programs)
	var outcomes []Outcome
	for _, l := range r.Programs {
		outcomes = append(outcomes, l.Outcome)
	}
	if want := []Outcome{Same, Different, Explained, Stale, Different}; !reflect.DeepEqual(outcomes, want) {
		t.Errorf("got %v, want %v", outcomes, want)
	}
	want := []Difference{{1, "exit code", "", "1"}, {1, "status", "ok", "failed"}, {2, "status", "", "ok"}}
	if got := r.Programs[1].Differences; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// The same type has no excuse.
	to.Type = "x"
	if r := Compare(from, to, programs); r.Programs[2].Outcome != Different {
		t.Errorf("got %v", r.Programs[2])
	}
}
