package cell

import (
	"strings"
	"testing"
)

// TestNotebookSyntax tests cells that are not valid Python. A line "---" separates the first cells
// of a case from the last.
func TestNotebookSyntax(t *testing.T) {
	cases := []struct{ name, code, want, exception string }{
		{"indented", "    x = 1\n    if x:\n        print('a')\n    x + 1", "[stdout]a\n[main] plain=2 json=2", ""},
		{"indented-string", "    s = '''a\n    b'''\n    s", `[main] plain='a\n    b' json="a\n    b"`, ""},
		{"indented-brackets", "    x = [\n  1,\n    2]\n    x", "[main] plain=[1, 2] json=[1, 2]", ""},
		{"indented-first", "  x = 1\nx", "[main] plain=1 json=1", ""},
		{"indented-comment", "# a\n    x = 1\n# b\n    x", "[main] plain=1 json=1", ""},
		{"indented-wrong", "    x = 1\n  y = 2", "", "IndentationError"},
		{"matplotlib", "%matplotlib inline\n1", "[main] plain=1 json=1", ""},
		{"matplotlib-window", "%matplotlib qt", "", "UsageError: %matplotlib qt: figures are shown inline here"},
		{"config", "%config InlineBackend.figure_format = 'retina'\n1", "[main] plain=1 json=1", ""},
		{"unknown", "x = 1\n%frobnicate x", "", "UsageError: %frobnicate: there is no such magic here"},
		{"unknown-cell", "%%frobnicate\nx", "", "UsageError: %%frobnicate: there is no such magic here"},
		{"cell-magic-on-a-line", "x = 1\n%capture", "", "UsageError: %capture: is for whole cells"},
		{"magic-within", "if True:\n    %pwd\n    x = 3\nx", "[main] plain=3 json=3", ""},
		{"magic-assigned", "a, b = 1, 2\nx = %env HOME2\nx\n", "", "UsageError: %env: there is no variable HOME2"},
		{"pwd", "%cd -q /\n%pwd", "[main] plain='/' json=\"/\"", ""},
		{"cd", "%cd /", "[stdout]/\n", ""},
		{"env", "%env A_B=c d\nimport os\nos.environ['A_B']", "[stdout]env: A_B=c d\n[main] plain='c d' json=\"c d\"", ""},
		{"env-reads", "%env A_B=c\n%env A_B", "[stdout]env: A_B=c\n[main] plain='c' json=\"c\"", ""},
		{"expansion", "d = '/'\n%cd {d}\n%cd $d", "[stdout]/\n/\n", ""},
		{"who", "a, b = 1, 'x'\ndef f(): pass\nimport os\n%who", "[stdout]a\t b\t f\n", ""},
		{"who-nothing", "%who", "[stdout]Interactive namespace is empty.\n", ""},
		{"capture", "%%capture out\nprint('a')\ndisplay(1)\n2\n---\nout.stdout, len(out.outputs)", "[main] plain=('a\\n', 2) json=[\"a\\n\", 2]", ""},
		{"capture-shows", "%%capture out\nprint('a')\ndisplay(1)\n---\nout.show()", "[stdout]a\n[display] plain=1 json=1", ""},
		{"capture-raises", "%%capture out\nprint('a')\n1/0\n---\nprint(out.stdout)", "[stdout]a\n\n", ""},
		{"capture-line", "\n%%capture\n\nraise KeyError(5)", "", "KeyError: 5 at 4"},
		{"writefile", "%%writefile a.py\nx = '%d' % 5\n!not a command\n---\nopen('a.py').read()", `[main] plain="x = '%d' % 5\n!not a command\n" json="x = '%d' % 5\n!not a command\n"`, ""},
		{"html", "%%html\n<b>x</b>", "[display] plain=<b>x</b> html=<b>x</b>", ""},
		{"system", "x = 'a b'\n!echo \"{x}\" $x > out\nopen('out').read()", "[main] plain='a b a b\\n' json=\"a b a b\\n\"", ""},
		{"getoutput", "x = !echo a; echo b\nx", "[main] plain=['a', 'b']", ""},
		{"exit-code", "!exit 3\n_exit_code", "[main] plain=3 json=3", ""},
		{"bash", "%%bash\nexit 3", "", "CalledProcessError: Command '%%bash' returned non-zero exit status 3."},
		{"continued", "x = !echo a \\\n  b\nx", "[main] plain=['a b']", ""},
		{"pip", "import os\n!pip install six", "", "UsageError: !pip: packages are installed before the code runs: name them in `packages`"},
		{"pip-module", "!python -m pip install -q six", "", "UsageError: !python -m pip: packages are installed before the code runs"},
		{"pip-magic", "%pip install six", "", "UsageError: %pip: packages are installed before the code runs: name them in `packages`"},
		{"question", "x = 5\nx?", "[stdout]Type:        int\nString form: 5\nDocstring:", ""},
		{"question-before", "?nothing_there", "[stdout]Object `nothing_there` not found.\n", ""},
		{"question-source", "%%writefile q.py\ndef f(a):\n    return a\n---\nimport q\nq.f??", "[stdout]Signature:   f(a)\nType:        function\nSource:      \ndef f(a):\n    return a\n", ""},
		{"in-string", "s = '''\n%pwd\n!ls\nx?\n'''\n%cd -q /\ns", "[main] plain='\\n%pwd\\n!ls\\nx?\\n' json=\"\\n%pwd\\n!ls\\nx?\\n\"", ""},
		{"in-f-string", "n = 1\ns = f'''\n!{n}\n%a\n'''\n%cd -q /\ns", "[main] plain='\\n!1\\n%a\\n' json=\"\\n!1\\n%a\\n\"", ""},
		{"in-brackets", "a, b = 7, 4\nx = (a\n% b)\n%cd -q /\nx", "[main] plain=3 json=3", ""},
		{"continuation", "a, b = 7, 4\nx = a \\\n% b\n%cd -q /\nx", "[main] plain=3 json=3", ""},
		{"silenced", "%cd -q /\n%pwd\n5;", "", ""},
		{"line", "%cd -q /\nx = 1\n\n1/0", "", "ZeroDivisionError: division by zero at 4"},
		{"line-of-syntax", "%cd -q /\nx = = 1", "", "SyntaxError: invalid syntax (<cell 1>, line 2) at 2"},
		{"await", "import asyncio\n%cd -q /\nawait asyncio.sleep(0, 5)", "[main] plain=5 json=5", ""},
		{"still-wrong", "x = = 1", "", "SyntaxError: invalid syntax (<cell 1>, line 1) at 1"},
		{"get-ipython", "get_ipython().run_line_magic('cd', '/')\nget_ipython().run_line_magic('matplotlib', 'inline')", "[stdout]/\n", ""},
		{"get-ipython-imported", "from IPython import get_ipython\nget_ipython() is __builtins__.get_ipython()", "[main] plain=True json=true", ""},
		{"timeit-value", "%timeit -n 1 -r 2 -q pass\n1", "[main] plain=1 json=1", ""},
	}
	var groups [][]step
	for _, c := range cases {
		groups = append(groups, cells(strings.Split(c.code, "\n---\n")...))
	}
	for i, all := range runGroups(t, pythons(t)[0], groups...) {
		c := cases[i]
		t.Run(c.name, func(t *testing.T) {
			o := all[len(all)-1]
			if got := events(o); got != c.want && (c.name != "question" || !strings.HasPrefix(got, c.want)) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			exception := ""
			if e := o.Exception; e != nil {
				exception = e.Type + ": " + e.Message
				if strings.Contains(c.exception, " at ") {
					exception += " at " + string(rune('0'+e.Line))
				}
			}
			if !strings.HasPrefix(exception, c.exception) || exception != "" && c.exception == "" {
				t.Errorf("got %q, want %q", exception, c.exception)
			}
		})
	}
}

