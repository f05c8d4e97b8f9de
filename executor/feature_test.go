package executor_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// TestFeaturesMatchTheirComments compares the table with the constants: each constant is in the
// table once, in order, with the comment that follows from the table. go doc shows the comments,
// and programs see the table.
func TestFeaturesMatchTheirComments(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "feature.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	infos := executor.Features()
	next := 0
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Names) != 1 || !strings.HasPrefix(v.Names[0].Name, "Feature") {
			return true
		}
		name, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		if next >= len(infos) || infos[next].Feature != executor.Feature(name) {
			t.Fatalf("constant %d is %s, which is not what the table has there", next, name)
		}
		i := infos[next]
		next++
		want := string(i.Class)
		if i.Core {
			want += ", core"
		}
		if i.PerLanguage {
			want += ", per language"
		}
		want += ": " + i.Doc
		if got := strings.TrimSpace(v.Comment.Text()); got != want {
			t.Errorf("%s: got comment %q, want %q", name, got, want)
		}
		return false
	})
	if next != len(infos) {
		t.Errorf("got %d constants, want %d", next, len(infos))
	}
}

func TestFeatureInfo(t *testing.T) {
	for _, want := range executor.Features() {
		if got, ok := want.Feature.Info(); !ok || got != want {
			t.Errorf("%s: got %+v %v", want.Feature, got, ok)
		}
	}
	if got, ok := executor.Feature("x-own").Info(); ok || got.Feature != "x-own" || got.PerLanguage {
		t.Errorf("got %+v %v of an unknown feature", got, ok)
	}
	executor.Features()[0].Doc = "changed"
	if executor.Features()[0].Doc == "changed" {
		t.Error("Features hands out its own table")
	}
}
