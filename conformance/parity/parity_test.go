package parity

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/compare"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// backend returns a backend whose code is in the language of package fake, without some features.
// At the end it has no sandbox.
func backend(t *testing.T, name string, without ...executor.Feature) (*fake.Backend, executor.Executor) {
	t.Helper()
	b := fake.New(fake.Options{Capabilities: fake.Without(fake.All(), without...)})
	x, err := b.Open(driver.Env{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := b.Sandboxes(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
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

// observed runs programs on one backend.
func observed(t *testing.T, x executor.Executor, programs []Program, reuse int) map[string][]Fields {
	t.Helper()
	w := &worker{subjects: []subject{{name: "a", typ: "a", Executor: x}}, reuse: reuse, held: map[key]*sandbox{}}
	all := map[string][]Fields{}
	for _, p := range programs {
		seen, err := w.look(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		all[p.Name] = seen[0]
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
	return all
}

func TestObserve(t *testing.T) {
	programs := load(t, map[string]string{
		"state.py": "x = 1\n# %%\nprint(x)\nx\n", "fails.py": "print(\"a\")\nnothing\n", "input.py": "# %%\n# stdin: \"Ada\\n\"\nprint(readline())\n", "exit.py": "exit(3)\n",
	})
	for _, reuse := range []int{0, 2, 100} {
		_, x := backend(t, "a")
		seen := observed(t, x, programs, reuse)
		for name, want := range map[string][]Fields{
			"state.py": {{"status": "ok"}, {"status": "ok", "stdout": "1\n", "values": "main application/json text/plain 1"}},
			"input.py": {{"status": "ok", "stdout": "Ada\n"}},
			"exit.py":  {{"status": "failed", "exit code": "3"}},
		} {
			if got := seen[name]; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
		if f := seen["fails.py"][0]; f["status"] != "failed" || f["exception"] == "" || f["stdout"] != "a\n" {
			t.Errorf("got %q", f)
		}
	}
}

// TestReuse: a sandbox that several programs share has neither the variables nor the files of
// earlier ones.
func TestReuse(t *testing.T) {
	b, x := backend(t, "a")
	programs := load(t, map[string]string{"a.py": "x = 1\nwrite(\"made\", \"text\")\n", "b.py": "print(x)\n", "c.py": "print(read(\"made\"))\n"})
	seen := observed(t, x, programs, 3)
	for _, name := range []string{"b.py", "c.py"} {
		if f := seen[name][0]; f["status"] != "failed" {
			t.Errorf("%s: got %q", name, f)
		}
	}
	if got := b.Calls(fake.OpCreate); got != 1 {
		t.Errorf("got %d sandboxes, want 1", got)
	}
}

// TestFailures: what the backend does not do is an observation, and the end of the context is an
// error.
func TestFailures(t *testing.T) {
	b, x := backend(t, "a", executor.FeatureStdin)
	programs := load(t, map[string]string{"input.py": "# %%\n# stdin: \"Ada\\n\"\nprint(1)\n"})
	if got, want := observed(t, x, programs, 1)["input.py"], []Fields{{"refused": "stdin:python"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	b.Fail(fake.OpCreate, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("down")))
	if got := observed(t, x, programs, 1)["input.py"]; len(got) != 1 || got[0]["error"] == "" {
		t.Errorf("got %v", got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.DeadlineExceeded)
	if _, err := Run(ctx, Options{Backends: []executor.Executor{x, x}}, programs); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	for _, o := range []Options{{}, {Backends: []executor.Executor{x}}} {
		if _, err := Run(t.Context(), o, programs); err == nil {
			t.Error("nothing to compare was accepted")
		}
	}
	_, without := backend(t, "b", executor.FeatureCommand)
	if err := (Options{Backends: []executor.Executor{x}, Plain: without}).Check(); err == nil {
		t.Error("a plain interpreter without commands was accepted")
	}
}

// TestRun compares three backends, of which one refuses input and one fails now and then.
func TestRun(t *testing.T) {
	_, a := backend(t, "a")
	_, b := backend(t, "b", executor.FeatureStdin)
	c, third := backend(t, "c")
	c.Fail(fake.OpCreate, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("down")))
	programs := load(t, map[string]string{"input.py": "# %%\n# stdin: \"Ada\\n\"\nprint(readline())\n", "same.py": "print(1)\n"})
	programs[1].Cells[0].Stdout = new("2\n\n")
	r, err := Run(t.Context(), Options{Backends: []executor.Executor{a, b, third}}, programs)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range r.Programs {
		for _, f := range l.Findings {
			got = append(got, l.Name+" "+f.Backend+" "+string(f.Outcome)+" "+f.Cause)
		}
	}
	want := []string{
		"input.py a same ", "input.py b explained it lacks stdin:python", "input.py c unsteady it changes from run to run",
		"same.py a different stdout differs", "same.py b different stdout differs", "same.py c different stdout differs",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if r.Total(Different) != 1 || r.Totals["b"][Explained] != 1 || r.Causes[0].Programs["c"] != 1 || !slices.Equal(r.Causes[0].Names, []string{"same.py"}) {
		t.Errorf("got %+v", r)
	}
}

// fixed are subjects whose Info is asked for, and nothing else.
func fixed(t *testing.T, types ...string) (subjects []subject) {
	t.Helper()
	_, x := backend(t, "a", executor.FeatureThreads)
	for _, typ := range types {
		subjects = append(subjects, subject{name: typ, typ: typ, plain: typ == TypePlain, Executor: x})
	}
	return subjects
}

func TestJudge(t *testing.T) {
	ok, other := []Fields{{"status": "ok", "stdout": "1\n"}}, []Fields{{"status": "ok", "stdout": "2\n"}}
	value := []Fields{{"status": "ok", "stdout": "1\n", "values": "main text/plain 1"}}
	refused := []Fields{{"refused": "files"}}
	failed := []Fields{{"status": "failed", "exit code": "1", "exception": "E: m (line 1)", "errors": "E: m"}}
	left, early := []Fields{{"status": "ok", "stdout": "2\n", compare.LeftRunning: "interval"}}, []Fields{{"status": "ok", compare.LeftRunning: "interval"}}
	await := []Fields{{"status": "failed", "exit code": "1", "errors": "SyntaxError: 'await' outside function"}}
	threads := []Fields{{"status": "failed", "exit code": "1", "errors": "RuntimeError: can't start new thread"}}
	for name, c := range map[string]struct {
		program  Program
		subjects []string
		seen     [][]Fields
		want     []Outcome
		cause    string // of the last
	}{
		"same":                       {Program{}, []string{TypePlain, "x", "y"}, [][]Fields{ok, ok, ok}, []Outcome{Same, Same, Same}, ""},
		"values are of backends":     {Program{}, []string{TypePlain, "x", "y"}, [][]Fields{ok, value, ok}, []Outcome{Same, Same, Different}, "values is missing"},
		"plain is right":             {Program{}, []string{TypePlain, "x", "y"}, [][]Fields{ok, other, ok}, []Outcome{Same, Different, Same}, ""},
		"several cells":              {Program{}, []string{TypePlain, "x", "y"}, [][]Fields{nil, ok, failed}, []Outcome{NotRun, Same, Different}, "exception was not expected: E: m (line N)"},
		"refused":                    {Program{}, []string{"x", "y"}, [][]Fields{ok, refused}, []Outcome{Same, Explained}, "it lacks files"},
		"the first refuses":          {Program{}, []string{"x", "y", "z"}, [][]Fields{refused, ok, other}, []Outcome{Explained, Same, Different}, "stdout differs"},
		"the program says":           {Program{Differs: map[string]string{"y": "so"}}, []string{"x", "y"}, [][]Fields{ok, other}, []Outcome{Same, Explained}, "y: so"},
		"and says of the first":      {Program{Differs: map[string]string{"x": "so"}}, []string{"x", "y"}, [][]Fields{ok, other}, []Outcome{Explained, Same}, ""},
		"stale":                      {Program{Differs: map[string]string{"y": "so"}}, []string{"x", "y"}, [][]Fields{ok, ok}, []Outcome{Same, Stale}, "y: so"},
		"of a backend elsewhere":     {Program{Differs: map[string]string{"z": "so"}}, []string{"x", "y"}, [][]Fields{ok, ok}, []Outcome{Same, Same}, ""},
		"plain says otherwise":       {Program{Differs: map[string]string{TypePlain: "so"}}, []string{TypePlain, "x"}, [][]Fields{ok, other}, []Outcome{Explained, Same}, ""},
		"plain is stale":             {Program{Differs: map[string]string{TypePlain: "so"}}, []string{TypePlain, "x"}, [][]Fields{ok, value}, []Outcome{Stale, Same}, ""},
		"cells take more":            {Program{Language: executor.Python}, []string{TypePlain, "x", "y"}, [][]Fields{await, ok, other}, []Outcome{Explained, Same, Different}, "stdout differs"},
		"a syntax error is one":      {Program{Language: executor.Python}, []string{TypePlain, "x"}, [][]Fields{await, await}, []Outcome{Same, Same}, ""},
		"a feature is missing":       {Program{Language: executor.Python}, []string{TypePlain, "x"}, [][]Fields{ok, threads}, []Outcome{Same, Explained}, "code cannot start threads"},
		"left running":               {Program{}, []string{TypePlain, "x"}, [][]Fields{ok, early}, []Outcome{Same, Explained}, "a run does not wait for what goes on without an end, such as an interval or a server, and names it; a script does"},
		"left running, and the same": {Program{}, []string{"x", "y"}, [][]Fields{other, left}, []Outcome{Same, Same}, ""},
		"left running, and another":  {Program{}, []string{"x", "y"}, [][]Fields{ok, left}, []Outcome{Same, Different}, "stdout differs"},
		"numbers of errors":          {Program{Language: executor.Python}, []string{"x", "pyodide"}, [][]Fields{{{"stdout": "a [Errno 2] b"}}, {{"stdout": "a [Errno 44] b"}}}, []Outcome{Same, Explained}, "the numbers of errors of the operating system are those of its C library"},
		"numbers and something else": {Program{Language: executor.Python}, []string{"x", "pyodide"}, [][]Fields{{{"stdout": "a [Errno 2] b"}}, {{"stdout": "a [Errno 44] c"}}}, []Outcome{Same, Different}, "stdout differs"},
		"expected of plain":          {Program{Cells: []Cell{{Stdout: new("2")}}}, []string{TypePlain, "x"}, [][]Fields{ok, ok}, []Outcome{Different, Same}, ""},
		"expected, and so it is":     {Program{Cells: []Cell{{Stdout: new("1"), ExitCode: new(0)}}}, []string{"x", "y"}, [][]Fields{ok, ok}, []Outcome{Same, Same}, ""},
		"expected of all":            {Program{Cells: []Cell{{ExitCode: new(3)}}}, []string{"x", "y"}, [][]Fields{ok, ok}, []Outcome{Different, Different}, "exit code is missing: N"},
		"expected and not reached":   {Program{Cells: []Cell{{}, {ExitCode: new(3)}}}, []string{"x", "y"}, [][]Fields{ok, ok}, []Outcome{Same, Same}, ""},
	} {
		if c.program.Cells == nil {
			c.program.Cells = []Cell{{}}
		}
		var got []Outcome
		findings := judge(fixed(t, c.subjects...), c.program, c.seen)
		for _, f := range findings {
			got = append(got, f.Outcome)
		}
		if last := findings[len(findings)-1]; !slices.Equal(got, c.want) || last.Cause != c.cause {
			t.Errorf("%s: got %v, %q, want %v, %q", name, got, last.Cause, c.want, c.cause)
		}
	}
}
