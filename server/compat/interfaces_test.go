package compat

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/waittest"
)

// The exchanges are those of Terrarium's README and of its Python client.
func TestTerrarium(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	rec := w.do("POST", "/terrarium", text(t, map[string]any{
		"code":  "print(read(\"data/in.txt\"))\nwrite(\"out.txt\", \"made\")\n1 + 1",
		"files": []any{map[string]string{"filename": "data/in.txt", "b64_data": base64.StdEncoding.EncodeToString([]byte("given"))}},
	}))
	line, rest, _ := strings.Cut(rec.Body.String(), "\n") // the client reads to the first line break
	var a map[string]any
	if err := json.Unmarshal([]byte(line), &a); err != nil || rec.Code != 200 || rest != "" {
		t.Fatalf("got %d %s, %v", rec.Code, rec.Body, err)
	}
	want(t, a, map[string]any{
		"success": true, "std_out": "given\n", "std_err": "", "final_expression": 2,
		"output_files": []any{map[string]string{"filename": "out.txt", "b64_data": "bWFkZQ=="}},
	})
	a = w.ask(200, "POST", "/terrarium/", `{"code": "print(5)\nthrow(\"ZeroDivisionError\", \"division by zero\")"}`)
	want(t, a, map[string]any{"success": false, "error.type": "ZeroDivisionError", "std_out": "5\n", "final_expression": "(absent)", "output_files": []any{}})
	if m := a["error"].(map[string]any)["message"].(string); !strings.Contains(m, "ZeroDivisionError: division by zero") {
		t.Errorf("got %s", m)
	}
	want(t, w.ask(400, "POST", "/terrarium", `{}`), map[string]any{"success": false, "error.message": "no code provided"})
	w.ask(400, "POST", "/terrarium", `not JSON`)
	w.ask(400, "POST", "/terrarium", `{"code": "1", "files": [{"filename": "../x", "b64_data": ""}]}`)
	if rec := w.do("GET", "/terrarium/health", "", "Authorization", ""); rec.Code != 200 || rec.Body.String() != "hi!" {
		t.Errorf("got %d %s", rec.Code, rec.Body)
	}
	if n := len(w.b.Sandboxes()); n != 0 {
		t.Errorf("%d sandboxes live on", n)
	}
}

// Values are JSON as far as they are known, where the original has {} for a list.
func TestTerrariumValues(t *testing.T) {
	for shown, want := range map[string]string{
		"2": "2", "-1.5": "-1.5", "1e400": "1e400", "True": "true", "False": "false", "'a b'": `"a b"`, `"it's"`: `"it's"`, "[1, 2]": `"[1, 2]"`,
		`'\n'`: `"'\\n'"`, "'": `"'"`, "": `""`, "nan": `"nan"`, `"2"`: `"2"`, "null": `"null"`, "{'a': 1}": `"{'a': 1}"`,
	} {
		got := terrariumValue(executor.MIMEBundle{"text/plain": executor.Bytes(shown)})
		if got == nil || string(*got) != want {
			t.Errorf("%s: got %s, want %s", shown, *got, want)
		}
	}
	if got := terrariumValue(executor.MIMEBundle{"application/json": executor.Bytes(`[1]`), "text/plain": executor.Bytes("x")}); string(*got) != "[1]" {
		t.Errorf("got %s", *got)
	}
	if got := terrariumValue(executor.MIMEBundle{"image/png": nil}); got != nil {
		t.Errorf("got %s", *got)
	}
}

