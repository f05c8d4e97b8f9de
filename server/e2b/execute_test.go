package e2b

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
)

// at returns the headers that address a port of a sandbox.
func at(id string, port int, more ...string) []string {
	return append([]string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", fmt.Sprint(port)}, more...)
}

// body makes the body of a request with code from its other fields.
func body(code string, fields ...string) string {
	b, err := json.Marshal(code)
	if err != nil {
		panic(err)
	}
	return "{" + strings.Join(append(fields, `"code": `+string(b)), ", ") + "}"
}

type line map[string]any

// lines decodes a stream, without times.
func lines(t *testing.T, stream []byte) (all []line) {
	t.Helper()
	for l := range bytes.Lines(stream) {
		var v line
		if err := json.Unmarshal(l, &v); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		if stamp, ok := v["timestamp"].(string); ok {
			if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
				t.Error(err)
			}
			delete(v, "timestamp")
		}
		all = append(all, v)
	}
	return all
}

// run executes code and returns what it did.
func (w world) run(id, body string) []line {
	w.Helper()
	rec := w.do("POST", "/execute", body, at(id, interpreterPort)...)
	if rec.Code != http.StatusOK {
		w.Fatalf("got %d %s", rec.Code, rec.Body)
	}
	return lines(w.T, rec.Body.Bytes())
}

// the returns the first line of a type.
func the(all []line, typ string) line {
	i := slices.IndexFunc(all, func(l line) bool { return l["type"] == typ })
	if i < 0 {
		return nil
	}
	return all[i]
}

