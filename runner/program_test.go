package runner

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/cell"
	"github.com/execbroker/execbroker/internal/wire"
)

// What is sent ahead of every sandbox is small.
func TestProgramSize(t *testing.T) {
	t.Parallel()
	if n := len(program()); n > 64<<10 {
		t.Errorf("got %d bytes, want at most 64 KB", n)
	}
	// In the configuration of a machine it is base64, and the first of two parts. The second has
	// the room of a frame.
	first, second := base64.StdEncoding.EncodedLen(len(GuestProgram())), len(guestParts())
	if first > 40<<10 || second > wire.MaxPayload/4 {
		t.Errorf("got %d bytes for the configuration of a machine and %d for its set-up, want at most 40 and 256 KB", first, second)
	}
	t.Logf("%d bytes in the configuration of a machine, %d in its set-up", first, second)
}

// What is left out of the program when it is sent changes nothing but comments and the words about
// functions, and no line moves.
func TestShippedProgramIsTheSame(t *testing.T) {
	t.Parallel()
	const same = `
import ast, json, sys
def form(text):
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node) is not None:
            node.body[0].value = ast.Constant("")
        for name in ("col_offset", "end_col_offset", "end_lineno"):
            node.__dict__.pop(name, None)
    return ast.dump(tree, include_attributes=True)
for name, (before, after) in json.load(sys.stdin).items():
    if form(before) != form(after) or before.count("\n") != after.count("\n"):
        print(name)
`
	texts := map[string][2]string{
		"cell.py": {cell.Program, shipped(cell.Program)}, "notebook.py": {cell.Notebook, shipped(cell.Notebook)},
		"forms": {formsOfComments, shipped(formsOfComments)},
	}
	entries, err := sources.ReadDir("internal/program")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".py") {
			text, err := sources.ReadFile("internal/program/" + e.Name())
			if err != nil {
				t.Fatal(err)
			}
			texts[e.Name()] = [2]string{string(text), source(e.Name())}
		}
	}
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-I", "-c", same)
	cmd.Stdin = bytes.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) != 0 {
		t.Errorf("another program: %s (%v)", out, err)
	}
	if got := shipped(formsOfComments); strings.Contains(got, "words") || !strings.Contains(got, "kept") {
		t.Errorf("got %s", got)
	}
}

// formsOfComments has the comments and strings that shipped must tell apart.
const formsOfComments = `"""words of
a module, words"""

import os  # words


class A:
    """words"""

    # words
    def f(self, x="  # kept"):
        """words

        words
        """
        s = "# kept"  # words
        return """  # kept"""


def g():
    """words
    words"""
`

// The program needs nothing but the standard library of the oldest Python, and of that nothing that
// is gone in later ones.
func TestProgramImports(t *testing.T) {
	t.Parallel()
	const list = `
import ast, sys
names = set()
for node in ast.walk(ast.parse(sys.stdin.read())):
    if isinstance(node, ast.Import):
        names |= {a.name.split(".")[0] for a in node.names}
    elif isinstance(node, ast.ImportFrom):
        names.add(node.module.split(".")[0])
for name in names:
    __import__(name)
print(*sorted(names - set(sys.builtin_module_names) - set(getattr(sys, "stdlib_module_names", names))))
`
	var all strings.Builder
	for _, name := range slices.Concat(guest, supervisor) {
		all.WriteString(source(name))
	}
	for _, p := range others {
		all.WriteString(joined(p.name, p.files).source)
	}
	each(t, func(t *testing.T, root string) {
		argv := inRoot(root, pythonOf(root), "-I", "-S", "-c", list)
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Stdin = strings.NewReader(all.String())
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "" {
			t.Errorf("not of the standard library: %s (%v)", out, err)
		}
	})
}

// recorded is a connection to a runner that has said all it will ever say.
type recorded struct{ io.Reader }

func (recorded) Write(p []byte) (int, error) { return len(p), nil }
func (recorded) Close() error                { return nil }

// FuzzClient lets a client hear whatever a runner might say that user code has taken over.
func FuzzClient(f *testing.F) {
	frames := func(fs ...wire.Frame) (b []byte) {
		for _, f := range fs {
			b = f.Append(b)
		}
		return b
	}
	m := func(m wire.Map) []byte { return wire.AppendValue(nil, m) }
	started := wire.Frame{Type: wire.Started, Stream: 1, Payload: m(wire.Map{"cell": 1})}
	done := wire.Frame{Type: wire.Done, Stream: 1, Payload: m(wire.Map{
		"exit": 1, "reason": "output", "signal": "SIGKILL", "lost": true, "cpu": -1,
		"exception": wire.Map{"type": "E", "message": "\xff", "traceback": "t", "line": -7},
	})}
	f.Add(frames(started, wire.Frame{Type: wire.Data, Channel: wire.Stdout, Stream: 1, Payload: []byte("x")}, done))
	f.Add(frames(started, wire.Frame{Type: wire.Output, Stream: 1, Flags: wire.More, Payload: m(wire.Map{"main": true, "data": wire.Map{"Text/\xff": "x"}})}, done))
	f.Add(frames(started, wire.Frame{Type: wire.Data, Channel: wire.Entries, Stream: 1, Payload: m(wire.Map{"name": "../x", "size": -1, "mtime": 1})}, done))
	f.Add(frames(wire.Frame{Type: wire.Fail, Stream: 1, Payload: m(wire.Map{"kind": "busy"})}))
	f.Add(frames(wire.Frame{Type: wire.Bye, Payload: m(wire.Map{"reason": "fenced", "streams": []any{1}})}))
	f.Add(frames(started, started, wire.CreditFrame(1, 1<<31)))
	hello := frames(wire.Frame{Type: wire.Hello, Payload: m(wire.Map{"version": wire.Version, "workdir": "/workspace", "left": -1})})
	f.Fuzz(func(t *testing.T, said []byte) {
		c, err := setUp(t.Context(), recorded{io.MultiReader(bytes.NewReader(hello), bytes.NewReader(said))}, Config{})
		if err != nil {
			return // what was said broke the connection before it was greeted in turn
		}
		defer c.Detach()
		size, began := 0, false
		req := executor.Request{Language: executor.Python, Code: "1", Artifacts: &executor.ArtifactRequest{}}
		_, err = c.Run(t.Context(), &req, func(ev executor.Event) error {
			if began == (ev.Kind == executor.EventStarted) {
				t.Errorf("got the event %s, the code having started: %v", ev.Kind, began)
			}
			began = true
			size += len(ev.Data)
			return nil
		})
		var e *executor.Error
		if err != nil && !errors.As(err, &e) && !errors.Is(err, context.Canceled) {
			t.Errorf("got the error %v, which is of no kind", err)
		}
		if e != nil && e.Ran == executor.RanNo && began {
			t.Errorf("got %v after the code had started", err)
		}
		if size > len(said) {
			t.Errorf("got %d bytes of output from %d", size, len(said))
		}
	})
}