// The requests are those of Dify's own client.
func TestDify(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	run := func(language, code string) string {
		return text(t, map[string]any{"language": language, "code": code, "preload": "", "enable_network": true})
	}
	key := []string{"Authorization", "", "X-Api-Key", alice}
	for name, test := range map[string]struct {
		code string
		want map[string]any
	}{
		"ends":   {`print("<<RESULT>>{}<<RESULT>>")`, map[string]any{"code": 0, "message": "success", "data.stdout": "<<RESULT>>{}<<RESULT>>\n", "data.error": "", "data.stderr": "", "data.exit_code": 0}},
		"stderr": {`eprint("careful")`, map[string]any{"code": 0, "data.stderr": "careful\n", "data.error": ""}},
		"exits":  {`eprint("no")` + "\nexit(3)", map[string]any{"code": 0, "data.error": "process exited with code 3\nno\n", "data.exit_code": 3}},
		"dies":   {`die("SIGKILL")`, map[string]any{"code": 0, "data.error": "process exited with code -1\nerror: killed: SIGKILL\n", "data.exit_code": -1}},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, w.ask(200, "POST", "/dify/v1/sandbox/run", run("python3", test.code), key...), test.want)
		})
	}
	want(t, w.ask(200, "POST", "/dify/v1/sandbox/run", run("nodejs", "print(language())"), key...), map[string]any{"data.stdout": "javascript\n"})
	want(t, w.ask(200, "POST", "/dify/v1/sandbox/run", "language=python3&code=print(x)&preload=x+%3D+7", "Content-Type", "application/x-www-form-urlencoded"), map[string]any{"data.stdout": "7\n"})
	want(t, w.ask(200, "POST", "/dify/v1/sandbox/run", run("python3", "print(1)"), "Content-Type", "application/x-www-form-urlencoded"), map[string]any{"data.stdout": "1\n"})
	want(t, w.ask(400, "POST", "/dify/v1/sandbox/run", run("ruby", "1"), key...), map[string]any{"code": -400, "message": "unsupported language", "data": nil})
	want(t, w.ask(400, "POST", "/dify/v1/sandbox/run", `{"language": "python3"}`, key...), map[string]any{"code": -400, "message": "language and code are required"})
	want(t, w.ask(200, "GET", "/dify/v1/sandbox/dependencies?language=python3", "", key...), map[string]any{"data.dependencies": []any{}})
	want(t, w.ask(403, "POST", "/dify/v1/sandbox/dependencies/update", `{"language": "python3"}`, key...), map[string]any{"code": -403})
	want(t, w.ask(501, "POST", "/dify/v1/sandbox/dependencies/update", `{"language": "python3"}`, "X-Api-Key", operator, "Authorization", ""), map[string]any{"code": -501})
	if rec := w.do("GET", "/dify/health", "", "Authorization", ""); strings.TrimSpace(rec.Body.String()) != `"ok"` {
		t.Errorf("got %s", rec.Body)
	}
	short := newWorld(t, fake.Options{}, Config{MaxTimeout: time.Second})
	want(t, short.ask(200, "POST", "/dify/v1/sandbox/run", run("python3", "print(1)\nforever()"), key...), map[string]any{"data.stdout": "1\n", "data.exit_code": -1, "data.error": "process exited with code -1\nerror: timeout\n"})
}

// enable_network narrows what the configuration allows, and never widens it.
func TestDifyNetwork(t *testing.T) {
	for _, configured := range []executor.NetworkMode{executor.NetworkNone, executor.NetworkFull} {
		w := newWorld(t, fake.Options{}, Config{Spec: executor.Spec{Network: executor.NetworkPolicy{Mode: configured}}})
		c := &call{Server: w.s, api: &dify, r: w.request("POST")}
		for asked, want := range map[string]executor.NetworkMode{"true": configured, "false": executor.NetworkNone} {
			j, err := decodeDify(c, []byte(`{"language": "python3", "code": "1", "enable_network": `+asked+`}`))
			spec, err2 := c.spec(j)
			if got := spec.Network.Mode; err != nil || err2 != nil || got != want {
				t.Errorf("%s: got %s, %v, %v, want %s", asked, got, err, err2, want)
			}
		}
	}
}

// form returns a form with files, and its media type. Entries are alternating names and contents.
func form(t *testing.T, field string, entries ...string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	if err := m.WriteField("entity_id", "agent_1"); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(entries); i += 2 {
		part, err := m.CreateFormFile(field, entries[i])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(part, entries[i+1])
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), m.FormDataContentType()
}

