package fake

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"

	"go.starlark.net/lib/json"
	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/execbroker/execbroker/executor"
)

// dialect is Starlark with loops at the top level, as in the cells of a notebook.
var dialect = &syntax.FileOptions{While: true, TopLevelControl: true, GlobalReassign: true}

const (
	// maxNodes bounds the syntax tree of a program, because Starlark's compiler is recursive and
	// its author could exhaust the host's stack. The length of texts does not count.
	maxNodes = 10_000
	// maxCalls bounds the calls by attempt that are in each other, for the same reason. Starlark
	// has no recursion, but functions can be arguments.
	maxCalls = 1000
	// checkedSteps is how often it is looked whether a program that calls nothing is to stop.
	checkedSteps = 1000
	// awaited is the function that only a language with top-level await has.
	awaited = "awaited"
	// result is the variable of the value of a program. No program can name it.
	result = "="
	// running is the local value of a thread that has its *execution.
	running = "execution"
)

type (
	// rich is a value with several representations. It has nothing else in common with None.
	rich struct {
		starlark.NoneType
		data executor.MIMEBundle
	}
	// unwinding carries the end of a program through Starlark, see execution.protect.
	unwinding struct{ end any }
)

func (u unwinding) Error() string { return fmt.Sprint(u.end) }

// program executes a program. It returns the value of its last statement, or nil if that has none.
func (e *execution) program(src string) starlark.Value {
	if _, err := e.box.disk.list(e.dir); err != nil {
		e.throw("FileNotFoundError", "no directory %s", e.dir)
	}
	t := &starlark.Thread{OnMaxSteps: func(t *starlark.Thread) {
		if e.protect(e.check) != nil {
			t.Cancel("stopped")
		}
		t.SetMaxExecutionSteps(t.ExecutionSteps() + checkedSteps)
	}}
	t.SetMaxExecutionSteps(checkedSteps)
	t.SetLocal(running, e)
	if e.checkpoint(t, src) {
		return nil
	}
	v, err := evaluate(t, src, e.command() || e.has(executor.FeatureTopLevelAwait), e.in.vars)
	e.check() // whose reason a canceled thread does not know
	if err != nil {
		panic(ending(err))
	}
	return v
}

// evaluate executes a program with the variables of an interpreter.
func evaluate(t *starlark.Thread, src string, await bool, vars starlark.StringDict) (starlark.Value, error) {
	f, err := dialect.Parse("<input>", src, 0)
	if err != nil {
		return nil, err
	}
	// A name without a value is an error when it is used. To Starlark, it would be one before
	// anything runs.
	defer maps.DeleteFunc(vars, func(_ string, v starlark.Value) bool { return v == nil })
	nodes := 0
	syntax.Walk(f, func(n syntax.Node) bool {
		nodes++
		id, ok := n.(*syntax.Ident)
		switch {
		case !ok:
		case id.Name == awaited && !await:
			err = syntax.Error{Pos: id.NamePos, Msg: "there is no await at the top level"}
		case !vars.Has(id.Name) && !starlark.Universe.Has(id.Name):
			vars[id.Name] = nil
		}
		return nodes < maxNodes
	})
	if nodes >= maxNodes {
		err = syntax.Error{Pos: syntax.MakePosition(&f.Path, 1, 1), Msg: "the program is too large"}
	}
	if err != nil {
		return nil, err
	}
	if last := len(f.Stmts) - 1; last >= 0 {
		if s, ok := f.Stmts[last].(*syntax.ExprStmt); ok {
			at := syntax.Start(s)
			f.Stmts[last] = &syntax.AssignStmt{OpPos: at, Op: syntax.EQ, LHS: &syntax.Ident{NamePos: at, Name: result}, RHS: s.X}
		}
	}
	err = starlark.ExecREPLChunk(f, t, vars)
	value := vars[result]
	delete(vars, result)
	return value, err
}

// ending returns why a program ended early: what a built-in function has thrown, or an error of
// Starlark's.
func ending(err error) any {
	var (
		carried    unwinding
		bad        syntax.Error
		unresolved resolve.ErrorList
		failed     *starlark.EvalError
		line       int
	)
	if errors.As(err, &failed) {
		line = int(failed.CallStack[0].Pos.Line) // in the program, not in a function of an earlier one
	}
	switch {
	case errors.As(err, &carried):
		if t, ok := carried.end.(*thrown); ok {
			t.line = line
		}
		return carried.end
	case errors.As(err, &unresolved):
		return &thrown{typ: "SyntaxError", msg: unresolved[0].Msg, line: int(unresolved[0].Pos.Line)}
	case errors.As(err, &bad):
		return &thrown{typ: "SyntaxError", msg: bad.Msg, line: int(bad.Pos.Line)}
	}
	if name, ok := strings.CutSuffix(strings.TrimPrefix(err.Error(), "global variable "), " referenced before assignment"); ok {
		return &thrown{typ: "NameError", msg: fmt.Sprintf("name %q is not defined", name), line: line}
	}
	return &thrown{typ: "EvalError", msg: err.Error(), line: line}
}

// text returns what print prints for a value.
func text(v starlark.Value) string {
	switch v := v.(type) {
	case starlark.String:
		return string(v)
	case starlark.Bytes:
		return string(v)
	case rich:
		return v.data["text/plain"].String()
	}
	return cmp.Or(encode(v).String(), v.Type())
}

// encode returns a value as JSON, or nil if it has no such form.
func encode(v starlark.Value) executor.Bytes {
	j, err := starlark.Call(new(starlark.Thread), json.Module.Members["encode"], starlark.Tuple{v}, nil)
	if err != nil {
		return nil
	}
	return executor.Bytes(text(j))
}

// bundle returns the representations of a value, or none for None.
func bundle(v starlark.Value) executor.MIMEBundle {
	switch v := v.(type) {
	case nil, starlark.NoneType:
		return nil
	case rich:
		return v.data
	}
	data := executor.MIMEBundle{"text/plain": executor.Bytes(text(v))}
	if j := encode(v); j != nil {
		data["application/json"] = j
	}
	return data
}