func TestExecute(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.create(`"envVars": {"SPEC": "it's"}`).SandboxID
	for _, c := range []struct{ name, body, want string }{
		{"text", body("print(1)\neprint(2)"), `[{"type":"stdout","text":"1\n"},{"type":"stderr","text":"2\n"}]`},
		{"value", body("6 * 7"), `[{"type":"result","is_main_result":true,"text":"42","extra":{}}]`},
		{"json", body(`display(show("text/plain", "<JSON object>", "application/json", "[1]"))`), `[{"type":"result","is_main_result":false,"text":"<JSON object>","json":[1],"extra":{}}]`},
		{"table", body(`display(show("application/vnd.dataresource+json", "{\"schema\":{\"fields\":[{\"name\":\"i\"},{\"name\":\"b\"},{\"name\":0}],\"primaryKey\":[\"i\"]},\"data\":[{\"i\":0,\"b\":\"x\",\"0\":1.5},{\"i\":1,\"b\":null}]}"))`),
			`[{"type":"result","is_main_result":false,"data":{"b":["x",null],"0":[1.5,null]},"extra":{}}]`},
		{"odd-table", body(`display(show("application/vnd.dataresource+json", "[]"))`), `[{"type":"result","is_main_result":false,"extra":{"application/vnd.dataresource+json":"[]"}}]`},
		{"rich", body(`display(show("text/plain", "'a\"'", "image/png", b"\x89PNG", "application/json", "[1, null]", "text/x-odd", "x", "e2b/chart", "{}", "application/x-bin", b"\xff"))`),
			`[{"type":"result","is_main_result":false,"text":"a\"","png":"iVBORw==","json":[1,null],"chart":{},"extra":{"text/x-odd":"x","application/x-bin":"/w=="}}]`},
		{"bad-json", body(`display(show("application/json", "{"))`), `[{"type":"result","is_main_result":false,"extra":{"application/json":"{"}}]`},
		{"exit", body("exit(3)"), `[{"type":"error","name":"SystemExit","value":"3","traceback":""}]`},
		{"env", body(`print(env("SPEC"), env("A"))`, `"env_vars": {"A": "'\n\"\\"}`), `[{"type":"stdout","text":"it's '\n\"\\\n"}]`},
		{"env-gone", body(`print(env("A"))`), `[{"type":"stdout","text":"null\n"}]`},
		{"language", body(`print("js")`, `"language": " JS "`), `[{"type":"stdout","text":"js\n"}]`},
		{"nulls", body(`1`, `"language": null`, `"context_id": null`, `"env_vars": null`), `[{"type":"result","is_main_result":true,"text":"1","extra":{}}]`},
		{"empty", body(``), `[]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := world{t, w.b, w.s}.run(id, c.body)
			if n := len(got); n < 2 || got[0]["type"] != "number_of_executions" || got[n-1]["type"] != "end_of_execution" {
				t.Fatalf("got %v", got)
			}
			var want []line
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if a, b := fmt.Sprint(got[1:len(got)-1]), fmt.Sprint(want); a != b {
				t.Errorf("got %s\nwant %s", a, b)
			}
		})
	}
	first, second := w.run(id, body("kept = 5")), w.run(id, body("kept"))
	if a, b := first[0]["execution_count"].(float64), second[0]["execution_count"].(float64); b != a+1 {
		t.Errorf("got execution counts %v and %v", a, b)
	}
	if got := the(second, "result"); got["text"] != "5" {
		t.Errorf("the state is gone: %v", second)
	}
	e := the(w.run(id, body(`throw("ValueError", "bad")`)), "error")
	if e["name"] != "ValueError" || e["value"] != "bad" || !strings.Contains(e["traceback"].(string), "ValueError") {
		t.Errorf("got %v", e)
	}
	if e = the(w.run(id, body(`die("SIGSEGV")`)), "error"); e["name"] != "ContextRestarting" {
		t.Errorf("got %v", e)
	}
}

func TestExecuteRefusals(t *testing.T) {
	w := newWorld(t, fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureEnv)}, Config{})
	id := w.create("").SandboxID
	for name, c := range map[string]struct {
		status  int
		body    string
		want    string
		headers []string
	}{
		"both":            {400, body("1", `"language": "python"`, `"context_id": "python"`), "Only one of context_id or language can be provided", nil},
		"unknown-context": {404, body("1", `"context_id": "x"`), "Context x not found", nil},
		"language":        {404, body("1", `"language": "r"`), `language "r" is not in this sandbox, which has python`, nil},
		"env":             {501, body("1", `"env_vars": {"A": "1"}`), "env:python", nil},
		"no-code":         {422, `{}`, "code", nil},
		"not-json":        {422, `{"code": 1}`, `"detail"`, nil},
		"token":           {401, body("1"), "X-Access-Token", []string{"X-Access-Token", "x"}},
		"huge":            {413, body(strings.Repeat("x", maxCode)), "bytes", nil},
	} {
		rec := w.do("POST", "/execute", c.body, at(id, interpreterPort, c.headers...)...)
		if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.want) {
			t.Errorf("%s: got %d %s, want %d and %q", name, rec.Code, rec.Body, c.status, c.want)
		}
	}
	if rec := w.do("GET", "/health", "", at(id, interpreterPort)...); rec.Body.String() != "\"OK\"\n" {
		t.Errorf("got health %s", rec.Body)
	}
}

// Lines are ASCII, since the SDKs lose characters that come in two pieces, and mean what was
// printed.
func TestLinesAreASCII(t *testing.T) {
	for _, text := range []string{"", "a\n", "渐", "😀\u2028\x00\"\\", "\xff"} {
		line := codeEvent{Type: "stdout", Text: &text}.line()
		if i := bytes.IndexFunc(line, func(r rune) bool { return r > 127 }); i >= 0 {
			t.Errorf("%q: got %q", text, line)
		}
		var back codeEvent
		if err := json.Unmarshal(line, &back); err != nil || *back.Text != strings.ToValidUTF8(text, "\uFFFD") {
			t.Errorf("%q: got %q, %v", text, line, err)
		}
	}
}

type contextAnswer struct{ ID, Language, Cwd string }

func TestContexts(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.create("").SandboxID
	ask := func(status int, method, path, body string) *httptest.ResponseRecorder {
		w.Helper()
		rec := w.do(method, path, body, at(id, interpreterPort)...)
		if rec.Code != status {
			w.Fatalf("%s %s: got %d %s, want %d", method, path, rec.Code, rec.Body, status)
		}
		return rec
	}
	all := func() (ids []string) {
		for _, x := range decode[[]contextAnswer](t, ask(200, "GET", "/contexts", "")) {
			ids = append(ids, x.ID)
		}
		return ids
	}
	x := decode[contextAnswer](t, ask(200, "POST", "/contexts", `{"language": "python", "cwd": "/tmp"}`))
	if x.Language != "python" || x.Cwd != "/tmp" {
		t.Errorf("got %+v", x)
	}
	if got, want := all(), []string{"python", "javascript", "typescript", "bash", x.ID}; !slices.Equal(got, want) {
		t.Errorf("got contexts %v, want %v", got, want)
	}
	in := fmt.Sprintf(`"context_id": %q`, x.ID)
	text := func(l []line) any { return the(l, "stdout")["text"] }
	if got := text(w.run(id, body("kept = 1\nprint(cwd())", in))); got != "/tmp\n" {
		t.Errorf("got directory %v", got)
	}
	if got := text(w.run(id, body(`print(recall("kept", "absent"))`))); got != "absent\n" {
		t.Errorf("contexts share state: %v", got)
	}
	w.run(id, body("kept = 2"))
	ask(200, "POST", "/contexts/python/restart", "")
	if got := text(w.run(id, body(`print(recall("kept", "absent"))`))); got != "absent\n" {
		t.Errorf("state after a restart: %v", got)
	}
	if got := text(w.run(id, body(`print(recall("kept", "absent"))`, in))); got != "1\n" {
		t.Errorf("a restart has hit another context: %v", got)
	}
	ask(200, "POST", "/contexts/"+x.ID+"/restart", "")
	if got := text(w.run(id, body(`print(recall("kept", "absent"), cwd())`, in))); got != "absent /tmp\n" {
		t.Errorf("after a restart: %v", got)
	}
	if got := ask(200, "DELETE", "/contexts/"+x.ID, "").Body.String(); got != "null\n" {
		t.Errorf("got %q", got)
	}
	// TypeScript and JavaScript share their first interpreter.
	w.run(id, body("kept = 3", `"language": "ts"`))
	if got := text(w.run(id, body(`print(recall("kept", "absent"))`, `"language": "js"`))); got != "3\n" {
		t.Errorf("JavaScript and TypeScript do not share state: %v", got)
	}
	ask(200, "POST", "/contexts/typescript/restart", "")
	if got := text(w.run(id, body(`print(recall("kept", "absent"))`, `"context_id": "javascript"`))); got != "absent\n" {
		t.Errorf("state of JavaScript after a restart of TypeScript: %v", got)
	}
	if y := decode[contextAnswer](t, ask(200, "POST", "/contexts", `{"language": "ts"}`)); y.Language != "typescript" {
		t.Errorf("got %+v", y)
	} else {
		ask(200, "DELETE", "/contexts/"+y.ID, "")
	}
	ask(404, "DELETE", "/contexts/"+x.ID, "")
	ask(404, "POST", "/contexts/"+x.ID+"/restart", "")
	ask(404, "POST", "/contexts", `{"language": "r"}`)
	ask(422, "POST", "/contexts", `{`)
	for range maxContexts - 4 {
		ask(200, "POST", "/contexts", `{}`)
	}
	ask(429, "POST", "/contexts", `{}`)
}

// Where a backend has no contexts a sandbox has one interpreter, which can be restarted.
func TestWithoutContexts(t *testing.T) {
	w := newWorld(t, fake.Options{Capabilities: fake.Without(fake.All(executor.Python), executor.FeatureContexts, executor.FeatureParallelRuns)}, Config{})
	id := w.create("").SandboxID
	w.run(id, body("kept = 2"))
	if rec := w.do("POST", "/contexts", `{}`, at(id, interpreterPort)...); rec.Code != 501 || !strings.Contains(rec.Body.String(), "contexts:python") {
		t.Errorf("got %d %s", rec.Code, rec.Body)
	}
	if rec := w.do("POST", "/contexts/python/restart", "", at(id, interpreterPort)...); rec.Code != 200 {
		t.Errorf("got %d %s", rec.Code, rec.Body)
	}
	if got := the(w.run(id, body(`print(recall("kept", "absent"))`)), "stdout"); got["text"] != "absent\n" {
		t.Errorf("got %v", got)
	}
}

// A stream is never silent for long, neither while code runs nor while it waits for its turn, and
// requests have their turn in order.
func TestKeepalivesAndTurns(t *testing.T) {
	bubble(t, fake.Options{}, Config{}, func(w world) {
		id := w.create("").SandboxID
		start := time.Now()
		waiting := make(chan []line)
		go func() { waiting <- w.run(id, body("print(1)\nsleep(12000)")) }()
		synctest.Wait()
		second := w.run(id, body("print(2)"))
		if got := time.Since(start); got != 12*time.Second {
			t.Errorf("the second run was over after %v", got)
		}
		for _, got := range [][]line{second, <-waiting} {
			n := 0
			for _, l := range got {
				if l["type"] == "keepalive" {
					n++
				}
			}
			if n != 2 {
				t.Errorf("got %d keepalives in 12 s: %v", n, got)
			}
		}
	})
}

// Code whose client goes is stopped, and the next request finds its context alive.
func TestDisconnect(t *testing.T) {
	bubble(t, fake.Options{}, Config{}, func(w world) {
		id := w.create("").SandboxID
		ctx, cancel := context.WithCancel(w.Context())
		r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost/execute", strings.NewReader(body("kept = 1\nforever()")))
		r.Header.Set("E2b-Sandbox-Id", id)
		r.Header.Set("E2b-Sandbox-Port", "49999")
		done := make(chan struct{})
		go func() { defer close(done); w.s.ServeHTTP(httptest.NewRecorder(), r) }()
		synctest.Wait()
		cancel()
		got := w.run(id, body(`print(recall("kept", "absent"))`))
		<-done
		if got := the(got, "stdout"); got["text"] != "1\n" {
			t.Errorf("got %v", got)
		}
	})
}

// The same with connections: events come while the code runs, a client that hangs up stops it, a
// sandbox that is killed breaks them.
func TestConnections(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	srv := httptest.NewServer(w.s)
	defer srv.Close()
	id := w.create("").SandboxID
	post := func(code string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/execute", strings.NewReader(body(code)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("E2b-Sandbox-Id", id)
		r.Header.Set("E2b-Sandbox-Port", "49999")
		res, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Header.Get("Content-Type"); got != "" {
			t.Errorf("got Content-Type %q", got)
		}
		return res
	}
	until := func(in *bufio.Reader, word string) error {
		for {
			l, err := in.ReadString('\n')
			if err != nil || strings.Contains(l, word) {
				return err
			}
		}
	}
	first := post("print(1)\nforever()")
	if err := until(bufio.NewReader(first.Body), "stdout"); err != nil {
		t.Fatal(err)
	}
	first.Body.Close()
	second := post("print(2)\nforever()")
	in := bufio.NewReader(second.Body)
	if err := until(in, "stdout"); err != nil {
		t.Fatal(err)
	}
	w.want(204, "DELETE", "/sandboxes/"+id, "")
	if err := until(in, "end_of_execution"); err == nil || err == io.EOF {
		t.Errorf("got %v, want a broken connection", err)
	}
	second.Body.Close()
}

// A sandbox that dies by itself is gone for its client as well.
func TestDeath(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.create("").SandboxID
	w.b.Break(w.b.Sandboxes()[0])
	func() {
		defer func() {
			if got := recover(); got != http.ErrAbortHandler {
				t.Errorf("got %v, want a broken connection", got)
			}
		}()
		w.run(id, body("1"))
	}()
	<-w.gone(id)
	w.want(404, "GET", "/sandboxes/"+id, "")
}

func (w world) gone(id string) <-chan struct{} {
	if b := w.s.lookup(id); b != nil {
		return b.gone
	}
	c := make(chan struct{})
	close(c)
	return c
}
