package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// modules is an expression for a function of the page's modules, which makes an element of a
// document.
const modules = `import("/page/js/frame.js").then(({html, svg, markdown}) => (mime, text) =>
	({"text/html": html, "image/svg+xml": svg, "text/markdown": markdown})[mime](text))`

// naive is one that removes what is active, but lets a browser parse what is left once more.
const naive = `(mime, text) => {
	const t = document.createElement("template"), f = document.createElement("iframe")
	t.innerHTML = text
	for (const e of t.content.querySelectorAll("script, link, meta, base, iframe, frame, object, embed, template, form")) Element.prototype.remove.call(e)
	f.srcdoc = t.innerHTML
	return f
}`

// write is a function that makes an element of each document and writes the document in its frame
// to one other frame, as one that has no scripts either. That takes a tenth of the time of a frame
// for each.
const write = `async (show, all) => {
	const found = {Frames: 0, Texts: 0, Refers: []}, place = document.createElement("iframe")
	place.setAttribute("sandbox", "allow-same-origin")
	document.body.append(place)
	for (const {MIME, Text} of all) {
		const e = await show(MIME, Text), f = e.matches("iframe") ? e : e.querySelector("iframe")
		if (!f) {
			found.Texts++
			continue
		}
		found.Frames++
		const d = place.contentDocument, call = (name, ...more) => Document.prototype[name].call(d, ...more)
		call("open")
		call("write", f.srcdoc)
		call("close")
		for (const e of call("querySelectorAll", "*")) {
			if (["link", "base", "script", "iframe", "object", "embed", "math"].includes(e.localName) || [...e.attributes].some(a =>
				["href", "src", "srcset", "action", "ping", "background", "content", "data", "target"].includes(a.localName) && a.value.includes("attacker.test") && !a.value.startsWith("data:image/"))) found.Refers.push(e.outerHTML)
		}
	}
	place.remove()
	return JSON.stringify(found)
}`

// load is a function that shows each document in the frame that is made for it.
const load = `async (show, all) => {
	const found = {Frames: 0, Texts: 0, Refers: []}, place = document.createElement("div"), loads = []
	for (const {MIME, Text} of all) {
		const e = await show(MIME, Text), f = e.querySelector("iframe")
		if (!f) {
			found.Texts++
			continue
		}
		found.Frames++
		if (f.getAttribute("sandbox") !== "" || f.src) found.Refers.push(f.outerHTML)
		loads.push(new Promise(loaded => f.addEventListener("load", loaded)))
		place.append(e)
	}
	document.body.append(place)
	await Promise.all(loads)
	place.remove()
	return JSON.stringify(found)
}`

// found is what a browser made of documents.
type found struct {
	Frames int      // documents that are shown in one
	Texts  int      // documents that are shown as text
	Refers []string // elements that name the attacker's server, or that no document needs
}

// evalFrames calls write or load with what an expression shows documents by.
func evalFrames(b Browser, how, show string, all []document) (sum found) {
	b.Helper()
	for few := range slices.Chunk(all, 250) {
		data, err := json.Marshal(few)
		if err != nil {
			b.Fatal(err)
		}
		var f found
		if err := json.Unmarshal([]byte(b.Eval(fmt.Sprintf("(async () => (%s)(await (%s), %s))()", how, show, data))), &f); err != nil {
			b.Fatal(err)
		}
		sum.Frames += f.Frames
		sum.Texts += f.Texts
		sum.Refers = append(sum.Refers, f.Refers...)
	}
	return sum
}

// TestFrames is the test of a page that has the modules of package page: n documents, in which
// HTML, SVG and MathML are nested, do not make a browser connect to anything or ask for the address
// of a name. open opens a page with names of the attacker.
func TestFrames(t *testing.T, h http.Handler, n int, a *Attacker, open func(url string) Browser) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.HandleFunc("/bare", func(w http.ResponseWriter, _ *http.Request) { // no policy
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>bare</title><main id=main>"))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	all := nestings(n, func(i int) string { return a.Host(fmt.Sprint("d", i)) })
	text := func(name string) string { // of the document that has reached the attacker
		var i int
		if _, err := fmt.Sscanf(name, "d%d", &i); err != nil || i >= len(all) {
			return name
		}
		return all[i].MIME + ": " + all[i].Text
	}

	b := open(s.URL + "/bare")
	f := evalFrames(b, write, modules, all)
	if f.Frames+f.Texts != len(all) || f.Texts > len(all)/20 {
		t.Errorf("%d documents are shown in frames and %d as text, of %d", f.Frames, f.Texts, len(all))
	}
	for _, e := range f.Refers {
		t.Errorf("a frame has %s", e)
	}
	for _, name := range a.Reached(b) {
		t.Errorf("reached by %q", text(name))
	}

	// Some of them in frames of the page itself.
	b = open(s.URL)
	some := all[:50]
	f = evalFrames(b, load, modules, some)
	if f.Frames+f.Texts != len(some) || len(f.Refers) > 0 {
		t.Errorf("%d documents are shown in frames and %d as text, of %d; no sandboxes: %q", f.Frames, f.Texts, len(some), f.Refers)
	}
	for _, name := range a.Reached(b) {
		t.Errorf("in a frame of the page, reached by %q", text(name))
	}

	// Without what the page does against it, documents do reach the attacker.
	b = open(s.URL + "/bare")
	evalFrames(b, write, naive, all)
	names := a.Reached(b)
	_, counted := b.(*Page) // questions to a DNS server
	if len(names) < 10 || !slices.Contains(names, "d0") || counted && !strings.HasPrefix(names[0], "DNS: ") {
		t.Errorf("got %q, want ten", names)
	}
}