// A timed statement runs as usual, and the times are printed after its output.
func TestNotebookTimes(t *testing.T) {
	for name, c := range map[string]struct{ code, value, begins string }{
		"cell":   {"%%time\nprint('a')\nx = 5\nx", "5", "a\nCPU times: user "},
		"line":   {"%time 2 + 3", "5", "CPU times: user "},
		"assign": {"x = %time 2 + 3\nx", "5", "CPU times: user "},
		"timeit": {"%timeit -n 2 -r 3 sum(range(10))", "", ""},
		"setup":  {"%%timeit -n 2 -r 3 y = 5\nz = y + 1", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := runCells(t, pythons(t)[0], step{Source: c.code})[0]
			value := ""
			if b := o.bundles("main"); len(b) > 0 {
				value, _ = b[0]["text/plain"].(string)
			}
			got := o.text("stdout")
			if o.Exit != 0 || value != c.value || !strings.HasPrefix(got, c.begins) || c.begins != "" && !strings.Contains(got, "Wall time: ") {
				t.Errorf("got %+v", o)
			}
			if c.begins == "" && !strings.Contains(got, "per loop (mean ± std. dev. of 3 runs, 2 loops each)") {
				t.Errorf("got %q", got)
			}
		})
	}
}

// Code that Python compiles runs unchanged, whatever it looks like.
func TestPlainPythonIsNeverChanged(t *testing.T) {
	for name, code := range map[string]string{
		"string":  "x = '''\n%pwd\n!ls\n'''\nx",
		"percent": "a = b = 7\nx = (a\n%b)\nx",
		"indent":  "if True:\n      x = 1\nx",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const spy = "seen = []\nit = get_ipython()._it\nimport sys\nn = sys.modules\ng = type(it)._compile.__globals__\nold = g['_notebook']\ng['_notebook'] = lambda: seen.append(1) or old()"
			o := runCells(t, pythons(t)[0], step{Source: spy}, step{Source: code}, step{Source: "seen"})
			if o[1].Exit != 0 || o[2].bundles("main")[0]["text/plain"] != "[]" {
				t.Errorf("got %+v, %+v", o[1], o[2])
			}
		})
	}
}

