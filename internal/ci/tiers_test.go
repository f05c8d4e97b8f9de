package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/executor"
)

var update = flag.Bool("update", false, "renew the tiers in testdata/proofs.txt")

// suites are the tests with a subtest for each case of the suite, and the languages that they run
// it in.
var suites = []struct {
	dir, test string
	languages []executor.Language
}{
	{"bubblewrap", "TestConformance", []executor.Language{executor.Python, executor.JavaScript}},
	{"docker", "TestConformance", []executor.Language{executor.Python, executor.JavaScript}},
	{"e2b", "TestConformance", []executor.Language{executor.Python, executor.JavaScript}},
	{"e2b", "TestConformanceOfCodeInterpreter", []executor.Language{executor.Python}},
	{"flymachines", "TestConformance", []executor.Language{executor.Python, executor.JavaScript}},
	{"kubernetes", "TestConformance", []executor.Language{executor.Python, executor.JavaScript}},
	{"kubernetes", "TestConformanceEmulated", []executor.Language{executor.Python, executor.JavaScript}},
	{"modal", "TestConformance", []executor.Language{executor.Python, executor.JavaScript}},
	{"pyodide", "TestConformance", []executor.Language{executor.Python, executor.JavaScript}},
	{"examples/stateless", "TestConformance", []executor.Language{executor.Python}},
	{"examples/thirdparty", "TestConformance", []executor.Language{executor.Python, executor.JavaScript}},
	{"runner/sshtest", "TestConformance", []executor.Language{executor.Python, executor.JavaScript}},
	{"conformance/conformancetest", "TestOverAProcessBoundary", []executor.Language{executor.Python}},
}

// attemptFiles are those with the tables of attempts to get out of a sandbox.
var attemptFiles = []string{"pyodide/escape_*_test.go", "internal/attempttest/*.go"}

// A proof is a test function, a case of a suite, a planted fault, an attempt to get out of a
// sandbox, or a guide that is followed.
type proof struct{ dir, name string }

// proofs lists those that there are, without building or running anything.
func proofs(t *testing.T) []proof {
	t.Helper()
	var all []proof
	found, err := functions(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		for _, name := range p.functions {
			all = append(all, proof{directory(p.ImportPath), name})
		}
	}
	for _, s := range suites {
		for _, c := range conformance.Cases(s.languages...) {
			all = append(all, proof{s.dir, s.test + "/" + c.ID})
		}
	}
	for _, dir := range []string{"pyodide", "conformance/conformancetest"} {
		all = append(all, proof{dir, "TestFaults/none"})
		for _, f := range conformancetest.Faults() {
			all = append(all, proof{dir, "TestFaults/" + f.Name})
		}
	}
	for _, pattern := range attemptFiles {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			dir := filepath.Dir(name)
			for _, a := range attempts(t, name) {
				if dir == "internal/attempttest" { // what tests make them is decided by their tables
					all = append(all, proof{dir, "attempt/" + a})
					continue
				}
				language := "python"
				if strings.Contains(name, "javascript") {
					language = "javascript"
				}
				for _, layer := range []string{"none", "namespaces", "bubblewrap"} {
					all = append(all, proof{dir, "TestEscape/" + language + "/" + layer + "/" + a})
				}
			}
		}
	}
	guides, err := filepath.Glob("docs/guides/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range guides {
		all = append(all, proof{"docs/guides", "TestGuides/" + strings.TrimSuffix(filepath.Base(name), ".md")})
	}
	for _, name := range inEachRoot(t) {
		all = append(all, proof{"runner", name + "/host"})
		for _, r := range roots {
			all = append(all, proof{"runner", name + "/" + r.Image})
		}
	}
	return all
}

// inEachRoot returns the tests of runner with a subtest for each system that they run on.
func inEachRoot(t *testing.T) (tests []string) {
	t.Helper()
	files, err := filepath.Glob("runner/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			for _, s := range fn.Body.List {
				if e, ok := s.(*ast.ExprStmt); ok {
					if call, ok := e.X.(*ast.CallExpr); ok && strings.HasPrefix(fmt.Sprint(call.Fun), "each") {
						tests = append(tests, fn.Name.Name)
					}
				}
			}
		}
	}
	return tests
}

// attempts returns the names in the values of type []attempt or []Attempt in a file.
func attempts(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		list, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if of, ok := list.Type.(*ast.ArrayType); !ok || !strings.EqualFold(fmt.Sprint(of.Elt), "attempt") {
			return true
		}
		for _, e := range list.Elts {
			a, ok := e.(*ast.CompositeLit)
			if !ok || len(a.Elts) == 0 {
				continue
			}
			first := a.Elts[0]
			if kv, ok := first.(*ast.KeyValueExpr); ok {
				first = kv.Value
			}
			if lit, ok := first.(*ast.BasicLit); ok {
				name, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, name)
			}
		}
		return false
	})
	return names
}

// tier says what runs a proof.
func (p proof) tier() string {
	selects := func(r rule) bool { return r.dir == p.dir && r.selects(p.name) }
	switch {
	case slices.ContainsFunc(exhaustive, selects), slices.ContainsFunc(divided, func(r rule) bool { return r.dir == p.dir && r.tests == p.name }):
		return "exhaustive"
	case slices.ContainsFunc(always, selects), strings.HasPrefix(p.name, "Fuzz"): // its corpus runs in make test
		return "both"
	}
	return "test"
}

