package parity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// Program is a conversation with one sandbox: cells that run one after the other.
type Program struct {
	Name     string // path of its file, with slashes
	Language executor.Language
	Doc      string // the comment at its beginning
	Cells    []Cell

	// Differs has, by type of backend, why the program does something else there than elsewhere.
	Differs map[string]string
}

// Cell is one run.
type Cell struct {
	Code  string
	Stdin string // empty: none
}

// languages are those of programs, by the ending of the file, with what a comment begins with.
var languages = map[string]struct {
	language executor.Language
	comment  string
}{
	".py":  {executor.Python, "#"},
	".js":  {executor.JavaScript, "//"},
	".mjs": {executor.JavaScript, "//"},
}

// Load reads the programs below a directory, in the order of their names. The ending of a file is its language: .py, .js or .mjs; other files
// are left out. All mistakes are reported at once. No program at all is an error.
//
// The comment at the beginning of a file is its Doc. In it a line "differs on TYPE: why" is for Differs. A line that begins with the mark "%%"
// of a comment begins a new cell. A comment "stdin: TEXT" as the first line of a cell is its input, a string of JSON:
//
//	# Input is read line by line.
//	# differs on mybackend: it has no standard input.
//	# %%
//	# stdin: "Ada\n"
//	print(input())
func Load(fsys fs.FS) ([]Program, error) {
	var programs []Program
	var errs []error
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		l, ok := languages[path.Ext(name)]
		if d.IsDir() || !ok {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		p := Program{Name: name, Language: l.language}
		if err := p.parse(string(text), l.comment); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		programs = append(programs, p)
		return nil
	})
	if err == nil && len(programs) == 0 {
		err = errors.New("no programs: files that end in .py, .js or .mjs")
	}
	slices.SortFunc(programs, func(a, b Program) int { return strings.Compare(a.Name, b.Name) })
	return programs, errors.Join(append(errs, err)...)
}

// parse takes a file apart. Code keeps its comments. What comes before the first mark is a cell if it has more than comments.
func (p *Program) parse(text, comment string) error {
	mark := "\n" + comment + " %%"
	parts := strings.Split("\n"+text, mark)
	parts[0] = strings.TrimPrefix(parts[0], "\n")
	if err := p.header(parts[0], comment); err != nil {
		return err
	}
	for i, part := range parts {
		switch {
		case i > 0: // what follows the mark in its line is a title
			_, part, _ = strings.Cut(part, "\n")
		case len(parts) > 1 && onlyComments(part, comment):
			continue
		}
		c := Cell{Code: part}
		first, _, _ := strings.Cut(part, "\n")
		if value, ok := strings.CutPrefix(first, comment+" stdin: "); ok {
			if err := json.Unmarshal([]byte(value), &c.Stdin); err != nil {
				return fmt.Errorf("cell %d: stdin: %w; it is a string of JSON", len(p.Cells)+1, err)
			}
		}
		p.Cells = append(p.Cells, c)
	}
	return nil
}

// header reads the comment at the beginning.
func (p *Program) header(head, comment string) error {
	var doc []string
	for line := range strings.Lines(head) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), comment)
		if !ok {
			break
		}
		text = strings.TrimSpace(text)
		rest, ok := strings.CutPrefix(text, "differs on ")
		if !ok {
			doc = append(doc, text)
			continue
		}
		typ, why, ok := strings.Cut(rest, ": ")
		if !ok || typ == "" || why == "" {
			return fmt.Errorf("%q: want \"differs on TYPE: why\"", text)
		}
		if p.Differs == nil {
			p.Differs = map[string]string{}
		}
		p.Differs[typ] = why
	}
	p.Doc = strings.Join(doc, " ")
	return nil
}

// onlyComments reports whether a text has nothing to run.
func onlyComments(text, comment string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, comment) {
			return false
		}
	}
	return true
}
