package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// An item of the navigation is a page, a group, or both.
type item struct {
	Text      string `json:"text"`
	Link      string `json:"link,omitempty"`
	Collapsed *bool  `json:"collapsed,omitempty"` // nil: cannot be folded
	Items     []item `json:"items,omitempty"`
}

// docs are the pages that people write.
type docs struct {
	fsys    fs.FS             // the repository
	pages   map[string]string // files of the site, by those of the repository
	sidebar []item
}

// index is the page that the navigation is made of: each of its headings is a group, and each link
// of its lists an item.
const index = "docs/README.md"

// front is the page that the site begins with.
const front = "docs/matrix.md"

// ofRoot are the pages outside of docs.
var ofRoot = []string{"README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"}

// readDocs finds all pages and pictures, and makes the navigation.
func readDocs(fsys fs.FS) (*docs, error) {
	d := &docs{fsys: fsys, pages: map[string]string{}}
	for _, name := range ofRoot {
		d.pages[name] = "project/" + strings.ToLower(name)
	}
	err := fs.WalkDir(fsys, "docs", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		at := strings.TrimPrefix(name, "docs/")
		switch {
		case name == front:
			d.pages[name] = "index.md"
		case name == index:
			d.pages[name] = "documentation.md"
		case path.Base(name) == "README.md":
			d.pages[name] = path.Join(path.Dir(at), "index.md")
		case slices.Contains([]string{".md", ".svg", ".png"}, path.Ext(name)):
			d.pages[name] = at
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, d.navigate()
}

var (
	link = regexp.MustCompile(`\[([^\]]+)\]\(([^)#]+)[^)]*\)`)
)

// navigate makes the navigation of the index. A link to a directory becomes a group of all pages
// below it.
func (d *docs) navigate() error {
	text, err := fs.ReadFile(d.fsys, index)
	if err != nil {
		return err
	}
	d.sidebar = []item{{Text: "Overview", Items: []item{
		{Text: "What each backend can do", Link: "/"}, {Text: "README", Link: d.url("README.md")}, {Text: "All documentation", Link: d.url(index)},
	}}}
	seen := map[string]bool{index: true, front: true, "README.md": true}
	for section := range strings.SplitSeq("\n"+string(text), "\n## ") {
		name, list, _ := strings.Cut(section, "\n")
		if name == "" {
			continue // what is above the first
		}
		group := item{Text: name}
		for _, m := range link.FindAllStringSubmatch(strings.ReplaceAll(list, "\n", " "), -1) {
			if strings.Contains(m[2], ":") {
				continue // a page of others
			}
			title := strings.Join(strings.Fields(m[1]), " ")
			file := path.Join("docs", m[2])
			if _, page := d.pages[file]; !page {
				file = path.Join(file, "README.md")
			}
			if _, page := d.pages[file]; !page {
				return fmt.Errorf("%s: %s is neither a page nor a directory with a README.md", index, m[2])
			}
			if seen[file] {
				continue
			}
			seen[file] = true
			i := item{Text: strings.ToUpper(title[:1]) + title[1:], Link: d.url(file)}
			if i.Items, err = d.below(file, seen); err != nil {
				return err
			}
			if i.Items != nil {
				i.Collapsed = new(bool)
				*i.Collapsed = true
			}
			group.Items = append(group.Items, i)
		}
		d.sidebar = append(d.sidebar, group)
	}
	var missing []string
	for file := range d.pages {
		if path.Ext(file) == ".md" && !seen[file] {
			missing = append(missing, fmt.Sprintf("%s: no page leads there; link it, or its directory, in a list of %s", file, index))
		}
	}
	if missing != nil {
		slices.Sort(missing)
		return fmt.Errorf("navigation:\n%s", strings.Join(missing, "\n"))
	}
	return nil
}

// below returns the pages beside the README.md of a directory below docs.
func (d *docs) below(readme string, seen map[string]bool) (items []item, err error) {
	dir := path.Dir(readme)
	if path.Base(readme) != "README.md" || dir == "." {
		return nil, nil
	}
	files, err := fs.Glob(d.fsys, dir+"/*.md")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if seen[file] {
			continue
		}
		seen[file] = true
		title, err := d.title(file)
		if err != nil {
			return nil, err
		}
		items = append(items, item{Text: title, Link: d.url(file)})
	}
	return items, nil
}

// title is the first heading of a page, without its marks.
func (d *docs) title(file string) (string, error) {
	text, err := fs.ReadFile(d.fsys, file)
	if err != nil {
		return "", err
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	title, is := bytes.CutPrefix(first, []byte("# "))
	if !is {
		return "", fmt.Errorf("%s: does not begin with a heading", file)
	}
	number, _, _ := strings.Cut(path.Base(file), "-")
	if path.Dir(file) == "docs/decisions" {
		return number + " " + strings.ReplaceAll(string(title), "`", ""), nil
	}
	return strings.ReplaceAll(string(title), "`", ""), nil
}

// url is where the navigation leads for a file.
func (d *docs) url(file string) string {
	return "/" + strings.TrimSuffix(d.pages[file], "index.md")
}

var (
	remark = regexp.MustCompile(`(?s)<!--.*?-->\n?`)
	fence  = regexp.MustCompile("(?ms)^( *)```.*?^ *```$")
)

// text is what the generator reads for a file.
func (d *docs) text(file string) ([]byte, error) {
	text, err := fs.ReadFile(d.fsys, file)
	if err != nil || path.Ext(file) != ".md" {
		return text, err
	}
	if file == front {
		if text, err = d.front(text); err != nil {
			return nil, err
		}
	}
	return withoutComments(text), nil
}

// withoutComments removes the marks for tests, which the pages of a site would show. Those in code
// are part of it.
func withoutComments(text []byte) []byte {
	var out []byte
	at := 0
	for _, code := range fence.FindAllIndex(text, -1) {
		out = append(out, remark.ReplaceAll(text[at:code[0]], nil)...)
		out = append(out, text[code[0]:code[1]]...)
		at = code[1]
	}
	return append(out, remark.ReplaceAll(text[at:], nil)...)
}

var relativeLink = regexp.MustCompile(`\]\(([\w./-]+[)#])`)

// front is the first page: what the README begins with, its one command, and the matrix.
func (d *docs) front(matrix []byte) ([]byte, error) {
	readme, err := fs.ReadFile(d.fsys, "README.md")
	if err != nil {
		return nil, err
	}
	intro, rest, found := bytes.Cut(readme, []byte("\n## One command\n"))
	command, _, ends := bytes.Cut(rest, []byte("\n## "))
	if !found || !ends {
		return nil, fmt.Errorf("README.md: no section %q, which the site begins with", "One command")
	}
	text := slices.Concat([]byte("---\naside: false\n---\n\n"), intro, []byte("\n## One command\n"), command)
	text = relativeLink.ReplaceAll(text, []byte("](../$1")) // as from the directory of the matrix
	return slices.Concat(text, []byte("\n#"), matrix), nil
}
