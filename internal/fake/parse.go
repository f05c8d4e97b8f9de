package fake

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The script language. A program is lines of statements; a comment goes from # to the end of the
// line.
//
//	x = 41                       an assignment; variables live in the interpreter
//	print("a", x + 1)            an expression: literals, variables, calls of built-in functions, [lists], a[i], operators
//	if x > 1 { } else { }        also while c { }, for i in n { } (numbers from 0, or the elements of a list)
//	try { } catch { }            an uncaught error of the language; its text is then in the variable error
//	await f()                    as f(), where the language of the session has top-level await
//
// Strings are in double quotes with the escapes of Go, \xff included. Operators: or, and, not, ==
// != < <= > >=, + - * / %.

type (
	expr interface{}
	stmt struct {
		line int
		do   any // one of the types below
	}
	assign struct {
		name string
		to   expr
	}
	express struct{ e expr }
	branch  struct {
		cond      expr
		then, alt []stmt
	}
	loop struct {
		cond expr // while; nil: for
		name string
		over expr
		body []stmt
	}
	attempt struct{ body, handler []stmt }

	literal  struct{ v any }
	variable struct{ name string }
	list     struct{ items []expr }
	call     struct {
		name string
		args []expr
	}
	infix struct {
		op   string
		a, b expr
	}
	prefix struct {
		op string
		a  expr
	}
	index struct{ of, at expr }
	await struct{ e expr }
)

// syntaxError says why a program cannot begin. Usually it cannot be parsed.
type syntaxError struct {
	line int
	typ  string
	what string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.what) }

type token struct {
	kind rune // 'n' number, 's' string, 'i' name or keyword, 'o' operator, '\n', 0 end
	text string
	line int
}

type parser struct {
	tokens []token
	pos    int
	depth  int
	await  bool
}

// maxDepth bounds the nesting of a program, so that its author cannot exhaust the host's stack.
const maxDepth = 200

// parse parses a program. If await is false, await is an error.
func parse(src string, await bool) (prog []stmt, bad *syntaxError) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *syntaxError:
			bad = e
		default:
			panic(e)
		}
	}()
	p := &parser{tokens: scan(src), await: await}
	return p.block(0), nil
}

func scan(src string) (ts []token) {
	line := 1
	fail := func(format string, args ...any) {
		panic(&syntaxError{line, "SyntaxError", fmt.Sprintf(format, args...)})
	}
	for src != "" {
		r, size := utf8.DecodeRuneInString(src)
		n := size
		switch {
		case r == '\n':
			ts = append(ts, token{'\n', "\n", line})
			line++
		case unicode.IsSpace(r):
		case r == '#':
			n = len(src)
			if i := strings.IndexByte(src, '\n'); i >= 0 {
				n = i
			}
		case r == '"':
			text, err := strconv.QuotedPrefix(src)
			if err != nil {
				fail("unterminated string")
			}
			s, err := strconv.Unquote(text)
			if err != nil {
				fail("string %s: %v", text, err)
			}
			ts, n = append(ts, token{'s', s, line}), len(text)
		case r >= '0' && r <= '9':
			n = spanOf(src, func(r rune) bool { return r == '.' || r == '_' || r >= '0' && r <= '9' })
			ts = append(ts, token{'n', strings.ReplaceAll(src[:n], "_", ""), line})
		case r == '_' || unicode.IsLetter(r):
			n = spanOf(src, func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) })
			ts = append(ts, token{'i', src[:n], line})
		default:
			if len(src) > 1 && strings.Contains("== != <= >=", src[:2]) && src[1] == '=' {
				n = 2
			} else if !strings.ContainsRune("=<>+-*/%(){}[],", r) {
				fail("%q does not belong here", r)
			}
			ts = append(ts, token{'o', src[:n], line})
		}
		src = src[n:]
	}
	return append(ts, token{0, "the end", line})
}

func spanOf(s string, in func(rune) bool) int {
	if i := strings.IndexFunc(s, func(r rune) bool { return !in(r) }); i >= 0 {
		return i
	}
	return len(s)
}

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != 0 {
		p.pos++
	}
	return t
}

func (p *parser) fail(t token, format string, args ...any) {
	panic(&syntaxError{t.line, "SyntaxError", fmt.Sprintf(format, args...)})
}

// is consumes the next token if it is an operator or keyword with this text.
func (p *parser) is(text string) bool {
	if t := p.peek(); (t.kind == 'o' || t.kind == 'i') && t.text == text {
		p.pos++
		return true
	}
	return false
}

