package page_test

import (
	"testing"

	"github.com/execbroker/execbroker/internal/browsertest"
	"github.com/execbroker/execbroker/server/page"
)

// Documents in which HTML, SVG and MathML are nested reach nothing, however they are nested.
func TestNestings(t *testing.T) {
	t.Parallel()
	a := browsertest.Listen(t)
	browsertest.TestFrames(t, page.Handler(), 2000, a, func(url string) browsertest.Browser { return a.Open(url) })
}

// The same in Firefox, which has another parser.
func TestNestingsInFirefox(t *testing.T) {
	a := browsertest.Listen(t)
	browsertest.TestFrames(t, page.Handler(), 2000, a, func(url string) browsertest.Browser { return a.OpenFirefox(url) })
}
