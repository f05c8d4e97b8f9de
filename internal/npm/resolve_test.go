package npm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// shelf is a registry: "name version" -> the rest of its manifest, without the archive.
type shelf map[string]string

func (s shelf) get(t testing.TB) func(context.Context, []string) (map[string]*Document, error) {
	asked := map[string]bool{}
	return func(_ context.Context, names []string) (map[string]*Document, error) {
		docs := map[string]*Document{}
		for _, name := range names {
			if asked[name] {
				t.Errorf("asked for %s again", name)
			}
			asked[name] = true
			doc := map[string]any{}
			versions := map[string]json.RawMessage{}
			var last string
			for _, key := range slices.Sorted(maps.Keys(s)) {
				if n, v, _ := strings.Cut(key, " "); n == name {
					m := s[key]
					if m == "" {
						m = "{}"
					}
					sum := base64.StdEncoding.EncodeToString(make([]byte, 64))
					if !strings.Contains(m, `"dist"`) {
						m = strings.TrimSuffix(m, "}") + fmt.Sprintf(`,"dist":{"tarball":"https://example.org/%s-%s.tgz","integrity":"sha512-%s"}}`, name, v, sum)
					}
					versions[v] = json.RawMessage(strings.Replace(m, "{,", "{", 1))
					last = v
				}
			}
			if last == "" {
				continue
			}
			doc["versions"] = versions
			doc["dist-tags"] = map[string]string{"latest": last, "old": "1.0.0"}
			if s["latest "+name] != "" {
				doc["dist-tags"] = map[string]string{"latest": s["latest "+name]}
			}
			b, err := json.Marshal(doc)
			if err == nil {
				docs[name], err = ParseDocument(b)
			}
			if err != nil {
				return nil, err
			}
		}
		return docs, nil
	}
}

