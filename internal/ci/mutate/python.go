package mutate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
)

// tokens prints the operators, names and numbers of the program on standard input with their
// places.
const tokens = `
import io, json, sys, tokenize
text = sys.stdin.buffer.read()
starts = [0]
for line in text.decode().splitlines(keepends=True): starts.append(starts[-1] + len(line.encode()))
lines = text.decode().splitlines(keepends=True)
place = lambda row, col: starts[row - 1] + len(lines[row - 1][:col].encode())
out = []
for t in tokenize.tokenize(io.BytesIO(text).readline):
    if t.type in (tokenize.OP, tokenize.NAME, tokenize.NUMBER): out.append([place(*t.start), place(*t.end), t.string])
json.dump(out, sys.stdout)
`

// compiles fails unless standard input is a program.
const compiles = `import sys; compile(sys.stdin.buffer.read(), "x", "exec")`

// inPython is what is put in place of tokens of Python.
var inPython = map[string]struct{ operator, with string }{
	"if": {negated, "if not"}, "elif": {negated, "elif not"}, "while": {negated, "while not"},
	"==": {swapped, "!="}, "!=": {swapped, "=="}, "<": {swapped, "<="}, "<=": {swapped, "<"}, ">": {swapped, ">="}, ">=": {swapped, ">"},
	"and": {swapped, "or"}, "or": {swapped, "and"}, "+": {swapped, "-"}, "-": {swapped, "+"}, "+=": {swapped, "="}, "is": {swapped, "is not"},
	"True": {constant, "False"}, "False": {constant, "True"},
	"raise": {dropped, "0 and"}, "return": {dropped, "None and"}, "break": {dropped, "pass"}, "continue": {dropped, "pass"},
}

// ofPython returns the changes of a Python program. Not all of them compile.
func ofPython(ctx context.Context, text []byte) (all []Mutation, err error) {
	cmd := exec.CommandContext(ctx, "python3", "-c", tokens)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("python3: %w", err)
	}
	var found [][3]any
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, err
	}
	for _, f := range found {
		start, end, s := int(f[0].(float64)), int(f[1].(float64)), f[2].(string)
		change, ok := inPython[s]
		if !ok && s[0] >= '0' && s[0] <= '9' {
			change.operator, change.with = constant, "("+s+" + 1)"
			ok = true
		}
		if ok {
			all = append(all, Mutation{Operator: change.operator, start: start, end: end, with: change.with})
		}
	}
	return all, nil
}
