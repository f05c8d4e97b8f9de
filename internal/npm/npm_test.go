package npm

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"lodash": "lodash", " lodash ": "lodash", "lodash@4": "lodash@4", "lodash@ ^4.17  || 5.x ": "lodash@^4.17 || 5.x", "@scope/name": "@scope/name",
		"@scope/name@>=1 <3": "@scope/name@>=1 <3", "lodash@*": "lodash", "a.b-c_d": "a.b-c_d", "JSONStream": "JSONStream", "x@1 - 2": "x@1 - 2",
	} {
		r, err := Parse(text)
		if err != nil || r.String() != want {
			t.Errorf("%q: got %q, %v, want %q", text, r, err, want)
		}
		if again, err := Parse(r.String()); err != nil || again.String() != want {
			t.Errorf("%q: read again: got %q, %v", text, again, err)
		}
	}
	for _, text := range []string{
		"", " ", "@", "a@", "@a", "@/a", "@a/", "a/b", "a/b/c", "@a/b/c", "--registry=x", "-g", "../a", "./a", "/a", "~a", ".a", "_a", "a b", "a\nb", "a\x00", "é", "\xff",
		"https://example.org/a.tgz", "git+ssh://example.org/a", "git@example.org:a/b", "user/repo", "github:user/repo", "file:../a", "npm:a@1", "a@npm:b@1", "a@file:b",
		"a@https://example.org/a.tgz", "a@latest", "a@next", "a@1,2", "a;b", "$(touch x)", "a#main", "a\\b", "node_modules", "a@>=1 || latest", strings.Repeat("a", 215), "a@" + strings.Repeat("1 ", 200),
		"%2e%2e/x", "@a/..", "@../a", "a@b@1",
	} {
		if r, err := Parse(text); err == nil {
			t.Errorf("%q: got %q, want an error", text, r)
		}
	}
}

// The table has the results of npm 11's own semver package for the same versions and ranges.
func TestSemver(t *testing.T) {
	var table struct {
		Versions, Invalid, Sorted []string
		Ranges                    map[string][]string
	}
	b, err := os.ReadFile("testdata/semver.json")
	if err == nil {
		err = json.Unmarshal(b, &table)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(table.Ranges, "==1") // npm accepts this by accident, and nobody uses it
	version := func(text string) Version {
		v, err := ParseVersion(text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for text, want := range table.Ranges {
		r, err := ParseRange(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got []string
		for _, v := range table.Versions {
			if r.Allows(version(v)) {
				got = append(got, v)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for _, text := range table.Invalid {
		if _, err := ParseRange(text); err == nil {
			t.Errorf("%q: want an error", text)
		}
	}
	if !slices.IsSortedFunc(table.Sorted, func(a, b string) int { return version(a).Compare(version(b)) }) {
		t.Errorf("not in order: %q", table.Sorted)
	}
	for _, text := range []string{"", "1", "1.2", "1.2.3.4", "a.b.c", "01.2.3", "1.2.3-", "1.2.3-a..b", "1.2.3-01", "9007199254740992.0.0", "1.2.3\n4"} {
		if v, err := ParseVersion(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, v)
		}
	}
}
