// Package page is a web page over the HTTP API of package server: cells in an editor, live output,
// files and, for operators, what the backends do. Its assets are embedded. It has no state and asks
// for the key of the API itself.
//
// # What the page trusts
//
// The page treats everything of a run as hostile. Text is shown as text, and tables are rebuilt
// from the text of their cells. HTML, SVG and Markdown are shown only in a frame without scripts,
// without an origin and without a network. The policy of the page forbids scripts other than its
// own, connections to other servers, and strings as HTML outside of that frame.
//
// The key stays in the memory of the page, or in sessionStorage if the user asks for that.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/execbroker/execbroker/internal/front"
)

//go:generate sh -c "cd npm && sh bundle.sh"

//go:embed static
var files embed.FS

// Prefix is the path below which the parts of the page are.
const Prefix = "/page/"

// policy is what a browser lets the page do. Frames inherit it, so it allows styles in HTML, which
// charts and tables have. A frame cannot navigate: no URL is allowed in one. Strings become HTML
// only by the rule "frame" of js/frame.js.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; connect-src 'self'; " +
	"frame-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types frame"

// headers are those of every part of the page.
var headers = map[string]string{
	"Content-Security-Policy":      policy,
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"X-DNS-Prefetch-Control":       "off",
	"Cache-Control":                "no-cache",
}

// asset is a file of the page.
type asset struct {
	content string
	kind    string // of the content
	tag     string // changes with the content
}

// assets are the parts of the page by their paths on the server.
var assets = load(files, "static", Prefix)

// load returns the files below a directory by their paths on the server.
func load(files embed.FS, dir, prefix string) map[string]asset {
	all := map[string]asset{}
	err := fs.WalkDir(files, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		kind := map[string]string{".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}[path.Ext(name)]
		if strings.HasPrefix(kind, "text/") {
			kind = mime.FormatMediaType(kind, map[string]string{"charset": "utf-8"})
		}
		sum := sha256.Sum256(b)
		all[prefix+strings.TrimPrefix(name, dir+"/")] = asset{string(b), kind, `"` + hex.EncodeToString(sum[:16]) + `"`}
		return nil
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	return all
}

// Handler returns a handler for GET / and for everything below [Prefix], as server.Config.Page. It
// needs no key.
func Handler() http.Handler {
	return handler(map[string]asset{"/": assets[Prefix+"index.html"]})
}

// Of returns a handler for the page of another program, which is made of the parts of this one: its
// styles and modules are below [Prefix], as in the directory static. own has the rest in the
// directory dir: index.html, which is served at /, and files at their names. The same policy holds
// for them, so scripts are files and markup is never made of strings. Of panics if dir is not in
// own.
func Of(own embed.FS, dir string) http.Handler {
	all := load(own, dir, "/")
	all["/"] = all["/index.html"]
	return handler(all)
}

// handler serves the parts of the page and more files, by their paths.
func handler(more map[string]asset) http.Handler {
	return front.Bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := assets[r.URL.Path]
		if !ok {
			a, ok = more[r.URL.Path]
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		for name, value := range headers {
			h.Set(name, value)
		}
		h.Set("Etag", a.tag)
		if r.Header.Get("If-None-Match") == a.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		front.Text(w, http.StatusOK, a.kind, []byte(a.content))
	}), front.DefaultBodyTime)
}
