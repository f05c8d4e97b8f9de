package cell

import (
	"strings"
	"testing"
)

// golden is a test case. Its last cell is checked.
type golden struct {
	name      string
	steps     []step
	stdout    string
	stderr    string
	value     string // text/plain of the value; "" means that there must be no value
	json      string // application/json of the value
	exit      int
	exception string // "Type: message"
	line      int
	trace     []string // in the traceback
	absent    []string // not in the traceback
	interrupt bool
}

func (g golden) check(t *testing.T, o outcome) {
	t.Helper()
	if got := o.text("stdout"); got != g.stdout {
		t.Errorf("stdout: got %q, want %q", got, g.stdout)
	}
	if got := o.text("stderr"); got != g.stderr {
		t.Errorf("stderr: got %q, want %q", got, g.stderr)
	}
	value, js := "", ""
	if b := o.bundles("main"); len(b) == 1 {
		value, _ = b[0]["text/plain"].(string)
		js, _ = b[0]["application/json"].(string)
	} else if len(b) > 1 {
		t.Errorf("got %d values, want at most 1", len(b))
	}
	if value != g.value {
		t.Errorf("value: got %q, want %q", value, g.value)
	}
	if g.json != "" && js != g.json {
		t.Errorf("json: got %q, want %q", js, g.json)
	}
	if o.Exit != g.exit {
		t.Errorf("exit: got %d, want %d", o.Exit, g.exit)
	}
	if o.Interrupted != g.interrupt {
		t.Errorf("interrupted: got %v, want %v", o.Interrupted, g.interrupt)
	}
	exception, trace := "", ""
	if o.Exception != nil {
		exception, trace = o.Exception.Type+": "+o.Exception.Message, o.Exception.Traceback
		if o.Exception.Line != g.line {
			t.Errorf("line: got %d, want %d", o.Exception.Line, g.line)
		}
	}
	if exception != g.exception {
		t.Errorf("exception: got %q, want %q\n%s", exception, g.exception, trace)
	}
	rest := trace
	for _, want := range g.trace {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("traceback: %q is missing, or not in this order:\n%s", want, trace)
		}
		rest = after
	}
	for _, not := range append(g.absent, "cell.py", "host.py") {
		if strings.Contains(trace, not) {
			t.Errorf("traceback: %q should not be there:\n%s", not, trace)
		}
	}
}

// cells makes steps of sources.
func cells(sources ...string) []step {
	var s []step
	for _, source := range sources {
		s = append(s, step{Source: source})
	}
	return s
}

