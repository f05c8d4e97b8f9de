package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutdated asks registries of the test, which have later versions or not, and such as do not
// answer.
func TestOutdated(t *testing.T) {
	dir, proxy := t.TempDir(), t.TempDir()
	put := func(dir, name, text string) {
		t.Helper()
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, versions := range map[string][]string{"old": {"v1.0.0", "v1.2.0"}, "new": {"v1.0.0"}, "gone": {"v1.0.0"}, "indirect": {"v1.0.0", "v1.9.0"}} {
		at := "example.org/" + name + "/@v/"
		put(proxy, at+"list", strings.Join(versions, "\n")+"\n")
		for _, v := range versions {
			put(proxy, at+v+".info", fmt.Sprintf(`{"Version": %q, "Time": "2026-01-01T00:00:00Z"}`, v))
			mod := "module example.org/" + name + "\n"
			if name == "gone" {
				mod = "// Deprecated: use example.org/new.\n" + mod
			}
			put(proxy, at+v+".mod", mod)
		}
	}
	put(dir, "go.mod", "module example.org/m\n\ngo 1.26\n\nrequire (\n\texample.org/gone v1.0.0\n\texample.org/new v1.0.0\n\texample.org/old v1.0.0\n)\n\nrequire example.org/indirect v1.0.0 // indirect\n")
	put(dir, "client/package.json", `{"dependencies": {"a-old": "^1.0.0"}, "devDependencies": {"a-new": "1.0.0"}}`)
	put(dir, "client/package-lock.json", `{"name": "client", "lockfileVersion": 3, "packages": {"": {"dependencies": {"a-old": "^1.0.0"}, "devDependencies": {"a-new": "1.0.0"}},
		"node_modules/a-old": {"version": "1.0.1"}, "node_modules/a-new": {"version": "1.0.0", "dev": true}}}`)
	put(dir, "empty/package-lock.json", `{"packages": {"": {}}}`)
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		latest := map[string]string{"a-old": "2.0.0", "a-new": "1.0.0"}[name]
		version := func(v string) string { return fmt.Sprintf(`%q: {"name": %q, "version": %[1]q}`, v, name) }
		fmt.Fprintf(w, `{"name": %q, "dist-tags": {"latest": %q}, "versions": {%s, %s, %s}}`, name, latest, version("1.0.0"), version("1.0.1"), version("2.0.0"))
	}))
	defer registry.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := "http://" + l.Addr().String()
	l.Close()
	for _, c := range []struct {
		name, proxy, registry string
		want                  string // the words of each line
		unknown               []string
	}{
		{"all-answer", "file://" + proxy, registry.URL, `WHERE NAME HAS LATEST
client a-old 1.0.1 2.0.0
go.mod example.org/gone v1.0.0 v1.0.0 deprecated: use example.org/new.
go.mod example.org/old v1.0.0 v1.2.0

3 of 5 direct dependencies are not the latest version, or are deprecated or retracted
`, nil},
		{"none-answers", away, away, `WHERE NAME HAS LATEST

0 of 5 direct dependencies are not the latest version, or are deprecated or retracted
`, []string{"NOBODY KNOWS about 3 of them: the registry of go did not answer: ", "NOBODY KNOWS about 2 of them: the registry of npm did not answer: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range map[string]string{
				"GOPROXY": c.proxy, "GONOSUMDB": "*", "GOFLAGS": "-mod=mod", "GOMODCACHE": t.TempDir(), "GOPRIVATE": "", "GONOPROXY": "",
				"npm_config_registry": c.registry, "npm_config_cache": t.TempDir(),
			} {
				t.Setenv(name, value)
			}
			all, err := modulesOf(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range []string{"client", "empty"} {
				ps, err := packagesOf(t.Context(), dir, at)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, ps...)
			}
			var out strings.Builder
			err = printOutdated(&out, all)
			got := ""
			for line := range strings.Lines(out.String()) {
				got += strings.Join(strings.Fields(line), " ") + "\n"
			}
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if (err == nil) != (c.unknown == nil) {
				t.Errorf("got %v", err)
			}
			for _, want := range c.unknown {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}
