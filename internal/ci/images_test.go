package main

import (
	"os"
	"slices"
	"testing"
)

func TestFindMirror(t *testing.T) {
	debian := "ID=debian\nVERSION_CODENAME=bookworm\n"
	for name, c := range map[string]struct {
		release, list string
		deb822        bool
		want          string
	}{
		"deb822": {debian, "Types: deb\n# a comment: here\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n" +
			"Signed-By: /usr/share/keyrings/k.gpg\n", true, "deb [signed-by=/usr/share/keyrings/k.gpg] http://mirror.example/debian {suite} main"},
		"deb822-second-stanza": {debian, "Types: deb\nURIs: http://mirror.example/security\nSuites: bookworm-security\nComponents: main\n\n" +
			"Types: deb deb-src\nURIs: http://mirror.example/debian http://other.example\nSuites: bookworm\nComponents: contrib main\n", true,
			"deb http://mirror.example/debian {suite} main"},
		"deb822-key-in-place": {debian, "Types: deb\nURIs: http://mirror.example\nSuites: bookworm\nComponents: main\nSigned-By:\n -----BEGIN\n", true,
			"deb http://mirror.example {suite} main"},
		"deb822-sources-only": {debian, "Types: deb-src\nURIs: http://mirror.example\nSuites: bookworm\nComponents: main\n", true, ""},
		"line":                {debian, "# deb x\ndeb http://mirror.example bookworm main contrib\n", false, "deb http://mirror.example {suite} main"},
		"line-options": {debian, "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example bookworm main\n", false,
			"deb [arch=amd64 signed-by=/k.gpg] http://mirror.example {suite} main"},
		"line-open-options": {debian, "deb [arch=amd64 http://mirror.example bookworm main\n", false, ""},
		"line-other-suite":  {debian, "deb http://mirror.example bookworm-security main\ndeb http://mirror.example trixie main\n", false, ""},
		"line-no-main":      {debian, "deb http://mirror.example bookworm contrib\n", false, ""},
		"unstable":          {"ID=debian\n", "deb http://mirror.example unstable main\n", false, "deb http://mirror.example {suite} main"},
		"another-system":    {"ID=other\nVERSION_CODENAME=bookworm\n", "deb http://mirror.example bookworm main\n", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := findMirror(c.release, c.list, c.deb822); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The Dockerfile and the recipes read the same list.
func TestPackageList(t *testing.T) {
	t.Chdir("../..")
	list, err := os.ReadFile(packageList)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"base":    {"python3", "python3-numpy", "python3-pandas", "python3-matplotlib", "nodejs"},
		"science": {"python3-scipy", "python3-seaborn", "python3-sklearn", "python3-sympy", "python3-openpyxl"},
		"missing": nil,
	} {
		got := section(list, name)
		for _, p := range want {
			if !slices.Contains(got, p) {
				t.Errorf("%s: %q misses %s", name, got, p)
			}
		}
		if len(want) == 0 && len(got) > 0 {
			t.Errorf("%s: got %q, want none", name, got)
		}
	}
	seen := map[string]string{}
	all, err := recipes()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Concat(all, oldRecipes, jupyterRecipes, bareRecipes, systemdRecipes, npmRecipes) {
		if other, ok := seen[r.hash()]; ok {
			t.Errorf("%s and %s have one hash", r.Image, other)
		}
		seen[r.hash()] = r.Image
	}
}
