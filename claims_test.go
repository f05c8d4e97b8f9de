package execbroker_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
)

// Every claim about security names the test that holds it. docs/security/README.md says how. A
// block is a paragraph, an item of a list or a row of a table.
func TestClaimsAboutSecurity(t *testing.T) {
	pages, err := filepath.Glob("docs/security/*.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := newTests()
	for _, page := range append(pages, "SECURITY.md") {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			for _, b := range textBlocks(readFile(t, page)) {
				names, err := b.claims()
				if err != nil {
					t.Errorf("%s:%d: %v: %.100q", page, b.line, err, b.text)
				}
				for _, name := range names {
					if err := tests.find(name); err != nil {
						t.Errorf("%s:%d: %v", page, b.line, err)
					}
				}
			}
		})
	}
}

// What is said of this project beside others is shown by a page or by a test that exists.
func TestClaimsBesideOthers(t *testing.T) { shownBy(t, "docs/comparison.md") }

// Each line of what quotas reserve is shown by a test that exists.
func TestClaimsAboutQuotas(t *testing.T) { shownBy(t, "docs/guides/quotas-and-costs.md") }

// shownBy checks the tables of a page that have the column "Shown by".
func shownBy(t *testing.T, page string) {
	t.Helper()
	shown := regexp.MustCompile("`([\\w/]+\\.Test\\w+)`|\\]\\(")
	tests, claims, ours := newTests(), 0, false
	for line := range strings.Lines(readFile(t, page)) {
		row := strings.HasPrefix(line, "|")
		if ours = row && (ours || strings.Contains(line, "| Shown by |")); !ours || strings.Contains(line, "| Shown by |") || strings.HasPrefix(line, "|---") {
			continue
		}
		claims++
		found := shown.FindAllStringSubmatch(line, -1)
		if found == nil {
			t.Errorf("%s: nothing shows %q", page, line)
		}
		for _, m := range found {
			if m[1] == "" {
				continue // a page
			}
			if err := tests.find(m[1]); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if claims < 10 {
		t.Errorf("%s: only %d claims were found", page, claims)
	}
}

// textBlock is a part of a page that may claim something.
type textBlock struct {
	line  int // of its beginning
	text  string
	table bool // a row, and text is what it has in the column of tests, or that the table is followed by
}

var (
	heading    = regexp.MustCompile(`^#+ `)
	item       = regexp.MustCompile(`^ *([-*]|\d+\.) `)
	references = regexp.MustCompile(`\((tests?|tests? of each row): (.*)\)$`)
	untested   = regexp.MustCompile(`\(not tested: [^()]+\)$`)
	reference  = regexp.MustCompile("^`([^`]+)`$")
)

// noClaim ends a block that says how to read the page, or what somebody should do, and nothing that
// could be false.
const noClaim = "<!-- no claim -->"

// textBlocks returns the blocks of a page in Markdown, without headings and fenced code.
func textBlocks(page string) (blocks []textBlock) {
	var current *textBlock
	var table []textBlock // the rows of the last one, if it has no column of tests
	column, rows := -1, 0
	fenced := false
	end := func() {
		if current == nil {
			return
		}
		current.text = strings.Join(strings.Fields(current.text), " ")
		if table != nil { // what follows a table may say what holds all of its rows
			text := ""
			if m := references.FindStringSubmatch(current.text); m != nil && strings.HasSuffix(m[1], " of each row") && m[0] == current.text {
				text = m[2]
			} else if untested.FindString(current.text) == current.text {
				text = strings.Trim(current.text, "()")
			}
			for i := range table {
				table[i].text = text
			}
			blocks, table = append(blocks, table...), nil
		}
		blocks, current = append(blocks, *current), nil
	}
	for i, line := range strings.Split(page+"\n# end", "\n") {
		if strings.HasPrefix(line, "```") {
			end()
			fenced, rows = !fenced, 0
			continue
		}
		if fenced {
			continue
		}
		row := strings.HasPrefix(line, "|")
		switch {
		case row:
			end()
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " |")
			switch rows++; rows {
			case 1:
				column = slices.IndexFunc(cells, func(c string) bool { c = strings.TrimSpace(c); return c == "Test" || c == "Tests" })
			case 2: // the line below the names of columns
			default:
				b := textBlock{line: i + 1, table: true}
				if column < 0 {
					table = append(table, b)
				} else if column < len(cells) {
					b.text = strings.TrimSpace(cells[column])
					blocks = append(blocks, b)
				} else {
					blocks = append(blocks, b)
				}
			}
		case strings.TrimSpace(line) == "":
			end()
		case heading.MatchString(line):
			end()
			blocks, table = append(blocks, table...), nil
		default:
			if item.MatchString(line) {
				end()
			}
			if current == nil {
				current = &textBlock{line: i + 1}
			}
			current.text += line + "\n"
		}
		if !row {
			rows = 0
		}
	}
	return blocks
}

// claims returns the names of tests that a block ends with.
func (b textBlock) claims() ([]string, error) {
	list := b.text
	if b.table {
		if strings.HasPrefix(list, "not tested: ") {
			return nil, nil
		}
	} else {
		if strings.HasSuffix(b.text, noClaim) || untested.MatchString(b.text) {
			return nil, nil
		}
		m := references.FindStringSubmatch(b.text)
		if m == nil {
			return nil, fmt.Errorf("no test is named at the end, neither is it said why there is none, nor that nothing is claimed")
		}
		list = m[2]
	}
	var names []string
	for part := range strings.SplitSeq(list, ",") {
		m := reference.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return nil, fmt.Errorf("%q is not the name of a test in backquotes", strings.TrimSpace(part))
		}
		names = append(names, m[1])
	}
	return names, nil
}

