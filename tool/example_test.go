package tool_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/pyodide"
	"github.com/execbroker/execbroker/tool"
)

// A chat backend passes on what its model wrote, and sends back the answer.
func Example() {
	ctx := context.Background()
	box, err := pyodide.Open(ctx, driver.Env{Owner: "example"}, pyodide.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close()
	manager, err := sessions.New(box, sessions.NewMemoryStore(), sessions.Options{Instance: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer manager.Close(ctx)
	t, err := tool.New(box, manager, tool.Options{Languages: []executor.Language{executor.Python}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, arguments := range []string{
		`{"code": "prices = {'tea': 3, 'coffee': 4}"}`,
		`{"code": "prices['milk']"}`,
	} {
		out, err := t.Call(ctx, tool.Conversation{ID: "chat-1", Subject: "ada"}, arguments, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("success: %v\n%s\n", out.Success, out.Error)
	}
	// Output:
	// success: true
	//
	// success: false
	// Traceback (most recent call last):
	//   File "<cell 2>", line 1, in <module>
	//     prices['milk']
	//     ~~~~~~^^^^^^^^
	// KeyError: 'milk'
	// Hint: there is no such key or column. Print what is there before you use it: print(df.columns.tolist()) for a table, print(list(d)) for a dictionary.
}

// The capabilities of the backend determine the list of tools in a request to a model API.
func ExampleDefine() {
	d := tool.Define(fake.All(executor.Python), tool.Options{Languages: []executor.Language{executor.Python}})
	request := map[string]any{"tools": []any{d.OpenAI()}}
	text, err := json.Marshal(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(text[:63]))
	// Output: {"tools":[{"type":"function","function":{"name":"execute_code",
}

// Models put many things around code. ParseInput extracts the code, and leaves code without them
// unchanged.
func ExampleParseInput() {
	for _, arguments := range []string{
		`{"code": "print(6 * 7)"}`,
		"Here's the code:\n```python\nprint(6 * 7)\n```",
		`{'code': 'print(6 * 7)', 'timeout': '10s'}`,
		"python_version = 3\nprint('```')",
	} {
		in, err := tool.ParseInput(arguments, executor.Python)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s %v %q\n", in.Language, in.Timeout, in.Code)
	}
	// Output:
	// python 0s "print(6 * 7)"
	// python 0s "print(6 * 7)"
	// python 10s "print(6 * 7)"
	// python 0s "python_version = 3\nprint('```')"
}

// A result becomes an answer that says what went wrong and what to do next.
func ExampleReport() {
	in := tool.Input{Language: executor.Python, Code: "import yaml"}
	res := &executor.Result{
		Status: executor.StatusFailed, ExitCode: 1,
		Exception: &executor.Exception{Type: "ModuleNotFoundError", Message: "No module named 'yaml'", Line: 1},
	}
	out := tool.Report(tool.Outcome{Input: in, Result: res}, fake.All(), tool.Options{})
	fmt.Println(out.Error)
	// Output:
	// ModuleNotFoundError: No module named 'yaml'
	// Line 1 of the code: import yaml
	// Hint: call again with "packages": ["pyyaml"].
}
