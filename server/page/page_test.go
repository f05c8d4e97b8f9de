package page

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// get requests a path of the page.
func get(t *testing.T, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost"+path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

// Every part of the page comes with its policy, which forbids scripts in HTML and other servers.
func TestHandler(t *testing.T) {
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/page/page.css": "text/css; charset=utf-8", "/page/js/main.js": "text/javascript; charset=utf-8", "/page/npm/codemirror.js": "text/javascript; charset=utf-8",
	} {
		w := get(t, path)
		h := w.Header()
		if w.Code != http.StatusOK || h.Get("Content-Type") != kind || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %d %v", path, w.Code, h)
		}
		csp := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'; script-src 'self';", "connect-src 'self';", "frame-src 'none';", "form-action 'none';", "frame-ancestors 'none';", "require-trusted-types-for 'script'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: got %s, want %s", path, csp, want)
			}
		}
		if strings.Contains(strings.Replace(csp, "style-src 'self' 'unsafe-inline'", "", 1), "unsafe") {
			t.Errorf("%s: got %s", path, csp)
		}
		if again := get(t, path, "If-None-Match", h.Get("Etag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s: got %d %d bytes", path, again.Code, again.Body.Len())
		}
	}
	for _, path := range []string{"/page/", "/page/absent.js", "/page/static/index.html", "/page/../page.go"} {
		if w := get(t, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: got %d", path, w.Code)
		}
	}
}

// What others have written comes with the hashes of its packages and its licence. Nothing of it or
// of the page is loaded from elsewhere.
func TestAssets(t *testing.T) {
	integrity := regexp.MustCompile(`(?m)^\S+ [0-9.]+ sha512-[A-Za-z0-9+/]{86}==$`)
	for name, a := range assets {
		if strings.HasPrefix(name, Prefix+"npm/") && (len(integrity.FindAllString(a.content, -1)) == 0 || !regexp.MustCompile("Permission is hereby granted, free of charge|Apache License").MatchString(a.content)) {
			t.Errorf("%s has no hashes or no licence: %.200s", name, a.content)
		}
		if !strings.HasPrefix(name, Prefix+"npm/") && regexp.MustCompile(`(src|href|from|import)[ =("']+https?:`).MatchString(a.content) {
			t.Errorf("%s loads something from elsewhere", name)
		}
		if a.kind == "" {
			t.Errorf("%s has no type", name)
		}
	}
}
