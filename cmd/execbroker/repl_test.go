package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestReplScript feeds the session through a pipe.
func TestReplScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := write(t, dir, "data.csv", "a,b\n")
	script := write(t, dir, "script.py", `print("from a file", kept)`)
	config := write(t, dir, "c.yaml", "backends:\n  short: {type: fake, without: [files, packages, state]}\n")
	for name, c := range map[string]struct {
		args     []string
		in       []string
		code     int
		out, err []string
	}{
		"state":        {in: []string{"kept = 41", "kept + 1"}, out: []string{"42\n"}},
		"last-line":    {in: []string{"6 * 7"}, out: []string{"42\n"}},
		"brackets":     {in: []string{"print(1,", "2)", "3"}, out: []string{"1 2\n3\n"}},
		"javascript":   {args: []string{"--language", "javascript"}, in: []string{"for i in {0: None,", "1: None}: print(i)"}, out: []string{"0\n1\n"}},
		"exception":    {in: []string{`throw("ValueError", "x")`, "6 * 7"}, code: exitFailed, out: []string{"42\n"}, err: []string{"ValueError: x\n"}},
		"timeout":      {args: []string{"--timeout", "1s"}, in: []string{"kept = 1", "forever()", "kept"}, code: exitFailed, out: []string{"1\n"}, err: []string{"the time limit"}},
		"help":         {in: []string{"%help"}, out: []string{"%help", "%files [DIR]", "%quit"}},
		"files":        {args: []string{"--file", data}, in: []string{"%files", "%put '" + data + "' sub/x.csv", "%files sub", "%remove sub", "%files"}, out: []string{"data.csv  4 bytes\n", "x.csv  4 bytes\n", "data.csv  4 bytes\n"}},
		"get":          {in: []string{`write("made.txt", "made")`, "%get made.txt '" + filepath.Join(dir, "got.txt") + "'", "%get made.txt '" + filepath.Join(dir, "got.txt") + "'"}, code: exitFailed, err: []string{"saved ", "got.txt (4 bytes)", "exists"}},
		"run":          {in: []string{"kept = 1", "%run '" + script + "'"}, out: []string{"from a file 1\n"}},
		"install":      {in: []string{"%install six", `print(imported("six"))`, "%install nothing-like-it"}, code: exitFailed, out: []string{"true\n"}},
		"reset":        {in: []string{"kept = 1", `write("x", "x")`, "%reset", `recall("kept", "absent")`, "%files"}, out: []string{"absent", "x  1 byte\n"}},
		"restart":      {in: []string{"kept = 1", `write("x", "x")`, "%restart", `recall("kept", "absent")`, "%files"}, out: []string{"absent"}},
		"info":         {in: []string{"%info"}, out: []string{"backend", "fake, of type fake", "session", "running", "language", "python", "features", "files"}},
		"limit":        {in: []string{"%timeout", "%timeout 100ms", "%timeout", "forever()", "%timeout 0", "%timeout"}, code: exitFailed, out: []string{"30s\n100ms\nfor ever\n"}, err: []string{"the time limit"}},
		"quit":         {in: []string{"1", "%quit", "2"}, out: []string{"1\n"}},
		"unknown":      {in: []string{"%hlep"}, code: exitFailed, err: []string{"unknown command \"hlep\"; did you mean \"help\"?"}},
		"arguments":    {in: []string{"%put"}, code: exitFailed, err: []string{"usage: %put FILE [NAME]"}},
		"quote":        {in: []string{"%put 'x"}, code: exitFailed, err: []string{"not closed"}},
		"unsupported":  {args: []string{"--config", config}, in: []string{"%files", "%install six", "%reset", "6 * 7"}, code: exitFailed, out: []string{"42\n"}, err: []string{"files", "packages", "state"}},
		"images":       {args: []string{"--out", filepath.Join(dir, "out")}, in: []string{`show("text/plain", "x", "image/png", "1")`, `show("text/plain", "x", "image/png", "2")`, `write("made.txt", "")`}, err: []string{"output-1.png", "output-2.png", "made.txt"}},
		"hostile-name": {in: []string{`write("a\x1b[2J", "")`, "%files"}, out: []string{`"a\x1b[2J"  0 bytes`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := command(t, append([]string{"repl"}, c.args...)...)
			p.Stdin = strings.NewReader(strings.Join(c.in, "\n"))
			if got := p.code(t, p.Run()); got != c.code {
				t.Errorf("got exit code %d, want %d", got, c.code)
			}
			p.clean(t)
			contains(t, p.out.String(), c.out...)
			contains(t, p.err.String(), c.err...)
			if strings.Contains(p.out.String()+p.err.String(), ">>>") {
				t.Error("got a prompt")
			}
		})
	}
	run(t, exitUsage, "repl", "--json")
}