// The requests are those of LibreChat's services for files, and of its tool for code.
func TestLibrechat(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	key := []string{"Authorization", "", "X-API-Key", alice, "User-Id", "65f"}
	body, media := form(t, "file", "data.csv", "a,b\n1,2\n")
	up := w.ask(200, "POST", "/librechat/v1/upload", body, append(key, "Content-Type", media)...)
	first := up["files"].([]any)[0].(map[string]any)
	want(t, up, map[string]any{"message": "success"})
	want(t, first, map[string]any{"filename": "data.csv"})
	session, id := up["session_id"].(string), first["fileId"].(string)
	if len(session) != 21 || len(id) != 21 {
		t.Errorf("%q and %q have no form that LibreChat accepts", session, id)
	}
	// Newer clients call the session by another name.
	for _, name := range []string{"session_id", "storage_session_id"} {
		run := w.ask(200, "POST", "/librechat/v1/exec", text(t, map[string]any{
			"lang": "py", "code": "print(read(\"data.csv\"), argv[1])\nmkdir(\"out\")\nwrite(\"out/chart.svg\", \"<svg/>\")\nwrite(\"data.csv\", \"changed\")", "args": []string{"x"}, "user_id": "65f",
			"files": []any{map[string]any{"id": id, name: session, "name": "/mnt/data/data.csv", "kind": "user", "resource_id": "65f"}}, "runtime_session_hint": "conversation",
		}), key...)
		want(t, run, map[string]any{"stdout": "a,b\n1,2\n x\n", "stderr": "", "code": 0})
		files := run["files"].([]any)
		if len(files) != 2 {
			t.Fatalf("got %v", run)
		}
		chart := files[1].(map[string]any)
		want(t, chart, map[string]any{"name": "out/chart.svg", "session_id": run["session_id"], "storage_session_id": run["session_id"]})
		got := w.do("GET", fmt.Sprintf("/librechat/v1/download/%s/%s?kind=user&id=65f", run["session_id"], chart["id"]), "", key...)
		if h := got.Header(); got.Body.String() != "<svg/>" || h.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("Content-Security-Policy") == "" {
			t.Errorf("got %s %v", got.Body, h)
		}
	}
	// The uploaded file is as it was: each run has a sandbox of its own.
	stat := w.ask(200, "GET", "/librechat/v1/sessions/"+session+"/objects/"+id+"?kind=user&id=65f", "", key...)
	want(t, stat, map[string]any{"size": 8, "metadata.original-filename": "data.csv"})
	if at, err := time.Parse(time.RFC3339Nano, stat["lastModified"].(string)); err != nil || time.Since(at) > time.Minute {
		t.Errorf("got %v, %v", at, err)
	}
	if got := w.do("GET", "/librechat/v1/files/"+session+"?detail=summary", "", key...).Body.String(); !strings.Contains(got, `"name":"`+session+"/"+id+`.csv"`) {
		t.Errorf("got %s", got)
	}
	w.ask(200, "DELETE", "/librechat/v1/files/"+session+"/"+id, "", key...)
	for _, path := range []string{"/files/" + session, "/download/" + session + "/" + id, "/sessions/" + session + "/objects/" + id} {
		w.ask(404, "GET", "/librechat/v1"+path, "", key...)
	}
	body, media = form(t, "file", "a.txt", "1", "b.txt", "2")
	want(t, w.ask(200, "POST", "/librechat/v1/upload/batch", body, append(key, "Content-Type", media)...), map[string]any{"succeeded": 2, "failed": 0})
	want(t, w.ask(200, "GET", "/librechat/v1/health", "", "Authorization", ""), map[string]any{"status": "ok"})
	w.ask(501, "POST", "/librechat/v1/exec/programmatic", "{}", key...)
}

func TestLibrechatEnds(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxKept: 100})
	exec := func(code string, more ...string) string {
		return text(t, map[string]any{"lang": "py", "code": code, "timeout": 1000})
	}
	want(t, w.ask(200, "POST", "/librechat/exec", exec("print(1)\nforever()")), map[string]any{"stdout": "1\n", "stderr": "Time limit exceeded\n", "signal": "SIGKILL", "status": "timed_out", "code": "(absent)"})
	want(t, w.ask(200, "POST", "/librechat/exec", exec("exit(3)")), map[string]any{"code": 3, "files": []any{}})
	a := w.ask(200, "POST", "/librechat/exec", exec(`write("big.bin", "x" * 200)`))
	if len(a["files"].([]any)) != 0 || !strings.Contains(a["stderr"].(string), "[big.bin is not kept: the files and results of this key fill its storage") {
		t.Errorf("got %v", a)
	}
	want(t, w.ask(200, "POST", "/librechat/exec", `{"lang": "bash", "code": "print(\"in a shell\", arg(0))", "args": "x y"}`), map[string]any{"stdout": "in a shell x\n"})
	want(t, w.ask(400, "POST", "/librechat/exec", `{"lang": "f90", "code": "1"}`), map[string]any{"error": "Unsupported language: f90"})
	body, media := form(t, "file", "a.bin", strings.Repeat("x", 60), "b.bin", strings.Repeat("x", 60))
	w.ask(507, "POST", "/librechat/upload", body, "Content-Type", media)
	if left := w.s.kept.below("alice", ""); len(left) != 0 {
		t.Errorf("a part of an upload is kept: %v", left)
	}
	body, media = form(t, "other")
	want(t, w.ask(400, "POST", "/librechat/upload", body, "Content-Type", media), map[string]any{"error": "No file uploaded"})
	w.ask(400, "POST", "/librechat/upload", "{}")
	without := newWorld(t, fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureArtifacts)}, Config{})
	without.ask(501, "POST", "/librechat/exec", exec("1"))
}

