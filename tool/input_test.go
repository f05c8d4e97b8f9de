package tool_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/tool"
)

func parse(t testing.TB, arguments string) tool.Input {
	t.Helper()
	in, err := tool.ParseInput(arguments, executor.Python)
	if err != nil {
		t.Fatalf("%s: %v", arguments, err)
	}
	return in
}

// arguments returns the call that a model means to make.
func arguments(t testing.TB, m map[string]any) string {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Examples of what models have put around code.
func TestWrappedCode(t *testing.T) {
	const two = "import math\nprint(math.pi)"
	tests := map[string]struct {
		in, want string
		language executor.Language // empty: Python
	}{
		"raw":                     {in: two, want: two},
		"fence":                   {in: "```\n" + two + "\n```", want: two},
		"fence-language":          {in: "```python\n" + two + "\n```", want: two},
		"fence-py":                {in: "```py\n" + two + "\n```\n", want: two},
		"fence-capital":           {in: "```Python\n" + two + "\n```", want: two},
		"fence-braces":            {in: "```{python}\n" + two + "\n```", want: two},
		"fence-attributes":        {in: "```python title=\"a.py\"\n" + two + "\n```", want: two},
		"fence-space":             {in: "\n\n  \n```python   \n" + two + "\n```   \n\n", want: two},
		"fence-crlf":              {in: "```python\r\nprint(1)\r\n```\r\n", want: "print(1)"},
		"fence-tildes":            {in: "~~~python\n" + two + "\n~~~", want: two},
		"fence-four":              {in: "````python\nprint('''\n```\n''')\n````", want: "print('''\n```\n''')"},
		"fence-unclosed":          {in: "```python\n" + two, want: two},
		"fence-one-line":          {in: "```print(1)```", want: "print(1)"},
		"fence-one-line-language": {in: "```python print(1)```", want: "print(1)"},
		"fence-indented":          {in: "1. Run this:\n\n   ```python\n   if x:\n       y()\n   ```", want: "if x:\n    y()"},
		"fence-own-word":          {in: "```tool_code\nprint(1)\n```", want: "print(1)"},
		"prose-before":            {in: "Sure! Here's the code:\n\n```python\n" + two + "\n```", want: two},
		"prose-after":             {in: "```python\n" + two + "\n```\nThis prints pi. Don't forget it.", want: two},
		"prose-quotes":            {in: "I'll use \"math\" (it's there):\n```\n" + two + "\n```\nThat's it.", want: two},
		"fence-in-string":         {in: "```python\ndoc = \"\"\"\n```\nx\n```\n\"\"\"\nprint(doc)\n```", want: "doc = \"\"\"\n```\nx\n```\n\"\"\"\nprint(doc)"},
		"two-blocks":              {in: "First:\n```python\nx = 1\n```\nThen:\n```python\nprint(x)\n```", want: "x = 1\nprint(x)"},
		"other-blocks":            {in: "```bash\npip install numpy\n```\n```python\nprint(1)\n```\nIt prints:\n```output\n1\n```", want: "print(1)"},
		"block-javascript":        {in: "```js\nconsole.log(1)\n```", want: "console.log(1)", language: executor.JavaScript},
		"block-bash":              {in: "Run:\n```sh\nls -l\n```", want: "ls -l", language: tool.Bash},
		"backquotes":              {in: "`print(1)`", want: "print(1)"},
		"json":                    {in: `{"code": "print(1)\nprint(2)"}`, want: "print(1)\nprint(2)"},
		"json-broken-lines":       {in: "{\"code\": \"print(1)\nprint(2)\"}", want: "print(1)\nprint(2)"},
		"json-comma":              {in: `{"code": "print(1)",}`, want: "print(1)"},
		"json-in-fence":           {in: "```json\n{\"code\": \"print(1)\"}\n```", want: "print(1)"},
		"fence-in-json":           {in: `{"code": "` + "```python\\nprint(1)\\n```" + `"}`, want: "print(1)"},
		"json-in-json":            {in: `{"code": "{\"code\": \"print(1)\", \"language\": \"python\"}"}`, want: "print(1)"},
		"json-string":             {in: `"print(1)\nprint(2)"`, want: "print(1)\nprint(2)"},
		"json-in-string":          {in: `"{\"code\": \"print(1)\"}"`, want: "print(1)"},
		"json-surrogates":         {in: `{'code': 'print("\ud83d\ude00")'}`, want: `print("😀")`},
		"json-lines":              {in: `{"code": ["x = 1", "print(x)"]}`, want: "x = 1\nprint(x)"},
		"json-cell":               {in: `{"code": ["x = 1\n", "print(x)"]}`, want: "x = 1\nprint(x)"},
		"json-script":             {in: `{"script": "print(1)"}`, want: "print(1)"},
		"json-input":              {in: `{"input": "print(1)"}`, want: "print(1)"},
		"json-call":               {in: `{"name": "execute_code", "arguments": {"code": "print(1)"}}`, want: "print(1)"},
		"json-call-string":        {in: `{"name": "execute_code", "arguments": "{\"code\": \"print(1)\"}"}`, want: "print(1)"},
		"python-dict":             {in: `{'code': 'print("it\'s")', 'language': 'python', 'timeout': None}`, want: `print("it's")`},
		"python-dict-triple":      {in: "{'code': '''\nprint(1)\n'''}", want: "\nprint(1)\n"},
		"python-dict-joined":      {in: `{'code': 'print(1)\n' 'print(2)'}`, want: "print(1)\nprint(2)"},
		"python-dict-raw":         {in: `{'code': r'print("\n")'}`, want: `print("\n")`},
		"tag":                     {in: "<code>\nprint(1)\n</code>", want: "print(1)"},
		"tag-fence":               {in: "<execute_python>```python\nprint(1)\n```</execute_python>", want: "print(1)"},
		"stray-lines":             {in: `import math\nprint(math.pi)`, want: two},
		"stray-all":               {in: `print(\"a\\nb\")\nprint(2)`, want: "print(\"a\\nb\")\nprint(2)"},
		"stray-lines-only":        {in: `print("a\nb")\nprint(2)`, want: "print(\"a\\nb\")\nprint(2)"},
		"stray-quotes":            {in: "x = 1\nprint(\\\"hi\\\", x)", want: "x = 1\nprint(\"hi\", x)"},
		"stray-tabs":              {in: `if True:\n\tprint(1)`, want: "if True:\n\tprint(1)"},
		"stray-in-json":           {in: `{"code": "x = 1\\nprint(x)"}`, want: "x = 1\nprint(x)"},
		"byte-order-mark":         {in: "\ufeffprint(1)", want: "print(1)"},
		"empty":                   {in: "", want: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := parse(t, test.in)
			if in.Code != test.want {
				t.Errorf("got %q, want %q", in.Code, test.want)
			}
			want := test.language
			if want == "" {
				want = executor.Python
			}
			if in.Language != want {
				t.Errorf("got language %q, want %q", in.Language, want)
			}
		})
	}
}

