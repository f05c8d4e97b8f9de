package main

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"
)

// Every page of this repository is in the navigation, once.
func TestNavigation(t *testing.T) {
	d, err := readDocs(os.DirFS("../../.."))
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]int{}
	var walk func(items []item)
	walk = func(items []item) {
		for _, i := range items {
			linked[i.Link]++
			walk(i.Items)
		}
	}
	walk(d.sidebar)
	for file := range d.pages {
		if got := linked[d.url(file)]; path.Ext(file) == ".md" && got != 1 {
			t.Errorf("%s: got %d items, want 1", file, got)
		}
	}
	var groups []string
	for _, i := range d.sidebar {
		groups = append(groups, i.Text)
	}
	if got, want := strings.Join(groups, " "), "Overview Start Operate Integrate Extend Reference"; got != want {
		t.Errorf("got groups %q, want %q", got, want)
	}
}

// repositoryOf is a small repository, with changes to its files; "" removes one.
func repositoryOf(changes map[string]string) fs.FS {
	files := map[string]string{
		"README.md":                  "# it\n\nIntro to [docs](docs/README.md).\n\n## One command\n\nRun [it](cmd/it).\n\n## More\n\nNo.\n",
		"SECURITY.md":                "# Security\n",
		"CONTRIBUTING.md":            "# Contributing\n",
		"CHANGELOG.md":               "# Changes\n",
		"docs/README.md":             "# Documentation\n\n## Start\n\n- [Begin](guides/begin.md): a\n  start, and [decisions](decisions)\n- [Security](../SECURITY.md), [contributing](../CONTRIBUTING.md),\n  [what\n  changed](../CHANGELOG.md#now)\n",
		"docs/matrix.md":             "# Matrix\n\n| a |\n",
		"docs/guides/begin.md":       "# Begin\n\n<!-- tested: x -->\n```html\n<!-- kept -->\n```\n",
		"docs/decisions/README.md":   "# Decisions\n",
		"docs/decisions/0001-why.md": "# Why `it` is\n",
	}
	fsys := fstest.MapFS{}
	for _, all := range []map[string]string{files, changes} {
		for name, text := range all {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
			if text == "" {
				delete(fsys, name)
			}
		}
	}
	return fsys
}

func TestPagesOfNobody(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"new-guide", "docs/guides/new.md", "# New\n", "docs/guides/new.md: no page leads there"},
		{"new-directory", "docs/more/a.md", "# A\n", "docs/more/a.md: no page leads there"},
		{"gone", "docs/guides/begin.md", "", "guides/begin.md is neither a page nor a directory"},
		{"no-heading", "docs/decisions/0002-no.md", "No.\n", "docs/decisions/0002-no.md: does not begin with a heading"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := readDocs(repositoryOf(map[string]string{c.file: c.text})); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	d, err := readDocs(repositoryOf(map[string]string{"docs/decisions/0002-new.md": "# New\n"}))
	if err != nil {
		t.Fatal(err)
	}
	start := d.sidebar[1].Items
	if len(start) != 5 || start[1].Text != "Decisions" || len(start[1].Items) != 2 || start[1].Items[1].Text != "0002 New" || start[1].Items[1].Link != "/decisions/0002-new.md" || start[4].Text != "What changed" {
		t.Errorf("got %+v", start)
	}
}

func TestText(t *testing.T) {
	d, err := readDocs(repositoryOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"docs/guides/begin.md": "# Begin\n\n```html\n<!-- kept -->\n```\n",
		"docs/matrix.md":       "---\naside: false\n---\n\n# it\n\nIntro to [docs](../docs/README.md).\n\n## One command\n\nRun [it](../cmd/it).\n\n## Matrix\n\n| a |\n",
	} {
		if got, err := d.text(file); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", file, got, err, want)
		}
	}
}

// Every link of a page to a file of this repository finds it. TestSite, which takes minutes, checks
// anchors, too.
func TestLinkedFiles(t *testing.T) {
	root := os.DirFS("../../..")
	d, err := readDocs(root)
	if err != nil {
		t.Fatal(err)
	}
	for file := range d.pages {
		if path.Ext(file) != ".md" {
			continue
		}
		text, err := fs.ReadFile(root, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(fence.ReplaceAll(text, nil), -1) {
			if to := string(m[2]); !strings.Contains(to, ":") {
				if _, err := fs.Stat(root, path.Join(path.Dir(file), to)); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
}
