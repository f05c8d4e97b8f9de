package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/browsertest"
)

// A user uploads a file, sends two messages, and sees output, an error, a chart and a file.
func TestPage(t *testing.T) {
	url, _ := start(t, parse(t, "pyodide.yaml"), append(script(), turn{wants: "hostile", text: "<img src=x onerror=alert(1)><script>document.title='broken'</script>"}))
	b := browsertest.Open(t, url)
	b.Until("document.getElementById('send')")
	say := func(text string) {
		t.Helper()
		b.Eval(fmt.Sprintf("document.getElementById('text').value = %q, document.getElementById('send').click()", text))
		b.Until("!document.getElementById('send').disabled")
	}
	b.Eval(`{ const d = new DataTransfer(); d.items.add(new File(["1\n2\n3\n"], "in.csv")); document.getElementById("file").files = d.files }`)
	say("How much is it?")
	if got, want := b.Eval("document.getElementById('log').innerText.replace(/\\s+/g, ' ')"), "How much is it? Let me add. total = sum(int(l) for l in open('in.csv')) print('total', total) total 6 It is 6."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	say("And a chart?")
	b.Until("document.images.length === 1 && document.images[0].complete")
	if got, want := b.Eval("document.images[0].naturalWidth + 'x' + document.images[0].naturalHeight"), "40x30"; got != want {
		t.Errorf("got an image of %s, want %s", got, want)
	}
	if got, want := b.Eval("[...document.querySelectorAll('.code')].map(e => e.dataset.try).join()"), "1,1,2"; got != want {
		t.Errorf("got tries %s, want %s", got, want)
	}
	if got := b.Eval("document.querySelector('.error').textContent"); !strings.Contains(got, "NameError") {
		t.Errorf("got error %q", got)
	}
	if got, want := b.Eval("fetch(document.querySelector('a[download]').href).then(r => r.text())"), "total 6"; got != want {
		t.Errorf("got the file %q, want %q", got, want)
	}
	// Text of a model is shown as text, even if it looks like HTML.
	say("hostile")
	if got, want := b.Eval("document.title + document.images.length + document.scripts.length"), "Chat with a sandbox11"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
