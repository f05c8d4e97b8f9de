package compat

import (
	"testing"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/pyodide"
)

// Python and JavaScript find their arguments, their input and the other files, as scripts do.
func TestScripts(t *testing.T) {
	x, err := pyodide.Open(t.Context(), driver.Env{Owner: "compat"}, pyodide.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	s, err := New(x, Config{Fronts: allFronts(), Keys: testKeys(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := &world{t: t, s: s}
	args := []string{"a b", "\u2028\"'\\", "\U0001f600"}
	for language, program := range map[string]struct{ main, other, want string }{
		"python": {
			"import sys, other\nprint(sys.argv, input(), other.x)\nif __name__ == '__main__':\n    sys.exit(3)", "x = 7",
			"['main', 'a b', '\\u2028\"\\'\\\\', '\U0001f600'] typed 7\n",
		},
		"javascript": {
			"const fs = require('fs')\nconsole.log(JSON.stringify(process.argv.slice(2)), fs.readFileSync(0, 'utf8').trim(), fs.readFileSync('other.py', 'utf8'))\nprocess.exit(3)", "x = 7",
			`["a b","` + "\u2028" + `\"'\\","` + "\U0001f600" + `"] typed x = 7` + "\n",
		},
	} {
		t.Run(language, func(t *testing.T) {
			want(t, w.ask(200, "POST", "/piston/execute", text(t, map[string]any{
				"language": language, "version": "*", "args": args, "stdin": "typed\n", "run_timeout": 20000,
				"files": []any{map[string]string{"name": "main", "content": program.main}, map[string]string{"name": "other.py", "content": program.other}},
			})), map[string]any{"run.stdout": program.want, "run.stderr": "", "run.code": 3})
		})
	}
	want(t, w.ask(200, "POST", "/terrarium", `{"code": "open('a.txt', 'w').write('hi')\n[1, 2]"}`), map[string]any{"success": true, "final_expression": []int{1, 2}, "output_files": []any{map[string]string{"filename": "a.txt", "b64_data": "aGk="}}})
}
