package page_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/bubblewrap"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/browsertest"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/npmtest"
	"github.com/execbroker/execbroker/pyodide"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/server/page"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

var shots = flag.String("screenshots", "", "the `directory` for screenshots of the page, such as docs/images")

// key is the key of an operator, and user is another.
const (
	key  = "key-of-the-operator-0123456789"
	user = "key-of-a-user-0123456789"
)

// serve starts a server with a page over the backends of a configuration, behind wrap. It returns
// its URL.
func serve(t *testing.T, config string, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	cfg, err := backends.Parse([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	x, err := backends.Open(t.Context(), driver.Env{Owner: "page-test"}, backends.NewRegistry(bubblewrap.Factory(), pyodide.Factory()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := server.Config{Page: page.Handler(), Conversations: x.Manager(), Experiments: x.Experiments}
	c.Backends = func() map[string]executor.Executor {
		all := map[string]executor.Executor{}
		for name := range x.Backends() {
			all[name], _ = x.Backend(name)
		}
		return all
	}
	c.Overview = func(context.Context) (v server.Overview, err error) {
		for _, b := range x.Stats().Backends {
			v.Backends = append(v.Backends, server.BackendStatus{Name: b.Name, Sessions: b.Sessions, Breaker: b.Breaker})
		}
		for _, a := range x.Stats().Arms {
			v.Arms = append(v.Arms, server.ArmStatus{Route: a.Route, Assigned: a.Assigned, Backend: a.Backend, Turns: a.Turns, Answered: a.Answered})
		}
		return v, nil
	}
	for k, client := range map[string]server.Client{key: {Subject: "operator", Operator: true}, user: {Subject: "alice"}} {
		if err := c.Keys.Add(k, client); err != nil {
			t.Fatal(err)
		}
	}
	s, err := server.New(x, c)
	if err != nil {
		t.Fatal(err)
	}
	var handler http.Handler = s
	if wrap != nil {
		handler = wrap(s)
	}
	h := httptest.NewServer(handler)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		for _, c := range []func() error{s.Close, x.Close} {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
	})
	return h.URL + "/"
}

// enter opens the page and enters a key.
func enter(t *testing.T, url, key string) *browsertest.Page {
	t.Helper()
	p := browsertest.Open(t, url)
	signIn(p, key)
	return p
}

// signIn enters a key.
func signIn(p *browsertest.Page, key string) {
	p.Helper()
	p.Until("document.getElementById('key')")
	p.Eval(fmt.Sprintf("document.getElementById('key').value = %q, document.querySelector('.key .primary').click()", key))
	p.Until("document.querySelector('.cell .cm-content')")
}

const last = "[...document.querySelectorAll('.cells .cell')].at(-1)"

// begin types code into a new cell and runs it.
func begin(p *browsertest.Page, code string) {
	p.Helper()
	p.Eval("document.querySelector('.add').click()")
	p.Until("document.activeElement === " + last + ".querySelector('.cm-content')")
	p.Type(code)
	p.Eval(last + ".querySelector('.run').click()")
}

// execute does the same and waits for the end of the run.
func execute(p *browsertest.Page, code string) {
	p.Helper()
	begin(p, code)
	p.Until(last + ".dataset.runs === '1'")
}

func is(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// A newcomer enters the key, presses Shift and Enter, and sees a chart that Python has drawn
// without a library.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	p := browsertest.Open(t, serve(t, "backends: {local: {type: pyodide}}", nil))
	p.Until("document.activeElement?.id === 'key'")
	p.Type("a-key-that-is-wrong")
	p.Key("Enter", 0)
	p.Until("document.querySelector('.note.error').textContent === 'The server does not know this key.'")
	p.Type(key)
	p.Key("Enter", 0)
	p.Until("document.querySelector('.cell .cm-content')")
	p.Eval("document.querySelector('.cell .cm-content').focus()")
	p.Key("Enter", browsertest.Shift)
	p.Until("document.querySelector('.cell').dataset.runs === '1'")
	is(t, "text", p.Eval("document.querySelector('.output pre').textContent"), "Twelve months of rain")
	is(t, "frames", p.Eval("document.querySelectorAll('.output iframe[sandbox=\"\"]').length"), "1")
	is(t, "chart", p.Eval("/<svg[^]*<rect[^]*<title>/.test(document.querySelector('.output iframe').srcdoc)"), "true")
	is(t, "cells", p.Eval("document.querySelectorAll('.cell').length"), "2")
	p.Until("document.activeElement === " + last + ".querySelector('.cm-content')")
	shoot(t, p, "notebook")
	if got := p.Eval("location.href + document.cookie + JSON.stringify(sessionStorage) + JSON.stringify(localStorage)"); strings.Contains(got, key) {
		t.Errorf("the key is in %s", got)
	}
}

const table = `class Table:
    def _repr_html_(self):
        rows = [("Bern", "1,012.5", "a"), ("Rom", "3", "b"), ("Oslo", "100", "c")]
        return ("<style>x{}</style><table><thead><tr><th></th><th>city</th><th>mm</th></tr></thead><tbody>"
                + "".join(f"<tr><th>{i}</th><td>{c}</td><td>{m}</td></tr>" for i, (c, m, _) in enumerate(rows)) + "</tbody></table><p>3 rows</p>")
Table()
`

// A user runs cells, sees their values, sorts a table, answers the code, stops it, and moves files.
func TestNotebook(t *testing.T) {
	t.Parallel()
	p := enter(t, serve(t, "backends: {box: {type: bubblewrap}}", nil), user)
	is(t, "views", p.Eval("document.getElementById('views').innerText"), "Notebook") // no others for users
	execute(p, table)
	cells := "[..." + last + ".querySelectorAll('tbody tr')].map(r => r.innerText.replace(/\\s+/g, ' ')).join('|')"
	is(t, "table", p.Eval(cells), "0 Bern 1,012.5|1 Rom 3|2 Oslo 100")
	for _, want := range []string{"1 Rom 3|2 Oslo 100|0 Bern 1,012.5", "0 Bern 1,012.5|2 Oslo 100|1 Rom 3"} {
		p.Eval(last + ".querySelectorAll('thead button')[2].click()")
		is(t, "sorted", p.Eval(cells), want)
	}
	is(t, "order", p.Eval(last+".querySelectorAll('thead th')[2].getAttribute('aria-sort')"), "descending")

	begin(p, "name = input('Name? ')\nprint('Hello', name)")
	p.Until("!" + last + ".querySelector('.input').hidden")
	p.Eval(last + ".querySelector('.input input').focus()")
	p.Type("Ada")
	p.Key("Enter", 0)
	p.Until(last + ".dataset.runs === '1'")
	if got := p.Eval(last + ".querySelector('.output').innerText"); !strings.Contains(got, "Hello Ada") {
		t.Errorf("got %q", got)
	}

	begin(p, "print('begun', flush=True)\nimport time\ntime.sleep(600)")
	p.Until(last + ".innerText.includes('begun')")
	p.Eval(last + ".querySelector('.run').click()")
	p.Until(last + ".dataset.runs === '1'")
	is(t, "stopped", p.Eval(last+".querySelector('.status').textContent"), "Stopped")
	execute(p, "print('<b>' + name, 1/0)")
	if got := p.Eval(last + ".innerText"); !strings.Contains(got, "ZeroDivisionError") || !strings.Contains(got, "Failed") {
		t.Errorf("got %q", got)
	}
	execute(p, "for i in range(100): print('line', i)\nopen('notes.md', 'w').write('# Notes')\nprint(name)")
	p.Until(last + ".innerText.includes('Ada')") // it is drawn a moment later
	if got := p.Eval(last + ".querySelector('.output').innerText"); !strings.HasPrefix(got, "Show 77 earlier lines\nline 77\n") || !strings.Contains(got, "Ada") {
		t.Errorf("got %q", got)
	}

	p.Eval(`{const d = new DataTransfer(); d.items.add(new File(["1\n2\n3\n"], "in.csv")); document.querySelector("section[aria-label=Files]").dispatchEvent(new DragEvent("drop", {dataTransfer: d, bubbles: true, cancelable: true}))}`)
	p.Until("[...document.querySelectorAll('.files .name')].some(e => e.textContent === 'in.csv')")
	execute(p, "sum(int(l) for l in open('in.csv'))")
	is(t, "value", p.Eval(last+".querySelector('.value').innerText"), "6")
	p.Eval("[...document.querySelectorAll('.files .name')].find(e => e.textContent === 'in.csv').click()")
	p.Until("document.querySelector('.preview .file')?.textContent === '1\\n2\\n3\\n'")
	p.Eval("[...document.querySelectorAll('.files .name')].find(e => e.textContent === 'notes.md').click()")
	p.Until("document.querySelector('.preview iframe')?.srcdoc.includes('<h1>Notes</h1>')")
	p.Eval("document.querySelector('button[aria-label=\"Remove in.csv\"]').click()")
	p.Until("!document.querySelector('.files').innerText.includes('in.csv')")
}

// An operator compares two backends and sees what happens at the server. No view has a finding of
// axe, in the dark and in the light, on a phone and on a screen.
func TestViews(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile(filepath.Join(npmtest.Install(t, "testdata/axe"), "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	p := browsertest.Open(t, serve(t, "backends: {box: {type: bubblewrap}, other: {type: bubblewrap}}\nroutes: [{name: all, split: [{backend: box, weight: 1}, {backend: other, weight: 1}]}]\n", nil))
	p.Until("document.getElementById('key')")
	p.Eval(string(axe))
	look := func(view string) {
		t.Helper()
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int{375, 1280} {
				p.Look(width, 900, scheme)
				name := fmt.Sprintf("%s-%s-%d", view, scheme, width)
				var found []struct {
					ID, Help string
					Nodes    []struct{ HTML, FailureSummary string }
				}
				if err := json.Unmarshal([]byte(p.Eval("axe.run(document, {resultTypes: ['violations'], iframes: false}).then(r => JSON.stringify(r.violations))")), &found); err != nil {
					t.Fatal(err)
				}
				for _, f := range found {
					t.Errorf("%s: %s: %s: %+v", name, f.ID, f.Help, f.Nodes)
				}
				if got := p.Eval("document.documentElement.scrollWidth - innerWidth"); !strings.HasPrefix(got, "0") && !strings.HasPrefix(got, "-") {
					t.Errorf("%s: it is %s pixels wider than the window", name, got)
				}
			}
		}
	}
	look("key")
	p.Eval(fmt.Sprintf("document.getElementById('key').value = %q, document.querySelector('.key .primary').click()", key))
	p.Until("document.querySelector('.cell .cm-content')")
	p.Eval("document.querySelector('.run').click()")
	p.Until("document.querySelector('.cell').dataset.runs === '1'")
	execute(p, table)
	execute(p, "import sys\nprint('to stderr', file=sys.stderr)\nopen('data.csv', 'w').write('a,b\\n')\n1/0")
	look("notebook")

	p.Key("Escape", 0) // and then Tab leaves the editor
	p.Key("Tab", 0)
	is(t, "focus", p.Eval("document.activeElement.textContent"), "Run")
	p.Eval("document.getElementById('tab-0').focus()")
	p.Key("ArrowRight", 0)
	is(t, "focus", p.Eval("document.activeElement.textContent + document.activeElement.ariaSelected"), "Comparetrue")
	p.Until("document.querySelector('.compare .cm-content')")
	compare := func(code string) string {
		p.Eval("document.querySelector('.compare .cm-content').focus()")
		p.Key("a", browsertest.Control)
		p.Type(code)
		p.Key("Enter", browsertest.Shift)
		p.Until("document.querySelector('.compare .run').textContent === 'Run on both' && document.querySelector('.verdict').innerText")
		return p.Eval("document.querySelector('.verdict').innerText")
	}
	if got := compare("print(6 * 7)"); !strings.HasPrefix(got, "No difference.") {
		t.Errorf("got %q", got)
	}
	if got := compare("import os\nprint('same')\nprint(os.urandom(8).hex())"); !strings.HasPrefix(got, "They differ: output.") || !strings.Contains(got, "\n  same\n- ") {
		t.Errorf("got %q", got)
	}
	look("compare")
	shoot(t, p, "compare")

	p.Key("Escape", 0)
	p.Eval("document.getElementById('tab-2').click()")
	p.Until("document.querySelector('.board table')")
	if got := p.Eval("document.querySelector('.boards').innerText"); !strings.Contains(got, "operator") || !strings.Contains(got, "box") || !strings.Contains(got, "Failures") {
		t.Errorf("got %q", got)
	}
	look("operators")
	shoot(t, p, "operators")
}

// shoot makes a screenshot on a large screen in the light, if the flag asks for it.
func shoot(t *testing.T, p *browsertest.Page, name string) {
	t.Helper()
	if *shots == "" {
		return
	}
	p.Look(1280, 860, "light")
	if err := os.WriteFile(filepath.Join(*shots, "page-"+name+".png"), p.Screenshot(), 0o600); err != nil {
		t.Fatal(err)
	}
}