func TestInAndOutAreBounded(t *testing.T) {
	steps := cells("1 + 1", "_ + 1, Out[1], In[1]", "x = 5", "sorted(Out)", "_2")
	o := runCells(t, pythons(t)[0], steps...)
	for i, want := range map[int]string{1: "(3, 2, '1 + 1')", 3: "[1, 2]"} {
		if got := o[i].bundles("main"); len(got) != 1 || got[0]["text/plain"] != want {
			t.Errorf("cell %d: got %v, want %s", i+1, got, want)
		}
	}
	steps = nil
	for range 30 {
		steps = append(steps, cells("5")...)
	}
	steps = append(steps, cells("sorted(Out), len([s for s in In if s])", "b'x' * (17 << 20)", "len(Out), len(_)")...)
	o = runCells(t, pythons(t)[0], steps...)
	if got, want := o[30].bundles("main")[0]["text/plain"], "([11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30], 20)"; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := o[32].bundles("main")[0]["text/plain"]; got != "(20, 2)" { // the large value is not kept, so _ is the tuple before it
		t.Errorf("got %v", got)
	}
	big := "bytes(5 << 20)"
	o = runCells(t, pythons(t)[0], cells(big+", 1", big, big, big, "sorted(Out)")...)
	if got := o[4].bundles("main")[0]["text/plain"]; got != "[2, 3, 4]" && got != "[1, 2, 3, 4]" && got != "[3, 4]" {
		t.Errorf("got %v", got)
	}
}

