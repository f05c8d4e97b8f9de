package cell

import (
	"encoding/base64"
	"strings"
	"testing"
)

// pyplot is a module with the parts of matplotlib.pyplot that cells use.
const pyplot = `
import os
os.makedirs("matplotlib", exist_ok=True)
open("matplotlib/__init__.py", "w").close()
open("matplotlib/pyplot.py", "w").write('''
figures = {}
class Figure:
    def __init__(self, n): self.n = n
    def __repr__(self): return "<Figure %d>" % self.n
    def savefig(self, f, format=None, **kwargs):
        if self.n == 13: raise ValueError("unlucky")
        f.write(b"PNG%d" % self.n)
def get_fignums(): return sorted(figures)
def figure(n=None):
    n = n or len(figures) + 1
    return figures.setdefault(n, Figure(n))
def close(n): figures.pop(n, None)
def show(): print("not replaced")
''')
`

// events formats what a cell showed, in order.
func events(o outcome) string {
	var b strings.Builder
	for _, e := range o.Events {
		b.WriteString("[" + e[0].(string) + "]")
		switch v := e[1].(type) {
		case string:
			b.WriteString(v)
		case map[string]any:
			for _, mime := range []string{"text/plain", "text/html", "text/markdown", "text/latex", "image/svg+xml", "image/png", "image/jpeg", "application/json", "application/vnd.x+json", "application/vnd.dataresource+json"} {
				if s, ok := v[mime].(string); ok {
					b.WriteString(" " + mime[strings.IndexByte(mime, '/')+1:] + "=" + s)
				}
			}
		}
	}
	return b.String()
}

