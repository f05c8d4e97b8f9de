package requirement_test

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/requirement"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"numpy":                        "numpy",
		" NumPy ":                      "numpy",
		"Foo__Bar.-baz":                "foo-bar-baz",
		"numpy==2.3":                   "numpy==2.3",
		"pandas >= 2 , < 4":            "pandas>=2,<4",
		"pandas (>=2)":                 "pandas>=2",
		"uvicorn[Standard,  standard]": "uvicorn[standard]",
		"a[x_y,b] ~= 1.4.2":            "a[b,x-y]~=1.4.2",
		"torch===2.0+cpu":              "torch===2.0+cpu",
		"django==4.*":                  "django==4.*",
		"x!=1.0,>=0.9":                 "x!=1.0,>=0.9",
		"a[]":                          "a",
	} {
		r, err := requirement.Parse(text)
		if err != nil || r.String() != want {
			t.Errorf("%q: got %q %v, want %q", text, r, err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "not a package name",
		"-r requirements.txt":           "options",
		"--index-url=x":                 "options",
		"git+ssh://x/y":                 "addresses",
		"pkg @ file:///etc/passwd":      "addresses",
		"./local":                       "addresses",
		"..":                            "not a package name",
		`c:\x`:                          "addresses",
		"numpy; python_version<'3'":     "markers",
		"numpy # comment":               "markers",
		"numpy=2":                       "not a version",
		"numpy==":                       "not a version",
		"numpy 2":                       "not a version",
		"numpy>=2,,<3":                  "not a version",
		"numpy[a b]":                    "extra",
		"numpy\n--pre":                  "characters",
		"nümpy":                         "characters",
		"numpy\x00":                     "characters",
		"a" + strings.Repeat("b", 1000): "too long",
	} {
		if r, err := requirement.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q %v, want %q", text, r, err, want)
		}
	}
}

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		text, version string
		want          bool
	}{
		{"a", "1", true},
		{"a", "whatever", true},
		{"a==2.3", "2.3.0", true},
		{"a==2.3", "2.3.1", false},
		{"a>=2,<4", "3.9", true},
		{"a>=2,<4", "4", false},
		{"a~=1.4", "1.9", true},
		{"a~=1.4", "2.0", false},
		{"a==1.*", "1.9.3", true},
		{"a!=1.0", "1.0", false},
		{"a>=1", "whatever", false},
		{"a>=2", "3.0b1", true},
	} {
		r, err := requirement.Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Allows(c.version); got != c.want {
			t.Errorf("%s, %s: got %v, want %v", c.text, c.version, got, c.want)
		}
	}
}

// FuzzParse tests that an accepted requirement is accepted again in its formatted form, with the
// same meaning.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"numpy", "pandas>=2,<4", "a[b,c]~=1.0", "x===1", "-e .", "a @ b", "a[", "a(1)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := requirement.Parse(s)
		if err != nil {
			return
		}
		text := r.String()
		if strings.HasPrefix(text, "-") || strings.ContainsAny(text, " ;@/\\#\n") {
			t.Fatalf("%q became %q", s, text)
		}
		if again, err := requirement.Parse(text); err != nil || again.String() != text {
			t.Fatalf("%q became %q, which became %q %v", s, text, again, err)
		}
		r.Allows("1.0")
	})
}
