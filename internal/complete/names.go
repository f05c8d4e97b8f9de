package complete

import (
	_ "embed" // for names.py and names.js
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// MIME is the media type of an answer of the interpreter. Its content is JSON.
const MIME = "text/vnd.execbroker.answer"

var (
	//go:embed names.py
	namesPython string
	//go:embed names.js
	namesJavaScript string
)

// The bounds of an answer.
const (
	maxNames = 500
	maxText  = 64 << 10
)

// Python returns a cell that executes source with args, under names that are not those of the user.
func Python(source string, args any) string {
	return fmt.Sprintf(`(lambda b: b.exec(b.compile(%s, "<execbroker>", "exec", 0, True), {"__name__": "execbroker", "__builtins__": b.dict(b.vars(b)), "args": b.__import__("json").loads(%s)}))(__import__("builtins"))`,
		strconv.QuoteToASCII(source), strconv.QuoteToASCII(encoded(args)))
}

// encoded is v in JSON, which is also a value of JavaScript.
func encoded(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // impossible: the arguments are text and numbers
	}
	return string(b)
}

// Dotted names, at the end of a text and at its beginning, and as a whole.
var (
	nameBefore = regexp.MustCompile(`[\p{L}_$][\p{L}\p{N}_$]*(\.[\p{L}_$][\p{L}\p{N}_$]*)*\.?$`)
	restOfName = regexp.MustCompile(`^[\p{L}\p{N}_$]+`)
	wholeName  = regexp.MustCompile(`^[\p{L}_$][\p{L}\p{N}_$]*(\.[\p{L}_$][\p{L}\p{N}_$]*)*$`)
)

// A Question is what a person wants to know of a name.
type Question struct {
	Code  string // for the interpreter
	Start int    // of the last part of the name, in bytes of the text
	name  string
}

// Names asks which names continue the one that ends at a byte of a text. ok is false if no name
// ends there, or if the language is not known.
func Names(l executor.Language, text string, at int) (q Question, ok bool) {
	name := nameAt(lineBefore(text, at))
	if name == "" {
		return q, false
	}
	of, part := "", name
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		of, part = name[:i], name[i+1:]
	}
	return ask(l, "names", of, part, at-len(part))
}

// Explain asks what a name is: the one at a byte of a text, or that of the function whose arguments
// are there. Names of the language's syntax are none. With more, the answer has the source.
func Explain(l executor.Language, text string, at int, more bool) (q Question, ok bool) {
	before := lineBefore(text, at)
	name := nameAt(before) + restOfName.FindString(text[at:])
	for depth, i := 0, len(before)-1; name == "" && i >= 0; i-- {
		switch before[i] {
		case ')':
			depth++
		case '(':
			if depth--; depth < 0 {
				name = nameAt(before[:i])
				depth = len(before) // the innermost call only
			}
		}
	}
	if !wholeName.MatchString(name) {
		return q, false
	}
	op := "explain"
	if more {
		op = "source"
	}
	return ask(l, op, name, "", at)
}

// lineBefore is the text of the line before a byte.
func lineBefore(text string, at int) string {
	before := text[:at]
	return before[strings.LastIndexByte(before, '\n')+1:]
}

// nameAt is the dotted name at the end of a text. The attribute of something else than a name is
// none, because to know it the code would have to run.
func nameAt(before string) string {
	name := nameBefore.FindString(before)
	last, _ := utf8.DecodeLastRuneInString(before[:len(before)-len(name)])
	if last == '.' || unicode.IsDigit(last) {
		return ""
	}
	return name
}

func ask(l executor.Language, op, of, part string, start int) (Question, bool) {
	args := map[string]any{"mime": MIME, "op": op, "of": of, "part": part, "names": maxNames, "text": maxText}
	q := Question{Start: start, name: of}
	switch l {
	case executor.Python:
		if strings.ContainsRune(of+part, '$') {
			return q, false
		}
		q.Code = Python(namesPython, args)
	case executor.JavaScript, executor.TypeScript:
		value := "globalThis"
		if of != "" {
			value = of // it is a name: see nameBefore
		}
		q.Code = fmt.Sprintf("((args, value) => {%s})(%s, () => %s)", namesJavaScript, encoded(args), value)
	default:
		return q, false
	}
	return q, true
}

// Found reads the answer to Names.
func Found(answer []byte) []string {
	var names []string
	if json.Unmarshal(answer, &names) != nil {
		return nil
	}
	return names[:min(len(names), maxNames)]
}

// Explained reads the answer to Explain. It is empty if the interpreter does not know the name.
func Explained(answer []byte) string {
	var text string
	if json.Unmarshal(answer, &text) != nil {
		return ""
	}
	return text[:min(len(text), 4*maxText)]
}
