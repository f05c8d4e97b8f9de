package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/browsertest"
	"github.com/execbroker/execbroker/internal/npmtest"
)

// A site of two versions is complete, asks for nothing from another host, and is usable: its search
// finds, its switcher switches, and axe has no finding.
func TestSite(t *testing.T) {
	out := t.TempDir()
	b := build{root: "../../..", work: t.TempDir(), out: out, base: "/docs/", commit: strings.Repeat("0", 40)}
	for _, b.version = range []string{"main", "v0.1"} {
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("Links", func(t *testing.T) { checkLinks(t, out, b.base) })

	mux := http.NewServeMux()
	mux.Handle(b.base, http.StripPrefix(strings.TrimSuffix(b.base, "/"), http.FileServer(http.Dir(out))))
	server := httptest.NewServer(mux)
	defer server.Close()
	site := server.URL + b.base
	t.Run("Front", func(t *testing.T) {
		p := open(t, site) // the root leads to the latest release
		p.Until("location.pathname === '/docs/v0.1/'")
		p.Until("document.querySelector('#what-each-backend-can-do')")
		is(t, p, "document.querySelector('.vp-doc h1').firstChild.textContent.trim()", "execbroker")
		is(t, p, "[...document.querySelectorAll('.vp-doc th')].some(e => e.textContent === 'pyodide')", "true")
		is(t, p, "document.querySelector('.vp-doc .language-sh').innerText.includes('go run ./cmd/execbroker run')", "true")
	})
	t.Run("Search", func(t *testing.T) {
		for word, want := range map[string]string{"gvisor": "/docs/main/", "threat model": "/docs/main/security/threat-model.html", "CheckPort": "/docs/main/api/executor.html"} {
			p := open(t, site+"main/guides/docker.html")
			p.Until("document.querySelector('#local-search button')")
			p.Eval("document.querySelector('#local-search button').click()")
			p.Until("document.activeElement?.id === 'localsearch-input'")
			p.Type(word)
			p.Until(fmt.Sprintf("[...document.querySelectorAll('.VPLocalSearchBox .result')].some(e => new URL(e.href).pathname.startsWith(%q))", want))
			p.Key("Enter", 0) // opens the first
			p.Until("!document.querySelector('.VPLocalSearchBox') && !location.pathname.endsWith('docker.html') || location.hash")
		}
	})
	t.Run("Switcher", func(t *testing.T) {
		p := open(t, site+"main/guides/docker.html")
		choose := func(version string) {
			p.Until("document.querySelectorAll('.versions.in-bar option').length === 2")
			// Later, so that the page is not left before the browser has answered.
			p.Eval(fmt.Sprintf("setTimeout(() => { const s = document.querySelector('.versions.in-bar'); s.value = %q; s.dispatchEvent(new Event('change')) }, 0)", version))
			p.Until(fmt.Sprintf("location.pathname === '/docs/%s/guides/docker.html'", version))
		}
		choose("v0.1")
		choose("main")
		for _, version := range []string{"main", "v0.1"} {
			if _, err := os.Stat(filepath.Join(out, version, "guides", "docker.html")); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("Access", func(t *testing.T) { checkAccess(t, site+"main/") })
}

// open opens a page whose violations of its own policy are kept.
func open(t *testing.T, url string) *browsertest.Page {
	t.Helper()
	p := browsertest.Open(t, url)
	p.Until("location.href !== 'about:blank' && document.readyState === 'complete'")
	return p
}

func is(t *testing.T, p *browsertest.Page, expression, want string) {
	t.Helper()
	if got := p.Eval(expression); got != want {
		t.Errorf("%s: got %q, want %q", expression, got, want)
	}
}

var (
	attribute = regexp.MustCompile(`<(\w+)[^>]*? (?:href|src|srcset)="([^"]*)"`)
	anchor    = regexp.MustCompile(` id="([^"]*)"`)
)

// checkLinks finds the target of every link, and the anchor. Only links that people follow lead to
// other hosts.
func checkLinks(t *testing.T, dir, base string) {
	anchors := map[string]map[string]bool{}
	texts := map[string]string{}
	err := eachPage(dir, func(file string, text []byte) error {
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		at := base + filepath.ToSlash(rel)
		texts[at], anchors[at] = string(text), map[string]bool{}
		for _, m := range anchor.FindAllStringSubmatch(string(text), -1) {
			anchors[at][m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for at, text := range texts {
		for _, m := range attribute.FindAllStringSubmatch(text, -1) {
			to, err := url.Parse(strings.ReplaceAll(m[2], "&amp;", "&"))
			if err != nil {
				t.Errorf("%s: %v", at, err)
				continue
			}
			if to.Scheme == "data" || to.Scheme == "mailto" {
				continue
			}
			if to.Host != "" {
				if m[1] != "a" {
					t.Errorf("%s: %s asks for %s", at, m[1], to)
				}
				continue
			}
			links++
			page := path.Join(path.Dir(at), to.Path)
			if strings.HasPrefix(to.Path, "/") {
				page = path.Clean(to.Path)
			} else if to.Path == "" {
				page = at
			}
			info, err := os.Stat(filepath.Join(dir, strings.TrimPrefix(page+"/", base)))
			if err == nil && info.IsDir() {
				page = path.Join(page, "index.html")
				_, err = os.Stat(filepath.Join(dir, strings.TrimPrefix(page, base)))
			}
			if err != nil {
				t.Errorf("%s: %s: %v", at, to, err)
			} else if to.Fragment != "" && !anchors[page][to.Fragment] {
				t.Errorf("%s: %s has no %q", at, page, to.Fragment)
			}
		}
	}
	if links < 10_000 {
		t.Errorf("only %d links were found", links)
	}
}

// checkAccess looks at pages of each kind on a phone and a screen, in the light and in the dark.
func checkAccess(t *testing.T, site string) {
	axe, err := os.ReadFile(filepath.Join(npmtest.Install(t, "../../../server/page/testdata/axe"), "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	origin, err := url.Parse(site)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "guides/docker.html", "api/executor.html", "performance.html"} {
		p := open(t, site+name)
		p.Settle()
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int{375, 1280} {
				p.Look(width, 900, scheme)
				p.Settle()
				what := fmt.Sprintf("%s %s %d", name, scheme, width)
				if shots := os.Getenv("SCREENSHOTS"); shots != "" {
					file := strings.ReplaceAll(strings.ReplaceAll("site-"+what+".png", " ", "-"), "/", "-")
					if err := os.WriteFile(filepath.Join(shots, file), p.Screenshot(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if got := p.Eval("document.documentElement.scrollWidth - innerWidth > 0"); got != "false" {
					t.Errorf("%s: it is wider than the window", what)
				}
				p.Eval(string(axe) + "; true")
				var found []struct {
					ID, Help string
					Nodes    []struct{ HTML, FailureSummary string }
				}
				if err := json.Unmarshal([]byte(p.Eval("axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(r.violations))")), &found); err != nil {
					t.Fatal(err)
				}
				for _, f := range found {
					t.Errorf("%s: %s: %s: %+.600v", what, f.ID, f.Help, f.Nodes)
				}
			}
		}
		var urls []string
		if err := json.Unmarshal([]byte(p.Eval("JSON.stringify(performance.getEntriesByType('resource').map(e => e.name))")), &urls); err != nil {
			t.Fatal(err)
		}
		for _, u := range urls {
			if !strings.HasPrefix(u, origin.Scheme+"://"+origin.Host+"/") && !strings.HasPrefix(u, "data:") {
				t.Errorf("%s: a request to %s", name, u)
			}
		}
	}
}
