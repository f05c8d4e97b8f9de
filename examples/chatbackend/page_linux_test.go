package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/browsertest"
	"github.com/execbroker/execbroker/internal/npmtest"
)

// frame is code whose value looks like a data frame, after more output than fits a window.
const frame = `for i in range(100): print('line', i)
class Frame:
    def _repr_html_(self):
        return '<table><thead><tr><th></th><th>mm</th></tr></thead><tbody><tr><th>Bern</th><td>9</td></tr><tr><th>Rom</th><td>10</td></tr></tbody></table>'
Frame()`

// answer is Markdown of a model that is hostile.
const answer = "# Rain\n\nIt was **wet**. <img src=x onerror=alert(1)><script>document.title='broken'</script>"

// ask types a message and sends it.
func ask(b *browsertest.Page, text string) {
	b.Helper()
	b.Eval(fmt.Sprintf("document.getElementById('text').value = %q, document.getElementById('send').click()", text))
}

const rests = "document.getElementById('send').textContent === 'Send'"

// A user uploads a file, talks, sees output, an error, a chart, a table, a file and formatted text,
// stops an answer, and loads the page again.
func TestPage(t *testing.T) {
	url, _ := start(t, parse(t, "pyodide.yaml"), append(script(),
		turn{wants: "table", call: arguments(frame)},
		turn{wants: "Bern", text: answer},
		turn{wants: "wait", text: "I wait. ", call: arguments("print('begun', flush=True)\nwhile True: pass")},
		turn{wants: "still", text: "Yes."}))
	b := browsertest.Open(t, url)
	b.Until("document.activeElement?.id === 'text'")
	b.Look(375, 800, "light")
	say := func(text string) {
		t.Helper()
		ask(b, text)
		b.Until(rests)
	}
	is := func(what, expression, want string) {
		t.Helper()
		if got := b.Eval(expression); got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	b.Eval(`{
		const d = new DataTransfer(), file = document.getElementById("file")
		d.items.add(new File(["1\n2\n3\n"], "in.csv"))
		file.files = d.files
		file.dispatchEvent(new Event("change"))
	}`)
	is("chosen", "document.getElementById('chosen').textContent", "With in.csv")
	say("How much is it?")
	b.Until("document.getElementById('log').innerText.includes('is 6.')") // it is drawn a moment later
	is("log", "document.getElementById('log').innerText.replace(/\\s+/g, ' ')",
		"How much is it? With in.csv (6 B) Let me add. total = sum(int(l) for l in open('in.csv')) print('total', total) total 6 It is 6.")
	say("And a chart?")
	is("chart", "/<svg[^]*<rect/.test(document.querySelector('iframe[sandbox=\"\"]').srcdoc)", "true")
	is("attempts", "[...document.querySelectorAll('#log .note.quiet')].map(e => e.textContent).join()", "Attempt 2")
	is("error", "document.querySelector('.exception').textContent.includes('NameError')", "true")
	b.Eval("document.querySelector('.note.files button').click()")
	b.Until("document.querySelector('#preview .file')?.textContent === 'total 6'")
	b.Eval("[...document.querySelectorAll('#preview button')].at(-1).click()")

	say("And a table?")
	b.Until("document.querySelectorAll('iframe').length === 2")
	b.Until("[...document.querySelectorAll('.stdout')].at(-1).innerText.includes('line 99')")
	is("folded", "[...document.querySelectorAll('.stdout')].at(-1).innerText.slice(0, 30)", "Show 76 earlier lines\nline 76\n")
	rows := "[...document.querySelectorAll('tbody tr')].map(r => r.innerText.replace(/\\s+/g, ' ')).join('|')"
	is("table", rows, "Bern 9|Rom 10")
	b.Eval("document.querySelectorAll('thead button')[0].click(), document.querySelectorAll('thead button')[0].click()")
	is("sorted", rows, "Rom 10|Bern 9")
	b.Eval("document.querySelectorAll('thead button')[0].click()")
	// What a model writes may look like HTML, but only a frame without scripts shows it as such.
	is("Markdown", "/<h1>Rain<\\/h1>[^]*<strong>wet/.test(document.querySelectorAll('iframe')[1].srcdoc)", "true")
	is("frames", "[...document.querySelectorAll('iframe')].filter(f => f.getAttribute('sandbox') !== '' || f.src).length", "0")
	is("page", "document.title + document.images.length + document.scripts.length", "Chat with a sandbox01")

	// The newest message is in sight, unless the user reads what is above.
	newest := "document.querySelector('#log').getBoundingClientRect().bottom <= innerHeight"
	b.Until(newest + " && scrollY > 0")
	ask(b, "Please wait")
	b.Until("[...document.querySelectorAll('.stdout')].at(-1).innerText.includes('begun')")
	b.Until(newest)
	b.Eval("document.getElementById('send').click()")
	b.Until(rests)
	is("stopped", "[...document.querySelectorAll('#log .note')].at(-1).textContent", "Stopped")
	b.Eval("scrollTo(0, 0)")
	b.Settle()
	b.Eval("document.getElementById('log').append(document.createElement('hr'))")
	b.Settle()
	is("scrolled", "scrollY", "0")
	b.Eval("document.querySelector('hr').remove()")

	before := "document.getElementById('log').innerText + document.querySelectorAll('#log iframe').length"
	want := b.Eval(before)
	b.Eval("window.old = true, location.reload()")
	b.Until("!window.old && document.activeElement?.id === 'text' && document.querySelectorAll('#log iframe').length === 2")
	b.Until(newest)
	is("reloaded", before, want)
	say("Are you still there?")
	b.Until("[...document.querySelectorAll('.answer')].at(-1).innerText === 'Yes.'")

	accessible(t, b)
	b.Eval("window.old = true, document.getElementById('fresh').click()")
	b.Until("!window.old && document.activeElement?.id === 'text'")
	is("fresh", "document.getElementById('log').innerText", "")
}

// accessible checks the page with axe, in the light and in the dark, on a phone and on a screen.
func accessible(t *testing.T, b *browsertest.Page) {
	t.Helper()
	axe, err := os.ReadFile(filepath.Join(npmtest.Install(t, "../../server/page/testdata/axe"), "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	b.Eval(string(axe))
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{375, 1280} {
			b.Look(width, 800, scheme)
			var found []struct {
				ID, Help string
				Nodes    []struct{ HTML, FailureSummary string }
			}
			if err := json.Unmarshal([]byte(b.Eval("axe.run(document, {resultTypes: ['violations'], iframes: false}).then(r => JSON.stringify(r.violations))")), &found); err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				t.Errorf("%s %d: %s: %s: %+v", scheme, width, f.ID, f.Help, f.Nodes)
			}
			if got := b.Eval("document.documentElement.scrollWidth - innerWidth"); !strings.HasPrefix(got, "0") && !strings.HasPrefix(got, "-") {
				t.Errorf("%s %d: it is %s pixels wider than the window", scheme, width, got)
			}
		}
	}
}