// programs are code, whatever they look like.
var programs = map[string]string{
	"name":               "python_version = 3\nprint(python_version)",
	"name-alone":         "python = 1\npython",
	"code-name":          "code = 'print(1)'\nprint(code)",
	"json-name":          "json = {'code': 'x'}\njson",
	"dict":               "{'a': 1, 'b': 2}",
	"dict-code-and-more": "{'code': 'DE', 'name': 'Germany'}",
	"dict-code-number":   "{'code': 404}",
	"dict-expression":    "{'code': 'a' + 'b'}",
	"set":                "{'code'}",
	"fence-in-string":    "md = '''\n```python\nprint(1)\n```\n'''\nprint(md)",
	"fence-in-double":    "md = \"\"\"Here's it:\n```\nx\n```\n\"\"\"\n",
	"fence-in-docstring": "def f():\n    \"\"\"Do it.\n\n    ```python\n    f()\n    ```\n    \"\"\"\n",
	"fence-in-f-string":  "n = 1\nmd = f'''\n```{n}\n{', '.join(['a', \"b\"])}\n```\n'''",
	"fence-in-raw":       "md = r'''\\\n```\n'''",
	"fence-in-comment":   "# ```python\nprint(1)\n# ```",
	"fence-in-open":      "md = '''\n```python\nprint(1)\n```\n",
	"quotes-in-comment":  "# it's \"\"\"\nmd = '''\n```\n'''",
	"tilde":              "x = 1\n(\n~~~x\n)",
	"tilde-first":        "~~~1",
	"escapes":            "print('a\\nb\\t\\\"')",
	"escapes-nested":     "print(f\"{\"\\n\".join('ab')}\")",
	"escapes-format":     "print(f'{1:>{2}}\\n', f\"{{\\n\", f'\\N{BULLET}\\n', rf'\\d{1}\\n')",
	"escapes-comment":    "# a\\nb\nprint(1)",
	"continuation":       "x = 1 + \\\n    2\nprint(x)",
	"continuation-crlf":  "x = 1 + \\\r\n    2\r\nprint(x)\r\n",
	"string-continued":   "x = 'a\\\nb'\nmd = '''\n```\n'''",
	"prefix-of-name":     "for_f = 1\nif\"a\":\n    print(rb'\\n', Rb'x', BR\"y\")",
	"blank-lines":        "\n\nprint(1)\n\n",
	"comment-indented":   "    # note\nprint(1)",
	"indented":           "    x = 1\n    if x:\n        print(x)\n",
	"string":             "'print(1)'",
	"number":             "42",
	"html":               "print('<code>x</code>')",
	"backquotes":         "print('`a`')",
	"syntax-error":       "def f(:\n  pass",
	"magic":              "!ls x",
	"unicode":            "größe = 'ü'\nprint(größe)",
}

