package mutate

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// The kinds of changes.
const (
	negated  = "condition negated"
	swapped  = "operator swapped"
	dropped  = "statement dropped"
	constant = "constant changed"
	returned = "error dropped"
	atOnce   = "returns at once"
)

// swaps are operators and what is put in their place.
var swaps = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.AND: token.OR, token.OR: token.AND,
}

// ofGo returns the changes of a Go file. Not all of them compile.
func ofGo(_ context.Context, text []byte) (all []Mutation, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	add := func(operator string, from, to token.Pos, with string) {
		all = append(all, Mutation{Operator: operator, start: at(from), end: at(to), with: with})
	}
	negate := func(cond ast.Expr) {
		if cond != nil {
			add(negated, cond.Pos(), cond.End(), "!("+string(text[at(cond.Pos()):at(cond.End())])+")")
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field: // a tag is for others
			return n.Tag == nil
		case *ast.IfStmt:
			negate(n.Cond)
		case *ast.ForStmt:
			negate(n.Cond)
		case *ast.BinaryExpr:
			if to, ok := swaps[n.Op]; ok {
				add(swapped, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to.String())
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt:
			add(dropped, n.Pos(), n.End(), "")
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				add(dropped, n.Pos(), n.End(), "")
			}
		case *ast.BasicLit:
			switch n.Kind {
			case token.INT:
				add(constant, n.Pos(), n.End(), "("+n.Value+" + 1)")
			case token.STRING:
				if s, err := strconv.Unquote(n.Value); err == nil && s != "" && !strings.Contains(s, " ") { // not a text for people
					add(constant, n.Pos(), n.End(), strconv.Quote(s+"x"))
				}
			}
		case *ast.ReturnStmt:
			for _, r := range n.Results {
				if id, ok := r.(*ast.Ident); ok && id.Name == "err" {
					add(returned, r.Pos(), r.End(), "nil")
				} else if ok && (id.Name == "true" || id.Name == "false") {
					add(constant, r.Pos(), r.End(), strconv.FormatBool(id.Name == "false"))
				}
			}
		case *ast.FuncDecl:
			if n.Body != nil && n.Type.Results == nil && len(n.Body.List) > 0 && bytes.Contains(text[at(n.Body.Lbrace):at(n.Body.Rbrace)], []byte("\n")) {
				add(atOnce, n.Body.Lbrace, n.Body.Lbrace+1, "{\n\tif true {\n\t\treturn\n\t}\n")
			}
		}
		return true
	})
	return all, nil
}