func TestDisplayOfNotebooks(t *testing.T) {
	const png = `b'\x89PNG\r\n\x1a\n0'`
	cases := []struct{ name, code, want string }{
		{"import", "before = display\nfrom IPython.display import display, HTML\ndisplay(HTML('<b>x</b>')); display is before", "[display] plain=<IPython.core.display.HTML object> html=<b>x</b>[main] plain=True json=true"},
		{"markdown", "from IPython.display import Markdown\nMarkdown('*a*')", "[main] plain=<IPython.core.display.Markdown object> markdown=*a*"},
		{"image", "from IPython.display import Image\nImage(data=" + png + ")", "[main] plain=<IPython.core.display.Image object> png=\\x89PNG\r\n\x1a\n0"},
		{"image-file", "open('a.png', 'wb').write(" + png + ")\nfrom IPython.display import Image\nImage('a.png')", "[main] plain=<IPython.core.display.Image object> png=\\x89PNG\r\n\x1a\n0"},
		{"image-url", "from IPython.display import Image\nImage(url='http://x/\"y', width=5)", `[main] plain=<IPython.core.display.Image object> html=<img src="http://x/&quot;y" width="5"/>`},
		{"json", "from IPython.display import JSON\nJSON({'a': 1})", `[main] plain=<IPython.core.display.JSON object> json={"a": 1}`},
		{"svg", "from IPython.display import SVG\nSVG('<svg/>')", "[main] plain=<IPython.core.display.SVG object> svg+xml=<svg/>"},
		{"latex", "from IPython.display import Latex, Math\nLatex('$x$')", "[main] plain=<IPython.core.display.Latex object> latex=$x$"},
		{"math", "from IPython.display import Math\nMath('x')", "[main] plain=<IPython.core.display.Math object> latex=$\\displaystyle x$"},
		{"clear", "from IPython.display import clear_output\nprint('a')\nclear_output(wait=True)\nprint('b')", "[stdout]a\nb\n"},
		{"display-html", "from IPython.display import display_html\ndisplay_html('<b>', raw=True)", "[display] html=<b>"},
		{"core", "import IPython.core.display as d, IPython\nd.HTML is IPython.display.HTML", "[main] plain=True json=true"},
		{"update", "h = display(1, display_id=True)\nfor i in range(9):\n    h.update(i)\nprint('end')", "[display] plain=1 json=1[stdout]end\n[display] plain=8 json=8"},
		{"update-by-id", "from IPython.display import update_display\ndisplay('a', display_id='x')\nupdate_display('b', display_id='x')\nupdate_display('c', display_id='x'); None", "[display] plain='a' json=\"a\"[display] plain='c' json=\"c\""},
		{"handle", "type(display(1, display_id='x')).__name__", "[display] plain=1 json=1[main] plain='DisplayHandle' json=\"DisplayHandle\""},
		{"shows-itself", "class A:\n    def _ipython_display_(self): display({'text/x-mine': 'm', 'text/html': 'h'}, raw=True)\nA()", "[display] html=h"},
		{"shows-itself-in-vain", "class A:\n    def __repr__(self): return 'A'\n    def _ipython_display_(self): 1/0\nA()", "[stderr]_ipython_display_ of A: ZeroDivisionError: division by zero\n[main] plain=A"},
		{"publish", "from IPython.display import publish_display_data\npublish_display_data({'text/html': '<i>'}, metadata={})", "[display] html=<i>"},
		{"absent", "import importlib.util\nimportlib.util.find_spec('IPython.nonesuch') is None", "[main] plain=True json=true"},
	}
	var groups [][]step
	for _, c := range cases {
		groups = append(groups, cells(c.code))
	}
	for i, all := range runGroups(t, pythons(t)[0], groups...) {
		c := cases[i]
		t.Run(c.name, func(t *testing.T) {
			if got := events(all[0]); got != c.want || all[0].Exception != nil {
				t.Errorf("got  %s\nwant %s\n%+v", got, c.want, all[0].Exception)
			}
		})
	}
}