func (p *parser) want(text string) {
	if t := p.peek(); !p.is(text) {
		p.fail(t, "want %q, not %q", text, t.text)
	}
}

func (p *parser) deeper() func() {
	if p.depth++; p.depth > maxDepth {
		p.fail(p.peek(), "nested too deeply")
	}
	return func() { p.depth-- }
}

// block reads statements up to end, which is '}' or the end of the program.
func (p *parser) block(end rune) (ss []stmt) {
	defer p.deeper()()
	for {
		switch t := p.peek(); {
		case t.kind == '\n':
			p.pos++
			continue
		case t.kind == 0 && end == 0:
			return ss
		case t.kind == 'o' && t.text == string(end):
			p.pos++
			return ss
		case t.kind == 0:
			p.fail(t, "want %q", string(end))
		}
		ss = append(ss, p.statement())
		if t := p.peek(); t.kind != '\n' && t.kind != 0 && t.text != "}" {
			p.fail(t, "%q does not belong here", t.text)
		}
	}
}

func (p *parser) body() []stmt {
	p.want("{")
	return p.block('}')
}

func (p *parser) statement() stmt {
	t := p.peek()
	s := stmt{line: t.line}
	switch {
	case p.is("if"):
		b := branch{cond: p.expression()}
		b.then = p.body()
		if p.is("else") {
			b.alt = p.body()
		}
		s.do = b
	case p.is("while"):
		s.do = loop{cond: p.expression(), body: p.body()}
	case p.is("for"):
		name := p.next()
		if name.kind != 'i' {
			p.fail(name, "want a name after for")
		}
		p.want("in")
		s.do = loop{name: name.text, over: p.expression(), body: p.body()}
	case p.is("try"):
		a := attempt{body: p.body()}
		p.want("catch")
		a.handler = p.body()
		s.do = a
	case t.kind == 'i' && p.tokens[p.pos+1].kind == 'o' && p.tokens[p.pos+1].text == "=":
		p.pos += 2
		s.do = assign{t.text, p.expression()}
	default:
		s.do = express{p.expression()}
	}
	return s
}

// levels are the binary operators, from the lowest precedence to the highest.
var levels = [][]string{{"or"}, {"and"}, {"==", "!=", "<", "<=", ">", ">="}, {"+", "-"}, {"*", "/", "%"}}

func (p *parser) expression() expr { return p.binary(0) }

func (p *parser) binary(level int) expr {
	defer p.deeper()()
	if level == len(levels) {
		return p.unary()
	}
	a := p.binary(level + 1)
	for {
		op := ""
		for _, o := range levels[level] {
			if p.is(o) {
				op = o
				break
			}
		}
		if op == "" {
			return a
		}
		a = infix{op, a, p.binary(level + 1)}
	}
}

func (p *parser) unary() expr {
	defer p.deeper()()
	switch {
	case p.is("not"):
		return prefix{"not", p.unary()}
	case p.is("-"):
		return prefix{"-", p.unary()}
	case p.await && p.is("await"):
		return await{p.unary()}
	}
	e := p.primary()
	for p.is("[") {
		e = index{e, p.expression()}
		p.want("]")
	}
	return e
}

func (p *parser) primary() expr {
	switch t := p.next(); t.kind {
	case 's':
		return literal{t.text}
	case 'n':
		if n, err := strconv.ParseInt(t.text, 10, 64); err == nil {
			return literal{n}
		}
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			p.fail(t, "number %s", t.text)
		}
		return literal{f}
	case 'i':
		switch t.text {
		case "true", "false":
			return literal{t.text == "true"}
		case "null":
			return literal{nil}
		}
		if p.is("(") {
			return call{t.text, p.items(")")}
		}
		return variable{t.text}
	case 'o':
		switch t.text {
		case "(":
			e := p.expression()
			p.want(")")
			return e
		case "[":
			return list{p.items("]")}
		}
		p.fail(t, "%q does not belong here", t.text)
	default:
		p.fail(t, "%q does not belong here", t.text)
	}
	return nil
}

func (p *parser) items(end string) (es []expr) {
	for !p.is(end) {
		if len(es) > 0 {
			p.want(",")
		}
		for p.peek().kind == '\n' { // a list may span several lines
			p.pos++
		}
		es = append(es, p.expression())
		for p.peek().kind == '\n' {
			p.pos++
		}
	}
	return es
}
