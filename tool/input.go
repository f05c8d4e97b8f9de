package tool

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Input is a call of the tool.
type Input struct {
	Code     string
	Language executor.Language // empty: the first of the tool
	Timeout  time.Duration     // zero: that of Options
	Packages []string          // packages to install before the code runs, in the notation of the installer of Language
	Files    []InputFile       // files to write before the code runs
	Ignored  []string          // names of arguments that the tool does not have
}

// InputFile is a file that the model passes.
type InputFile struct {
	Name    string // relative to the working directory
	Content []byte
}

// InputError says what is wrong with a call, in text for the model.
type InputError struct{ Problems []string }

// Error returns the problems as sentences.
func (e *InputError) Error() string { return strings.Join(e.Problems, " ") }

// MaxInput is the largest size of the arguments of a call in bytes, including files.
const MaxInput = 32 << 20

// ParseInput reads the arguments of a call as models write them. They should be a JSON object with
// the inputs of the Definition. ParseInput also accepts a Python dictionary, other names for an
// input, a number in quotes and a list in a string. Text that is not an object is taken as the
// code. language is the language of code that does not name one: the first of the Definition.
//
// It removes what models put around code: Markdown fences with prose before and after, a dictionary
// or a tag, escapes that were applied twice. It never changes code that is already a program.
//
// Lines at the beginning of a Python cell that ask pip for packages, such as "%pip install numpy"
// in notebooks, become Input.Packages.
//
// Errors are *InputError.
func ParseInput(arguments string, language executor.Language) (Input, error) {
	if len(arguments) > MaxInput {
		return Input{}, &InputError{[]string{fmt.Sprintf("The arguments have %d bytes; at most %d are allowed.", len(arguments), MaxInput)}}
	}
	var in Input
	if m, ok := object(arguments); ok {
		if problems := in.fill(m); len(problems) > 0 {
			return Input{}, &InputError{problems}
		}
	} else {
		if cutObject(arguments) {
			return Input{}, &InputError{[]string{"The arguments end in the middle of the JSON object, so the call was cut off. Make the call again with all of it; if the program is long, divide it into several calls."}}
		}
		in.Code = arguments
		var text string
		if json.Unmarshal([]byte(arguments), &text) == nil { // the object was encoded twice
			if m, ok := object(text); ok {
				if problems := in.fill(m); len(problems) > 0 {
					return Input{}, &InputError{problems}
				}
			} else {
				in.Code = text
			}
		}
	}
	sure := in.Language != ""
	if !sure {
		in.Language = language
	}
	in.unwrap(sure)
	in.installs()
	return in, nil
}

// cutArguments matches the beginning of an object with an argument.
var cutArguments = regexp.MustCompile(`^\s*\{\s*"(\w+)"\s*:\s*["\[{]`)

// cutObject reports whether text is only the beginning of a JSON object of arguments. No program
// looks like that: braces and quotes are open.
func cutObject(text string) bool {
	m := cutArguments.FindStringSubmatch(text)
	if m == nil || !slices.Contains(argumentNames, m[1]) && aliases[m[1]] == "" {
		return false
	}
	var v json.RawMessage
	return errors.Is(json.NewDecoder(strings.NewReader(text)).Decode(&v), io.ErrUnexpectedEOF)
}

// installLine matches a line of a notebook that installs packages. No Python statement begins like
// that.
var installLine = regexp.MustCompile(`^[ \t]*[%!][ \t]*(?:python3?[ \t]+-m[ \t]+)?pip3?[ \t]+install[ \t]+(.+?)[ \t]*\r?$`)

// quietFlags are options of pip that make no difference here.
var quietFlags = []string{"-q", "-qq", "--quiet", "-U", "--upgrade", "--user", "--no-cache-dir", "--disable-pip-version-check", "--no-input"}

// installs turns the lines at the beginning of a Python cell that ask pip for packages into the
// packages of the call, which are checked like other packages. Running code cannot install packages
// in this way: anywhere else such a line is an error of the cell.
func (in *Input) installs() {
	if in.Language != executor.Python {
		return
	}
	lines := strings.SplitAfter(in.Code, "\n")
	for i, line := range lines {
		text := strings.TrimSpace(line)
		if text == "" || text[0] == '#' {
			continue
		}
		m := installLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			break
		}
		var names []string
		for _, word := range strings.Fields(m[1]) {
			if slices.Contains(quietFlags, word) {
				continue
			}
			names = append(names, strings.Trim(word, `"'`))
		}
		if slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, "-") }) {
			break // this cannot be done here; running the cell shows the error
		}
		in.Packages = append(in.Packages, names...)
		lines[i] = "# " + line
	}
	in.Code = strings.Join(lines, "")
}

// object reads arguments that are an object.
func object(arguments string) (map[string]any, bool) {
	var m map[string]any
	if json.Unmarshal([]byte(arguments), &m) != nil {
		if !strings.HasPrefix(strings.TrimSpace(arguments), "{") {
			return nil, false
		}
		v, ok := parseLiteral(arguments)
		if m, _ = v.(map[string]any); !ok {
			return nil, false
		}
	}
	if m == nil {
		return nil, false
	}
	if _, args, ok := callOf(m); ok {
		m = args
	}
	return m, true
}

// argumentNames are the inputs that the Definition has.
var argumentNames = []string{"code", "language", "timeout", "packages", "files"}

