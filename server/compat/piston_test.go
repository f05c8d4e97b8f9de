package compat

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/npmtest"
)

// piston-client comes from npm, and so does the client of the WebSocket.
func TestPistonClient(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{Fronts: []Front{{API: "piston", Path: "/p"}}, Local: true})
	srv := httptest.NewServer(w.s)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	node := exec.CommandContext(ctx, "node", filepath.Join(npmtest.Install(t, "testdata/clients"), "piston.mjs"))
	node.Env = append(os.Environ(), "FRONT_URL="+srv.URL+"/p")
	if out, err := node.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "done\n") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// The messages are those of the original.
func TestPistonRefuses(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxTimeout: 3 * time.Second})
	files := `"files": [{"content": "print(1)"}]`
	for name, test := range map[string]struct{ body, want string }{
		"json":            {`{`, "the body is not the JSON of a request: unexpected end of JSON input"},
		"language":        {`{"language": 1}`, "language is required as a string"},
		"version":         {`{"language": "python"}`, "version is required as a string"},
		"files":           {`{"language": "python", "version": "*"}`, "files is required as an array"},
		"content":         {`{"language": "python", "version": "*", "files": [{"content": "1"}, {"name": "x"}]}`, "files[1].content is required as a string"},
		"runtime":         {`{"language": "html", "version": "5.0.0", ` + files + `}`, "html-5.0.0 runtime is unknown"},
		"no-utf8":         {`{"language": "python", "version": "*", "files": [{"content": "MQ==", "encoding": "base64"}]}`, "files must include at least one utf8 encoded file"},
		"not-base64":      {`{"language": "python", "version": "*", "files": [{"content": "1", "encoding": "base64"}]}`, "files[0].content is not base64: illegal base64 data at input byte 0"},
		"escapes":         {`{"language": "python", "version": "*", "files": [{"content": "1", "name": "../x"}]}`, `the file name "../x" is not one below the working directory`},
		"long":            {`{"language": "python", "version": "*", "run_timeout": 3001, ` + files + `}`, "run_timeout cannot exceed the configured limit of 3000"},
		"not-a-number":    {`{"language": "python", "version": "*", "run_timeout": "1", ` + files + `}`, "If specified, run_timeout must be a number"},
		"negative":        {`{"language": "python", "version": "*", "run_timeout": -1, ` + files + `}`, "run_timeout must be non-negative"},
		"negative-memory": {`{"language": "python", "version": "*", "run_memory_limit": -2, ` + files + `}`, "run_memory_limit must be non-negative"},
		"cpu-time":        {`{"language": "python", "version": "*", "run_timeout": 2000, "run_cpu_time": 1000, ` + files + `}`, "run_cpu_time: the backend bounds the time of a clock; set run_timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, w.ask(400, "POST", "/piston/api/v2/execute", test.body), map[string]any{"message": test.want})
		})
	}
	if n := w.b.Calls("create"); n != 0 {
		t.Errorf("%d sandboxes for refused requests", n)
	}
}