// tests finds tests by name, in the source.
type tests struct {
	cases    map[string]bool // of the suite
	packages map[string]*parsedPackage
}

// parsedPackage is the source of a package: its files, with or without those of tests.
type parsedPackage struct {
	decls map[string][]decl // by the name of what is declared; methods by theirs
	tests map[string]bool
}

type decl struct {
	node    ast.Node
	imports map[string]string // of its file: directories of this module by the name of the package
}

func newTests() *tests {
	ts := &tests{cases: map[string]bool{}, packages: map[string]*parsedPackage{}}
	for _, c := range conformance.Cases(executor.Python, executor.JavaScript) {
		ts.cases[c.ID] = true
		ts.cases[strings.TrimPrefix(c.ID, string(c.Language)+"/")] = true
	}
	return ts
}

var testName = regexp.MustCompile(`^(?:(.+)\.)?((?:Test|Fuzz)\w*)(?:/(.+))?$`)

// find returns an error unless there is a test by this name: "suite:CASE", or a directory, a test
// and perhaps subtests. The name of a subtest has to be written down in the test or in what the
// test uses.
func (ts *tests) find(name string) error {
	if id, ok := strings.CutPrefix(name, "suite:"); ok {
		if !ts.cases[id] {
			return fmt.Errorf("the suite has no case %q", id)
		}
		return nil
	}
	m := testName.FindStringSubmatch(name)
	if m == nil {
		return fmt.Errorf("%q is neither DIRECTORY.TestNAME nor suite:CASE", name)
	}
	dir, test, subtests := cmp.Or(m[1], "."), m[2], m[3]
	p, err := ts.parse(dir, true)
	if err != nil {
		return err
	}
	if !p.tests[test] {
		return fmt.Errorf("%s has no test %s", dir, test)
	}
	if subtests == "" {
		return nil
	}
	words := map[string]bool{}
	ts.words(dir, true, test, words, map[string]bool{})
	for sub := range strings.SplitSeq(subtests, "/") {
		if !words[sub] {
			return fmt.Errorf("%s.%s has no subtest %q", dir, test, sub)
		}
	}
	return nil
}

