package tool_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/tool"
)

const png = "\x89PNG\r\n\x1a\n..."

func ok(edit func(*executor.Result)) *executor.Result {
	r := &executor.Result{Status: executor.StatusOK, Duration: 1500 * time.Millisecond}
	edit(r)
	return r
}

func failed(typ, message string) *executor.Result {
	return &executor.Result{Status: executor.StatusFailed, ExitCode: 1, Exception: &executor.Exception{Type: typ, Message: message}}
}

// The JSON has exactly what the definition describes.
func TestOutputKeepsToItsSchema(t *testing.T) {
	full := ok(func(r *executor.Result) {
		r.Stdout = executor.Bytes("hi\n")
		r.Outputs = []executor.Output{{Data: executor.MIMEBundle{"image/png": executor.Bytes(png)}}, {Main: true, Data: executor.MIMEBundle{"text/plain": executor.Bytes("3")}}}
		r.Artifacts = []executor.Artifact{{Name: "a.csv", MIME: "text/csv", Size: 3, Data: executor.Bytes("a,b")}}
	})
	d := tool.Define(fake.All(), tool.Options{})
	var check func(path string, s *tool.Schema, v any)
	check = func(path string, s *tool.Schema, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name := range v {
				if s.Properties[name] == nil {
					t.Errorf("%s.%s is not in the schema", path, name)
				} else {
					check(path+"."+name, s.Properties[name], v[name])
				}
			}
			for _, name := range s.Required {
				if _, ok := v[name]; !ok {
					t.Errorf("%s.%s is missing", path, name)
				}
			}
		case []any:
			for i, e := range v {
				check(fmt.Sprintf("%s[%d]", path, i), s.Items, e)
			}
		case nil:
			if !s.Nullable && s.Type != "" {
				t.Errorf("%s is null", path)
			}
		default:
			want := map[string]string{"string": "string", "number": "float64", "integer": "float64", "boolean": "bool"}[s.Type]
			if got := reflect.TypeOf(v).String(); s.Type != "" && got != want {
				t.Errorf("%s: got a %s, want a %s", path, got, want)
			}
		}
	}
	for name, r := range map[string]*executor.Result{"full": full, "empty": ok(func(*executor.Result) {}), "failed": failed("E", "m")} {
		out := tool.Report(tool.Outcome{Input: tool.Input{Language: executor.Python}, Result: r}, fake.All(), tool.Options{})
		text, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		check(name, d.Output, v)
		if name == "full" {
			golden(t, "output.json", out)
		}
	}
}

