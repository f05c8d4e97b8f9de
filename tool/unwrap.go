package tool

import (
	"maps"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// maxLayers is how many layers are removed. A fence around a dictionary around a fence occurs in
// practice.
const maxLayers = 4

// maxUnwrap is the largest text from which layers are removed: no model writes more.
const maxUnwrap = 256 << 10

// unwrap removes what models put around code from in.Code. sure says that the call named its
// language. Text that is already a program stays unchanged, byte for byte.
func (in *Input) unwrap(sure bool) {
	if len(in.Code) > maxUnwrap {
		return
	}
	in.Code = strings.TrimPrefix(in.Code, "\ufeff")
	for range maxLayers {
		switch {
		case in.fromDictionary(&sure):
		case in.fromTag():
		case in.fromFence(&sure):
		default:
			if in.Language == executor.Python {
				in.Code = unescapeStray(in.Code)
			}
			return
		}
	}
}

// codeKeys are the keys that have the code in a dictionary that was passed instead of code.
var codeKeys = []string{"code", "python_code", "source_code", "generated_code", "script", "program", "source"}

// fromDictionary reads arguments from code that is a dictionary. A dictionary with other keys than
// those of arguments is a program: its value is itself.
func (in *Input) fromDictionary(sure *bool) bool {
	text := strings.TrimSpace(in.Code)
	if !strings.HasPrefix(text, "{") || !strings.HasSuffix(text, "}") {
		return false
	}
	v, ok := parseLiteral(text)
	m, isMap := v.(map[string]any)
	if !ok || !isMap {
		return false
	}
	inner := m
	if _, args, ok := callOf(m); ok {
		inner = args
	}
	key := ""
	for k, v := range inner {
		_, text := v.(string)
		switch {
		case slices.Contains(codeKeys, k) && text && key == "":
			key = k
		case !slices.Contains(argumentNames, k) || k == "code":
			return false
		}
	}
	if key == "" {
		return false
	}
	inner = maps.Clone(inner)
	inner["code"] = inner[key]
	var got Input
	if problems := got.fill(inner); len(problems) > 0 {
		return false
	}
	in.Code = got.Code
	if got.Language != "" && !*sure {
		in.Language, *sure = got.Language, true
	}
	if in.Timeout == 0 {
		in.Timeout = got.Timeout
	}
	in.Packages = append(in.Packages, got.Packages...)
	in.Files = append(in.Files, got.Files...)
	return true
}

// tags are elements that models enclose code in. No program begins with such a tag.
var tags = []string{"code", "python", "javascript", "execute", "execute_code", "execute_python", "tool_code"}

func (in *Input) fromTag() bool {
	text := strings.TrimSpace(in.Code)
	if in.Language == Bash { // in Bash, <code is a redirection
		return false
	}
	for _, tag := range tags {
		rest, ok := strings.CutPrefix(text, "<"+tag+">")
		if !ok {
			continue
		}
		if rest, ok = strings.CutSuffix(rest, "</"+tag+">"); ok {
			in.Code = strings.Trim(rest, "\r\n")
			return true
		}
	}
	return false
}

func (in *Input) fromFence(sure *bool) bool {
	if blocks := unfence(in.Code, in.Language); len(blocks) > 0 {
		code, l := choose(blocks, in.Language, *sure)
		in.Code = code
		if l != "" && !*sure {
			in.Language, *sure = l, true
		}
		return true
	}
	// No Python program has a backquote outside of strings.
	text := strings.TrimSpace(in.Code)
	if in.Language == executor.Python && len(text) > 2 && strings.Trim(text, "`") == text[1:len(text)-1] && !strings.Contains(text[1:len(text)-1], "`") {
		in.Code = text[1 : len(text)-1]
		return true
	}
	return false
}

// unescapeStray corrects Python code that was escaped once too often, so that line breaks are a
// backslash and an n. A program has no backslash outside of strings and comments except at the end
// of a line.
func unescapeStray(code string) string {
	t := scanPython(code)
	if t.stray < 0 || t.stray+1 == len(code) || strings.IndexByte(`nrt"'\`, code[t.stray+1]) < 0 {
		return code
	}
	// Either everything was escaped, or everything except strings.
	all := replaceEscapes(code, func(int) bool { return true })
	if scanPython(all).clean() {
		return all
	}
	if t.bad < 0 && !t.open {
		if code := replaceEscapes(code, func(i int) bool { return !t.inside(i) }); scanPython(code).clean() {
			return code
		}
	}
	return code
}

// replaceEscapes replaces the escape sequences at the positions for which is returns true.
func replaceEscapes(code string, is func(i int) bool) string {
	var b strings.Builder
	for i := 0; i < len(code); {
		if code[i] != '\\' || !is(i) || strings.HasPrefix(code[i:], "\\\n") || strings.HasPrefix(code[i:], "\\\r\n") {
			b.WriteByte(code[i])
			i++
			continue
		}
		n, text := unescape(code[i:])
		b.WriteString(text)
		i += n
	}
	return b.String()
}
