package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// inProgress are the lines about work that takes long, as any work does on a busy machine.
var inProgress = regexp.MustCompile(`(?m)^execbroker: (closing|opening backends|starting a sandbox of \w+)\n`)

func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := write(t, dir, "script.py", `print("from a file")`)
	other := write(t, dir, "script.js", `print("from a script")`)
	config := write(t, dir, "config.yaml", "backends:\n  one: {type: fake}\n  two: {type: fake, without: [stdin]}\n  down: {type: fake, fail: create}\n  full: {type: fake, packages: [six, rich]}\n")
	needs := write(t, dir, "needs.py", "# /// script\n# dependencies = [\"six\"]\n# ///\nprint(imported(\"six\"), imported(\"rich\"))\n")
	for name, c := range map[string]struct {
		args     []string
		in       string
		code     int
		out, err string
	}{
		"code":           {args: []string{"run", "-c", `print("hello")`}, out: "hello\n"},
		"value":          {args: []string{"run", "-c", "print(1)\n6 * 7"}, out: "1\n42\n"},
		"value-midway":   {args: []string{"run", "-c", "out(\"a\")\n6 * 7"}, out: "a\n42\n"},
		"empty-code":     {args: []string{"run", "-c", ""}},
		"stderr":         {args: []string{"run", "-c", "print(1)\neprint(2)"}, out: "1\n", err: "2\n"},
		"file":           {args: []string{"run", script}, out: "from a file\n"},
		"file-js":        {args: []string{"run", other}, out: "from a script\n"},
		"stdin-code":     {args: []string{"run", "-"}, in: `print("from stdin")`, out: "from stdin\n"},
		"stdin-input":    {args: []string{"run", "-c", `print("hello " + readline())`}, in: "world\n", out: "hello world\n"},
		"backend":        {args: []string{"run", "--backend", "fake", "-c", "1"}, out: "1\n"},
		"config":         {args: []string{"run", "--config", config, "--backend", "one", "-c", "1"}, out: "1\n"},
		"no-stdin":       {args: []string{"run", "--config", config, "--backend", "two", "-c", "1"}, out: "1\n"},
		"raw-escapes":    {args: []string{"run", "-c", `print("\x1b[31mred")`}, out: "\x1b[31mred\n"},
		"short-name":     {args: []string{"run", "--language", "js", "-c", `print("js")`}, out: "js\n"},
		"package":        {args: []string{"run", "--config", config, "--backend", "full", "--package", "six", "--package", "rich", "-c", `print(imported("six"), imported("rich"))`}, out: "true true\n"},
		"header":         {args: []string{"run", "--config", config, "--backend", "full", needs}, out: "true false\n"},
		"header-js":      {args: []string{"run", "--config", config, "--backend", "full", "--language", "js", needs}, out: "false false\n"},
		"package-absent": {args: []string{"run", "--config", config, "--backend", "full", "--package", "nonesuch", "-c", "1"}, code: exitUsage},
		"network":        {args: []string{"run", "--network", "full", "-c", `print("online")`}, out: "online\n"},
		"network-word":   {args: []string{"run", "--network", "some", "-c", "1"}, code: exitUsage},
		"exit":           {args: []string{"run", "-c", "exit(3)"}, code: exitFailed, err: "execbroker: the code ended with exit code 3\n"},
		"timeout":        {args: []string{"run", "--timeout", "1s", "-c", "print(1)\nforever()"}, code: exitTimeout, out: "1\n", err: "execbroker: stopped at the time limit, 1s\n"},
		"no-limit":       {args: []string{"run", "--timeout", "0", "-c", "1"}, out: "1\n"},
		"killed":         {args: []string{"run", "-c", `die("SIGSEGV")`}, code: exitFailed},
		"unavailable":    {args: []string{"run", "--config", config, "--backend", "down", "-c", "1"}, code: exitInfrastructure},
		"both":           {args: []string{"run", "-c", "1", script}, code: exitUsage},
		"none":           {args: []string{"run"}, code: exitUsage},
		"two":            {args: []string{"run", script, other}, code: exitUsage},
		"missing-file":   {args: []string{"run", "nothing.py"}, code: exitUsage},
		"odd-ending":     {args: []string{"run", config}, code: exitUsage},
		"ending-ignored": {args: []string{"run", config, "--language", "python"}, code: exitFailed},
		"no-language":    {args: []string{"run", "--language", "cobol", "-c", "1"}, code: exitUsage},
		"flag":           {args: []string{"run", "--tiemout", "1s", "-c", "1"}, code: exitUsage},
		"duration":       {args: []string{"run", "--timeout", "-1s", "-c", "1"}, code: exitUsage},
		"command":        {args: []string{"rum"}, code: exitUsage, err: "execbroker: unknown command \"rum\"; did you mean \"run\"?; see execbroker --help\n"},
		"type":           {args: []string{"run", "--backend", "fkae", "-c", "1"}, code: exitUsage, err: "execbroker: --backend: unknown backend \"fkae\"; did you mean \"fake\"?; without --config the name must be a type\n"},
		"type-settings":  {args: []string{"run", "--backend", "strict", "-c", "1"}, code: exitUsage, err: "execbroker: a backend of type strict needs settings, so --config is required: backends.strict.image: is required\n"},
		"name":           {args: []string{"run", "--config", config, "--backend", "oen", "-c", "1"}, code: exitUsage, err: "execbroker: --backend: unknown backend \"oen\"; did you mean \"one\"?\n"},
		"several":        {args: []string{"run", "--config", config, "-c", "1"}, code: exitUsage},
		"no-config":      {args: []string{"run", "--config", "nothing.yaml", "-c", "1"}, code: exitUsage},
		"file-missing":   {args: []string{"run", "--file", "nothing.csv", "-c", "1"}, code: exitUsage},
		"file-directory": {args: []string{"run", "--file", dir, "-c", "1"}, code: exitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := command(t, c.args...)
			p.Stdin = strings.NewReader(c.in)
			if got := p.code(t, p.Run()); got != c.code {
				t.Fatalf("got exit code %d, want %d\nstdout: %s\nstderr: %s", got, c.code, p.out.String(), p.err.String())
			}
			p.clean(t)
			if got := p.out.String(); got != c.out {
				t.Errorf("got stdout %q, want %q", got, c.out)
			}
			if got := inProgress.ReplaceAllString(p.err.String(), ""); got != c.err && c.err != "" || got != "" && c.code == 0 && c.err == "" {
				t.Errorf("got stderr %q, want %q", got, c.err)
			}
			if strings.Contains(p.err.String(), "\x1b") {
				t.Errorf("stderr has an escape sequence: %q", p.err.String())
			}
		})
	}
}