// testdata/proofs.txt lists what there was once, and its tier. Whoever renames or removes one
// changes its line.
func TestNothingIsLost(t *testing.T) {
	t.Chdir("../..")
	const list = "internal/ci/testdata/proofs.txt"
	data, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	tiers := map[proof]string{}
	for _, p := range proofs(t) {
		tiers[p] = p.tier()
	}
	var renewed bytes.Buffer
	lines := 0
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		f := strings.Fields(s.Text())
		if strings.HasPrefix(s.Text(), "#") || len(f) != 3 {
			fmt.Fprintln(&renewed, s.Text())
			continue
		}
		lines++
		p := proof{f[0], f[1]}
		switch tier, ok := tiers[p]; {
		case !ok:
			t.Errorf("%s %s is in no tier any more: it was renamed or removed. If it is proven elsewhere, change its line in %s", p.dir, p.name, list)
		case tier != f[2] && !*update:
			t.Errorf("%s %s is in tier %s, and %s says %s. If that is meant: go test ./internal/ci -run TestNothingIsLost -update", p.dir, p.name, tier, list, f[2])
		default:
			f[2] = tier
		}
		fmt.Fprintln(&renewed, strings.Join(f, " "))
	}
	if lines < 3000 {
		t.Errorf("got %d lines in %s", lines, list)
	}
	if *update {
		if err := os.WriteFile(list, renewed.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A rule names what there is, with each of its alternatives, and both tiers together run every
// test.
func TestRules(t *testing.T) {
	t.Chdir("../..")
	all := proofs(t)
	for _, r := range slices.Concat(exhaustive, always) {
		for _, tests := range alternatives(r.tests) {
			one := rule{dir: r.dir, tests: tests}
			if !slices.ContainsFunc(all, func(p proof) bool { return p.dir == one.dir && one.selects(p.name) }) {
				t.Errorf("%s %s selects nothing", one.dir, one.tests)
			}
		}
		if strings.ContainsAny(parentheses.ReplaceAllString(r.tests, ""), "|()") {
			t.Errorf("%s %s: alternatives stand in parentheses, and not in each other's", r.dir, r.tests)
		}
	}
}

var parentheses = regexp.MustCompile(`\(([^()]*)\)`)

// alternatives returns the pattern with each combination of its alternatives.
func alternatives(pattern string) (all []string) {
	at := parentheses.FindStringSubmatchIndex(pattern)
	if at == nil {
		return []string{pattern}
	}
	for _, a := range strings.Split(pattern[at[2]:at[3]], "|") {
		all = append(all, alternatives(pattern[:at[0]]+a+pattern[at[1]:])...)
	}
	return all
}

// Of a divided test each case is selected by a rule.
func TestDivided(t *testing.T) {
	t.Chdir("../..")
	cases := 0
	for _, p := range proofs(t) {
		for _, d := range divided {
			if p.dir == d.dir && strings.HasPrefix(p.name, d.tests+"/") {
				if cases++; p.tier() != "exhaustive" {
					t.Errorf("%s %s is in no tier", p.dir, p.name)
				}
			}
		}
	}
	if cases < 500 {
		t.Errorf("got %d cases", cases)
	}
}

// What make test skips is what make exhaustive runs, as go test understands the patterns.
func TestTiersAreComplements(t *testing.T) {
	t.Parallel()
	r := []rule{{dir: "m", tests: "TestSuite/(a|b)/x"}, {dir: "m", tests: "TestWhole/a"}, {dir: "m", tests: "TestWhole"}}
	dir := module(t, map[string]string{"a_test.go": `package m

import "testing"

func run(t *testing.T) {
	for _, n := range []string{"a/x/1", "a/y/1", "b/x", "c/x", "a/xx"} { t.Run(n, func(*testing.T) {}) }
}
func TestSuite(t *testing.T) { run(t) }
func TestWhole(t *testing.T) { run(t) }
func TestWholeToo(t *testing.T) { run(t) }
`})
	for _, tt := range []struct {
		arg  string
		want int
	}{{"-skip=", 3 + 5}, {"-run=", 2 + 5}} {
		res := newResults(t.Output(), dir, true)
		arg := tt.arg + together(r)
		if got, err := res.run(t.Context(), []string{arg}, "./..."); err != nil || got != (tally{passed: tt.want}) {
			t.Errorf("%s: got %v, %v, want %d passed", arg, got, err, tt.want)
		}
	}
	for name, want := range map[string]bool{"TestSuite/a/x/1": true, "TestSuite/a/y/1": false, "TestSuite/a": false, "TestSuite/a/xx": false, "TestWhole/c": true, "TestWholeToo": false} {
		if got := slices.ContainsFunc(r, func(r rule) bool { return r.selects(name) }); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// Both lanes have what two processors can do in the time that there is.
func TestBudgets(t *testing.T) {
	t.Chdir("../..")
	packages, err := testPackages(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	lanes := map[string]float64{}
	for _, p := range packages {
		lanes[p.lane()] += budget(p.dir)
	}
	lanes[anyLane] += checkMinutes
	most := budgetMinutes - otherMinutes
	if sum := lanes[engineLane] + lanes[pyodideLane] + lanes[anyLane]; lanes[engineLane] > most || lanes[pyodideLane] > most || sum > 2*most {
		t.Errorf("got %.1f minutes in all and %v by lane; a lane has %.1f", sum, lanes, most)
	}
	for _, b := range budgets[:len(budgets)-1] {
		if !slices.ContainsFunc(packages, func(p *testPackage) bool { return p.dir == b.dir }) {
			t.Errorf("%q has a budget and no tests", b.dir)
		}
	}
}
