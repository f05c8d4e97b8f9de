package page_test

import (
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/browsertest"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/server/page"
)

var shots = flag.String("screenshots", "", "the `directory` for screenshots of the page")

// key is the key of an operator, and user is another.
const (
	key  = "key-of-the-operator-0123456789"
	user = "key-of-a-user-0123456789"
)

// serve starts a server with a page over the backends of a configuration. It returns its URL.
func serve(t *testing.T, config string) string {
	t.Helper()
	cfg, err := backends.Parse([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	x, err := backends.Open(t.Context(), driver.Env{Owner: "page-test"}, all.Registry(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := server.Config{Page: page.Handler(), Conversations: x.Manager(), Experiments: x.Experiments, Backends: func() map[string]executor.Executor {
		all := map[string]executor.Executor{}
		for name := range x.Backends() {
			all[name], _ = x.Backend(name)
		}
		return all
	}}
	for k, client := range map[string]server.Client{key: {Subject: "operator", Operator: true}, user: {Subject: "alice"}} {
		if err := c.Keys.Add(k, client); err != nil {
			t.Fatal(err)
		}
	}
	s, err := server.New(x, c)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
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
	p.Until("document.getElementById('key')")
	p.Eval(fmt.Sprintf("document.getElementById('key').value = %q, document.querySelector('.key .primary').click()", key))
	p.Until("document.querySelector('.cell .cm-content')")
	return p
}

// A newcomer enters the key, presses Run, and sees a chart that Python has drawn without a library.
func TestNewcomer(t *testing.T) {
	p := enter(t, serve(t, "backends: {local: {type: pyodide}}"), key)
	p.Eval("document.querySelector('.run').click()")
	p.Until("document.querySelector('.cell').dataset.runs === '1'")
	if got, want := p.Eval("document.querySelector('.output pre').textContent"), "Run this cell with Shift+Enter"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := p.Eval("document.querySelectorAll('.output iframe[sandbox=\"\"]').length"), "1"; got != want {
		t.Errorf("got %s frames, want %s: %s", got, want, p.Eval("document.querySelector('.cell').innerText"))
	}
	shoot(t, p, "notebook")
}

// shoot makes a screenshot, if the flag asks for it.
func shoot(t *testing.T, p *browsertest.Page, name string) {
	t.Helper()
	if *shots == "" {
		return
	}
	if err := os.WriteFile(*shots+"/page-"+name+".png", p.Screenshot(), 0o600); err != nil {
		t.Fatal(err)
	}
}