func wants(t testing.TB, texts ...string) (rs []Requirement) {
	for _, text := range texts {
		r, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	return rs
}

func TestResolve(t *testing.T) {
	s := shelf{
		"a 1.0.0": "", "a 1.5.0": "", "a 2.0.0": "", "a 3.0.0-beta": "", "latest a": "2.0.0",
		"b 1.0.0": `{"dependencies":{"a":"^1.0.0"}}`, "c 1.0.0": `{"dependencies":{"a":"2.x","b":"*"}}`,
		"@s/d 1.0.0":      `{"dependencies":{"c":"old","a-old":"npm:a@~1.0"}}`,
		"ring 1.0.0":      `{"dependencies":{"gnir":"1"}}`,
		"gnir 1.0.0":      `{"dependencies":{"ring":"1"}}`,
		"some 1.0.0":      `{"optionalDependencies":{"for-mac":"1","nowhere":"1","a":"1"},"dependencies":{"for-mac":"1"}}`,
		"for-mac 1.0.0":   `{"os":["darwin"]}`,
		"not-linux 1.0.0": `{"os":"!linux"}`,
		"musl 1.0.0":      `{"libc":["musl"]}`,
		"plugin 1.0.0":    `{"peerDependencies":{"a":"^2","b":"*"},"peerDependenciesMeta":{"b":{"optional":true}}}`,
		"addon 1.0.0":     `{"peerDependencies":{"a":"^1"}}`,
		"whole 1.0.0":     `{"dependencies":{"nowhere":"1"},"bundleDependencies":["nowhere"],"hasInstallScript":true}`,
		"git 1.0.0":       `{"dependencies":{"x":"git+https://example.org/x.git"}}`,
		"deep 1.0.0":      `{"dependencies":{"lost":"1"}}`, "lost 1.0.0": `{"dependencies":{"nowhere":"1"}}`, "perhaps 1.0.0": `{"optionalDependencies":{"lost":"1"}}`,
		"odd 1.0.0":   `{"dependencies":[1]}`,
		"http 1.0.0":  `{"dist":{"tarball":"http://example.org/x.tgz","shasum":"` + strings.Repeat("ab", 20) + `"}}`,
		"file 1.0.0":  `{"dist":{"tarball":"file:///etc/shadow","shasum":"` + strings.Repeat("ab", 20) + `"}}`,
		"plain 1.0.0": `{"dist":{"tarball":"https://example.org/x.tgz"}}`,
		"sum 1.0.0":   `{"dist":{"tarball":"https://example.org/x.tgz","shasum":"` + strings.Repeat("ab", 20) + `"}}`,
		"weak 1.0.0":  `{"dist":{"tarball":"https://example.org/x.tgz","integrity":"sha1-q6urq6urq6urq6urq6urq6urq6s="}}`,
		"climb 1.0.0": `{"dependencies":{"../../x":"1"}}`,
		"alias 1.0.0": `{"dependencies":{"x":"npm:../../x@1"}}`,
	}
	have := map[string]string{"a": "1.0.0"}
	for _, c := range []struct {
		want  string // separated by commas
		have  map[string]string
		limit string
		paths string // or "!" and a part of the problem
	}{
		{"a", nil, "", "a=2.0.0"},
		{"a@^1", nil, "", "a=1.5.0"},
		{"a@>=3.0.0-0", nil, "", "a=3.0.0-beta"},
		{"a,a@<2", nil, "", "a=1.5.0"},
		{"a", nil, "a@~1.0", "a=1.0.0"},
		{"a@2", nil, "a@1", "!no version of a@2 will do"},
		{"c", nil, "", "a=2.0.0 b=1.0.0 b/node_modules/a=1.5.0 c=1.0.0"},
		{"b,a", nil, "", "a=2.0.0 b=1.0.0 b/node_modules/a=1.5.0"},
		{"@s/d", nil, "", "@s/d=1.0.0 a=2.0.0 a-old=1.0.0 b=1.0.0 b/node_modules/a=1.5.0 c=1.0.0"},
		{"ring", nil, "", "gnir=1.0.0 ring=1.0.0"},
		{"some", nil, "", "a=1.5.0 some=1.0.0"},
		{"for-mac", nil, "", "!not for this machine"},
		{"not-linux", nil, "", "!not for this machine"},
		{"musl", nil, "", "!not for this machine"},
		{"plugin", nil, "", "a=2.0.0 plugin=1.0.0"},
		{"plugin,a@1", nil, "", "!plugin 1.0.0 needs a@^2 beside it, and a 1.5.0 is there"},
		{"plugin,addon", nil, "", "!beside it"},
		{"whole", nil, "", "whole=1.0.0!"},
		{"git", nil, "", "!only packages of the registry"},
		{"nowhere", nil, "", "!nowhere is not in the registry"},
		{"deep", nil, "", "!nowhere is not in the registry (lost 1.0.0 depends on it)"},
		{"perhaps", nil, "", "lost=1.0.0 perhaps=1.0.0"},
		{"odd", nil, "", "!odd 1.0.0: what the registry says of it cannot be read"},
		{"http", nil, "", "!exchange it"},
		{"file", nil, "", "!no address"},
		{"plain", nil, "", "!no checksum of it"},
		{"sum", nil, "", "!no checksum of it but one of SHA-1"},
		{"weak", nil, "", "!no checksum of it but one of SHA-1"},
		{"climb", nil, "", "!only packages of the registry"},
		{"alias", nil, "", "!only packages of the registry"},
		{"a@^1", have, "", ""},
		{"a@2", have, "", "!the session has a 1.0.0 already"},
		{"c", have, "", "b=1.0.0 c=1.0.0 c/node_modules/a=2.0.0"},
	} {
		t.Run(c.want, func(t *testing.T) {
			q := Question{Want: wants(t, strings.Split(c.want, ",")...), Have: c.have, Platform: Platform{"linux", "x64", "glibc"}, Get: s.get(t)}
			if c.limit != "" {
				q.Limit = wants(t, c.limit)
			}
			ps, err := Resolve(t.Context(), q)
			var p *Problem
			if text, fails := strings.CutPrefix(c.paths, "!"); fails {
				if !errors.As(err, &p) || !strings.Contains(err.Error(), text) {
					t.Errorf("got %v, %v, want %q", ps, err, text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range ps {
				text := p.Path + "=" + p.Version
				if p.Scripts {
					text += "!"
				}
				got = append(got, text)
				if p.Hash != "sha512" || p.URL == "" {
					t.Errorf("got %+v", p)
				}
			}
			if strings.Join(got, " ") != c.paths {
				t.Errorf("got  %s\nwant %s", strings.Join(got, " "), c.paths)
			}
		})
	}
}

// Whatever a registry says, the result is paths below one directory, or an error.
func FuzzResolve(f *testing.F) {
	f.Add([]byte(`{"dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"dependencies":{"a":"1","b":"npm:a@*"},"dist":{"tarball":"https://example.org/a","integrity":"sha512-x"}}}}`))
	f.Add([]byte(`{"versions":{"1.0.0":{"dependencies":{"../a":"*"},"peerDependencies":{"a":"2"},"os":"!linux","bundleDependencies":true,"dist":{"shasum":"abababababababababababababababababababab","tarball":"https://x/"}}}}`))
	f.Add([]byte(`{"versions":{"1.0.0":null,"2":{}},"dist-tags":{"latest":"9"}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDocument(b)
		if err != nil {
			return
		}
		ps, err := Resolve(t.Context(), Question{
			Want: []Requirement{{Name: "a"}, {Name: "@s/b"}}, Platform: Platform{OS: "linux", CPU: "x64"},
			Get: func(_ context.Context, names []string) (map[string]*Document, error) {
				docs := map[string]*Document{}
				for _, n := range names[:min(len(names), 3)] {
					docs[n] = d
				}
				return docs, nil
			},
		})
		if err != nil && len(err.Error()) > 10_000 {
			t.Errorf("got an error of %d bytes", len(err.Error()))
		}
		for _, p := range ps {
			for part := range strings.SplitSeq(p.Path, "/") {
				if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\\\x00") {
					t.Errorf("got the path %q", p.Path)
				}
			}
		}
	})
}