// installed has the parts that programs use of packages that need a browser, a viewer or a kernel
// to show something.
const installed = `
import os
def package(**files):
    for name, text in files.items():
        path = name.replace("__", "/") + ".py"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        d = os.path.dirname(path)
        while d:
            open(d + "/__init__.py", "a").close()
            d = os.path.dirname(d)
        open(path, "w").write(text)
package(
    IPython__core__display_functions="def display(*values, **options): print('no kernel')\ndef clear_output(wait=False): print('no kernel')\n",
    IPython__core__getipython="def get_ipython(): return None\n",
    IPython__display="from IPython.core.display_functions import *\nclass HTML:\n    def _repr_html_(self): return '<i>'\n",
    PIL__Image="class Image:\n    def __repr__(self): return 'picture'\n    def _repr_png_(self): return b'PNG'\n    def show(self): raise OSError('no viewer')\n",
    plotly__basedatatypes="class BaseFigure:\n    def to_plotly_json(self): return {'data': [1]}\n    def to_json(self): return '{\"data\": [1]}'\n    def to_html(self, **o): return '<div>'\n    def show(self): raise ValueError('needs nbformat')\n    def __repr__(self): return 'F'\n",
    altair__vegalite__v5__api="class TopLevelMixin:\n    def __repr__(self): return 'chart'\n    def _repr_mimebundle_(self): return {'text/html': '<vega>'}\n    def show(self): raise ValueError('needs a browser')\n",
    bokeh__io__showing="def show(obj): raise ValueError('needs a browser')\n",
    bokeh__embed="def file_html(obj, resources, title): return '<bokeh>'\n",
    bokeh__resources="CDN = 1\n",
    pandas__core__frame="class DataFrame:\n    shape = (1, 1)\n    def __repr__(self): return 'frame'\n    def head(self, n): return self\n    def to_json(self, orient): return '{\"schema\": 1}'\n    def _repr_html_(self): return '<table>'\n",
)
`

func TestDisplayOfPackages(t *testing.T) {
	cases := []struct{ name, code, want string }{
		{"ipython", "from IPython.display import display, HTML, clear_output\nfrom IPython.core.getipython import get_ipython as g\nclear_output()\ndisplay(HTML())\ndisplay is __builtins__.display, g() is get_ipython()", "[display] plain=HTML html=<i>[main] plain=(True, True) json=[true, true]"},
		{"pil", "from PIL import Image\nImage.Image().show()", "[display] plain=picture png=PNG"},
		{"plotly", "import plotly.basedatatypes as p\np.BaseFigure().show()", "[display] plain=Figure({1 traces}) html=<div>"},
		{"plotly-value", "import plotly.basedatatypes as p\np.BaseFigure()", "[main] plain=Figure({1 traces}) html=<div>"},
		{"altair", "import altair.vegalite.v5.api as a\na.TopLevelMixin().show()", "[display] plain=chart html=<vega>"},
		{"bokeh", "from bokeh.io.showing import show\nshow(5)", "[display] plain=5 html=<bokeh>"},
		{"frame", "from pandas.core.frame import DataFrame\nDataFrame()", "[main] plain=frame html=<table> vnd.dataresource+json={\"schema\": 1}"},
		{"other-version", "open('PIL/Image.py', 'w').write('x = 1')\nimport PIL.Image\nPIL.Image.x", "[stderr]PIL.Image: AttributeError: "},
	}
	var groups [][]step
	for _, c := range cases {
		groups = append(groups, cells(installed, c.code))
	}
	for i, all := range runGroups(t, pythons(t)[0], groups...) {
		c := cases[i]
		t.Run(c.name, func(t *testing.T) {
			got := strings.ReplaceAll(events(all[1]), "<IPython.display.HTML object at 0x", "<")
			if i := strings.Index(got, "<"); c.name == "ipython" && i >= 0 {
				if j := strings.Index(got[i:], ">"); j >= 0 {
					got = got[:i] + "HTML" + got[i+j+1:]
				}
			}
			if got != c.want && (c.name != "other-version" || !strings.HasPrefix(got, c.want)) || all[1].Exception != nil {
				t.Errorf("got  %s\nwant %s\n%+v", got, c.want, all[1].Exception)
			}
		})
	}
}
