package parity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/execbroker/execbroker/executor"
)

// Program is a conversation with one sandbox: cells that run one after the other.
type Program struct {
	Name     string // path of its file, with slashes; or its id
	Language executor.Language
	Module   bool   // JavaScript: the plain interpreter takes it for a module
	Doc      string // the comment at its beginning
	Cells    []Cell
	Files    map[string]string // by name below executor.Workdir; they are there before the first cell

	// Differs has, by type of backend, why the program does something else there than elsewhere.
	// The type of the plain interpreter is TypePlain.
	Differs map[string]string
}

// Cell is one run.
type Cell struct {
	Code  string
	Stdin string // empty: none
	// What the cell is expected to do. Nil: nothing is said. White space at the end of the output
	// does not count.
	Stdout   *string
	ExitCode *int
}

// Bounds of programs. What is beyond is an error.
const (
	MaxPrograms = 20_000
	maxLine     = 1 << 20 // of a program, in bytes
	maxCells    = 200
	maxErrors   = 20 // that are reported; the others are counted
)

// languages are those of programs, by the ending of the file, with what a comment begins with.
var languages = map[string]struct {
	language executor.Language
	comment  string
}{
	".py":  {executor.Python, "#"},
	".js":  {executor.JavaScript, "//"},
	".mjs": {executor.JavaScript, "//"},
	".ts":  {executor.TypeScript, "//"},
}

// Load reads the programs below a directory, in the order of their names. The ending of a file is
// its language: .py, .js, .mjs or .ts. A file that ends in .jsonl has a program in each line, see
// ReadLines. One that ends in .txtar has several files, each after a line "-- NAME --", as if they
// were in a directory of its name. Other files are left out. All errors are reported at once. No
// program at all is an error.
//
// The comment at the beginning of a program is its Doc. In it a line "differs on TYPE: why" is for
// Differs, and a line "file NAME: TEXT" for Files. A line that begins with the mark "%%" of a
// comment begins a new cell. A comment "stdin: TEXT" as the first line of a cell is its input.
// These texts are strings of JSON:
//
//	# Input is read line by line.
//	# differs on mybackend: it has no standard input.
//	# %%
//	# stdin: "Ada\n"
//	print(input())
func Load(fsys fs.FS) ([]Program, error) {
	var programs []Program
	var errs []error
	add := func(name, text string) {
		l, ok := languages[path.Ext(name)]
		if !ok {
			return
		}
		p := Program{Name: name, Language: l.language, Module: path.Ext(name) == ".mjs"}
		err := p.parse(text, l.comment)
		if err == nil {
			err = p.check()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		programs = append(programs, p)
	}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		ext := path.Ext(name)
		if err != nil || d.IsDir() || ext != ".jsonl" && ext != ".txtar" && languages[ext].comment == "" {
			return err
		}
		f, err := fsys.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if ext == ".jsonl" {
			more, err := ReadLines(f)
			for _, p := range more {
				p.Name = strings.TrimSuffix(name, ext) + "/" + p.Name
				programs = append(programs, p)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
			return nil
		}
		text, err := io.ReadAll(io.LimitReader(f, maxLine+1))
		switch {
		case err != nil:
			return err
		case len(text) > maxLine:
			errs = append(errs, fmt.Errorf("%s: more than %d bytes", name, maxLine))
		case ext == ".txtar":
			for _, f := range txtar.Parse(text).Files {
				add(strings.TrimSuffix(name, ext)+"/"+f.Name, string(f.Data))
			}
		default:
			add(name, string(text))
		}
		return nil
	})
	if err == nil && len(programs) == 0 && len(errs) == 0 {
		err = errors.New("no programs: files that end in .py, .js, .mjs, .ts, .jsonl or .txtar")
	}
	slices.SortStableFunc(programs, func(a, b Program) int { return strings.Compare(a.Name, b.Name) })
	errs = append(errs, err, unique(programs))
	return programs, fewer(errs)
}

// unique returns an error for programs of the same name, and for too many.
func unique(programs []Program) error {
	if len(programs) > MaxPrograms {
		return fmt.Errorf("more than %d programs", MaxPrograms)
	}
	var errs []error
	seen := map[string]bool{}
	for _, p := range programs {
		if seen[p.Name] {
			errs = append(errs, fmt.Errorf("two programs are called %q", p.Name))
		}
		seen[p.Name] = true
	}
	return errors.Join(errs...)
}

// fewer joins errors, and counts those that are too many to be read.
func fewer(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(errs[:maxErrors], fmt.Errorf("and %d more errors", more))
	}
	return errors.Join(errs...)
}

// check bounds a program.
func (p *Program) check() error {
	if len(p.Cells) > maxCells {
		return fmt.Errorf("%d cells, more than %d", len(p.Cells), maxCells)
	}
	for name := range p.Files {
		if !fs.ValidPath(name) || name == "." {
			return fmt.Errorf("file %q: want a name below the working directory", name)
		}
	}
	return nil
}

// parse takes a file apart. Code keeps its comments. What comes before the first mark is a cell if
// it has more than comments.
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
	p.Differs, p.Files = map[string]string{}, map[string]string{}
	for line := range strings.Lines(head) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), comment)
		if !ok {
			break
		}
		text = strings.TrimSpace(text)
		key, value, ok := strings.Cut(text, ": ")
		typ, differs := strings.CutPrefix(key, "differs on ")
		name, file := strings.CutPrefix(key, "file ")
		switch {
		case differs && (!ok || typ == "" || value == ""):
			return fmt.Errorf("%q: want \"differs on TYPE: why\"", text)
		case differs:
			p.Differs[typ] = value
		case file && ok && strings.HasPrefix(value, `"`):
			var content string
			if err := json.Unmarshal([]byte(value), &content); err != nil {
				return fmt.Errorf("file %s: %w; it is a string of JSON", name, err)
			}
			p.Files[name] = content
		default:
			doc = append(doc, text)
		}
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
