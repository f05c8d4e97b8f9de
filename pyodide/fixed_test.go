package pyodide

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/cell"
	"github.com/execbroker/execbroker/internal/wire"
)

// FIXED in realm.mjs must contain each name of the language that the modules of a JavaScript worker
// use, including the parser.
func TestFixedNames(t *testing.T) {
	t.Parallel()
	in, err := find(realRuntime(t))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		path := filepath.Join("host", name)
		if name == "acorn.mjs" {
			path = in.acorn
		}
		if name == "typescript.mjs" {
			return typescriptModule
		}
		if name == "cell.mjs" {
			return cell.JavaScript
		}
		if name == "values.mjs" {
			return wire.JavaScript
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	list := func(name, after string) []string {
		_, text, _ := strings.Cut(read(name), "const "+after+" = `")
		text, _, ok := strings.Cut(text, "`")
		if !ok {
			t.Fatalf("%s has no list %s", name, after)
		}
		return strings.Fields(text)
	}
	fixed := list("realm.mjs", "FIXED")
	// Only for values. URL and similar names belong to the environment.
	language := slices.DeleteFunc(list("scrub.mjs", "LANGUAGE"), func(name string) bool {
		return slices.Contains([]string{"Infinity", "NaN", "undefined", "globalThis"}, name)
	})
	language = append(language, "TextEncoder", "TextDecoder", "URL", "DOMException", "AbortController", "AbortSignal")

	named := map[string]bool{}
	for _, name := range language {
		named[name] = true
	}

	used := map[string]string{} // name and module
	modules := []string{"worker-javascript.mjs"}
	comments := regexp.MustCompile(`(?m)^\s*//.*$|\s// .*$`)
	texts := regexp.MustCompile("(?s)const [A-Z]+ = `[^`]*`|\"(?:[^\"\\\\\n]|\\\\.)*\"")
	words := regexp.MustCompile(`[\w$]+`)
	imports := regexp.MustCompile(`(?m)^import .* from "\./([a-z-]+\.mjs)";$|\bimport\("\./([a-z-]+\.mjs)"\)`)
	for i := 0; i < len(modules); i++ {
		text := read(modules[i])
		for _, m := range imports.FindAllStringSubmatch(text, -1) {
			if name := m[1] + m[2]; !slices.Contains(modules, name) {
				modules = append(modules, name)
			}
		}
		text = texts.ReplaceAllString(comments.ReplaceAllString(text, ""), `""`)
		for _, at := range words.FindAllStringIndex(text, -1) {
			if name := text[at[0]:at[1]]; named[name] && !strings.HasSuffix(text[:at[0]], ".") && !strings.HasSuffix(text[:at[0]], "#") && !strings.HasPrefix(text[at[1]:], ":") {
				used[name] = modules[i]
			}
		}
	}
	if !slices.Contains(modules, "acorn.mjs") || !slices.Contains(modules, "cell.mjs") || !slices.Contains(modules, "values.mjs") || !slices.Contains(modules, "typescript.mjs") || len(modules) < 8 {
		t.Fatalf("got modules %q", modules)
	}
	for name, module := range used {
		if !slices.Contains(fixed, name) {
			t.Errorf("realm.mjs: FIXED lacks %s, which %s uses", name, module)
		}
	}
}