func TestProgramsStayAsTheyAre(t *testing.T) {
	for name, code := range programs {
		t.Run(name, func(t *testing.T) {
			if got := parse(t, arguments(t, map[string]any{"code": code})); got.Code != code || got.Language != executor.Python {
				t.Errorf("got %q in %s, want %q", got.Code, got.Language, code)
			}
			if got := parse(t, arguments(t, map[string]any{"code": code, "language": "python"})); got.Code != code {
				t.Errorf("with its language: got %q, want %q", got.Code, code)
			}
		})
	}
	others := map[executor.Language][]string{
		executor.JavaScript: {
			"console.log(`a\\n`)", "const x = `\n~~~\n`", "/*\n```js\nf()\n```\n*/\nf()", "const re = /\\n/; 'a'.split(re)",
			"`a`", "({code: 1})", "  let x = 1", "const t = `\n\\`\\`\\`js\n`",
		},
		tool.Bash: {
			"cat > README.md <<'EOF'\n```bash\nls\n```\nEOF", "echo a\\nb", "echo '\n```\n'", "<code cat", "python", "echo `date`", "  ls",
			"echo \"\n```\nx\n```\n\"",
		},
	}
	for l, codes := range others {
		for _, code := range codes {
			if got := parse(t, arguments(t, map[string]any{"code": code, "language": string(l)})); got.Code != code || got.Language != l {
				t.Errorf("got %q in %s, want %q in %s", got.Code, got.Language, code, l)
			}
		}
	}
}