func TestReportOfValues(t *testing.T) {
	bundle := func(pairs ...string) executor.MIMEBundle {
		b := executor.MIMEBundle{}
		for i := 0; i < len(pairs); i += 2 {
			b[pairs[i]] = executor.Bytes(pairs[i+1])
		}
		return b
	}
	main := func(pairs ...string) []executor.Output {
		return []executor.Output{{Main: true, Data: bundle(pairs...)}}
	}
	tests := map[string]struct {
		outputs []executor.Output
		value   string // JSON
		stdout  string
		stderr  string
		images  []string
	}{
		"none":           {value: "null"},
		"json":           {outputs: main("application/json", `{"a":[1,null]}`, "text/plain", "{'a': [1, None]}"), value: `{"a":[1,null]}`},
		"json-damaged":   {outputs: main("application/json", `{"a":`, "text/plain", "x"), value: `"x"`},
		"json-large":     {outputs: main("application/json", `"`+strings.Repeat("x", 200)+`"`, "text/plain", "short"), value: `"short"`},
		"text":           {outputs: main("text/plain", "<C object>"), value: `"\u003cC object\u003e"`},
		"table":          {outputs: main("text/html", "<table>", "text/plain", "   a\n0  1"), value: `"   a\n0  1"`},
		"html-only":      {outputs: main("text/html", "<b>x</b>"), value: `"\u003cb\u003ex\u003c/b\u003e"`},
		"unknown":        {outputs: main("application/x-own", "x"), value: "null", stderr: "[A value that has no text was left out.]\n"},
		"image":          {outputs: main("image/png", png, "text/plain", "<Figure>"), value: "null", images: []string{"image/png"}},
		"svg":            {outputs: main("image/svg+xml", "<svg/>"), value: "null", images: []string{"image/svg+xml"}},
		"image-damaged":  {outputs: main("image/png", "<html>"), value: "null", stderr: "[1 images were left out, which were too many, too large or damaged.]\n"},
		"images-many":    {outputs: slices.Repeat(main("image/png", png), 3), value: "null", images: []string{"image/png", "image/png"}, stderr: "[1 images were left out, which were too many, too large or damaged.]\n"},
		"image-large":    {outputs: main("image/png", png+strings.Repeat("x", 100)), value: "null", stderr: "[1 images were left out, which were too many, too large or damaged.]\n"},
		"display":        {outputs: []executor.Output{{Data: bundle("text/plain", "shown")}}, value: "null", stdout: "printed\nshown\n"},
		"display-no-end": {outputs: []executor.Output{{Data: bundle("text/markdown", "**a**\n", "text/plain", "a")}, {Data: bundle("text/plain", "b")}}, value: "null", stdout: "printed\n**a**\nb\n"},
		"not-utf8":       {outputs: main("text/plain", "a\xffb"), value: "\"a\ufffdb\""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := ok(func(r *executor.Result) { r.Stdout, r.Outputs = executor.Bytes("printed"), test.outputs })
			out := tool.Report(tool.Outcome{Input: tool.Input{Language: executor.Python}, Result: r}, fake.All(),
				tool.Options{MaxOutput: 100, MaxImages: 2, MaxImageBytes: 50})
			value, err := json.Marshal(out.ReturnValue)
			if err != nil {
				t.Fatal(err)
			}
			if string(value) != test.value {
				t.Errorf("got value %s, want %s", value, test.value)
			}
			if want := test.stdout; out.Stdout != want && (want != "" || out.Stdout != "printed") {
				t.Errorf("got stdout %q, want %q", out.Stdout, want)
			}
			if out.Stderr != test.stderr {
				t.Errorf("got stderr %q, want %q", out.Stderr, test.stderr)
			}
			var types []string
			for _, i := range out.Images {
				types = append(types, i.Type)
			}
			if !slices.Equal(types, test.images) {
				t.Errorf("got images %q, want %q", types, test.images)
			}
		})
	}
}

func TestReportOfFiles(t *testing.T) {
	art := func(name string, size int, data string) executor.Artifact {
		return executor.Artifact{Name: name, MIME: "text/plain", Size: int64(size), Data: executor.Bytes(data)}
	}
	r := ok(func(r *executor.Result) {
		r.ArtifactsOmitted = 2
		r.Artifacts = []executor.Artifact{art("a", 4, "aaaa"), art("b", 9, "bbbbbbbbb"), art("c", 5, ""), art("d", 4, "dddd"), art("e", 1, "e")}
	})
	out := tool.Report(tool.Outcome{Input: tool.Input{Language: executor.Python}, Result: r}, fake.All(), tool.Options{MaxFiles: 4, MaxFileBytes: 10})
	var got []string
	for _, f := range out.Files {
		got = append(got, fmt.Sprintf("%s %d %s", f.Name, f.Size, f.Base64))
	}
	if want := []string{"a 4 aaaa", "b 9 ", "c 5 ", "d 4 dddd"}; !slices.Equal(got, want) {
		t.Errorf("got files %q, want %q", got, want)
	}
	for _, want := range []string{"3 more files were made", "2 files are too large"} {
		if !strings.Contains(out.Stderr, want) {
			t.Errorf("got stderr %q, want %q in it", out.Stderr, want)
		}
	}
}

