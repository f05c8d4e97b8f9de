package pyimports

import (
	"slices"
	"strings"
	"testing"
)

func TestModules(t *testing.T) {
	for _, c := range []struct {
		code string
		want []string
	}{
		{"import a", []string{"a"}},
		{"import a.b as c, d.e, f as g", []string{"a", "d", "f"}},
		{"from a.b import (c,\n  d)\nimport e", []string{"a", "e"}},
		{"from . import a\nfrom .b import c\nfrom ..d import e", nil},
		{"x = 1; import a; from b import c", []string{"a", "b"}},
		{"import a \\\n  , b", []string{"a", "b"}},
		{"# import a\nimport b # import c", []string{"b"}},
		{"'''\nimport a\n'''\nimport b", []string{"b"}},
		{"s = r'\\'\nimport a", []string{"a"}}, // not Python, and read line by line
		{"s = 'import a; import b'\nf(\n'''import c''',\nimport_d)", nil},
		{"def f():\n    import a\n\timport b\nimport c", []string{"c"}},
		{"try: import a; import b\nexcept ImportError: pass\nimport c", []string{"c"}},
		{"try:\n  import a\nexcept ImportError:\n  a = None", nil},
		{"if x: import a\nelse: import b", nil},
		{"async def f(): import a", nil},
		{"importlib.import_module('a')\nimports = 1\nimport_ = 2", nil},
		{"import a\nimport a.b", []string{"a"}},
		{"x = (1,\nimport a)", nil},
		{"import größe, _x1", []string{"größe", "_x1"}},
		{"import 1a, b-c", []string{"b"}},
		{"import", nil},
		{"from a", nil},
		{"\xff\xfe import \xff", nil},
		{"s = \"\"\"a\\\"\"\"\nimport b\n\"\"\"\nimport c", []string{"c"}},
		{"", nil},
	} {
		if got := Modules(c.code); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.code, got, c.want)
		}
	}
}

func FuzzModules(f *testing.F) {
	f.Add("import a.b as c, d\nfrom e import (f)\n'''x'''")
	f.Fuzz(func(t *testing.T, code string) {
		got := Modules(code)
		if len(got) > most {
			t.Errorf("%d names", len(got))
		}
		for _, name := range got {
			if !identifier(name) || !strings.Contains(code, name) {
				t.Errorf("%q of %q", name, code)
			}
		}
	})
}
