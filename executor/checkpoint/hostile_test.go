package checkpoint_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
)

// omitted returns what was omitted as lines of name and reason.
func omitted(all []checkpoint.Omission) (lines []string) {
	for _, o := range all {
		lines = append(lines, o.Name+": "+o.Reason)
	}
	slices.Sort(lines)
	return lines
}

// left is what cannot be carried: code, the name, and a part of the reason.
var left = []struct{ code, name, reason string }{
	{"f1 = open('/dev/null')", "f1", "TextIOWrapper"},
	{"import socket; f2 = socket.socket()", "f2", "socket"},
	{"import threading; f3 = threading.Thread(target=print)", "f3", "cannot pickle"},
	{"f4 = threading.Lock()", "f4", "lock"},
	{"f5 = (i for i in [1])", "f5", "generator"},
	{"async def co(): pass\nf6 = co()", "f6", "coroutine"},
	{"def outer(n):\n    def inner(): return n\n    return inner\nf7 = outer(1)", "f7", "closure"},
	{"f8 = [lambda: 1]", "f8", "lambda"},
	{"f9, f10 = lambda: 1, 2", "f9", "lambda"},
	{"exec('def f11(): return 1')", "f11", "source"},
	{"def f12(): return 1\nkept12 = f12\ndef f12(): return 2", "kept12", "another definition"},
	{"class C13: pass\nc13 = C13()\ndel C13", "c13", "C13"},
	{"class L:\n    lock = threading.Lock()", "L.lock", "lock"},
	{"import types; f15 = types.ModuleType('f15')", "f15", "made"},
	{"globals()['\\n'] = 1", `'\n'`, "name"},
	{"f17 = {'deep': [open('/dev/null')]}", "f17", "TextIOWrapper"},
	{"class E:\n    def __reduce__(self): raise ValueError('a\\x1b\\nb')\nf18 = E()", "f18", "ValueError: a?"},
	{"class X:\n    def __getstate__(self): import sys; sys.exit(3)\nf19 = X()", "f19", "SystemExit: 3"},
	{"class D:\n    pass\nd = D()\nfor _ in range(100_000): d = [d]", "d", "RecursionError"},
	{"f21 = bytearray(6 << 20)", "f21", "bound"},
	{"import os; token = 'is ' + os.environ['TOKEN']", "token", "TOKEN"},
	{"environment = dict(os.environ)", "environment", "TOKEN"},
	{"class W:\n    def __reduce__(self):\n        import sys, os, builtins\n        print('garbage' * 1000); sys.stdout = None; os.chdir('/'); builtins.print = builtins.len = lambda *a: 0; builtins.more = 1\n        globals().clear(); os.environ['MORE'] = '1'; sys.path.clear(); del builtins.isinstance\n        raise KeyError\nw = W()", "w", "KeyError"},
}

// TestLeft makes a checkpoint of what cannot be carried, and finds the conversation as before.
func TestLeft(t *testing.T) {
	x := local(t)
	k := talk{create(t, x, executor.Spec{Env: map[string]string{"TOKEN": "secret-1234"}}), ""}
	k.says(t, "good = [1]")
	for _, c := range left {
		k.says(t, c.code)
	}
	k.says(t, "open('notes.txt', 'w').write('secret-1234'); os.mkdir('d'); os.chdir('d'); os.symlink('/etc/passwd', 'out'); os.symlink('../d/../../etc', 'up'); os.mkfifo('pipe'); open('ok', 'w').close(); os.symlink('ok', 'in')")
	k.says(t, "'result'")
	const state = "print(sorted(globals()), _, os.getcwd(), sorted(os.environ), sorted(vars(__builtins__)), print, sys.path, os.listdir('/workspace'), sys.stdout)"
	k.says(t, "import sys")
	before := k.says(t, state)
	opts := checkpoint.Options{MaxBytes: 4 << 20, Spec: &executor.Spec{Env: map[string]string{"TOKEN": "secret-1234", "SHORT": "a"}}}
	archive, r := k.made(t, opts)
	if after := k.says(t, state); after != before {
		t.Errorf("the conversation was %s\nand is %s", before, after)
	}
	if bytes.Contains(archive, []byte("secret")) {
		t.Error("the archive contains a secret")
	}
	got := omitted(r.Omitted)
	find := func(name, reason string) {
		t.Helper()
		if !slices.ContainsFunc(got, func(l string) bool { return strings.HasPrefix(l, name+": ") && strings.Contains(l, reason) }) {
			t.Errorf("%s is not omitted because of %s", name, reason)
		}
	}
	for _, c := range left {
		find(c.name, c.reason)
	}
	for _, f := range [][2]string{{"notes.txt", "TOKEN"}, {"d/out", "outside"}, {"d/up", "outside"}, {"d/pipe", "regular"}} {
		find(f[0], f[1])
	}
	if len(got) != len(left)+4 || t.Failed() {
		t.Errorf("omitted: %s", strings.Join(got, "\n"))
	}

	opts.AllOrNothing = true
	var b bytes.Buffer
	var all *checkpoint.OmittedError
	if _, err := checkpoint.Make(t.Context(), k, &b, opts); !errors.Is(err, executor.ErrUnsupported) || !errors.As(err, &all) || len(all.Omitted) != len(got) || b.Len() > 0 {
		t.Errorf("all or nothing: %v, %d bytes", err, b.Len())
	}

	to := talk{create(t, x, executor.Spec{}), ""}
	to.restored(t, archive)
	if got := to.says(t, "import os; print(good, os.getcwd(), sorted(os.listdir()), os.readlink('in'), 'TOKEN' in os.environ)"); got != "[1] /workspace/d ['in', 'ok'] ok False" {
		t.Error(got)
	}
}