func TestOtherInputs(t *testing.T) {
	same := func(a, b tool.Input) bool {
		return a.Language == b.Language && a.Timeout == b.Timeout && slices.Equal(a.Packages, b.Packages) && slices.Equal(a.Ignored, b.Ignored) &&
			slices.EqualFunc(a.Files, b.Files, func(a, b tool.InputFile) bool { return a.Name == b.Name && string(a.Content) == string(b.Content) })
	}
	file := func(name, content string) []tool.InputFile {
		return []tool.InputFile{{Name: name, Content: []byte(content)}}
	}
	tests := map[string]struct {
		in   string
		want tool.Input
	}{
		"nothing":           {in: `{"code": "1"}`, want: tool.Input{}},
		"nulls":             {in: `{"code": "1", "language": null, "timeout": null, "packages": null, "files": null}`, want: tool.Input{}},
		"language":          {in: `{"code": "1", "language": "Py"}`, want: tool.Input{}},
		"node":              {in: `{"code": "1", "language": "NodeJS"}`, want: tool.Input{Language: executor.JavaScript}},
		"unknown-language":  {in: `{"code": "1", "lang": "R"}`, want: tool.Input{Language: "r"}},
		"timeout":           {in: `{"code": "1", "timeout": 2.5}`, want: tool.Input{Timeout: 2500 * time.Millisecond}},
		"timeout-text":      {in: `{"code": "1", "timeout": "60"}`, want: tool.Input{Timeout: time.Minute}},
		"timeout-unit":      {in: `{"code": "1", "timeout_seconds": "5 seconds"}`, want: tool.Input{Timeout: 5 * time.Second}},
		"packages":          {in: `{"code": "1", "packages": ["numpy", " pandas==2 "]}`, want: tool.Input{Packages: []string{"numpy", "pandas==2"}}},
		"packages-text":     {in: `{"code": "1", "packages": "numpy, pandas >= 2"}`, want: tool.Input{Packages: []string{"numpy", "pandas >= 2"}}},
		"packages-words":    {in: `{"code": "1", "libraries": "numpy pandas"}`, want: tool.Input{Packages: []string{"numpy", "pandas"}}},
		"packages-encoded":  {in: `{"code": "1", "packages": "['numpy', 'pandas']"}`, want: tool.Input{Packages: []string{"numpy", "pandas"}}},
		"packages-none":     {in: `{"code": "1", "packages": ""}`, want: tool.Input{}},
		"files":             {in: `{"code": "1", "files": [{"name": "a.csv", "content": "x"}]}`, want: tool.Input{Files: file("a.csv", "x")}},
		"files-base64":      {in: `{"code": "1", "files": [{"name": "a.bin", "base64": "AAE="}]}`, want: tool.Input{Files: file("a.bin", "\x00\x01")}},
		"files-object":      {in: `{"code": "1", "files": {"a.csv": "x"}}`, want: tool.Input{Files: file("a.csv", "x")}},
		"ignored":           {in: `{"code": "1", "reason": "because", "stdin": ""}`, want: tool.Input{Ignored: []string{"reason", "stdin"}}},
		"from-inner":        {in: `{"code": "{'code': '1', 'timeout': 3, 'packages': ['numpy'], 'language': 'js'}"}`, want: tool.Input{Language: executor.JavaScript, Timeout: 3 * time.Second, Packages: []string{"numpy"}}},
		"outer-decides":     {in: `{"language": "bash", "timeout": 9, "code": "{'code': '1', 'timeout': 3, 'language': 'js'}"}`, want: tool.Input{Language: tool.Bash, Timeout: 9 * time.Second}},
		"fence-and-call":    {in: "{\"language\": \"python\", \"code\": \"```js\\n1\\n```\"}", want: tool.Input{}},
		"capital":           {in: `{"Code": "1", "Timeout": 2}`, want: tool.Input{Timeout: 2 * time.Second}},
		"code-before-alias": {in: `{"code": "1", "input": "2"}`, want: tool.Input{Ignored: []string{"input"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.want.Language == "" {
				test.want.Language = executor.Python
			}
			got := parse(t, test.in)
			if got.Code != "1" {
				t.Errorf("got code %q, want %q", got.Code, "1")
			}
			if !same(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestInvalidCalls(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"no-code":         {`{}`, `"code" is missing`},
		"null-code":       {`{"code": null}`, `"code" is missing`},
		"code-number":     {`{"code": 1}`, `"code" is missing`},
		"language":        {`{"code": "1", "language": 3}`, `"language" has to be a string`},
		"timeout":         {`{"code": "1", "timeout": "soon"}`, `"timeout" has to be a number`},
		"timeout-zero":    {`{"code": "1", "timeout": 0}`, `"timeout" has to be a number of seconds above 0`},
		"timeout-endless": {`{"code": "1", "timeout": 1e300}`, `"timeout" has to be a number`},
		"packages":        {`{"code": "1", "packages": {"numpy": 2}}`, `"packages" has to be a list`},
		"files":           {`{"code": "1", "files": "a.csv"}`, `"files" is neither a list nor an object`},
		"file-name":       {`{"code": "1", "files": [{"content": "x"}]}`, `has no name for file 1`},
		"file-base64":     {`{"code": "1", "files": [{"name": "a", "base64": "!"}]}`, `base64 for "a" that is none`},
		"several":         {`{"timeout": -1}`, `above 0`},
		"large":           {strings.Repeat(" ", tool.MaxInput+1), "at most 33554432"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := tool.ParseInput(test.in, executor.Python)
			var bad *tool.InputError
			if !errors.As(err, &bad) || !strings.Contains(bad.Error(), test.want) {
				t.Errorf("got %v, want an InputError with %q", err, test.want)
			}
		})
	}
}

// Reading whatever a model sends must end, and must not make it longer.
func FuzzParseInput(f *testing.F) {
	for _, code := range programs {
		f.Add(code)
		f.Add("Here:\n```python\n" + code + "\n```")
		f.Add(arguments(f, map[string]any{"code": code, "files": map[string]string{"a": "b"}}))
	}
	for _, s := range []string{`{'code': r'x' "y" '''z'''}`, `{"arguments": "{}"}`, "~~~\n~~~", "<code></code>", `\ud83d\ude00 \x41 \101 \U0001F600 \N{x}`, `f"{f'{"a":{b}}'!r}`, `{"code": "\ud83d"}`, "\ufeff``` ```", `{"a":`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		in, err := tool.ParseInput(s, executor.Python)
		if err != nil {
			if bad := (*tool.InputError)(nil); !errors.As(err, &bad) || bad.Error() == "" {
				t.Errorf("got %v, want an InputError with words", err)
			}
			return
		}
		// A byte that is not UTF-8 becomes a character of three bytes.
		if len(in.Code) > 3*len(s) {
			t.Errorf("%d bytes of code from %d", len(in.Code), len(s))
		}
		if in.Language == "" {
			t.Error("no language")
		}
	})
}

// A program stays unchanged whatever its strings and comments contain, and comes out of a fence as
// it was put in.
func FuzzProgramsStay(f *testing.F) {
	for _, code := range programs {
		f.Add(code)
	}
	f.Add("```\n\"\"\"\n```")
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return // JSON cannot encode it
		}
		escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `\'`).Replace(s)
		braces := strings.NewReplacer("{", "{{", "}", "}}").Replace(escaped)
		line := strings.NewReplacer("\n", " ", "\r", " ").Replace(s)
		for _, code := range []string{
			"x = \"\"\"" + escaped + "\"\"\"\nprint(x)",
			"x = '''" + escaped + "'''",
			"y = f'''{f\"{1:>{2}}\"}" + braces + "{'}'}'''\n# " + line + "\nprint(y)",
			"print(1) # " + line + "\nz = '''\n" + escaped + "\n'''\nz",
		} {
			if got := parse(t, arguments(t, map[string]any{"code": code})).Code; got != code {
				t.Errorf("got %q, want %q", got, code)
			}
			if got := parse(t, "Here's the code:\n```python\n"+code+"\n```\nThat's it.").Code; got != code {
				t.Errorf("from a fence: got %q, want %q", got, code)
			}
		}
	})
}

