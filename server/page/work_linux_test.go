package page_test

import (
	"net/http/httptest"
	"testing"

	"github.com/execbroker/execbroker/internal/browsertest"
	"github.com/execbroker/execbroker/server/page"
)

// work are functions of the page that read what comes from a sandbox, with what is hard for them.
const work = `(async () => {
	const [{Output}, {table}, {svg, html, markdown}, {splitter}, {diff}, {preview}] = await Promise.all(
		["output", "table", "frame", "api", "diff", "preview"].map(name => import("/page/js/" + name + ".js")))
	const of = (text, n) => text.repeat(Math.ceil(n / text.length)).slice(0, n)
	const shown = (text, cut) => n => () => {
		const o = new Output(), all = of(text, n)
		for (let i = 0; i < n; i += cut || n) o.text("stdout", all.slice(i, i + (cut || n)))
	}
	const all = {
		"one line in small pieces": shown("x", 10), "lines in small pieces": shown("line\n", 10), "progress in small pieces": shown("10 %\r", 10),
		"an exception": n => () => new Output().exception({traceback: of("\x1b[0;", n)}),
		"a value in JSON": n => () => new Output().value({data: {"application/json": of("[1,", n)}}),
		"a line of a stream in small pieces": n => () => {
			const messages = splitter()
			for (let i = 0; i < n; i++) messages("event: stdout")
			if (messages("\n\n").length !== 1) throw new Error("it is not put together")
		},
		"lines that begin alike": n => () => diff(of(of("x", n / 100) + "a\n", n), of(of("x", n / 100) + "b\n", n)),
		"a view box": n => () => svg("<svg viewBox='" + of(" ", n) + "x" + of(", ", n) + "'>"),
		"a table": n => () => table("<table><tr><th>a</th><th>b</th></tr>" + of("<tr><td>1,000 %</td><td>x</td></tr>", n)),
		"a file": n => () => preview(of("a.", n) + "svg", new TextEncoder().encode("<svg>"), () => {}),
		"a document": n => () => html(of("<p>a &amp; <b>b</b></p>", n)),
	}
	for (const text of ["x", "\r", "\r\n", "\n", " ", "x\r", "x\r\r\n", "\x1b", "\x1b[", "\x1b[0;1", "\x1b[?25"]) all["output of " + JSON.stringify(text)] = shown(text)
	for (const text of ["x", " ", "\n", "a  \n", "*", "*a ", "a*", "_a", "**a *a ", "[", "[a](", "[a](<b", "![", "[a]: b\n", "> ", "- ", "* a\n", "1", "\x60a", "\x60", "~", "<", "<a ",
		"<!--", "<?", "<![CDATA[", "|a", "|-", "a@", "http://a.", "a.a@", "\\", "#", " #", "a\n=", "&", "<hr>\n", "\t", "    a\n", "*_~[<!&"]) all["Markdown of " + JSON.stringify(text)] = n => () => markdown(of(text, n / 3))
	return all
})()`

// No work of the page grows with the square of what code prints or shows.
func TestWork(t *testing.T) {
	t.Parallel()
	h := httptest.NewServer(page.Handler())
	t.Cleanup(h.Close)
	b := browsertest.Open(t, h.URL)
	b.Until("document.getElementById('key')")
	browsertest.TestWork(t, b, work)
}