// parse reads the source of a package.
func (ts *tests) parse(dir string, withTests bool) (*parsedPackage, error) {
	key := fmt.Sprint(dir, withTests)
	if p := ts.packages[key]; p != nil {
		return p, nil
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	p := &parsedPackage{decls: map[string][]decl{}, tests: map[string]bool{}}
	for _, f := range files {
		isTest := strings.HasSuffix(f.Name(), "_test.go")
		if !strings.HasSuffix(f.Name(), ".go") || isTest && !withTests {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, f.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		imports := map[string]string{}
		for _, i := range file.Imports {
			if name, _ := strconv.Unquote(i.Path.Value); strings.HasPrefix(name, module+"/internal/") {
				local := path.Base(name)
				if i.Name != nil {
					local = i.Name.Name
				}
				imports[local] = strings.TrimPrefix(name, module+"/")
			}
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				p.decls[d.Name.Name] = append(p.decls[d.Name.Name], decl{d, imports})
				if isTest && d.Recv == nil && (strings.HasPrefix(d.Name.Name, "Test") || strings.HasPrefix(d.Name.Name, "Fuzz")) {
					p.tests[d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok {
						for _, n := range v.Names {
							p.decls[n.Name] = append(p.decls[n.Name], decl{v, imports})
						}
					}
				}
			}
		}
	}
	ts.packages[key] = p
	return p, nil
}

// words collects the strings that are written down in a declaration and in all that it uses in this
// module.
func (ts *tests) words(dir string, withTests bool, name string, found, seen map[string]bool) {
	if key := fmt.Sprint(dir, withTests, ".", name); seen[key] {
		return
	} else {
		seen[key] = true
	}
	p, err := ts.parse(dir, withTests)
	if err != nil {
		return
	}
	for _, d := range p.decls[name] {
		ast.Inspect(d.node, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					found[s] = true
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && d.imports[x.Name] != "" {
					ts.words(d.imports[x.Name], false, n.Sel.Name, found, seen)
					return false
				}
			case *ast.Ident:
				ts.words(dir, withTests, n.Name, found, seen)
			}
			return true
		})
	}
}

// The check of claims is checked itself.
func TestClaims(t *testing.T) {
	blocks := textBlocks(`# Title, which claims nothing

It holds,
twice. (test: ` + "`docker.TestOutlive/command`" + `)

It holds. And that is it

- one. (not tested: it cannot be)
- two (tests: ` + "`suite:ttl/idle`, `docker.TestNone`" + `)
  goes on

Read this. <!-- no claim -->

| A | Test |
|---|---|
| b | ` + "`TestClaims`" + ` |
| c | |
| d | not tested: why |
` + "```\ncode\n```" + `
| A | B |
|---|---|
| c | d |
| e | f |

(test of each row: ` + "`TestClaims`" + `)

| A | B |
|---|---|
| g | h |
`)
	var got []string
	for _, b := range blocks {
		names, err := b.claims()
		got = append(got, fmt.Sprintf("%d %v %v", b.line, names, err != nil))
	}
	want := []string{
		"3 [docker.TestOutlive/command] false", "6 [] true", "8 [] false", "9 [] true", "12 [] false", "16 [TestClaims] false", "17 [] true",
		"18 [] false", "24 [TestClaims] false", "25 [TestClaims] false", "27 [TestClaims] false", "31 [] true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, ok := range map[string]bool{
		"TestClaims": true, "TestReadmeInFreshClone/3": false, "TestNone": false, "docker.FuzzStdio": true, "docker.TestOutlive/command": true,
		"docker.TestOutlive/no" + "-such": false, "docker.TestAttacks/kernel/bpf": true, "nowhere.TestX": false, "suite:ttl/idle": true, "suite:ttl/none": false,
		"suite:python/ttl/idle": true, "something": false,
	} {
		if err := newTests().find(name); (err == nil) != ok {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