// Truncated arguments are not a program, and the model is told so.
func TestArgumentsThatAreCutOff(t *testing.T) {
	for _, whole := range []string{`{"code": "print(\"a\")\nprint({1: 2})"}`, `{"language": "python", "code": "x"}`, `{"packages": ["a"], "code": "1"}`, `{"files": {"a": "b"}, "code": "1"}`} {
		parse(t, whole)
		from := strings.Index(whole, ": ") + 3
		for i := from; i < len(whole); i++ {
			var bad *tool.InputError
			if in, err := tool.ParseInput(whole[:i], executor.Python); !errors.As(err, &bad) || !strings.Contains(err.Error(), "cut off") {
				t.Errorf("%s: got %+v, %v, want that it is cut off", whole[:i], in, err)
			}
		}
	}
	for _, program := range []string{`{"code": 1}["code"]`, `{"code": "a"}["code"]`, `{"a": "b`, `{1, 2`} {
		if in, err := tool.ParseInput(program, executor.Python); err != nil || in.Code != program {
			t.Errorf("%s: got %+v, %v, want it as it is", program, in, err)
		}
	}
}

// Lines at the beginning of a cell that ask pip for packages are part of the call. Anywhere else
// they belong to the cell.
func TestLinesThatInstall(t *testing.T) {
	tests := map[string]struct {
		code, want string
		packages   []string
	}{
		"magic":     {"%pip install numpy 'pandas>=2'\nimport numpy", "# %pip install numpy 'pandas>=2'\nimport numpy", []string{"numpy", "pandas>=2"}},
		"command":   {"# first\n\n!pip install -q six\n!python -m pip install --upgrade attrs\nx", "# first\n\n# !pip install -q six\n# !python -m pip install --upgrade attrs\nx", []string{"six", "attrs"}},
		"alone":     {"%pip install six", "# %pip install six", []string{"six"}},
		"later":     {"x = 1\n%pip install six", "x = 1\n%pip install six", nil},
		"option":    {"%pip install -r requirements.txt", "%pip install -r requirements.txt", nil},
		"in-string": {"s = \"\"\"\n%pip install six\n\"\"\"", "s = \"\"\"\n%pip install six\n\"\"\"", nil},
		"list":      {"!pip list", "!pip list", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := parse(t, arguments(t, map[string]any{"code": test.code, "language": "python"}))
			if in.Code != test.want || !slices.Equal(in.Packages, test.packages) {
				t.Errorf("got %q, %q, want %q, %q", in.Code, in.Packages, test.want, test.packages)
			}
		})
	}
	if in := parse(t, arguments(t, map[string]any{"code": "%pip install six", "language": "javascript"})); in.Packages != nil {
		t.Errorf("got packages %q of another language", in.Packages)
	}
}