// The requests are those of Judge0's documentation and of its Python client.
func TestJudge0(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	key := []string{"Authorization", "", "X-Auth-Token", alice}
	for name, test := range map[string]struct {
		body string
		want map[string]any
	}{
		"accepted":    {`{"language_id": 71, "source_code": "print(\"hello\", readline())", "stdin": "world\n", "expected_output": "hello world  \n\n"}`, map[string]any{"status.id": 3, "status.description": "Accepted", "stdout": "hello world\n", "stderr": nil, "compile_output": nil, "message": nil, "exit_code": "(absent)"}},
		"no-expected": {`{"language_id": 63, "source_code": "print(language())"}`, map[string]any{"status.id": 3, "stdout": "javascript\n"}},
		"wrong":       {`{"language_id": 71, "source_code": "print(1)", "expected_output": "2"}`, map[string]any{"status.id": 4}},
		"late":        {`{"language_id": 71, "source_code": "forever()", "wall_time_limit": 0.1}`, map[string]any{"status.id": 5}},
		"cpu":         {`{"language_id": 71, "source_code": "forever()", "cpu_time_limit": 0.05}`, map[string]any{"status.id": 5}},
		"exit":        {`{"language_id": 71, "source_code": "exit(2)"}`, map[string]any{"status.id": 11, "message": "exit status 2"}},
		"segv":        {`{"language_id": 71, "source_code": "die(\"SIGSEGV\")"}`, map[string]any{"status.id": 7}},
		"abort":       {`{"language_id": 71, "source_code": "die(\"SIGABRT\")"}`, map[string]any{"status.id": 10}},
		"arguments":   {`{"language_id": 71, "source_code": "print(argv[2])", "command_line_arguments": "a b"}`, map[string]any{"stdout": "b\n"}},
		"merged":      {`{"language_id": 71, "source_code": "eprint(1)\nprint(2)", "redirect_stderr_to_stdout": true}`, map[string]any{"stdout": "1\n2\n", "stderr": nil}},
		"nulls":       {`{"language_id": 71, "source_code": "print(1)", "stdin": null, "expected_output": null, "stack_limit": null, "number_of_runs": null, "callback_url": null}`, map[string]any{"status.id": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, w.ask(201, "POST", "/judge0/submissions?wait=true", test.body, key...), test.want)
		})
	}
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	got := w.ask(201, "POST", "/judge0/submissions?base64_encoded=true&wait=true&fields=stdout,status_id,stdin", `{"language_id": 71, "source_code": "`+b64("out(unhex(\"ff\"))")+`", "stdin": "`+b64("x")+`\n"}`, key...)
	want(t, got, map[string]any{"stdout": "/w==", "status_id": 3, "stdin": b64("x"), "token": "(absent)"})
	want(t, w.ask(400, "POST", "/judge0/submissions?wait=true", `{"language_id": 71, "source_code": "out(unhex(\"ff\"))"}`, key...), map[string]any{"error": "some attributes for this submission cannot be converted to UTF-8, use base64_encoded=true query parameter"})
	if all := w.ask(201, "POST", "/judge0/submissions?wait=true&fields=*", `{"language_id": 71, "source_code": "print(1)"}`, key...); len(all) != 16 || all["source_code"] != "print(1)" {
		t.Errorf("got %d: %v", len(all), all)
	}
	for name, test := range map[string]struct{ body, field string }{
		"no-code":  {`{"language_id": 71}`, "source_code"},
		"language": {`{"language_id": 54, "source_code": "1"}`, "language_id"},
		"callback": {`{"language_id": 71, "source_code": "1", "callback_url": "http://169.254.169.254/"}`, "callback_url"},
		"files":    {`{"language_id": 71, "source_code": "1", "additional_files": "UEs="}`, "additional_files"},
		"network":  {`{"language_id": 71, "source_code": "1", "enable_network": true}`, "enable_network"},
		"time":     {`{"language_id": 71, "source_code": "1", "cpu_time_limit": 1e9}`, "cpu_time_limit"},
		"memory":   {`{"language_id": 71, "source_code": "1", "memory_limit": 1}`, "memory_limit"},
	} {
		if a := w.ask(422, "POST", "/judge0/submissions", test.body, key...); len(a) != 1 || a[test.field] == nil {
			t.Errorf("%s: got %v", name, a)
		}
	}
	w.ask(422, "POST", "/judge0/submissions?base64_encoded=true", `{"language_id": 71, "source_code": "(("}`, key...)
	if got := w.do("GET", "/judge0/languages", "", key...).Body.String(); !strings.Contains(got, `{"id":71,"name":"python (0)"}`) {
		t.Errorf("got %s", got)
	}
	want(t, w.ask(200, "GET", "/judge0/about", "", key...), map[string]any{"version": "1.13.1"})
}