// The request of the NeMo toolkit's client, and what ends code.
func TestPistonRuns(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	nemo := func(code string) string {
		return text(t, map[string]any{
			"language": "py", "version": "3.10.0", "files": []any{map[string]any{"content": code}}, "stdin": "", "args": []any{},
			"run_timeout": 300.0, "compile_memory_limit": -1, "run_memory_limit": -1,
		})
	}
	for name, test := range map[string]struct {
		code string
		want map[string]any
	}{
		"ends":   {`print("a")` + "\n" + `eprint("b")` + "\n" + `print("c")`, map[string]any{"language": "python", "version": "0", "run.stdout": "a\nc\n", "run.stderr": "b\n", "run.output": "a\nb\nc\n", "run.code": 0, "run.signal": nil, "run.status": nil}},
		"throws": {`throw("ValueError", "no")`, map[string]any{"run.code": 1, "run.status": "RE", "run.message": "ValueError: no", "run.signal": nil}},
		"exits":  {`exit(7)`, map[string]any{"run.code": 7, "run.status": "RE", "run.message": "exit status 7"}},
		"late":   {`print("x")` + "\nforever()", map[string]any{"run.code": nil, "run.status": "TO", "run.signal": "SIGKILL", "run.stdout": "x\n", "run.message": "Time limit exceeded"}},
		"dies":   {`die("SIGSEGV")`, map[string]any{"run.code": nil, "run.status": "SG", "run.signal": "SIGSEGV"}},
	} {
		t.Run(name, func(t *testing.T) {
			// Clients that send a whole path, and one that calls its JSON text.
			want(t, w.ask(200, "POST", "/piston/execute", nemo(test.code), "Content-Type", "text/plain"), test.want)
		})
	}
	got := w.ask(200, "POST", "/piston/api/v2/execute", nemo(`throw("ValueError", "no")`))
	if run := got["run"].(map[string]any); !strings.Contains(run["stderr"].(string), "ValueError: no") || run["stderr"] != run["output"] {
		t.Errorf("got %v", run)
	}
	want(t, w.ask(200, "POST", "/piston/execute", `{"language": "bash", "version": "5", "args": ["x"], "files": [{"content": "print(arg(0), \"in a shell\")"}]}`), map[string]any{"run.stdout": "x in a shell\n"})
}

// Without what a front needs of a backend, it says so before code runs.
func TestPistonWithout(t *testing.T) {
	w := newWorld(t, fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureState, executor.FeatureCommand)}, Config{})
	body := func(language string) string {
		return `{"language": "` + language + `", "version": "*", "args": ["x"], "files": [{"content": "print(1)"}]}`
	}
	want(t, w.ask(501, "POST", "/piston/execute", body("python")), map[string]any{"message": "the backend cannot pass arguments to code"})
	want(t, w.ask(400, "POST", "/piston/execute", body("bash")), map[string]any{"message": "bash-* runtime is unknown"})
	if got := w.do("GET", "/piston/runtimes", "").Body.String(); strings.Contains(got, "bash") || !strings.Contains(got, `"javascript"`) {
		t.Errorf("got %s", got)
	}
}

func TestPistonPackages(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	if got := w.do("GET", "/piston/api/v2/packages", "").Body.String(); !strings.Contains(got, `{"installed":true,"language":"python","language_version":"0"}`) {
		t.Errorf("got %s", got)
	}
	for _, method := range []string{"POST", "DELETE"} {
		w.ask(403, method, "/piston/api/v2/packages", `{"language": "python", "version": "3.12.0"}`)
		w.ask(501, method, "/piston/api/v2/packages", `{"language": "python", "version": "3.12.0"}`, "Authorization", "Bearer "+operator)
	}
}

// A connection that says nothing, or too much, ends, and so does one at the end of the server.
func TestPistonConnections(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{Fronts: []Front{{API: "piston"}}, Local: true, BodyTime: time.Second, MaxBody: 1000})
	srv := httptest.NewServer(w.s)
	defer srv.Close()
	dial := func(first string) *websocket.Conn {
		t.Helper()
		ws, err := websocket.Dial("ws"+strings.TrimPrefix(srv.URL, "http")+"/connect", "", srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ws.Close() })
		if err := ws.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		if first != "" {
			if err := websocket.Message.Send(ws, first); err != nil {
				t.Fatal(err)
			}
		}
		return ws
	}
	receive := func(ws *websocket.Conn) (m string) {
		_ = websocket.Message.Receive(ws, &m)
		return m
	}
	if m := receive(dial("")); m != "" {
		t.Errorf("got %s from a connection without a message", m)
	}
	if m := receive(dial(`{"type": "init", "stdin": "` + strings.Repeat("x", 2000) + `"}`)); m != `{"message":"a message is too large","type":"error"}` {
		t.Errorf("got %s", m)
	}
	ws := dial(`{"type": "init", "language": "python", "version": "*", "files": [{"content": "print(1)\nforever()"}]}`)
	for range 3 {
		if m := receive(ws); m == "" {
			t.Fatal("the run does not begin")
		}
	}
	if err := w.s.Close(); err != nil {
		t.Error(err)
	}
	for m := "x"; m != ""; {
		m = receive(ws)
	}
}
