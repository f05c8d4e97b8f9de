package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/doc"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/execbroker/execbroker"

// reference has the pages of the packages that other modules can import.
type reference struct {
	pages   map[string]string // text by file of the site
	sidebar item
}

// A goPackage is a package of this repository, in whatever module.
type goPackage struct {
	*doc.Package
	dir   string // from the root
	files *token.FileSet
	build *build
}

// private are the names of directories whose packages nobody imports: programs, those of the tests,
// and what Go forbids.
var private = []string{"internal", "testdata", "examples", "cmd", "docs", "clients", "node_modules", "site"}

// reference reads the comments of all packages.
func (b build) reference() (*reference, error) {
	r := &reference{pages: map[string]string{}, sidebar: item{Text: "API", Link: "/api/", Collapsed: new(bool)}}
	*r.sidebar.Collapsed = true
	var all []goPackage
	err := filepath.WalkDir(b.root, func(dir string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		if dir != b.root && (strings.HasPrefix(e.Name(), ".") || slices.Contains(private, e.Name())) {
			return filepath.SkipDir
		}
		p, err := b.parse(dir)
		if err != nil || p == nil {
			return err
		}
		all = append(all, *p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(p, q goPackage) int { return cmp.Compare(p.dir, q.dir) })
	known := map[string]goPackage{}
	for _, p := range all {
		known[p.ImportPath] = p
	}
	var list strings.Builder
	list.WriteString("---\naside: false\n---\n\n# API\n\nThe packages that other modules can import, by their comments.\n\n| Package | |\n| --- | --- |\n")
	for _, p := range all {
		name := cmp.Or(p.dir, p.Name)
		fmt.Fprintf(&list, "| [%s](/%s) | %s |\n", name, p.page(), strings.ReplaceAll(escape(p.Synopsis(p.Doc)), "|", `\|`))
		r.sidebar.Items = append(r.sidebar.Items, item{Text: name, Link: "/" + p.page()})
		text, err := p.markdown(known)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		r.pages[p.page()] = text
	}
	r.pages["api/index.md"] = list.String()
	return r, nil
}

// parse reads the package of a directory, with its examples. It is nil for programs and where there
// is none. Files are those of Linux, where all backends are.
func (b build) parse(dir string) (*goPackage, error) {
	system := gobuild.Default
	system.GOOS, system.GOARCH, system.CgoEnabled = "linux", "amd64", false
	found, err := system.ImportDir(dir, 0)
	if none := (*gobuild.NoGoError)(nil); errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if found.Name == "main" || len(found.GoFiles) == 0 {
		return nil, nil
	}
	p := &goPackage{files: token.NewFileSet(), build: &b}
	var files []*ast.File
	for _, name := range slices.Concat(found.GoFiles, found.TestGoFiles, found.XTestGoFiles) {
		f, err := parser.ParseFile(p.files, filepath.Join(dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	rel, err := filepath.Rel(b.root, dir)
	if err != nil {
		return nil, err
	}
	path := module
	if rel != "." {
		p.dir = filepath.ToSlash(rel)
		path += "/" + p.dir
	}
	p.Package, err = doc.NewFromFiles(p.files, files, path)
	return p, err
}

// page is the file of the site.
func (p goPackage) page() string { return "api/" + cmp.Or(p.dir, p.Name) + ".md" }

// markdown is the page of a package. Anchors are those of other references of Go: Name and
// Type.Method.
func (p goPackage) markdown(known map[string]goPackage) (string, error) {
	w := &writer{goPackage: p, printer: p.Printer()}
	w.printer.HeadingLevel = 2
	w.printer.HeadingID = func(*comment.Heading) string { return "" }
	w.printer.DocLinkURL = func(l *comment.DocLink) string {
		to, ok := known[cmp.Or(l.ImportPath, p.ImportPath)]
		if !ok {
			return "" // of the standard library, or of a package that nobody imports
		}
		return "/" + to.page() + to.anchor(l.Recv, l.Name)
	}
	fmt.Fprintf(w, "# %s\n\n```go\nimport %q\n```\n\n", cmp.Or(p.dir, p.Name), p.ImportPath)
	w.text(p.Doc)
	w.examples(p.Examples)
	if len(p.Consts)+len(p.Vars) > 0 {
		w.WriteString("## Constants and variables ⟦#values⟧\n\n")
		w.values(p.Consts)
		w.values(p.Vars)
	}
	w.funcs("##", "", p.Funcs)
	for _, t := range p.Types {
		fmt.Fprintf(w, "## type %s ⟦#%s⟧\n\n", t.Name, t.Name)
		w.declaration(t.Decl)
		w.text(t.Doc)
		w.examples(t.Examples)
		w.values(t.Consts)
		w.values(t.Vars)
		w.funcs("###", "", t.Funcs)
		w.funcs("###", t.Name+".", t.Methods)
	}
	return w.String(), w.err
}

// anchor is where the page explains a name: at its heading, or at that of what it is part of.
func (p goPackage) anchor(receiver, name string) string {
	for _, t := range p.Types {
		if t.Name == cmp.Or(receiver, name) {
			if receiver != "" && slices.ContainsFunc(t.Methods, func(f *doc.Func) bool { return f.Name == name }) {
				return "#" + receiver + "." + name
			}
			return "#" + t.Name // or a field
		}
		if slices.ContainsFunc(t.Funcs, func(f *doc.Func) bool { return f.Name == name }) {
			return "#" + name
		}
		for _, v := range slices.Concat(t.Consts, t.Vars) {
			if slices.Contains(v.Names, name) {
				return "#" + t.Name
			}
		}
	}
	if slices.ContainsFunc(p.Funcs, func(f *doc.Func) bool { return f.Name == name }) {
		return "#" + name
	}
	for _, v := range slices.Concat(p.Consts, p.Vars) {
		if slices.Contains(v.Names, name) {
			return "#values"
		}
	}
	return ""
}

// A writer writes the page of a package.
type writer struct {
	goPackage
	bytes.Buffer
	printer *comment.Printer
	err     error
}

func (w *writer) text(comment string) {
	w.Write(w.printer.Markdown(w.Parser().Parse(comment)))
	w.WriteString("\n")
}

func (w *writer) funcs(level, receiver string, all []*doc.Func) {
	for _, f := range all {
		name := f.Name
		if f.Recv != "" {
			name = "(" + f.Recv + ") " + name
		}
		fmt.Fprintf(w, "%s func %s ⟦#%s%s⟧\n\n", level, escape(name), receiver, f.Name)
		w.declaration(f.Decl)
		w.text(f.Doc)
		w.examples(f.Examples)
	}
}

func (w *writer) values(all []*doc.Value) {
	for _, v := range all {
		w.declaration(v.Decl)
		w.text(v.Doc)
	}
}

// declaration writes a declaration, and where it is.
func (w *writer) declaration(d ast.Decl) {
	w.code(d)
	at := w.files.Position(d.Pos())
	file, err := filepath.Rel(w.build.root, at.Filename)
	w.err = cmp.Or(w.err, err)
	fmt.Fprintf(w, "[%s](%s/blob/%s/%s#L%d)\n\n", filepath.Base(file), repository, w.build.ref(), filepath.ToSlash(file), at.Line)
}

func (w *writer) code(node any) {
	var text bytes.Buffer
	w.err = cmp.Or(w.err, format.Node(&text, w.files, node))
	shown := strings.TrimSpace(text.String())
	if body, block := strings.CutPrefix(shown, "{\n"); block { // of an example
		shown = strings.ReplaceAll(strings.TrimSuffix(body, "\n}"), "\n\t", "\n")
		shown = strings.TrimPrefix(shown, "\t")
	}
	fmt.Fprintf(w, "```go\n%s\n```\n\n", shown)
}

func (w *writer) examples(all []*doc.Example) {
	for _, e := range all {
		name := "Example"
		if e.Suffix != "" {
			name += " (" + strings.ReplaceAll(e.Suffix, "_", " ") + ")"
		}
		fmt.Fprintf(w, "**%s**\n\n", name)
		w.text(e.Doc)
		var shown any = &printer.CommentedNode{Node: e.Code, Comments: e.Comments}
		if e.Play != nil {
			shown = e.Play // with its imports
		}
		w.code(shown)
		if e.Output != "" {
			fmt.Fprintf(w, "prints\n\n```text\n%s```\n\n", strings.TrimSuffix(e.Output, "\n")+"\n")
		}
	}
}

// escape makes text of a comment or declaration plain text of Markdown.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "<", `\<`).Replace(text)
}