// aliases maps other names that models use to inputs.
var aliases = map[string]string{
	"python_code": "code", "source_code": "code", "generated_code": "code", "script": "code", "program": "code", "source": "code",
	"command": "code", "cmd": "code", "input": "code", "query": "code",
	"lang": "language", "timeout_seconds": "timeout", "libraries": "packages", "requirements": "packages", "dependencies": "packages",
}

// callOf returns the arguments of an object that is a whole call: a name and arguments, which may
// be JSON in a string.
func callOf(m map[string]any) (name string, args map[string]any, ok bool) {
	for k, v := range m {
		switch k {
		case "arguments", "args", "parameters", "params", "tool_input", "input":
			if args != nil {
				return "", nil, false
			}
			switch v := v.(type) {
			case map[string]any:
				args = v
			case string:
				if json.Unmarshal([]byte(v), &args) != nil {
					return "", nil, false
				}
			}
		case "name", "tool", "tool_name", "function", "action":
			name, _ = v.(string)
		case "id", "type", "call_id":
		default:
			return "", nil, false
		}
	}
	return name, args, args != nil
}

// fill reads arguments and returns the problems.
func (in *Input) fill(m map[string]any) (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	given := map[string]any{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		name := strings.ToLower(k)
		if a, ok := aliases[name]; ok {
			if _, both := m[a]; !both && given[a] == nil {
				name = a
			}
		}
		if !slices.Contains(argumentNames, name) {
			in.Ignored = append(in.Ignored, k)
		} else if m[k] != nil {
			given[name] = m[k]
		}
	}
	code, ok := text(given["code"])
	if !ok {
		wrong(`The argument "code" is missing. Pass an object with the program as a string, for example {"code": "print(1)"}.`)
	}
	in.Code = code
	if v, ok := given["language"]; ok {
		name, ok := v.(string)
		if !ok {
			wrong(`The argument "language" has to be a string.`)
		}
		in.Language = languageOf(name)
	}
	if v, ok := given["timeout"]; ok {
		if in.Timeout, ok = seconds(v); !ok {
			wrong(`The argument "timeout" has to be a number of seconds above 0.`)
		}
	}
	if v, ok := given["packages"]; ok {
		if in.Packages, ok = packageList(v); !ok {
			wrong(`The argument "packages" has to be a list of names, for example ["numpy"].`)
		}
	}
	if v, ok := given["files"]; ok {
		var problem string
		if in.Files, problem = fileList(v); problem != "" {
			wrong(`The argument "files" %s; pass a list such as [{"name": "data.csv", "content": "a,b"}].`, problem)
		}
	}
	return problems
}

// text returns a string, or joins a list of lines.
func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []any:
		var b strings.Builder
		for i, line := range v {
			s, ok := line.(string)
			if !ok {
				return "", false
			}
			if i > 0 && !strings.HasSuffix(b.String(), "\n") {
				b.WriteByte('\n')
			}
			b.WriteString(s)
		}
		return b.String(), len(v) > 0
	}
	return "", false
}

// seconds reads a number, or a string with a number, with or without a unit.
func seconds(v any) (time.Duration, bool) {
	var f float64
	switch v := v.(type) {
	case float64:
		f = v
	case string:
		s := strings.TrimSpace(strings.ToLower(v))
		for _, unit := range []string{"seconds", "second", "secs", "sec", "s"} {
			if cut, ok := strings.CutSuffix(s, unit); ok {
				s = strings.TrimSpace(cut)
				break
			}
		}
		var err error
		if f, err = strconv.ParseFloat(s, 64); err != nil {
			return 0, false
		}
	default:
		return 0, false
	}
	if !(f > 0) || f > math.MaxInt64/float64(2*time.Second) {
		return 0, false
	}
	return max(time.Duration(f*float64(time.Second)), 1), true
}

// packageList reads a list of names, or a string of names with commas or spaces between them.
func packageList(v any) (names []string, ok bool) {
	switch v := v.(type) {
	case string:
		if l, ok := parseLiteral(v); ok {
			if l, ok := l.([]any); ok {
				return packageList(l)
			}
		}
		if strings.Contains(v, ",") || strings.ContainsAny(v, "<>=!~[;@") { // a requirement may have spaces
			for name := range strings.SplitSeq(v, ",") {
				if name = strings.TrimSpace(name); name != "" {
					names = append(names, name)
				}
			}
			return names, true
		}
		return strings.Fields(v), true
	case []any:
		for _, n := range v {
			s, ok := n.(string)
			if !ok {
				return nil, false
			}
			names = append(names, strings.TrimSpace(s))
		}
		return names, true
	}
	return nil, false
}

// fileList reads a list of objects, or one object that maps names to contents.
func fileList(v any) (files []InputFile, problem string) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			content, ok := v[name].(string)
			if !ok {
				return nil, "has no text for " + strconv.Quote(name)
			}
			files = append(files, InputFile{name, []byte(content)})
		}
		return files, ""
	case []any:
		for i, e := range v {
			m, _ := e.(map[string]any)
			name, ok := m["name"].(string)
			if !ok {
				return nil, fmt.Sprintf("has no name for file %d", i+1)
			}
			f := InputFile{Name: name}
			if content, ok := m["content"].(string); ok {
				f.Content = []byte(content)
			} else if coded, ok := m["base64"].(string); ok {
				var err error
				if f.Content, err = base64.StdEncoding.DecodeString(coded); err != nil {
					return nil, "has base64 for " + strconv.Quote(name) + " that is none"
				}
			}
			files = append(files, f)
		}
		return files, ""
	}
	return nil, "is neither a list nor an object"
}