func TestOutputIsCutInTheMiddle(t *testing.T) {
	tests := map[string]struct {
		stdout  string
		dropped []executor.Gap
		want    string
	}{
		"short":      {stdout: "0123456789", want: "0123456789"},
		"long":       {stdout: "01234-567-89abc", want: "01234\n[... 5 bytes left out ...]\n89abc"},
		"characters": {stdout: "éééééééé", want: "éé\n[... 8 bytes left out ...]\néé"},
		"gap":        {stdout: "abcxyz", dropped: []executor.Gap{{Stream: executor.EventStdout, At: 3, Bytes: 1000}}, want: "abc\n[... 1000 bytes left out ...]\nxyz"},
		"gap-cut":    {stdout: "abcdefgtuvwxyz", dropped: []executor.Gap{{Stream: executor.EventStdout, At: 7, Bytes: 1000}}, want: "abcde\n[... 1004 bytes left out ...]\nvwxyz"},
		"gap-other":  {stdout: "abc", dropped: []executor.Gap{{Stream: executor.EventStderr, At: 1, Bytes: 1}}, want: "abc"},
		"gap-wrong":  {stdout: "abc", dropped: []executor.Gap{{Stream: executor.EventStdout, At: 9, Bytes: 1}}, want: "abc"},
		"not-utf8":   {stdout: "a\xff", want: "a\ufffd"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := ok(func(r *executor.Result) { r.Stdout, r.Dropped = executor.Bytes(test.stdout), test.dropped })
			out := tool.Report(tool.Outcome{Result: r}, fake.All(), tool.Options{MaxOutput: 10})
			if out.Stdout != test.want {
				t.Errorf("got %q, want %q", out.Stdout, test.want)
			}
		})
	}
}

