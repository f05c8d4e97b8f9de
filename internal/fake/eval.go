package fake

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// Values are nil, bool, int64, float64, string (any bytes), []any, and executor.MIMEBundle for a
// value with several representations.

// program executes the statements of a program. It returns the value of the last one, or nil if
// that has none.
func (e *execution) program(prog []stmt) (value any) {
	for _, s := range prog {
		value = e.statement(s)
	}
	e.check()
	return value
}

func (e *execution) block(ss []stmt) {
	for _, s := range ss {
		e.statement(s)
	}
}

func (e *execution) statement(s stmt) (value any) {
	e.line = s.line
	e.check()
	switch s := s.do.(type) {
	case express:
		return e.value(s.e)
	case assign:
		e.in.vars[s.name] = e.value(s.to)
	case branch:
		if truth(e.value(s.cond)) {
			e.block(s.then)
		} else {
			e.block(s.alt)
		}
	case loop:
		e.loop(s)
	case attempt:
		end := e.protect(func() { e.block(s.body) })
		switch end := end.(type) {
		case nil:
		case *thrown:
			e.in.vars["error"] = end.typ + ": " + end.msg
			e.block(s.handler)
		default:
			panic(end)
		}
	}
	return nil
}

func (e *execution) loop(l loop) {
	if l.cond != nil {
		for truth(e.value(l.cond)) {
			e.check()
			e.block(l.body)
		}
		return
	}
	switch over := e.value(l.over).(type) {
	case int64:
		for i := range over {
			e.check()
			e.in.vars[l.name] = i
			e.block(l.body)
		}
	case []any:
		for _, v := range over {
			e.check()
			e.in.vars[l.name] = v
			e.block(l.body)
		}
	default:
		e.throw("TypeError", "cannot go over %s", text(over))
	}
}

// value evaluates an expression.
func (e *execution) value(x expr) any {
	switch x := x.(type) {
	case literal:
		return x.v
	case variable:
		v, ok := e.in.vars[x.name]
		if !ok {
			e.throw("NameError", "name %q is not defined", x.name)
		}
		return v
	case list:
		items := []any{}
		for _, i := range x.items {
			items = append(items, e.value(i))
		}
		return items
	case await:
		return e.value(x.e)
	case call:
		f, ok := builtins[x.name]
		if !ok {
			e.throw("NameError", "name %q is not defined", x.name)
		}
		args := arguments{e: e, name: x.name}
		for _, a := range x.args {
			args.v = append(args.v, e.value(a))
		}
		return f(e, args)
	case index:
		return e.index(e.value(x.of), e.value(x.at))
	case prefix:
		v := e.value(x.a)
		if x.op == "not" {
			return !truth(v)
		}
		return e.arithmetic("-", int64(0), v)
	case infix:
		switch a := e.value(x.a); x.op {
		case "and":
			if !truth(a) {
				return a
			}
			return e.value(x.b)
		case "or":
			if truth(a) {
				return a
			}
			return e.value(x.b)
		case "==":
			return text(a) == text(e.value(x.b))
		case "!=":
			return text(a) != text(e.value(x.b))
		case "<", "<=", ">", ">=":
			return e.compare(x.op, a, e.value(x.b))
		default:
			return e.arithmetic(x.op, a, e.value(x.b))
		}
	}
	panic(fmt.Sprintf("an expression of type %T", x))
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	}
	return true
}

func (e *execution) index(of, at any) any {
	i, ok := at.(int64)
	l, isList := of.([]any)
	switch {
	case !ok || !isList:
		e.throw("TypeError", "not a list, or not a number")
	case i < 0 || i >= int64(len(l)):
		e.throw("IndexError", "index %d of %d", i, len(l))
	}
	return l[i]
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func (e *execution) compare(op string, a, b any) bool {
	x, okx := number(a)
	y, oky := number(b)
	if !okx || !oky {
		e.throw("TypeError", "%s compares numbers", op)
	}
	switch op {
	case "<":
		return x < y
	case "<=":
		return x <= y
	case ">":
		return x > y
	}
	return x >= y
}

// maxText is the largest length of a text, so that a program cannot exhaust the host's memory.
const maxText = 256 << 20

func (e *execution) arithmetic(op string, a, b any) any {
	if s, ok := a.(string); ok {
		n, count := b.(int64)
		switch {
		case op == "+":
			return s + text(b)
		case op == "*" && count && n >= 0 && int64(len(s))*n <= maxText:
			return strings.Repeat(s, int(n))
		}
	}
	i, okI := a.(int64)
	j, okJ := b.(int64)
	if okI && okJ {
		switch {
		case op == "+":
			return i + j
		case op == "-":
			return i - j
		case op == "*":
			return i * j
		case j == 0:
			e.throw("ZeroDivisionError", "division by zero")
		case op == "/":
			return i / j
		case op == "%":
			return i % j
		}
	}
	x, okX := number(a)
	y, okY := number(b)
	if !okX || !okY {
		e.throw("TypeError", "%s does not take %s and %s", op, text(a), text(b))
	}
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		return x / y
	}
	return math.Mod(x, y)
}

// text returns what print prints for a value.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case executor.MIMEBundle:
		return v["text/plain"].String()
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(b)
}

// bundle returns the representations of a value, or none for null.
func bundle(v any) executor.MIMEBundle {
	if b, ok := v.(executor.MIMEBundle); ok || v == nil {
		return b
	}
	data := executor.MIMEBundle{"text/plain": executor.Bytes(text(v))}
	if b, err := json.Marshal(v); err == nil {
		data["application/json"] = b
	}
	return data
}
