package main

import (
	"net/http/httptest"
	"testing"

	"github.com/execbroker/execbroker/internal/browsertest"
	"github.com/execbroker/execbroker/server/page"
)

// Documents that a model writes, or that its code shows, reach nothing, however they are nested.
func TestNestings(t *testing.T) {
	t.Parallel()
	a := browsertest.Listen(t)
	browsertest.TestFrames(t, page.Of(own, "page"), 300, a, func(url string) browsertest.Browser { return a.Open(url) })
}

// The work on an answer does not grow with the square of its length.
func TestWork(t *testing.T) {
	t.Parallel()
	h := httptest.NewServer(page.Of(own, "page"))
	t.Cleanup(h.Close)
	b := browsertest.Open(t, h.URL)
	b.Until("document.activeElement?.id === 'text'")
	browsertest.TestWork(t, b, `import("/format.js").then(({formatted}) => Object.fromEntries(
		["x", " ", "\n", " \n", "\r", "\t", "1", "1 ", "1.", "- "].map(text => [JSON.stringify(text), n => () => formatted(text.trim() + text.repeat(n))])))`)
}