// TestBound makes an archive of more than its bound: some of the variables are carried, and it is
// smaller.
func TestBound(t *testing.T) {
	k := talk{create(t, local(t), executor.Spec{}), ""}
	k.says(t, "for i in range(20): globals()['v%d' % i] = bytes(100_000)\nsame = [v0] * 50\nopen('big', 'wb').write(bytes(900_000));")
	archive, r := k.made(t, checkpoint.Options{MaxBytes: 1 << 20})
	if len(archive) > 1<<20 || len(r.Omitted) != 11 || len(r.Manifest.Steps) != 12 {
		t.Errorf("%d bytes, %+v, omitted: %q", len(archive), r.Manifest.Steps, omitted(r.Omitted))
	}
}

// TestStopped has values that stop the run that pickles them.
func TestStopped(t *testing.T) {
	x := local(t)
	s := create(t, x, executor.Spec{})
	for _, c := range []struct {
		name, code string
		status     executor.Status
		kept       bool
	}{
		{"hang", "while True: pass", executor.StatusTimedOut, true},
		{"flood", "while True: print('x' * 1000)", executor.StatusKilled, true},
		{"exit", "import os; os._exit(3)", executor.StatusFailed, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := talk{s, c.name}
			k.says(t, "class E:\n    def __reduce__(self):\n        "+c.code+"\ne = E()")
			var b bytes.Buffer
			_, err := checkpoint.Make(t.Context(), k, &b, checkpoint.Options{Context: c.name, Limits: executor.RunLimits{WallTime: time.Second, OutputBytes: 1 << 20}})
			var exit *executor.ExitError
			if !errors.Is(err, executor.ErrInvalid) || !errors.As(err, &exit) || b.Len() > 0 {
				t.Fatalf("%v, %d bytes", err, b.Len())
			}
			if c.kept && exit.Result.Status != c.status {
				t.Errorf("status %s, want %s", exit.Result.Status, c.status)
			}
			if lost := strings.Contains(err.Error(), "variables of the conversation are lost"); lost == c.kept {
				t.Error(err)
			}
			if got := k.says(t, "import os; print('e' in globals(), os.listdir())"); got != map[bool]string{true: "True []", false: "False []"}[c.kept] {
				t.Error(got)
			}
		})
	}
}

// TestMissing restores where a module is missing: what needs it, or shares an object with that, is
// omitted, and nothing else.
func TestMissing(t *testing.T) {
	x := local(t)
	from := talk{create(t, x, executor.Spec{}), ""}
	from.says(t, "open('gone.py', 'w').write('class G:\\n    def __init__(self): self.x = 1\\ndef f(): pass');")
	from.says(t, "import gone\nfrom gone import f\nbefore = [0]\nlost = [gone.G(), ['inner']]\nshares = [lost[1]]\nmore = {'a': shares}\nafter = [before, 'text' * 2]\nclass C(gone.G): pass\nc = C()\ndef late(x=after): return x")
	from.says(t, "again = [after, 1]")
	archive, r := from.made(t, checkpoint.Options{})
	if len(r.Omitted) > 0 {
		t.Fatal(r.Omitted)
	}
	archive = bytes.Replace(archive, []byte("files/gone.py"), []byte("files/done.py"), 1)
	archive = fixChecksum(archive, "files/done.py")
	to := talk{create(t, x, executor.Spec{}), ""}
	got := omitted(to.restored(t, archive).Omitted)
	names := ""
	for _, l := range got {
		names += l[:strings.Index(l, ":")] + " "
	}
	if names != "C c f gone lost more shares " {
		t.Errorf("omitted: %s", strings.Join(got, "\n"))
	}
	if got := to.says(t, "print(before, after, after[0] is before, again[0] is after, late() is after, 'lost' in globals())"); got != "[0] [[0], 'texttext'] True True True False" {
		t.Error(got)
	}
	all := talk{create(t, x, executor.Spec{}), ""}
	_, err := checkpoint.Restore(t.Context(), all, bytes.NewReader(archive), checkpoint.Options{AllOrNothing: true, Known: true})
	if e := (*checkpoint.OmittedError)(nil); !errors.Is(err, executor.ErrUnsupported) || !errors.As(err, &e) || len(e.Omitted) != 7 {
		t.Error(err)
	}
	if got := all.says(t, "print('before' in globals())"); got != "False" {
		t.Error("a restore of all or nothing left names")
	}
}

// fixChecksum corrects the sum of the header of an entry whose name was changed.
func fixChecksum(archive []byte, name string) []byte {
	h := archive[bytes.Index(archive, []byte(name)):][:512]
	copy(h[148:156], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return archive
}
