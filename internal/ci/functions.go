package main

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"regexp"
	"strings"
)

// testFunctions are those of a package that go test calls: tests, fuzz targets, and examples with
// an output.
type testFunctions struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string
	functions                 []string
}

var isTestFunction = regexp.MustCompile(`^(Test|Fuzz)($|[^a-z])`)

// functions finds the test functions of packages in the test files that belong to this system,
// without building them. Packages without any are left out.
func functions(ctx context.Context, patterns []string) ([]testFunctions, error) {
	out, err := output(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var found []testFunctions
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var p testFunctions
		if err := d.Decode(&p); err == io.EOF {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				return nil, err
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && isTestFunction.MatchString(fn.Name.Name) && fn.Name.Name != "TestMain" {
					p.functions = append(p.functions, fn.Name.Name)
				}
			}
			for _, e := range doc.Examples(f) {
				if e.Output != "" || e.EmptyOutput {
					p.functions = append(p.functions, "Example"+e.Name)
				}
			}
		}
		if len(p.functions) > 0 {
			found = append(found, p)
		}
	}
}