func TestRunException(t *testing.T) {
	t.Parallel()
	p := run(t, exitFailed, "run", "-c", "print(1)\nthrow(\"ValueError\", \"bad \\x1b[2J value\")")
	contains(t, p.err.String(), "ValueError: bad ", "value\n")
	if strings.Contains(p.err.String(), "\x1b") {
		t.Errorf("stderr has an escape sequence: %q", p.err.String())
	}
}

func TestRunUploads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := write(t, dir, "data.csv", "a,b\n")
	p := run(t, exitOK, "run", "--file", data, "--file", data+":sub/other.csv", "-c", `out(read("data.csv") + read("/workspace/sub/other.csv"))`)
	if got := p.out.String(); got != "a,b\na,b\n" {
		t.Errorf("got %q", got)
	}
}

func TestRunOut(t *testing.T) {
	t.Parallel()
	p := command(t, "run", "--out", "results/here", "-c", strings.Join([]string{
		`show("text/plain", "rich", "image/png", b"\x89PNG\r\n\x1a\nrich")`,
		`display(show("text/plain", "<Figure>", "image/svg+xml", "<svg/>"))`,
		`mkdir("data/deep")`,
		`write("report.txt", "report")`,
		`write("data/deep/table.csv", "a,b")`,
		`mkdir(".git")`,
		`write(".git/config", "[core]")`,
		`write("output-1.svg", "mine")`,
		`write("a\x1b[2Jb\\..\\c", "odd")`,
		`print("end")`,
	}, "\n"))
	if got := p.code(t, p.Run()); got != 0 {
		t.Fatalf("got exit code %d: %s", got, p.err.String())
	}
	p.clean(t)
	if got := p.out.String(); got != "end\n" {
		t.Errorf("got stdout %q", got)
	}
	want := map[string]string{
		"output-1.svg": "<svg/>", "output-1-2.svg": "mine", "report.txt": "report", "data/deep/table.csv": "a,b", "_.git/config": "[core]",
		"a_[2Jb_.._c": "odd",
	}
	for name, content := range want {
		if got, err := os.ReadFile(filepath.Join(p.Dir, "results/here", name)); err != nil || string(got) != content {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, content)
		}
	}
	if got := strings.Count(p.err.String(), "execbroker: saved "); got != len(want) {
		t.Errorf("got %d files: %s", got, p.err.String())
	}
	if strings.Contains(p.err.String(), "\x1b") {
		t.Errorf("stderr has an escape sequence: %q", p.err.String())
	}
}

// A file that cannot be read is reported, and the other files are saved.
func TestRunOutUnreadable(t *testing.T) {
	t.Parallel()
	code := strings.Join([]string{`write("a.txt", "a")`, `write("b.txt", "b")`, `lock("b.txt")`, `write("c.txt", "c")`}, "\n")
	p := command(t, "run", "--out", "out", "-c", code)
	if got := p.code(t, p.Run()); got != exitFailed {
		t.Errorf("got exit code %d", got)
	}
	p.clean(t)
	contains(t, p.err.String(), "a.txt (", "execbroker: not saved: b.txt: ", "c.txt (")
	for name, want := range map[string]bool{"a.txt": true, "b.txt": false, "c.txt": true} {
		if _, err := os.Stat(filepath.Join(p.Dir, "out", name)); (err == nil) != want {
			t.Errorf("%s: got %v", name, err)
		}
	}
	var doc runDocument
	decode(t, run(t, exitFailed, "run", "--json", "--out", t.TempDir(), "-c", code).out.Bytes(), &doc)
	if doc.Error != nil || len(doc.Saved) != 2 || len(doc.Missed) != 1 || doc.Missed[0].Name != "b.txt" || doc.Missed[0].Error == "" {
		t.Errorf("got %+v", doc)
	}
}