func TestReportOfFailures(t *testing.T) {
	lock := tool.Options{Packages: map[executor.Language][]string{executor.Python: {"scikit_learn", "numpy"}}}
	stopped := func(s executor.Status, reason executor.Reason, edit func(*executor.Result)) *executor.Result {
		r := &executor.Result{Status: s, Reason: reason, ExitCode: -1, Duration: 30 * time.Second}
		if edit != nil {
			edit(r)
		}
		return r
	}
	lost := func(r *executor.Result) { r.StateLost = true }
	at := func(line int, message string) *executor.Result {
		r := failed("SyntaxError", message)
		r.Exception.Line = line
		return r
	}
	tests := map[string]struct {
		code  string
		l     executor.Language
		r     *executor.Result
		o     tool.Options
		c     executor.Capabilities
		there []string
		want  []string // in the error
		not   string
	}{
		"exit-code": {r: &executor.Result{Status: executor.StatusFailed, ExitCode: 3}, want: []string{"exit code 3"}},
		"line": {code: "x = 1\n1/0 # here", r: func() *executor.Result {
			r := failed("ZeroDivisionError", "division by zero")
			r.Exception.Line = 2
			return r
		}(), want: []string{"ZeroDivisionError: division by zero\nLine 2 of the code: 1/0 # here"}},
		"column":         {r: failed("KeyError", "'price'"), want: []string{"KeyError: 'price'", "df.columns.tolist()"}},
		"column-attr":    {r: failed("AttributeError", "'DataFrame' object has no attribute 'price'"), want: []string{"df.columns.tolist()"}},
		"module":         {r: failed("ModuleNotFoundError", "No module named 'yaml'"), want: []string{`call again with "packages": ["pyyaml"]`}},
		"module-part":    {r: failed("ModuleNotFoundError", "No module named 'sklearn.svm'"), o: lock, want: []string{`call again with "packages": ["scikit-learn"]`}},
		"module-refused": {r: failed("ModuleNotFoundError", "No module named 'requests'"), o: lock, want: []string{"requests is not allowed here", "scikit_learn, numpy"}},
		"module-none":    {r: failed("ModuleNotFoundError", "No module named 'numpy'"), c: fake.Without(fake.All(), executor.FeaturePackages), want: []string{"packages cannot be installed here"}},
		"module-script":  {l: executor.JavaScript, r: failed("Error", "Cannot find package '@scope/ms' imported from x"), want: []string{`"packages": ["@scope/ms"]`}},
		"file":           {r: failed("FileNotFoundError", "[Errno 44] No such file or directory: 'x.csv'"), there: []string{"a.csv", "b.csv"}, want: []string{`in /workspace there are: "a.csv", "b.csv".`}},
		"file-empty":     {r: failed("FileNotFoundError", "x"), there: []string{}, want: []string{"/workspace is empty."}},
		"file-unknown":   {r: failed("FileNotFoundError", "x"), want: []string{"look at what is in /workspace"}},
		"files-many":     {r: failed("FileNotFoundError", "x"), there: slices.Repeat([]string{"f"}, 40), want: []string{"and 10 more."}},
		"file-script":    {l: executor.JavaScript, r: failed("Error", "ENOENT: no such file or directory, open 'x'"), there: []string{}, want: []string{"/workspace is empty."}},
		"name":           {r: failed("NameError", "name 'df' is not defined"), want: []string{"define or import df first"}},
		"name-fresh": {r: func() *executor.Result {
			r := failed("NameError", "name 'df' is not defined")
			r.StateFresh = true
			return r
		}(), want: []string{"began without variables of earlier calls. Define df again"}},
		"name-script":     {l: executor.JavaScript, r: failed("ReferenceError", "x is not defined"), want: []string{"define or import x first"}},
		"name-language":   {code: "python\nprint(1)", r: failed("NameError", "name 'python' is not defined"), want: []string{"the first line is the name of a language"}},
		"input":           {code: "x = input()", r: failed("EOFError", "EOF when reading a line"), want: []string{"nobody to answer input()"}},
		"quotes":          {code: "x = 1\nprint(\u201chi\u201d)", r: at(2, "invalid character '\u201c' (U+201C)"), want: []string{"line 2 has typographic quotes"}},
		"nbsp":            {code: "x\u00a0= 1", r: at(1, "invalid non-printable character U+00A0"), want: []string{"non-breaking"}},
		"zero-width":      {code: "x = 1\u200b", r: at(1, "invalid non-printable character U+200B"), want: []string{"not visible"}},
		"quotes-in-text":  {code: "s = '\u201c'\nx = = 1", r: at(2, "invalid syntax"), want: []string{"invalid syntax"}, not: "Hint"},
		"minus":           {code: "x = 3 \u2212 1", r: at(1, "invalid character '\u2212' (U+2212)"), want: []string{"Write -."}},
		"prompt":          {code: ">>> 1 + 1\n2", r: at(1, "invalid syntax"), want: []string{"prompt of an interactive session"}},
		"entities":        {code: "if a &gt;= b: pass", r: at(1, "invalid syntax"), want: []string{"entities of HTML"}},
		"entities-valid":  {code: "a = 1 &lt; 2", r: failed("NameError", "name 'lt' is not defined"), want: []string{"entities of HTML"}},
		"entities-script": {l: executor.JavaScript, code: "if (a &amp;&amp; b) {}", r: failed("SyntaxError", "Unexpected token ';'"), want: []string{"entities of HTML"}},
		"language-line":   {code: "Python\nx = = 1", r: at(2, "invalid syntax"), want: []string{"the first line is the name of a language"}},
		"cut-bracket":     {code: "x = [1,\n2,", r: at(1, "'[' was never closed"), want: []string{"cut off at its end"}},
		"cut-string":      {code: "x = 1\ny = 'ab", r: at(2, "unterminated string literal (detected at line 2)"), want: []string{"cut off at its end"}},
		"cut-block":       {code: "def f():", r: at(1, "expected an indented block after function definition on line 1"), want: []string{"cut off at its end"}},
		"string-inside":   {code: "y = 'ab\nx = 1", r: at(1, "unterminated string literal (detected at line 1)"), want: []string{"unterminated"}, not: "Hint"},
		"cut-script":      {l: executor.JavaScript, code: "function f() {", r: failed("SyntaxError", "Unexpected end of input"), want: []string{"cut off at its end"}},
		"threads":         {r: failed("RuntimeError", "can't start new thread"), want: []string{"neither threads nor processes"}},
		"processes":       {r: failed("OSError", "[Errno 138] emscripten does not support processes."), want: []string{"neither threads nor processes"}},
		"multiprocessing": {r: failed("ModuleNotFoundError", "No module named '_multiprocessing'"), want: []string{"neither threads nor processes"}, not: "packages"},
		"part-of-python":  {r: failed("ModuleNotFoundError", "No module named '_tkinter'"), want: []string{"_tkinter"}, not: "Hint"},
		"require":         {l: executor.JavaScript, r: failed("ReferenceError", "require is not defined"), want: []string{"without Node"}},
		"import":          {l: executor.JavaScript, r: failed("TypeError", "import: there are no modules in this sandbox"), want: []string{"without Node"}},
		"file-no-upload":  {r: failed("FileNotFoundError", "x"), there: []string{}, c: fake.Without(fake.All(), executor.FeatureFiles), want: []string{"Make the file first"}, not: `"files"`},
		"timeout-longest": {r: stopped(executor.StatusTimedOut, executor.ReasonWallTime, nil), o: tool.Options{Timeout: tool.DefaultMaxTimeout}, want: []string{"do less in one call"}, not: `"timeout"`},
		"network":         {r: failed("urllib.error.URLError", "<urlopen error>"), want: []string{"the code has no network"}},
		"network-full":    {r: failed("URLError", "x"), o: tool.Options{Spec: executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}}, want: []string{"URLError: x"}, not: "Hint"},
		"loop":            {r: failed("RuntimeError", "asyncio.run() cannot be called from a running event loop"), want: []string{"await at the top level"}},
		"no-hint":         {r: failed("ValueError", "x"), want: []string{"ValueError: x"}, not: "Hint"},
		"command":         {l: tool.Bash, r: &executor.Result{Status: executor.StatusFailed, ExitCode: 127}, want: []string{"exit code 127", "no such command"}},
		"timeout-kept":    {r: stopped(executor.StatusTimedOut, executor.ReasonWallTime, nil), want: []string{"stopped by its timeout, after 30 s", "Variables and files are still there.", "up to 120 s"}},
		"timeout-lost":    {r: stopped(executor.StatusTimedOut, executor.ReasonWallTime, lost), want: []string{"All variables are gone; files are still there."}, not: "Variables and files are"},
		"memory":          {r: stopped(executor.StatusKilled, executor.ReasonMemory, lost), want: []string{"too much memory", "in pieces"}},
		"output":          {r: stopped(executor.StatusKilled, executor.ReasonOutput, nil), want: []string{"printed too much", "print a summary"}},
		"signal":          {r: stopped(executor.StatusKilled, executor.ReasonSignal, func(r *executor.Result) { r.Signal = "SIGSEGV"; r.StateLost = true }), want: []string{"crashed (SIGSEGV)", "All variables are gone"}},
		"sandbox":         {r: stopped(executor.StatusKilled, executor.ReasonSandbox, func(r *executor.Result) { r.StateLost, r.FilesLost = true, true }), want: []string{"sandbox ended", "with all variables and files"}},
		"many-processes":  {r: stopped(executor.StatusKilled, executor.ReasonProcesses, nil), want: []string{"too many processes"}},
		"disk":            {r: stopped(executor.StatusKilled, executor.ReasonDisk, nil), want: []string{"too much to the disk"}},
		"reset":           {r: stopped(executor.StatusKilled, executor.ReasonReset, lost), want: []string{"was reset"}},
		"lifetime":        {r: stopped(executor.StatusKilled, executor.ReasonLifetime, lost), want: []string{"end of its life"}},
		"without-state":   {r: stopped(executor.StatusTimedOut, executor.ReasonWallTime, nil), c: fake.Without(fake.All(), executor.FeatureState), want: []string{"timeout"}, not: "still there."},
		"message-hostile": {r: failed("E", "a\xff"+strings.Repeat("x", 1<<20)), want: []string{"bytes left out"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.l == "" {
				test.l = executor.Python
			}
			if test.c.Isolation == "" {
				test.c = fake.All()
			}
			out := tool.Report(tool.Outcome{Input: tool.Input{Code: test.code, Language: test.l}, Result: test.r, There: test.there}, test.c, test.o)
			for _, want := range test.want {
				if !strings.Contains(out.Error, want) {
					t.Errorf("got error %q, want %q in it", out.Error, want)
				}
			}
			if test.not != "" && strings.Contains(out.Error, test.not) {
				t.Errorf("got error %q, want no %q in it", out.Error, test.not)
			}
			if out.Success {
				t.Error("got success")
			}
			// A hint names only arguments that the model's tool has.
			bare := fake.Without(test.c, executor.FeaturePackages, executor.FeatureFiles, executor.FeatureCommand)
			out = tool.Report(tool.Outcome{Input: tool.Input{Code: test.code, Language: test.l}, Result: test.r, There: test.there}, bare, tool.Options{})
			for _, word := range []string{`"packages"`, `"files"`, "bash"} {
				if strings.Contains(out.Error, word) {
					t.Errorf("got error %q of a tool without, want no %s in it", out.Error, word)
				}
			}
		})
	}
}