// judged waits until a submission has ended.
func (w *world) judged(token string) (a map[string]any) {
	w.t.Helper()
	waittest.Until(w.t, "the submission ends", func() error {
		a = w.ask(200, "GET", "/judge0/submissions/"+token+"?fields=status_id,stdout,finished_at", "")
		if ended := a["status_id"].(float64) > 2; ended {
			return nil
		} else if a["finished_at"] != nil {
			w.t.Fatalf("got %v", a)
		}
		return fmt.Errorf("got %v", a)
	})
	return a
}

func TestJudge0InTheBackground(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxKept: 5000})
	token := w.ask(201, "POST", "/judge0/submissions", `{"language_id": 71, "source_code": "print(6 * 7)"}`)["token"].(string)
	want(t, w.judged(token), map[string]any{"status_id": 3, "stdout": "42\n"})
	rec := w.do("POST", "/judge0/submissions/batch", `{"submissions": [{"language_id": 71, "source_code": "print(1)"}, {"language_id": 71}, {"language_id": 71, "source_code": "print(2)"}]}`)
	var batch []map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &batch); err != nil || rec.Code != 201 || len(batch) != 3 || batch[1]["source_code"] == nil {
		t.Fatalf("got %d %s, %v", rec.Code, rec.Body, err)
	}
	one, two := batch[0]["token"].(string), batch[2]["token"].(string)
	w.judged(one)
	w.judged(two)
	want(t, w.ask(200, "GET", "/judge0/submissions/batch?fields=stdout&tokens="+one+",none,"+two, ""), map[string]any{"submissions": []any{map[string]any{"stdout": "1\n"}, nil, map[string]any{"stdout": "2\n"}}})
	for _, body := range []string{`{"submissions": []}`, `{"submissions": [` + strings.TrimSuffix(strings.Repeat("{},", 21), ",") + `]}`} {
		want(t, w.ask(400, "POST", "/judge0/submissions/batch", body), map[string]any{"error": "number of submissions in a batch should be from 1 to 20"})
	}
	w.ask(400, "GET", "/judge0/submissions/batch?tokens=", "")
	w.ask(400, "GET", "/judge0/submissions/"+one+"?fields=secret", "")
	// Output that has no room is told, not lost in silence.
	token = w.ask(201, "POST", "/judge0/submissions", `{"language_id": 71, "source_code": "print(\"x\" * 9000)"}`)["token"].(string)
	want(t, w.judged(token), map[string]any{"status_id": 13, "stdout": nil})
	w.ask(507, "POST", "/judge0/submissions", `{"language_id": 71, "source_code": "`+strings.Repeat("x", 9000)+`"}`)
	// Close ends what nobody waits for.
	w.ask(201, "POST", "/judge0/submissions", `{"language_id": 71, "source_code": "forever()", "wall_time_limit": 60}`)
	if err := w.s.Close(); err != nil {
		t.Error(err)
	}
	w.ask(503, "POST", "/judge0/submissions", `{"language_id": 71, "source_code": "1"}`)
}
