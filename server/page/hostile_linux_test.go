package page_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/internal/browsertest"
	"github.com/execbroker/execbroker/internal/waittest"
)

// listener keeps what it is told.
type listener struct {
	mu   sync.Mutex
	seen []string
}

func (l *listener) add(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, what)
}

func (l *listener) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

// A run shows a hundred payloads, and files have others. None reads the key, calls the API,
// navigates, connects to anything or asks for the address of a name, even when the reader clicks on
// it.
func TestHostile(t *testing.T) {
	a := browsertest.Listen(t)
	calls := &listener{} // of the API by payloads
	url := serve(t, "backends: {local: {type: pyodide}}", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.String(), "hostile") {
				calls.add(r.URL.String())
			}
			next.ServeHTTP(w, r)
		})
	})
	type shown struct{ MIME, Text string }
	var all []shown
	for _, mime := range []string{"text/html", "image/svg+xml", "text/markdown"} {
		for _, payload := range payloads[mime] {
			n := len(all)
			all = append(all, shown{mime, filled(payload, "http://"+a.Host(fmt.Sprint("p", n)), fmt.Sprintf("/v1/stats?hostile=%d", n))})
		}
	}
	if len(all) < 100 {
		t.Errorf("got %d payloads, want a hundred", len(all))
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(string(data))
	if err != nil {
		t.Fatal(err)
	}
	p := a.Open(url)
	signIn(p, key)
	p.Eval("window.untouched = true")
	execute(p, "import json\nfrom IPython.display import display\nlist = json.loads("+string(quoted)+")\nprint('<img src=http://"+a.Host("text")+">')\nfor p in list:\n    display({p['MIME']: p['Text']}, raw=True)\n"+
		"for name, kind in [('a.html', 'text/html'), ('b.svg', 'image/svg+xml'), ('c.md', 'text/markdown')]:\n    open(name, 'w').write('\\n'.join(p['Text'] for p in list if p['MIME'] == kind))\nopen('<img src=x onerror=alert(1)>', 'w').close()\n")
	p.Until(fmt.Sprintf("document.querySelectorAll('.output .shown > *').length === %d", len(all)))
	for _, name := range []string{"a.html", "b.svg", "c.md"} {
		file := fmt.Sprintf("[...document.querySelectorAll('.files .name')].find(e => e.textContent === %q)", name)
		p.Until(file) // the list comes after the values
		p.Eval(file + ".click()")
		p.Until(fmt.Sprintf("document.querySelector('.preview h3')?.textContent === %q && document.querySelector('.preview iframe')", name))
	}
	// Every frame has loaded, is in sight, and is clicked.
	var frames int
	fmt.Sscan(p.Eval("document.querySelectorAll('iframe').length"), &frames)
	if frames < 90 {
		t.Errorf("got %d frames", frames)
	}
	if got := p.Eval("[...document.querySelectorAll('iframe')].filter(f => f.getAttribute('sandbox') !== '' || f.src).length"); got != "0" {
		t.Errorf("%s frames are no sandboxes", got)
	}
	if got := p.Eval("document.querySelectorAll('.output script, .output link, .output style, .output object, .output img, .output form, .preview script').length"); got != "0" {
		t.Errorf("%s elements of payloads are part of the page", got)
	}
	for i := range frames {
		var at struct{ X, Y float64 }
		if err := json.Unmarshal([]byte(p.Eval(fmt.Sprintf("{const f = document.querySelectorAll('iframe')[%d]; f.scrollIntoView({block: 'center'}); const r = f.getBoundingClientRect(); JSON.stringify({x: r.x + 40, y: r.y + 30})}", i))), &at); err != nil {
			t.Fatal(err)
		}
		p.Click(at.X, at.Y)
	}
	p.Settle()
	if got := calls.all(); len(got) > 0 {
		t.Errorf("payloads called %q", got)
	}
	if got, want := p.Eval("String(untouched) + location.href + document.title + sessionStorage.length"), "true"+url+"execbroker0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	for _, name := range a.Reached(p) {
		t.Errorf("a payload reached %s", name)
	}

	// The same payloads reach the attacker from a page that shows them as they are.
	mux := http.NewServeMux()
	mux.HandleFunc("/{n}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		for i := range all {
			if fmt.Sprint(i) == r.PathValue("n") {
				_, _ = io.WriteString(w, all[i].Text)
			}
		}
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		for i := range all {
			fmt.Fprintf(w, "<iframe sandbox='allow-scripts allow-same-origin allow-forms' src=/%d></iframe>", i)
		}
	})
	naive := httptest.NewServer(mux)
	t.Cleanup(naive.Close)
	a.Open(naive.URL + "/")
	waittest.Until(t, "payloads work where nothing stops them", func() error {
		if names := a.Names(); len(names) < 50 {
			return fmt.Errorf("only %q do", names)
		}
		return nil
	})
}
