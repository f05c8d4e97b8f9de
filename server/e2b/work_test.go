package e2b

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/fake"
)

// unsigned is a request of somebody without a key, for a URL that looks signed.
func (w world) unsigned(method, query string) *http.Request {
	r := httptest.NewRequestWithContext(w.Context(), method, "/files?"+query, nil)
	r.Host = "localhost"
	return r
}

// A request without a key costs the same however many sandboxes there are, whatever it asks for.
func TestWorkWithoutKey(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxSandboxes: 1000})
	queries := map[string]struct{ method, query string }{
		"read":    {"GET", "path=a&signature=v1_x"},
		"head":    {"HEAD", "path=a&signature=v1_x&signature_expiration=99999999999"},
		"write":   {"POST", "path=a&signature=v1_x"},
		"twice":   {"GET", "signature=a&signature=b"},
		"no-path": {"GET", "signature="},
		"endless": {"GET", "signature=v1_x&path=" + strings.Repeat("a", maxSignedQuery)},
		"several": {"GET", "signature=v1_x" + strings.Repeat("&path=a", maxSignedQuery/10)},
		"none":    {"GET", "path=a"},
		"delete":  {"DELETE", "path=a&signature=v1_x"},
	}
	work := func() map[string]int {
		did := map[string]int{}
		for name, q := range queries {
			to, tried := w.s.signer(w.unsigned(q.method, q.query))
			if to.sandbox != "" {
				t.Fatalf("%s: found a sandbox", name)
			}
			if n := len(q.query); tried*n > maxSigners*maxSignedQuery {
				t.Errorf("%s: %d signatures of %d bytes", name, tried, n)
			}
			did[name] = tried
		}
		return did
	}
	const n = maxSigners
	var first sandboxAnswer
	for i := range n {
		if a := w.create(""); i == 0 {
			first = a
		}
	}
	before := work()
	for range n {
		w.create("")
	}
	for name, after := range work() {
		if after > maxSigners || float64(after) > 1.2*float64(before[name]) {
			t.Errorf("%s: %d signatures with %d sandboxes, %d with %d", name, before[name], n, after, 2*n)
		}
	}
	for name, want := range map[string]int{"read": maxSigners, "endless": 0, "none": 0, "delete": 0} {
		if before[name] != want {
			t.Errorf("%s: %d signatures, want %d", name, before[name], want)
		}
	}
	// Who is named is among those that are tried.
	query := signed(first.EnvdAccessToken, "a", "read", "")
	if to, _ := w.s.signer(w.unsigned("GET", query)); to.sandbox != "" {
		t.Errorf("a sandbox that %d others were used after was tried", 2*n-1)
	}
	w.want(401, "GET", "/files?"+query, "")
	w.detail(first.SandboxID)
	if to, tried := w.s.signer(w.unsigned("GET", query)); to.sandbox != first.SandboxID || tried != 1 {
		t.Errorf("got %+v after %d signatures, want the sandbox that was used last", to, tried)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	values.Set("username", strings.Repeat("u", maxSignedQuery))
	w.want(401, "GET", "/files?"+values.Encode(), "")
}
