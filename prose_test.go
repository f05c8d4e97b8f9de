package execbroker_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// columns is where a line of prose ends at the latest.
const columns = 100

var (
	linkDefinition = regexp.MustCompile(`^ *\[[^\]]+\]: `)
	beginOfLine    = regexp.MustCompile(`^ *([-*+] +|\d+[.)] +|#+ +|> *)*`)
)

// Prose is read in editors and in diffs. Tables, code, comments for programs and what cannot be
// broken, such as a long link, are as wide as they are.
func TestProseInDocuments(t *testing.T) {
	for _, name := range files(t) {
		if path.Ext(name) != ".md" || written(name) {
			continue
		}
		for _, n := range longLines(readFile(t, name)) {
			t.Errorf("%s:%d: break the line, prose has at most %d columns", name, n, columns)
		}
	}
}

// written reports whether a program writes a document from what a run of the suite has found.
func written(name string) bool {
	return strings.HasPrefix(name, "docs/reports/") && name != "docs/reports/README.md" || strings.Contains(name, "/testdata/")
}

// longLines returns the numbers of the lines of prose in Markdown that are too long.
func longLines(text string) (found []int) {
	fence := "" // that ends the code
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case fence != "":
			if strings.TrimRight(trimmed, " ") == fence {
				fence = ""
			}
		case strings.HasPrefix(trimmed, "```"):
			fence = trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
		case strings.HasPrefix(trimmed, "|"), linkDefinition.MatchString(line),
			strings.HasPrefix(trimmed, "<!--") && strings.HasSuffix(trimmed, "-->"):
		case utf8.RuneCountInString(line) > columns && strings.Contains(line[len(beginOfLine.FindString(line)):], " "):
			found = append(found, n)
		}
	}
	return found
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("word ", 20) // 100 columns, the last of them a space
	for _, c := range []struct {
		name, text string
		want       []int
	}{
		{"short", long[:99] + "\n" + long[:95] + "wör\n", nil},
		{"paragraph", "a\n\n" + long + "b\n" + long + "c\n", []int{3, 4}},
		{"no end of the line", long + "b", []int{1}},
		{"item", "- " + long + "\n  " + long + "\n1. " + long + "\n", []int{1, 2, 3}},
		{"heading", "## " + long + "\n", []int{1}},
		{"quotation", "> " + long + "\n", []int{1}},
		{"table", "| " + long + " |\n", nil},
		{"code", "```sh\n" + long + "b\n```\n" + long + "b\n", []int{4}},
		{"code with fences", "````\n```\n" + long + "b\n```\n````\n" + long + "b\n", []int{6}},
		{"indented code", "- a\n  ```\n  " + long + "b\n  ```\n  " + long + "b\n", []int{5}},
		{"comment", "<!-- not run: " + long + "-->\n", nil},
		{"comment at the end", long + "b <!-- no claim -->\n", []int{1}},
		{"definition of a link", "[a]: https://example.org/" + long + "b\n", nil},
		{"one word", "- [a](https://example.org/" + strings.Repeat("a", columns) + ")\n", nil},
		{"bytes", strings.Repeat("äöüß ", 19) + "ende\n", nil},
	} {
		if got := longLines(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