func TestShows(t *testing.T) {
	const methods = `
class A:
    def __init__(self, **m): self.__dict__["m"] = m
    def __repr__(self): return "A"
def of(**m):
    return type("B", (A,), {k: (lambda self, k=k: self.m[k]() if callable(self.m[k]) else self.m[k]) for k in m})(**m)
def fail(): raise ValueError("no")
`
	// saves makes figures of pyplot able to save themselves to files, like those of matplotlib.
	const saves = `
open("matplotlib/figure.py", "w").write('''
import os
class Figure:
    stale = True
    def __init__(self, n): self.n = n
    def __repr__(self): return "<Figure %d>" % self.n
    def savefig(self, f, format=None, size=0, **kwargs):
        if isinstance(f, str):
            head = b"\\x89PNG\\r\\n\\x1a\\n" if f.endswith(".png") else b"<svg>"
            open(f if "." in f else f + ".png", "wb").write(head + b"saved" + b"." * size)
        else:
            f.write(b"PNG%d" % self.n)
''')
with open("matplotlib/pyplot.py", "a") as f:
    f.write("\nfrom matplotlib.figure import Figure\n")
`
	const saved = "\\x89PNG\r\n\x1a\nsaved"
	png := base64.StdEncoding.EncodeToString([]byte("PNG"))
	for _, c := range []struct{ name, setup, code, want string }{
		{"display-text", "", "display(1, 'a')", "[display] plain=1 json=1[display] plain='a' json=\"a\""},
		{"display-between-prints", "", "print('a'); display(1); print('b'); 2", "[stdout]a\n[display] plain=1 json=1[stdout]b\n[main] plain=2 json=2"},
		{"display-after-partial-line", "", "print('a', end=''); display(1)", "[stdout]a[display] plain=1 json=1"},
		{"display-none", "", "display(None)", "[display] plain=None json=null"},
		{"display-raw", "", "display({'text/html': '<b>', 'image/png': b'PNG'}, raw=True)", "[display] html=<b> png=PNG"},
		{"html", methods, "of(_repr_html_='<b>')", "[main] plain=A html=<b>"},
		{"several", methods, "of(_repr_html_='<b>', _repr_markdown_='*b*', _repr_latex_='$b$', _repr_svg_='<svg>', _repr_png_=b'PNG', _repr_jpeg_=b'JPG', _repr_json_={'a': 1})",
			`[main] plain=A html=<b> markdown=*b* latex=$b$ svg+xml=<svg> png=PNG jpeg=JPG json={"a": 1}`},
		{"base64", methods, "of(_repr_png_='" + png + "')", "[main] plain=A png=PNG"},
		{"with-metadata", methods, "of(_repr_html_=('<b>', {'x': 1}))", "[main] plain=A html=<b>"},
		{"nothing", methods, "of(_repr_html_=None)", "[main] plain=A"},
		{"mimebundle", methods, "of(_repr_mimebundle_={'text/plain': 'bundle', 'Text/HTML': '<i>', 'application/vnd.x+json': {'b': [1]}}, _repr_html_='<b>')", `[main] plain=bundle html=<i> vnd.x+json={"b": [1]}`},
		{"mimebundle-with-metadata", methods, "of(_repr_mimebundle_=({'text/html': '<i>'}, {}))", "[main] plain=A html=<i>"},
		{"json-text", methods, `of(_repr_json_='{"a":1}')`, `[main] plain=A json={"a":1}`},
		{"json-not-text", methods, "of(_repr_json_='no json')", `[main] plain=A json="no json"`},
		{"method-fails", methods, "of(_repr_html_=fail, _repr_latex_='x')", "[stderr]_repr_html_ of B: ValueError: no\n[main] plain=A latex=x"},
		{"method-returns-nonsense", methods, "of(_repr_html_=5, _repr_png_='!', _repr_mimebundle_=7)", "[stderr]_repr_html_ of B: TypeError: text/html is int, not text or bytes\n_repr_png_ of B: ValueError: image/png is not base64\n_repr_mimebundle_ of B: TypeError: 'int' object is not iterable\n[main] plain=A"},
		{"bad-media-type", methods, "of(_repr_mimebundle_={'text/html; x=y': 'a'})", "[stderr]_repr_mimebundle_ of B: ValueError: not a media type: 'text/html; x=y'\n[main] plain=A"},
		{"too-large", methods, "of(_repr_html_='x' * (17 << 20))", "[stderr]_repr_html_ of B: ValueError: text/html has 17825792 bytes, 16777216 are allowed\n[main] plain=A"},
		{"too-many", methods, "of(_repr_mimebundle_={'x/%d' % i: 'a' for i in range(100)})", "[stderr]_repr_mimebundle_ of B: ValueError: more than 32 representations\n[main] plain=A"},
		{"long-text", "", "class L:\n    def __repr__(self): return 'x' * (2 << 20)\nL()", "[main] plain=1048613 characters"},
		{"instance-attribute", methods, "a = A(); a.__dict__['_repr_html_'] = lambda: '<b>'; a", "[main] plain=A"},
		{"figure-at-end", pyplot, "import matplotlib.pyplot as plt\nplt.figure(); plt.figure(); print('x')", "[stdout]x\n[display] plain=<Figure 1> png=PNG1[display] plain=<Figure 2> png=PNG2"},
		{"figure-closed-after", pyplot + "\nimport matplotlib.pyplot as plt\nplt.figure()", "1", "[main] plain=1 json=1"},
		{"figure-show", pyplot, "import matplotlib.pyplot as plt\nplt.figure(); print('a'); plt.show(); print('b')", "[stdout]a\n[display] plain=<Figure 1> png=PNG1[stdout]b\n"},
		{"figure-show-in-same-cell-as-import", pyplot, "from matplotlib.pyplot import figure, show\nfigure(); show(); 3", "[display] plain=<Figure 1> png=PNG1[main] plain=3 json=3"},
		{"figure-saved", pyplot + saves, "import matplotlib.pyplot as plt\nf = plt.figure(); f.savefig('a.png'); plt.figure(); None", "[display] plain=<Figure 1> png=" + saved + "[display] plain=<Figure 2> png=PNG2"},
		{"figure-saved-and-shown", pyplot + saves, "import matplotlib.pyplot as plt\nplt.figure().savefig('a.png'); plt.show()", "[display] plain=<Figure 1> png=" + saved},
		{"figure-saved-and-changed", pyplot + saves, "import matplotlib.pyplot as plt\nf = plt.figure(); f.savefig('a.png'); f.stale = True", "[display] plain=<Figure 1> png=PNG1"},
		{"figure-saved-over", pyplot + saves, "import matplotlib.pyplot as plt\nf = plt.figure(); f.savefig('a.png'); open('a.png', 'wb').write(b'x');", "[display] plain=<Figure 1> png=" + saved},
		{"figure-saved-otherwise", pyplot + saves, "import matplotlib.pyplot as plt, io\nf = plt.figure(); f.savefig(io.BytesIO()); f.savefig('a.svg'); f.savefig('a')", "[display] plain=<Figure 1> png=PNG1"},
		{"figure-saved-large", pyplot + saves, "import matplotlib.pyplot as plt\nf = plt.figure(); f.savefig('a.png', size=2**20)", "[display] plain=<Figure 1> png=PNG1"},
		{"figure-after-value", pyplot, "import matplotlib.pyplot as plt\nplt.figure(); 5", "[main] plain=5 json=5[display] plain=<Figure 1> png=PNG1"},
		{"figure-after-exception", pyplot, "import matplotlib.pyplot as plt\nplt.figure(); 1/0", "[display] plain=<Figure 1> png=PNG1"},
		{"figure-fails", pyplot, "import matplotlib.pyplot as plt\nplt.figure(12); plt.figure(13); plt.figure(14); 1", "[main] plain=1 json=1[display] plain=<Figure 12> png=PNG12[stderr]figure 13: ValueError: unlucky\n[display] plain=<Figure 14> png=PNG14"},
		{"figure-interrupted", pyplot, "import matplotlib.pyplot as plt\nplt.figure(); raise KeyboardInterrupt", ""},
		{"figure-in-module-made-by-hand", "import sys, types\nm = sys.modules['matplotlib.pyplot'] = types.ModuleType('p'); m.get_fignums = lambda: [1]; m.figure = lambda n: n; m.close = lambda n: setattr(m, 'get_fignums', lambda: []); m.savefig = lambda f, **k: f.write(b'P')", "2", "[main] plain=2 json=2"},
		{"pyplot-hostile", "import sys\nsys.modules['matplotlib.pyplot'] = 5", "2", "[main] plain=2 json=2[stderr]matplotlib.pyplot: AttributeError: 'int' object has no attribute 'get_fignums'\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := runCells(t, pythons(t)[0], step{Source: c.setup + "\nNone"}, step{Source: c.code})
			if got := events(all[1]); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestExceptionGroup(t *testing.T) {
	code := "try:\n    ExceptionGroup\nexcept NameError:\n    raise SystemExit(77)\nraise ExceptionGroup('several', [ValueError('a'), KeyError('b')])"
	o := runCells(t, pythons(t)[0], step{Source: code})[0]
	if o.Exit == 77 {
		t.Skip("this Python has no exception groups")
	}
	if o.Exception == nil || o.Exception.Type != "ExceptionGroup" || o.Exception.Line != 5 {
		t.Fatalf("got %+v", o.Exception)
	}
	for _, want := range []string{"ExceptionGroup: several (2 sub-exceptions)", "ValueError: a", "KeyError: 'b'"} {
		if !strings.Contains(o.Exception.Traceback, want) {
			t.Errorf("%q is missing:\n%s", want, o.Exception.Traceback)
		}
	}
}

// The description of any exception is bounded.
func TestExceptionsAreBounded(t *testing.T) {
	for name, code := range map[string]string{
		"message":   "raise ValueError('x' * 10000000)",
		"chain":     "e = None\nfor i in range(5000):\n    try: raise ValueError('x' * 1000) from e\n    except Exception as x: e = x\nraise e",
		"deep":      "import sys\nsys.setrecursionlimit(20000)\ndef f(n): return n and g(n - 1)\ndef g(n): return f(n) if n else 1/0\nf(4000)",
		"notes":     "e = ValueError('x')\ne.__notes__ = ['n' * 1000] * 10000\nraise e",
		"hostile":   "class N(list):\n    def __iter__(self): raise SystemExit\ne = ValueError('x')\ne.__notes__ = N()\nraise e",
		"line":      "x = '" + strings.Repeat("x", 200000) + "'; 1/0",
		"type-name": "raise type('T' * 100000, (Exception,), {})",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := runCells(t, pythons(t)[0], step{Source: code}, step{Source: "1"})
			e := o[0].Exception
			if e == nil || len(e.Message) > 17<<10 || len(e.Traceback) > 66<<10 || len(e.Type) > 200 || len(e.Traceback) == 0 {
				t.Errorf("message %d, traceback %d bytes", len(e.Message), len(e.Traceback))
			}
			if len(o[1].bundles("main")) != 1 {
				t.Errorf("the next cell: got %+v", o[1])
			}
		})
	}
}

// The sources of old cells are dropped at some point, those of new ones are not.
func TestSourcesAreBounded(t *testing.T) {
	steps := cells("def f():\n    1/0\n# " + strings.Repeat("x", 1<<20))
	for range 5 {
		steps = append(steps, cells("# "+strings.Repeat("y", 1<<20)+"\ndef g():\n    1/0")...)
	}
	steps = append(steps, cells("f()", "g()", "import linecache\nsum(len(l) for e in linecache.cache.values() for l in e[2]) < 8 << 20")...)
	o := runCells(t, pythons(t)[0], steps...)
	if tb := o[6].Exception.Traceback; !strings.Contains(tb, `File "<cell 1>", line 2, in f`) || strings.Contains(tb, "1/0") {
		t.Errorf("got\n%s", tb)
	}
	if tb := o[7].Exception.Traceback; !strings.Contains(tb, "    1/0") {
		t.Errorf("got\n%s", tb)
	}
	if v := o[8].bundles("main"); len(v) != 1 || v[0]["text/plain"] != "True" {
		t.Errorf("linecache grows: got %v", v)
	}
}
