package checkpoint_test

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/bubblewrap"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// local opens the backend that runs the Python of this machine, which starts fastest.
func local(tb testing.TB) executor.Executor {
	tb.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		tb.Skip(err)
	}
	x, err := bubblewrap.Open(tb.Context(), driver.Env{Owner: "test-" + strings.ToLower(rand.Text())}, bubblewrap.Config{Languages: []executor.Language{executor.Python, executor.JavaScript}})
	check(tb, err)
	tb.Cleanup(func() { check(tb, x.Close()) })
	return x
}

func create(tb testing.TB, x executor.Executor, spec executor.Spec) executor.Session {
	tb.Helper()
	if spec.Languages == nil {
		spec.Languages = []executor.Language{executor.Python}
	}
	s, err := x.Create(tb.Context(), spec)
	check(tb, err)
	tb.Cleanup(func() { check(tb, s.Close()) })
	return s
}

// A talk is an interpreter of a session.
type talk struct {
	executor.Session
	context string
}

// says runs a cell and returns what it prints.
func (k talk) says(tb testing.TB, code string) string {
	tb.Helper()
	r, err := k.Run(tb.Context(), executor.Request{Context: k.context, Code: code}, nil)
	check(tb, err)
	if err := r.Err(); err != nil {
		tb.Fatalf("%v\n%s", err, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout.String())
}

// made makes an archive.
func (k talk) made(tb testing.TB, opts checkpoint.Options) ([]byte, *checkpoint.Report) {
	tb.Helper()
	var b bytes.Buffer
	opts.Context = k.context
	r, err := checkpoint.Make(tb.Context(), k, &b, opts)
	check(tb, err)
	return b.Bytes(), r
}

// restored restores an archive.
func (k talk) restored(tb testing.TB, archive []byte) *checkpoint.Report {
	tb.Helper()
	r, err := checkpoint.Restore(tb.Context(), k, bytes.NewReader(archive), checkpoint.Options{Context: k.context, Known: true})
	check(tb, err)
	return r
}

// values is a conversation. The names of its parts differ. The last ones change what follows.
var values = []struct {
	name  string
	cells []string
	show  string // prints the same in every session that has the state
	want  string
}{
	{"numbers", []string{"a1, b1, c1, d1 = 1, 2**200, float('nan'), (float('inf'), -0.0, 1e-320, 3+4j)"}, "print(a1, b1, c1, d1)", "1 1606938044258990275541962092341162602522202993782792835301376 nan (inf, -0.0, 1e-320, (3+4j))"},
	{"texts", []string{"a2 = b'\\x00\\xff'; b2 = 'ä\\ud800'; c2 = bytearray(b'x'); d2 = ''"}, "print(a2, ascii(b2), c2, repr(d2))", `b'\x00\xff' '\xe4\ud800' bytearray(b'x') ''`},
	{"containers", []string{"a3 = {'x': [1, (2, {3})], None: frozenset([4])}; r3 = range(1, 9, 2); s3 = slice(1, 2)"}, "print(a3, r3, s3)", "{'x': [1, (2, {3})], None: frozenset({4})} range(1, 9, 2) slice(1, 2, None)"},
	{"cycles", []string{"a4 = []; a4.append(a4); b4 = {}; b4['b'] = b4, a4"}, "print(a4[0] is a4, b4['b'][0] is b4, b4['b'][1] is a4)", "True True True"},
	{"shared", []string{"x5 = [1]; y5 = {'x': x5}; z5 = (x5, y5)"}, "x5.append(2); print(y5, z5[0] is x5, z5[1] is y5)", "{'x': [1, 2]} True True"},
	{"dataclass", []string{"from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P6:\n    x: int\n    tags: list = field(default_factory=list)", "p6 = P6(1, ['a']); q6 = [p6]"}, "print(p6, q6[0] is p6, P6(0) < p6)", "P6(x=1, tags=['a']) True True"},
	{"enum", []string{"import enum\nclass Color7(enum.Enum):\n    RED = 1\n    BLUE = 'b'\nB7 = enum.Enum('B7', 'X Y')", "c7 = Color7.BLUE; d7 = {B7.X: 1}"}, "print(c7 is Color7.BLUE, d7[B7.X], list(B7))", "True 1 [<B7.X: 1>, <B7.Y: 2>]"},
	{"namedtuple", []string{"from collections import namedtuple\nPoint8 = namedtuple('Point8', 'x y', defaults=[5])", "p8 = Point8(1)"}, "print(p8, isinstance(p8, Point8))", "Point8(x=1, y=5) True"},
	{"functions", []string{"N9 = 3\ndef f9(a, b=N9, *, c=[1]):\n    return a + b + len(c)", "N9 = 9\nf9.__kwdefaults__['c'].append(2)\nf9.calls = 7\ng9 = f9\nsquare = lambda v: v * v"}, "print(f9(1), f9.calls, g9 is f9, square(4), N9)", "6 7 True 16 9"},
	{"async", []string{"async def f10():\n    return 5\ndef gen10():\n    yield 1"}, "print(await f10(), list(gen10()))", "5 [1]"},
	{"recursive", []string{"def even(n):\n    return n == 0 or odd(n - 1)", "def odd(n):\n    return n != 0 and even(n - 1)"}, "print(even(10), odd(10))", "True False"},
	{"classes", []string{"class A11:\n    registry = []\n    def __init__(self, v): self.v = v; A11.registry.append(self)\n    @property\n    def twice(self): return 2 * self.v", "class B11(A11):\n    @classmethod\n    def make(cls): return cls(4)", "b11 = B11.make(); A11.count = 5"}, "print(b11.twice, A11.registry == [b11], A11.count, type(b11).__mro__[1] is A11)", "8 True 5 True"},
	{"slots", []string{"class S12:\n    __slots__ = ('a', 'b')\ns12 = S12(); s12.a = [s12]"}, "print(s12.a[0] is s12, hasattr(s12, 'b'))", "True False"},
	{"redefined", []string{"def f13(): return 1", "def f13(): return 2\nclass C13: x = 1", "class C13: x = 2\nc13 = C13()"}, "print(f13(), c13.x, type(c13) is C13)", "2 2 True"},
	{"decorated", []string{"import functools\ndef twice(f):\n    @functools.wraps(f)\n    def g(*a): return 2 * f(*a)\n    return g", "@twice\ndef five(): return 5\n@functools.lru_cache\ndef slow(n): return n", "five(), slow(1)"}, "print(five(), slow(2))", "10 2"},
	{"value-in-definition", []string{"class P14:\n    def __init__(self, x): self.x = x", "origin = P14(3)\nclass Q14(P14):\n    start = origin\n    size = origin.x", "q14 = Q14(1)"}, "print(Q14.start is origin, Q14.size, q14.x)", "True 3 1"},
	{"library", []string{"import datetime, decimal, pathlib, fractions, uuid, collections, re", "a15 = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc); b15 = decimal.Decimal('1.10'); c15 = pathlib.PurePosixPath('/a/b'); d15 = fractions.Fraction(1, 3); e15 = collections.OrderedDict(a=1); h15 = re.compile('a+'); i15 = collections.Counter('aab'); j15 = collections.deque([1], 5)"}, "print(a15, b15, c15, d15, e15['a'], h15.pattern, i15['a'], j15.maxlen)", "2026-01-02 00:00:00+00:00 1.10 /a/b 1/3 1 a+ 2 5"},
	{"exceptions", []string{"try:\n    1/0\nexcept Exception as e:\n    err16 = e\nclass Mine(ValueError):\n    def __init__(self, a, b): super().__init__(a, b); self.b = b\nm16 = Mine(1, 2)"}, "print(repr(err16), repr(m16), m16.b)", "ZeroDivisionError('division by zero') Mine(1, 2) 2"},
	{"imports", []string{"import json as j, xml.dom.minidom, os.path\nfrom math import pi, sqrt as root\nfrom random import randint\nfrom os import environ"}, "import random, os; print(j.dumps(1), xml.dom.minidom.parseString('<a/>').documentElement.tagName, pi, root(4), randint.__self__ is random._inst, environ is os.environ)", "1 a 3.141592653589793 2.0 True True"},
	{"conditional", []string{"if True:\n    def f18():\n        return '''a\nb'''\ntry:\n    import nothing_of_that_name\nexcept ImportError:\n    class C18:\n        y = 2"}, "print(repr(f18()), C18.y)", `'a\nb' 2`},
	{"typing", []string{"import typing\nT19 = typing.TypeVar('T19')\nclass Box19(typing.Generic[T19]):\n    def __init__(self, v: T19): self.v = v\nalias = list[int]", "b19 = Box19(1)"}, "print(b19.v, Box19.__parameters__ == (T19,), alias)", "1 True list[int]"},
	{"inspect", []string{"def f20():\n    return 1  # comment"}, "import inspect; print(inspect.getsource(f20))", "def f20():\n    return 1  # comment"},
	{"future", []string{"from __future__ import annotations", "def f17(x: Unknown) -> Nothing: return x"}, "print(f17(1), f17.__annotations__)", "1 {'x': 'Unknown', 'return': 'Nothing'}"},
	{"shadowing", []string{"compile = exec = dict = vars = 5\ntuple = [1]\n__version__ = '1'"}, "print(compile, exec, dict, vars, tuple, __version__)", "5 5 5 5 [1] 1"},
	{"directory", []string{"import os\nos.makedirs('a/b'); os.chdir('a/b')"}, "print(os.getcwd())", "/workspace/a/b"},
}

// TestValues carries one conversation with all of that twice, the second time from where it was
// restored.
func TestValues(t *testing.T) {
	x := local(t)
	from, to := create(t, x, executor.Spec{}), create(t, x, executor.Spec{})
	carry(t, talk{from, ""}, talk{to, "one"}, talk{to, "two"})
}

// carry carries the values from one interpreter to the next.
func carry(t *testing.T, k talk, ways ...talk) {
	for _, c := range values {
		for _, code := range c.cells {
			k.says(t, code)
		}
	}
	for _, next := range ways {
		archive, r := k.made(t, checkpoint.Options{})
		if len(r.Omitted) > 0 {
			t.Errorf("made without %v", r.Omitted)
		}
		k = next
		if r := k.restored(t, archive); len(r.Omitted) > 0 {
			t.Errorf("restored without %v", r.Omitted)
		}
	}
	for _, c := range values {
		t.Run(c.name, func(t *testing.T) {
			if got := k.says(t, c.show); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