// The JSON output contains no characters that a terminal would obey.
func TestRunJSONOnTerminals(t *testing.T) {
	t.Parallel()
	got := run(t, exitOK, "run", "--json", "-c", `print("a\u009b2J\x1b[2Jb")`).out.String()
	contains(t, got, `a\u009b2J\u001b[2Jb`)
}

func TestRunJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := write(t, dir, "config.yaml", "backends:\n  down: {type: fake, fail: create}\n")
	bad := write(t, dir, "bad.yaml", "backends:\n  a: {type: fkae}\n  b: {type: fake, craete_time: 1s}\n")
	for name, c := range map[string]struct {
		args  []string
		code  int
		check func(runDocument) bool
	}{
		"ok": {[]string{"-c", "print(1)\n6 * 7"}, 0, func(d runDocument) bool {
			return d.Error == nil && d.Result.Status == executor.StatusOK && string(d.Result.Stdout) == "1\n" && string(d.Result.Outputs[0].Data["text/plain"]) == "42"
		}},
		"failed": {[]string{"-c", `throw("ValueError", "x")`}, exitFailed, func(d runDocument) bool {
			return d.Result.Status == executor.StatusFailed && d.Result.Exception.Type == "ValueError"
		}},
		"timeout": {[]string{"--timeout", "200ms", "-c", "forever()"}, exitTimeout, func(d runDocument) bool {
			return d.Result.Status == executor.StatusTimedOut
		}},
		"saved": {[]string{"--out", filepath.Join(dir, "out"), "-c", `write("x.txt", "x")`}, 0, func(d runDocument) bool {
			return len(d.Saved) == 1 && d.Saved[0] == savedFile{"x.txt", filepath.Join(dir, "out", "x.txt"), "text/plain", 1} && d.Result.Artifacts[0].Data == nil
		}},
		"unavailable": {[]string{"--config", config, "-c", "1"}, exitInfrastructure, func(d runDocument) bool {
			return d.Result == nil && d.Error.Kind == "unavailable" && d.Error.Op == "create" && d.Error.Backend == "down" && d.Error.Ran == "no"
		}},
		"unsupported": {[]string{"--language", "cobol", "-c", "1"}, exitUsage, func(d runDocument) bool {
			return d.Error.Kind == "unsupported" && len(d.Error.Missing) == 1 && d.Error.Missing[0] == "language:cobol"
		}},
		"configuration": {[]string{"--config", bad, "-c", "1"}, exitUsage, func(d runDocument) bool {
			return d.Error.Kind == "configuration" && len(d.Error.Errors) == 2 && d.Error.Errors[1].Path == "backends.b" && d.Error.Errors[1].Line == 3
		}},
		"usage": {nil, exitUsage, func(d runDocument) bool { return d.Error.Kind == "usage" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := run(t, c.code, append([]string{"run", "--json"}, c.args...)...)
			var d runDocument
			decode(t, p.out.Bytes(), &d)
			if !c.check(d) {
				t.Errorf("got %s", p.out.String())
			}
			if p.err.Len() > 0 {
				t.Errorf("got stderr %q", p.err.String())
			}
		})
	}
}

func TestConfigurationFromTheEnvironment(t *testing.T) {
	t.Parallel()
	p := command(t, "run", "--json", "-c", "1")
	p.Env = append(p.Env, "EXECBROKER_CONFIG="+write(t, p.Dir, "c.yaml", "backends:\n  mine: {type: fake}\n"))
	if got := p.code(t, p.Run()); got != exitOK {
		t.Fatalf("got exit code %d: %s", got, p.err.String())
	}
	var d runDocument
	if decode(t, p.out.Bytes(), &d); d.Result.Origin.Backend != "mine" {
		t.Errorf("got %s", p.out.String())
	}
}

func TestConfigurationErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := write(t, dir, "bad.yaml", "backends:\n  a: {type: fkae}\n  b: {type: fake, craete_time: 1s}\n")
	p := run(t, exitUsage, "run", "--config", config, "-c", "1")
	want := "execbroker: " + config + ": 2 errors\n" +
		"  backends.a.type: unknown type \"fkae\"; did you mean \"fake\"? (line 2, column 7)\n" +
		"  backends.b: unknown field \"craete_time\"; did you mean \"create_time\"? (line 3, column 19)\n"
	if got := p.err.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestProgressInLines(t *testing.T) {
	t.Parallel()
	config := write(t, t.TempDir(), "slow.yaml", "backends:\n  slow: {type: fake, create_time: 1200ms}\n")
	p := run(t, exitOK, "run", "--config", config, "-c", "1")
	if got, want := p.err.String(), "execbroker: starting a sandbox of slow\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