var cases = []golden{
	{name: "value", steps: cells("1+1"), value: "2", json: "2"},
	{name: "value-after-statements", steps: cells("x = 20\ny = 22\nx + y"), value: "42"},
	{name: "value-none", steps: cells("None")},
	{name: "empty", steps: cells("")},
	{name: "comment-only", steps: cells("# nothing\n")},
	{name: "value-parenthesized", steps: cells("(1,\n 2)"), value: "(1, 2)", json: "[1, 2]"},
	{name: "semicolon", steps: cells("42;")},
	{name: "semicolon-comment", steps: cells("('é', 42) ; # shown nowhere\n\n")},
	{name: "semicolon-in-comment", steps: cells("42 # not; this one"), value: "42"},
	{name: "underscore", steps: cells("6*7", "_"), value: "42"},
	{name: "underscore-of-user", steps: cells("_ = 'mine'\n7", "_"), value: "'mine'"},
	{name: "state", steps: cells("x = 1", "x += 1", "x"), value: "2"},
	{name: "json-nested", steps: cells(`{"a": [1, 2.5, None, True, "é\n\x01\""], "b": (1,)}`),
		value: `{'a': [1, 2.5, None, True, 'é\n\x01"'], 'b': (1,)}`,
		json:  `{"a": [1, 2.5, null, true, "é\n\u0001\""], "b": [1]}`},
	{name: "print", steps: cells("print('hi')\nprint('a', end='')"), stdout: "hi\na"},
	{name: "order-of-print-and-value", steps: cells("print('first', end='')\n42"), stdout: "first", value: "42"},
	{name: "stderr", steps: cells("import sys\nprint('oops', file=sys.stderr)"), stderr: "oops\n"},
	{name: "binary-output", steps: cells(`import sys; sys.stdout.buffer.write(b"\xff\x00a");`), stdout: `\xff` + "\x00a"},
	{name: "exception", steps: cells("def f():\n    return 1/0\n\nf()"), exit: 1, exception: "ZeroDivisionError: division by zero", line: 2,
		trace: []string{"Traceback (most recent call last):\n", `File "<cell 1>", line 4, in <module>`, "\n    f()\n", `File "<cell 1>", line 2, in f`, "return 1/0", "ZeroDivisionError: division by zero\n"}},
	{name: "exception-across-cells", steps: cells("def f():\n    raise ValueError('x')", "\n\nf()"), exit: 1, exception: "ValueError: x", line: 3,
		trace: []string{`File "<cell 2>", line 3`, `File "<cell 1>", line 2, in f`, "raise ValueError('x')"}},
	{name: "state-after-exception", steps: cells("x = 1\n1/0", "x"), value: "1"},
	{name: "syntax-error", steps: cells("x = 1\ny = = 2"), exit: 1, exception: "SyntaxError: invalid syntax (<cell 1>, line 2)", line: 2,
		trace: []string{`File "<cell 1>", line 2`, "y = = 2", "^", "SyntaxError"}, absent: []string{"Traceback"}},
	{name: "exit-0", steps: cells("import sys; sys.exit()")},
	{name: "exit-3", steps: cells("import sys; sys.exit(3)"), exit: 3},
	{name: "exit-text", steps: cells("import sys; sys.exit('bye')"), exit: 1, stderr: "bye\n"},
	{name: "exit-negative", steps: cells("raise SystemExit(-1)"), exit: 255},
	{name: "exit-keeps-state", steps: cells("x = 1\nraise SystemExit(2)", "x"), value: "1"},
	{name: "exit-in-await", steps: cells("import asyncio\nawait asyncio.sleep(0)\nraise SystemExit(9)"), exit: 9},
	{name: "input", steps: []step{{Source: "a = input('name? ')\nb = input()\n(a, b)", Stdin: "bob\nrest"}}, stdout: "name? ", value: "('bob', 'rest')"},
	{name: "input-at-end", steps: cells("input()"), exit: 1, exception: "EOFError: EOF when reading a line", line: 1},
	{name: "input-of-earlier-run", steps: []step{{Source: "input()", Stdin: "a\nb\n"}, {Source: "import sys; sys.stdin.read()", Stdin: "c"}}, value: "'c'"},
	{name: "stdin-binary", steps: []step{{Source: "import sys; sys.stdin.buffer.read()", Stdin: "é"}}, value: `b'\xc3\xa9'`},
	{name: "await", steps: cells("import asyncio\nawait asyncio.sleep(0, 42)"), value: "42"},
	{name: "await-without-value", steps: cells("import asyncio\nx = await asyncio.sleep(0, 42)", "x"), value: "42"},
	{name: "asyncio-run", steps: cells("import asyncio\nasyncio.run(asyncio.sleep(0, 42))"), value: "42"},
	{name: "interrupt", steps: cells("raise KeyboardInterrupt"), exit: 130, exception: "KeyboardInterrupt: ", line: 1, interrupt: true},
	{name: "main", steps: cells("if __name__ == '__main__':\n    print('main')"), stdout: "main\n"},
	{name: "pickle", steps: cells("import pickle\nclass A: pass\ntype(pickle.loads(pickle.dumps(A()))) is A"), value: "True"},
	{name: "env", steps: []step{{Source: "import os\nos.environ['X']", Env: map[string]string{"X": "y"}}}, value: "'y'"},
	{name: "env-restored", steps: []step{{Source: "", Env: map[string]string{"X": "y"}}, {Source: "import os\nos.environ.get('X', 'gone')"}}, value: "'gone'"},
	{name: "value-twice", steps: cells("1; 2"), value: "2"},
	{name: "value-not-last", steps: cells("1\nx = 2")},
	{name: "value-none-keeps-underscore", steps: cells("7", "None", "_"), value: "7"},
	{name: "value-of-class", steps: cells("class A:\n    @classmethod\n    def _repr_html_(cls): return '<b>'\nA"), value: "<class '__main__.A'>"},
	{name: "value-repr-fails", steps: cells("class A:\n    def __repr__(self): raise ValueError('no')\nA()"), exit: 1, exception: "ValueError: no", line: 2},
	{name: "value-repr-not-text", steps: cells("class A:\n    def __repr__(self): return 1\nA()"), exit: 1, exception: "TypeError: __repr__ returned non-string (type int)"},
	{name: "json-float-not-finite", steps: cells("[float('inf')]"), value: "[inf]", json: ""},
	{name: "json-subclass", steps: cells("import collections\ncollections.OrderedDict(a=1)['a']"), value: "1", json: "1"},
	{name: "json-cycle", steps: cells("x = []; x.append(x); x"), value: "[[...]]"},
	{name: "json-surrogate", steps: cells("'\\ud800'"), value: "'\\ud800'"},
	{name: "bom", steps: cells("\ufeff1"), value: "1"},
	{name: "windows-lines", steps: cells("def f():\r\n    1/0\r\nf()"), exit: 1, exception: "ZeroDivisionError: division by zero", line: 2, trace: []string{"    1/0\n"}},
	{name: "form-feed-is-no-line", steps: cells("x = 1\n\x0c\n1/0"), exit: 1, exception: "ZeroDivisionError: division by zero", line: 3, trace: []string{"    1/0\n"}},
	{name: "future", steps: cells("from __future__ import annotations", "def f(x: NoSuchName): pass\nf.__annotations__"), value: "{'x': 'NoSuchName'}"},
	{name: "global-names", steps: cells("__name__, __doc__, __package__"), value: "('__main__', None, None)"},
	{name: "program-name", steps: cells("1", "import os, sys\nsys.argv, os.path.basename(__file__), os.path.dirname(__file__) == os.getcwd()"), value: "(['<cell 2>'], '<cell 2>', True)"},
	{name: "program-name-of-the-code", steps: cells("import sys\nsys.argv = ['mine', 'x']\n__file__ = 'mine.py'", "sys.argv, __file__"), value: "(['mine', 'x'], 'mine.py')"},
	{name: "program-name-gone", steps: cells("import sys\ndel sys.argv[:], __file__", "sys.argv, __file__[-8:]"), value: "([], '<cell 2>')"},
	{name: "stream-modes", steps: cells("import sys\nsys.stdin.mode, sys.stdout.mode, sys.stderr.mode"), value: "('r', 'w', 'w')"},
	{
		name: "hook", steps: cells("import sys, traceback\nsys.excepthook = lambda kind, e, tb: print(kind.__name__, e, [f.name for f in traceback.extract_tb(tb)])", "def f():\n    1 / 0\nf()"),
		stdout: "ZeroDivisionError division by zero ['<module>', 'f']\n", exit: 1, exception: "ZeroDivisionError: division by zero", line: 2,
	},
	{
		name: "hook-of-syntax", steps: cells("import sys\nsys.excepthook = lambda kind, e, tb: print(kind.__name__)", "a b"),
		stdout: "SyntaxError\n", exit: 1, exception: "SyntaxError: invalid syntax (<cell 2>, line 1)", line: 1,
	},
	{
		name: "hook-exits", steps: cells("import sys\nsys.excepthook = lambda *a: sys.exit(7)\nraise ValueError('x')"),
		exit: 7, exception: "ValueError: x", line: 3,
	},
	{
		name: "hook-fails", steps: cells("import sys\nsys.excepthook = lambda *a: 1 / 0\nraise ValueError('x')"),
		stderr: "sys.excepthook: ZeroDivisionError: division by zero\n", exit: 1, exception: "ValueError: x", line: 3,
	},
	{name: "hook-exit", steps: cells("import sys\nsys.excepthook = lambda *a: print('called')\nsys.exit(3)"), exit: 3},
	{name: "imports-from-workdir", steps: cells("open('mine.py', 'w').write('def f(): return 1/0')", "import mine", "import os; os.path.exists('__pycache__')"), value: "False"},
	{name: "exception-in-module", steps: cells("open('mine2.py', 'w').write('def f():\\n    return 1/0'); import mine2\nmine2.f()"), exit: 1, exception: "ZeroDivisionError: division by zero", line: 2,
		trace: []string{`File "<cell 1>", line 2`, "mine2.py\", line 2, in f", "return 1/0"}},
	{name: "exception-in-library", steps: cells("import json\n\njson.loads('{')"), exit: 1, exception: "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)", line: 3,
		trace: []string{`File "<cell 1>", line 3`}, absent: []string{"json/decoder"}},
	{name: "exception-chained", steps: cells("try:\n    1/0\nexcept Exception as e:\n    raise KeyError('k') from e"), exit: 1, exception: "KeyError: 'k'", line: 4,
		trace: []string{"ZeroDivisionError: division by zero\n", "\nThe above exception was the direct cause", `line 4, in <module>`, "KeyError: 'k'\n"}},
	{name: "exception-in-handler", steps: cells("try:\n    1/0\nexcept Exception:\n    None.x"), exit: 1, exception: "AttributeError: 'NoneType' object has no attribute 'x'", line: 4,
		trace: []string{"ZeroDivisionError", "During handling of the above exception", "AttributeError"}},
	{name: "exception-str-fails", steps: cells("class E(Exception):\n    def __str__(self): raise ValueError\nraise E"), exit: 1, exception: "E: <message of E cannot be shown>", line: 3,
		trace: []string{`File "<cell 1>", line 3`, "E: <"}},
	{name: "exception-str-exits", steps: cells("class E(Exception):\n    def __str__(self): raise SystemExit(3)\nraise E"), exit: 1, exception: "E: ", line: 3},
	{name: "exception-escape-sequences", steps: cells(`raise ValueError("\x1b[31mred\x1b[0m \x1b]0;title\x07end")`), exit: 1, exception: "ValueError: red end", line: 1, absent: []string{"\x1b"}},
	{name: "exception-without-name", steps: cells("class M(type):\n    __name__ = property(lambda c: 1/0)\nclass E(Exception, metaclass=M): pass\nraise E('x')"), exit: 1, exception: "E: x", line: 4},
	{name: "exception-raised-by-name", steps: cells("raise NotImplementedError"), exit: 1, exception: "NotImplementedError: ", line: 1},
	{name: "recursion", steps: cells("def f(): f()\nf()"), exit: 1, exception: "RecursionError: maximum recursion depth exceeded", line: 1, trace: []string{"Previous line repeated", "RecursionError"}},
	{name: "recursion-of-two", steps: cells("f = lambda: g(); g = lambda: f()\ntry:\n    f()\nexcept RecursionError as e:\n    raise e"), exit: 1, exception: "RecursionError: maximum recursion depth exceeded", line: 1},
	{name: "syntax-error-indent", steps: cells("x = 1\n  y = 2"), exit: 1, exception: "IndentationError: unexpected indent (<cell 1>, line 2)", line: 2, trace: []string{`File "<cell 1>", line 2`}},
	{name: "syntax-error-of-exec", steps: cells("\nexec('x = = 1')"), exit: 1, exception: "SyntaxError: invalid syntax (<string>, line 1)", line: 2, trace: []string{`File "<cell 1>", line 2`}},
	{name: "return-outside", steps: cells("return 1"), exit: 1, exception: "SyntaxError: 'return' outside function (<cell 1>, line 1)", line: 1},
	{name: "warning", steps: cells("import warnings\nwarnings.warn('careful')"), stderr: "<cell 1>:2: UserWarning: careful\n  warnings.warn('careful')\n"},
	{name: "inspect-source", steps: cells("def f():\n    return 1", "import inspect\nprint(inspect.getsource(f), end='')"), stdout: "def f():\n    return 1\n"},
	{name: "traceback-module", steps: cells("import traceback\ntry:\n    1/0\nexcept Exception:\n    print(traceback.format_exc().splitlines()[2])"), stdout: "    1/0\n"},
	{name: "exit-function", steps: cells("exit(4)"), exit: 4},
	{name: "exit-function-keeps-stdin", steps: []step{{Source: "exit()"}, {Source: "input()", Stdin: "x"}}, value: "'x'"},
	{name: "exit-huge", steps: cells("raise SystemExit(1 << 100)"), exit: 255},
	{name: "exit-bool", steps: cells("raise SystemExit(True)"), exit: 1},
	{name: "exit-object", steps: cells("raise SystemExit([1])"), exit: 1, stderr: "[1]\n"},
	{name: "exit-in-handler", steps: cells("try:\n    1/0\nexcept Exception:\n    raise SystemExit(2)"), exit: 2},
	{name: "exit-object-hostile", steps: cells("class A:\n    def __str__(self): raise ValueError\nraise SystemExit(A())"), exit: 1},
	{name: "async-for-with", steps: cells("async def g():\n    yield 1\n    yield 2\nclass C:\n    async def __aenter__(self): return 3\n    async def __aexit__(self, *a): pass\nx = []\nasync for i in g(): x.append(i)\nasync with C() as c: x.append(c)\nx + [i async for i in g()]"), value: "[1, 2, 3, 1, 2]"},
	{name: "async-exception", steps: cells("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    1/0\nawait f()"), exit: 1, exception: "ZeroDivisionError: division by zero", line: 4, trace: []string{"line 5, in <module>", "line 4, in f"}},
	{name: "async-create-task-needs-await", steps: cells("import asyncio\nasync def f(): pass\nc = f()\nasyncio.create_task(c)", "await c"), exit: 0},
	{name: "async-task-of-earlier-cell", steps: cells("import asyncio\nawait asyncio.sleep(0)\nasync def f():\n    await asyncio.sleep(0.01)\n    return 6\nt = asyncio.create_task(f())", "await t"), value: "6"},
	{name: "async-cancel", steps: []step{{Source: "import asyncio\nawait asyncio.sleep(100)", Cancel: true}}, exit: 130, exception: "CancelledError: ", line: 2, interrupt: true},
	{name: "async-cancel-swallowed", steps: []step{{Source: "import asyncio\ntry:\n    await asyncio.sleep(100)\nexcept asyncio.CancelledError:\n    print('swallowed')", Cancel: true}}, stdout: "swallowed\n"},
	{name: "async-display-order", steps: cells("import asyncio\nprint('a', end=''); display(1); await asyncio.sleep(0); print('b', end=''); 2"), stdout: "ab", value: "2"},
	{name: "interrupt-inside-function", steps: cells("def f():\n    raise KeyboardInterrupt\nf()", "1"), value: "1"},
	{name: "dir", steps: []step{{Source: "import os\nos.mkdir('sub')"}, {Source: "os.path.basename(os.getcwd())", Dir: "sub"}}, value: "'sub'"},
	{name: "dir-restored", steps: []step{{Source: "import os\nos.mkdir('sub'); before = os.getcwd()"}, {Source: "1/0", Dir: "sub"}, {Source: "os.getcwd() == before"}}, value: "True"},
	{name: "dir-deleted", steps: []step{{Source: "import os\nos.mkdir('sub'); os.mkdir('other'); before = os.getcwd(); os.chdir('other')"}, {Source: "os.rmdir('../other')", Dir: "sub"}, {Source: "os.getcwd() == before"}}, value: "True"},
	{name: "dir-missing", steps: []step{{Source: "1", Dir: "/no/such"}}, exit: 1, exception: "FileNotFoundError: [Errno 2] No such file or directory: '/no/such'", trace: []string{"FileNotFoundError: [Errno 2]"}, absent: []string{"Traceback"}},
	{name: "chdir-stays", steps: cells("import os\nos.chdir('/')", "os.getcwd()"), value: "'/'"},
	{name: "env-changed-inside", steps: []step{{Source: "import os\nos.environ['X'] = 'mine'; os.environ['Y'] = 'stays'", Env: map[string]string{"X": "y"}}, {Source: "os.environ.get('X'), os.environ['Y']"}}, value: "(None, 'stays')"},
	{name: "env-deleted-inside", steps: []step{{Source: "import os\nos.environ['A'] = '1'"}, {Source: "del os.environ['A']", Env: map[string]string{"A": "2"}}, {Source: "os.environ['A']"}}, value: "'1'"},
	{name: "dataclass", steps: cells("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nP(1)"), value: "P(x=1)"},
	{name: "pickle-across-cells", steps: cells("class A:\n    x = 1", "import pickle\nb = pickle.dumps(A())", "pickle.loads(b).x"), value: "1"},
	{name: "print-flush", steps: cells("print('x', end='', flush=True)"), stdout: "x"},
	{name: "print-surrogate-of-file-name", steps: cells("print('\\udcff')"), stdout: `\xff` + "\n"},
	{name: "print-surrogate", steps: cells("import sys\nprint('\\ud800', file=sys.stderr)"), stderr: "\\ud800\n"},
	{name: "print-after-buffer", steps: cells("import sys\nsys.stdout.buffer.write(b'a'); sys.stdout.flush(); print('b')"), stdout: "ab\n"},
	{name: "stdout-redirected", steps: cells("import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()) as f: print('x')\nf.getvalue()"), value: "'x\\n'"},
	{name: "logging-across-cells", steps: cells("import logging\nlogging.basicConfig(format='%(message)s')\nlogging.warning('one')", "logging.warning('two')"), stderr: "two\n"},
	{name: "stdout-attributes", steps: cells("import sys\nsys.stdout.encoding, sys.stdout.errors, sys.stdin.encoding, sys.stdout.isatty(), sys.stdout.name, sys.stdout.writable()"), value: "('utf-8', 'surrogateescape', 'utf-8', False, '<stdout>', True)"},
	{name: "stdout-without-descriptor", steps: cells("import sys, io\ntry:\n    sys.stdout.fileno()\nexcept io.UnsupportedOperation: print('none')"), stdout: "none\n"},

	// Whatever one cell breaks must not break the next cell.
	{name: "breaks-stdout", steps: cells("import sys\nsys.stdout = None", "print('x')"), stdout: "x\n"},
	{name: "closes-stdout", steps: cells("import sys\nsys.stdout.close(); sys.stderr.close(); sys.stdin.close()", "print('x'); input()"), stdout: "x\n", exit: 1, exception: "EOFError: EOF when reading a line", line: 1},
	{name: "detaches-stdout", steps: cells("import sys\nsys.stdout.detach()\n1;", "print('x')"), stdout: "x\n"},
	{name: "stdout-refuses", steps: cells("import sys\nclass W:\n    def write(self, s): raise ValueError\n    def flush(self): raise ValueError\nsys.stdout = sys.stderr = W()", "print('x')"), stdout: "x\n"},
	{name: "breaks-builtins", steps: cells("import builtins\nfor n in list(vars(builtins)):\n    if n not in ('list', 'vars', 'setattr'): setattr(builtins, n, None)", "print(len([1]), int('3'))\nisinstance(1, int)"), stdout: "1 3\n", value: "True"},
	{name: "deletes-builtins", steps: cells("import builtins\nvars(builtins).clear()", "len('abc')"), value: "3"},
	{name: "replaces-builtin", steps: cells("import builtins\nbuiltins.print = lambda *a: 5", "print('x')"), value: "5"},
	{name: "deletes-modules", steps: cells("import sys\nfor m in list(sys.modules): del sys.modules[m]", "import sys\n'__main__' in sys.modules"), value: "True"},
	{name: "replaces-main", steps: cells("import sys\nsys.modules['__main__'] = None\nx = 1", "import __main__\n__main__.x"), value: "1"},
	{name: "clears-globals", steps: cells("globals().clear()", "__name__, len('x')"), value: "('__main__', 1)"},
	{name: "breaks-os", steps: []step{{Source: "import os\nos.environ = os.getcwd = os.chdir = os.path.join = None", Dir: "/"}, {Source: "1", Env: map[string]string{"A": "b"}, Dir: "/"}}, value: "1"},
	{name: "breaks-traceback", steps: cells("import traceback, linecache, io\ntraceback.TracebackException = linecache.cache = io.StringIO = None", "1/0"), exit: 1, exception: "ZeroDivisionError: division by zero", line: 1, trace: []string{"ZeroDivisionError: division by zero"}},
	{name: "replaces-displayhook", steps: cells("import sys\nsys.displayhook = None", "1"), value: "1"},
	{name: "excepthook", steps: cells("import sys\nsys.excepthook = None\n1/0"), exit: 1, exception: "ZeroDivisionError: division by zero", line: 3},
	{name: "shadows-library", steps: cells("for m in ('traceback', 'json', 'asyncio', 'linecache', 're', 'tokenize'): open(m + '.py', 'w').write('raise SystemExit(9)')", "1/0"), exit: 1, exception: "ZeroDivisionError: division by zero", line: 1, trace: []string{`File "<cell 2>", line 1`, "1/0"}},
	{name: "settrace", steps: cells("import sys\nsys.settrace(lambda *a: 1/0)", "1"), value: "1"},
	{name: "low-recursion-limit", steps: cells("import sys\nsys.setrecursionlimit(80)\n1;", "def f(): f()\nf()"), exit: 1, exception: "RecursionError: maximum recursion depth exceeded", line: 1},
	{name: "display-gone", steps: cells("display = None", "display"), exit: 0},
}
