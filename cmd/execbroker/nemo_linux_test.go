package main

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestNeMoToolkit sends the requests of the NeMo Agent Toolkit's own tests of its sandbox, in their
// order, to real containers, and checks the expected answers. The image of these tests has numpy
// and pandas, and no plotly.
func TestNeMoToolkit(t *testing.T) {
	t.Parallel()
	host, config := boxes(t)
	owner := testOwner()
	p := installed(t, "serve", "--api", "nemo", "--config", config, "--owner", owner, "--listen", "127.0.0.1:0", "--json")
	s := announced[serving](t, p)
	type answer struct {
		Status string `json:"process_status"`
		Stdout string `json:"stdout"`
		Stderr string `json:"stderr"`
	}
	lines := func(lines ...string) string { return strings.Join(lines, "\n") + "\n" }
	for _, e := range []struct {
		name, code string
		timeout    int
		status     string
		stdout     []string // all of it
		stderr     string   // a part of it; empty: all
	}{
		{"simple-print", "print('hello')", 30, "completed", []string{"hello"}, ""},
		{"arithmetic", lines("", "n = 2 + 3", "print(f'n: {n}')"), 30, "completed", []string{"n: 5"}, ""},
		{"numpy", lines("import numpy as np", "a = np.arange(1, 6)", "print(a, np.mean(a))"), 30, "completed", []string{"[1 2 3 4 5] 3.0"}, ""},
		{"pandas", lines("import pandas as pd", "print(pd.DataFrame({'a': [1, 2, 3]})['a'].sum())"), 30, "completed", []string{"6"}, ""},
		{"plotly", lines("import plotly.graph_objects as go", "print(go.Figure())"), 30, "error", nil, "ModuleNotFoundError: No module named 'plotly'"},
		{"syntax-error", lines("", "print('open'", "# the parenthesis"), 30, "error", nil, "SyntaxError"},
		{"runtime-error", lines("x = 1 / 0", "print('never')"), 30, "error", nil, "ZeroDivisionError"},
		{"import-error", lines("import no_such_module", "print('never')"), 30, "error", nil, "ModuleNotFoundError"},
		{"mixed-output", lines("import sys", "print('one')", "print('other', file=sys.stderr)", "print('two')"), 30, "completed", []string{"one", "two"}, "other\n"},
		{"takes-time", lines("import time", "for i in range(3):", "    print(i)", "    time.sleep(0.2)", "print('done')"), 30, "completed", []string{"0", "1", "2", "done"}, ""},
		{"files", lines("import os", "print(os.getcwd())", "with open('t.txt', 'w') as f:", "    f.write('text')", "with open('t.txt') as f:", "    print(f.read())", "os.remove('t.txt')"), 30, "completed", []string{"/workspace", "text"}, ""},
		{"persistence-create", lines("import os, numpy as np, pandas as pd", "open('kept.txt', 'w').write('kept')", "pd.DataFrame({'a': [1, 2, 3], 'b': [4, 5, 6]}).to_csv('kept.csv', index=False)", "np.save('kept.npy', np.arange(1, 6))", "print(*sorted(n for n in os.listdir('.') if 'kept' in n))"), 30, "completed", []string{"kept.csv kept.npy kept.txt"}, ""},
		{"persistence-read", lines("import numpy as np, pandas as pd", "print(open('kept.txt').read(), pd.read_csv('kept.csv').shape, np.load('kept.npy').sum())"), 30, "completed", []string{"kept (3, 2) 15"}, ""},
		{"variables", "print('np' in globals(), 'pd' in globals())", 30, "completed", []string{"False False"}, ""},
		{"as-the-client-wraps-code", lines("import contextlib, io, json", "out = io.StringIO()", "with contextlib.redirect_stdout(out):", "    exec('def f(): return 6 * 7\\nprint(f())')", "print(json.dumps({'stdout': out.getvalue()}))"), 30, "completed", []string{`{"stdout": "42\n"}`}, ""},
		{"json", lines("import json", "with open('kept.json', 'w') as f:", "    json.dump({'n': [1.5, 2.3]}, f, indent=2)", "with open('kept.json') as f:", "    print(json.load(f)['n'])"), 30, "completed", []string{"[1.5, 2.3]"}, ""},
		{"timeout-too-low", lines("import time", "time.sleep(20)"), 1, "timeout", nil, "Timed out\n"},
		{"after-a-timeout", "print(open('kept.txt').read())", 30, "completed", []string{"kept"}, ""},
	} {
		body, err := json.Marshal(map[string]any{"generated_code": e.code, "timeout": e.timeout, "language": "python"})
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := json.Unmarshal([]byte(ask(t, 200, "POST", s.URL+"/execute", string(body), "Content-Type", "application/json")), &a); err != nil {
			t.Fatal(err)
		}
		var got []string
		if a.Stdout != "" {
			got = strings.Split(strings.TrimSuffix(a.Stdout, "\n"), "\n")
		}
		if a.Status != e.status || !slices.Equal(got, e.stdout) || !strings.Contains(a.Stderr, e.stderr) || e.stderr == "" && a.Stderr != "" {
			t.Errorf("%s: got %+v, want %+v", e.name, a, e)
		}
	}
	for body, contentType := range map[string]string{
		`{"timeout": 10, "language": "python"}`:                "application/json",
		`{"generated_code": "print(1)", "language": "python"}`: "application/json",
		`{"generated_code": "print("test")", "timeout": 10}`:   "application/json",
		`no JSON`: "text/plain",
	} {
		contains(t, ask(t, 400, "POST", s.URL+"/execute", body, "Content-Type", contentType), `"process_status":"error"`)
	}
	ask(t, 405, "GET", s.URL+"/execute", "") // the tests use this to check that the server is up
	if n := containers(t, host, owner); n != 1 {
		t.Errorf("got %d containers, want one workspace", n)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	if n := containers(t, host, owner); n != 0 {
		t.Errorf("%d containers are left", n)
	}
}