// TestReplReplacesADeadSandbox breaks the sandbox between two lines.
func TestReplReplacesADeadSandbox(t *testing.T) {
	t.Parallel()
	b, config := shared(t)
	p := command(t, "repl", "--config", config)
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout = nil
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	say := func(line, want string) {
		t.Helper()
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := out.ReadString('\n'); got != want {
			t.Fatalf("%s: got %q, %v, want %q\n%s", line, got, err, want, p.err.String())
		}
	}
	say("kept = 41\nkept", "41\n")
	b.Break(b.Sandboxes()[0])
	say("kept + 1\nrecall(\"kept\", \"absent\")", "absent\n")
	in.Close()
	if got := p.code(t, p.Wait()); got != exitFailed {
		t.Errorf("got exit code %d", got)
	}
	contains(t, p.err.String(), "not found", "this is a new sandbox: variables and files are gone")
	if got := b.Sandboxes(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

func TestSplitWords(t *testing.T) {
	for in, want := range map[string][]string{
		"":                nil,
		"  put a  b ":     {"put", "a", "b"},
		`put "a b" 'c"d'`: {"put", "a b", `c"d`},
		`put a"b c"d`:     {"put", "ab cd"},
		`put ""`:          {"put", ""},
		`put C:\x`:        {"put", `C:\x`},
	} {
		if got, err := splitWords(in); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
	}
	if _, err := splitWords(`put "a`); err == nil {
		t.Error("got no error of an open quote")
	}
}

func TestHistory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "history")
	h, err := openHistory(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"a", "", "  ", " secret", "a", "def f():", "    return 1", "b", strings.Repeat("x", 5000), "c\nd"} {
		h.Add(line)
	}
	again, err := openHistory(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"b", "    return 1", "def f():", "a"}
	for _, h := range []*history{h, again} {
		var got []string
		for i := range h.Len() {
			got = append(got, h.At(i))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	file := write(t, t.TempDir(), "history", strings.Repeat(strings.Repeat("x", 99)+"\n"+strings.Repeat("y", 99)+"\n", 25_000))
	h, err := openHistory(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Len(); got != maxHistory {
		t.Errorf("got %d lines", got)
	}
	if info, err := os.Stat(file); err != nil || info.Size() != 100*maxHistory {
		t.Errorf("got %d bytes, %v", info.Size(), err)
	}
	for range 10 {
		h.Add("a")
		h.Add("b")
	}
	if got := h.Len(); got != maxHistory || h.At(0) != "b" {
		t.Errorf("got %d lines, the last %q", got, h.At(0))
	}
}

func TestStateDir(t *testing.T) {
	dir := t.TempDir()
	got, err := stateDir(func(name string) string {
		return map[string]string{"XDG_STATE_HOME": dir, "LocalAppData": dir}[name]
	})
	if err != nil || !filepath.IsAbs(got) || !strings.Contains(got, "execbroker") {
		t.Errorf("got %q, %v", got, err)
	}
}