func TestTracebacksAreReduced(t *testing.T) {
	const head = "Traceback (most recent call last):\n"
	cell := "  File \"<cell 2>\", line 1, in f\n    f()\n"
	tests := map[string]struct{ in, want string }{
		"own":     {head + cell + "E: x\n", head + cell + "E: x"},
		"library": {head + cell + "  File \"/usr/lib/python3/json/decoder.py\", line 3, in decode\n    raise E\n    ^^^^^^^\nE: x\n", head + cell + "E: x"},
		"frozen":  {head + "  File \"<frozen importlib._bootstrap>\", line 1, in f\n" + cell + "E: x", head + cell + "E: x"},
		"file":    {head + "  File \"/workspace/m.py\", line 1, in f\n    x\n" + cell + "E: x", head + "  File \"/workspace/m.py\", line 1, in f\n    x\n" + cell + "E: x"},
		"host":    {head + "  File \"/home/app/host.py\", line 1\n    secret()\n" + cell + "E: x", head + cell + "E: x"},
		"deep":    {head + strings.Repeat(cell, 40) + "E: x", head + strings.Repeat(cell, 4) + "  [... 28 frames left out ...]\n" + strings.Repeat(cell, 8) + "E: x"},
		"chained": {head + cell + "E: x\n\nDuring handling of the above exception, another exception occurred:\n\n" + head + cell + "F: y", head + cell + "E: x\n\nDuring handling of the above exception, another exception occurred:\n\n" + head + cell + "F: y"},
		"script":  {"E: x\n    at f (<cell 1>:1:2)\n    at run (file:///opt/app/runner.mjs:3:4)\n    at node:internal/x:1:1\n    at /home/app/x.js:1:1\n    at <cell 1>:2:1", "E: x\n    at f (<cell 1>:1:2)\n    at <cell 1>:2:1"},
		"message": {head + cell + "E: a\n  File \"/etc/x\", line 1\n    b", head + cell + "E: a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := failed("E", "x")
			r.Exception.Traceback = test.in
			got := tool.Report(tool.Outcome{Input: tool.Input{Language: executor.Python}, Result: r}, fake.All(), tool.Options{}).Error
			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestReportOfState(t *testing.T) {
	const fresh, began, gone = "new sandbox", "began without variables", "All variables are gone"
	tests := map[string]struct {
		o    tool.Outcome
		l    executor.Language
		c    executor.Capabilities
		want string
	}{
		"same":          {o: tool.Outcome{Result: ok(func(*executor.Result) {})}},
		"first-ever":    {o: tool.Outcome{First: true, Result: ok(func(r *executor.Result) { r.StateFresh = true })}},
		"lost-before":   {o: tool.Outcome{Lost: true, First: true, Result: ok(func(r *executor.Result) { r.StateFresh = true })}, want: fresh},
		"unavailable":   {o: tool.Outcome{Lost: true, Why: sessions.LossUnavailable, Result: ok(func(*executor.Result) {})}, want: "This is a new sandbox, because the service that ran the earlier one does not answer: variables and files"},
		"abandoned":     {o: tool.Outcome{Lost: true, Why: sessions.LossAbandoned, Kept: &sessions.Kept{Files: []string{"a.csv"}}, Result: ok(func(*executor.Result) {})}, want: "because the application has given up the earlier one. It goes on from a checkpoint of the earlier one, with the files a.csv. Variables of earlier calls are gone."},
		"kept":          {o: tool.Outcome{Lost: true, Kept: &sessions.Kept{Files: []string{"a.csv"}, Names: []string{"x", "f"}}, Result: ok(func(*executor.Result) {})}, want: "with the variables x, f, and the files a.csv."},
		"behind":        {o: tool.Outcome{Lost: true, Kept: &sessions.Kept{Names: []string{"x"}, Behind: 3}, Result: ok(func(*executor.Result) {})}, want: "with the variables x. There were no files. The last calls, 3 of them, came after it"},
		"not-kept":      {o: tool.Outcome{Lost: true, Kept: &sessions.Kept{Omitted: []checkpoint.Omission{{Name: "lock", Kind: "lock", Reason: "no\x1b"}}}, Result: ok(func(*executor.Result) {})}, want: `Not kept: lock ("no\x1b").`},
		"refused":       {o: tool.Outcome{Lost: true, Kept: &sessions.Kept{Refused: "weaker"}, Result: ok(func(*executor.Result) {})}, want: "This is a new sandbox: variables and files of earlier calls are gone."},
		"why-of-later":  {o: tool.Outcome{Lost: true, Why: "of-later", Result: ok(func(*executor.Result) {})}, want: "This is a new sandbox: variables"},
		"nothing-lost":  {o: tool.Outcome{Why: sessions.LossGone, Result: ok(func(*executor.Result) {})}},
		"restarted":     {o: tool.Outcome{Result: ok(func(r *executor.Result) { r.StateFresh = true })}, want: began},
		"bash":          {o: tool.Outcome{Result: ok(func(r *executor.Result) { r.StateFresh = true })}, l: tool.Bash},
		"without-state": {o: tool.Outcome{Result: ok(func(r *executor.Result) { r.StateFresh = true })}, c: fake.Without(fake.All(), executor.FeatureState)},
		"lost":          {o: tool.Outcome{Result: ok(func(r *executor.Result) { r.StateLost = true })}, want: gone},
		"files-lost":    {o: tool.Outcome{Result: ok(func(r *executor.Result) { r.StateLost, r.FilesLost = true, true })}, want: "with all variables and files"},
		"left":          {o: tool.Outcome{Result: ok(func(r *executor.Result) { r.LeftRunning = []string{"timer", "server :80"} })}, want: "Still running after this call: timer, server :80."},
		"ignored":       {o: tool.Outcome{Input: tool.Input{Ignored: []string{"stdin"}}, Result: ok(func(*executor.Result) {})}, want: "were ignored: stdin"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.o.Input.Language = executor.Python
			if test.l != "" {
				test.o.Input.Language = test.l
			}
			if test.c.Isolation == "" {
				test.c = fake.All()
			}
			got := tool.Report(test.o, test.c, tool.Options{}).Stderr
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got notes %q, want %q", got, test.want)
			}
		})
	}
}

// Whatever the sandbox returns, the answer is text and within its limits.
func FuzzReport(f *testing.F) {
	f.Add("Traceback (most recent call last):\n  File \"<cell 1>\", line 1\n    x\nE: x", "image/png", []byte(png), 3, int64(9))
	f.Add("    at f (/x:1:1)\n  [x]", "application/json", []byte("{}"), -1, int64(-1))
	f.Fuzz(func(t *testing.T, text, mime string, data []byte, at int, n int64) {
		const most = 100
		r := &executor.Result{
			Status: executor.StatusFailed, Stdout: data, Stderr: executor.Bytes(text), Dropped: []executor.Gap{{Stream: executor.EventStdout, At: at, Bytes: n}},
			Exception: &executor.Exception{Type: mime, Message: text, Traceback: text, Line: at},
			Outputs:   []executor.Output{{Main: true, Data: executor.MIMEBundle{mime: data}}, {Data: executor.MIMEBundle{mime: data}}},
			Artifacts: []executor.Artifact{{Name: text, MIME: mime, Size: n, Data: data}},
		}
		out := tool.Report(tool.Outcome{Input: tool.Input{Code: text, Language: executor.Python}, Result: r, There: []string{text}}, fake.All(), tool.Options{MaxOutput: most})
		if _, err := json.Marshal(out); err != nil {
			t.Error(err)
		}
		for name, s := range map[string]string{"stdout": out.Stdout, "stderr": out.Stderr, "error": out.Error} {
			if !utf8.ValidString(s) {
				t.Errorf("%s is not UTF-8: %q", name, s)
			}
			if len(s) > 4*most+3000 {
				t.Errorf("%s has %d bytes", name, len(s))
			}
		}
	})
}

// A chart that is both shown and saved is passed on once: as an image that names the file.
func TestReportOfChartsThatAreSaved(t *testing.T) {
	image := func(data string) executor.Output {
		return executor.Output{Data: executor.MIMEBundle{"image/png": executor.Bytes(data)}}
	}
	file := func(name, data string) executor.Artifact {
		return executor.Artifact{Name: name, MIME: "image/png", Size: int64(len(data)), Data: executor.Bytes(data)}
	}
	other, more := png+"other", png+"more"
	r := ok(func(r *executor.Result) {
		r.Outputs = []executor.Output{image(png), image(other), image(more)}
		r.Artifacts = []executor.Artifact{file("a.png", png), file("again.png", png), file("left-out.png", more), file("only.png", png+"only")}
	})
	out := tool.Report(tool.Outcome{Input: tool.Input{Language: executor.Python}, Result: r}, fake.All(), tool.Options{MaxImages: 2})
	if len(out.Images) != 2 || out.Images[0].File != "a.png" || out.Images[1].File != "" {
		t.Errorf("got images %+v", out.Images)
	}
	var contents []string
	for _, f := range out.Files {
		contents = append(contents, f.Name+"="+string(f.Base64))
	}
	if got, want := contents, []string{"a.png=", "again.png=" + png, "left-out.png=" + more, "only.png=" + png + "only"}; !slices.Equal(got, want) {
		t.Errorf("got files %q, want %q", got, want)
	}
	if strings.Contains(out.Stderr, "files") {
		t.Errorf("got notes %q", out.Stderr)
	}
	a := out.ForModel("*.png")
	for _, want := range []string{"1. image/png, 11 bytes, the file a.png", "- a.png (image/png, 11 bytes)", "file a.png:\n[attached as an image]"} {
		if !strings.Contains(a.Text, want) {
			t.Errorf("got %q, want %q in it", a.Text, want)
		}
	}
	if first := out.ForModel("a.png"); len(first.Images) != 2 {
		t.Errorf("the model gets %d images, want the two that were shown", len(first.Images))
	}
	svg := executor.Bytes("<svg></svg>")
	r = ok(func(r *executor.Result) {
		r.Outputs = []executor.Output{{Data: executor.MIMEBundle{"image/svg+xml": svg}}}
		r.Artifacts = []executor.Artifact{{Name: "a.svg", MIME: "image/svg+xml", Size: int64(len(svg)), Data: svg}}
	})
	text := tool.Report(tool.Outcome{Input: tool.Input{Language: executor.Python}, Result: r}, fake.All(), tool.Options{}).ForModel("*").Text
	if !strings.Contains(text, "file a.svg:\n<svg></svg>") { // models do not take it as an image
		t.Errorf("got %q", text)
	}
}
