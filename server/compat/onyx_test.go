package compat

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/fake"
)

// The requests are those of Onyx's own client.
func TestOnyx(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	want(t, w.ask(200, "GET", "/onyx/health", "", "Authorization", ""), map[string]any{"status": "ok"})
	body, media := form(t, "file", "data.csv", "a,b\n")
	up := w.ask(201, "POST", "/onyx/v1/files", body, "Content-Type", media)
	id := up["file_id"].(string)
	want(t, up, map[string]any{"filename": "data.csv", "size_bytes": 4})
	run := w.ask(200, "POST", "/onyx/v1/execute", text(t, map[string]any{
		"code": "print(read(\"in/data.csv\"), readline())\neprint(\"e\")\nwrite(\"out.svg\", \"<svg/>\")\n6 * 7", "timeout_ms": 30000, "stdin": "typed\n",
		"files": []any{map[string]string{"path": "in/data.csv", "file_id": id}},
	}))
	want(t, run, map[string]any{"stdout": "a,b\n typed\n42\n", "stderr": "e\n", "exit_code": 0, "timed_out": false})
	files := run["files"].([]any)
	if len(files) != 1 {
		t.Fatalf("got %v, want what the code made only", files)
	}
	made := files[0].(map[string]any)
	want(t, made, map[string]any{"path": "out.svg", "kind": "file"})
	got := w.do("GET", "/onyx/v1/files/"+made["file_id"].(string), "")
	if h := got.Header(); got.Body.String() != "<svg/>" || h.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") {
		t.Errorf("got %s %v", got.Body, h)
	}
	if all := w.ask(200, "GET", "/onyx/v1/files", "")["files"].([]any); len(all) != 2 || all[0].(map[string]any)["file_id"] != id {
		t.Errorf("got %v", all)
	}
	if rec := w.do("DELETE", "/onyx/v1/files/"+id, ""); rec.Code != 204 || rec.Body.Len() > 0 {
		t.Errorf("got %d %s", rec.Code, rec.Body)
	}
	for _, method := range []string{"GET", "DELETE"} {
		w.ask(404, method, "/onyx/v1/files/"+id, "")
	}
	want(t, w.ask(200, "POST", "/onyx/v1/execute", `{"code": "6 * 7", "last_line_interactive": false}`), map[string]any{"stdout": ""})
	want(t, w.ask(200, "POST", "/onyx/v1/execute", `{"code": "print(1)\nforever()", "timeout_ms": 200}`), map[string]any{"stdout": "1\n", "exit_code": nil, "timed_out": true})
	want(t, w.ask(200, "POST", "/onyx/v1/execute", `{"code": "exit(3)"}`), map[string]any{"exit_code": 3, "timed_out": false, "files": []any{}})
	want(t, w.ask(200, "POST", "/onyx/v1/execute", `{"code": "die(\"SIGSEGV\")"}`), map[string]any{"exit_code": nil, "timed_out": false})
	for name, body := range map[string]string{
		"json": `{`, "no-code": `{}`, "type": `{"code": 1}`, "zero": `{"code": "1", "timeout_ms": 0}`, "long": `{"code": "1", "timeout_ms": 1e12}`,
	} {
		for _, path := range []string{"/onyx/v1/execute", "/onyx/v1/execute/stream"} {
			if a := w.ask(422, "POST", path, body); a["detail"] == "" {
				t.Errorf("%s: got %v", name, a)
			}
		}
	}
	w.ask(404, "POST", "/onyx/v1/execute", `{"code": "1", "files": [{"path": "a", "file_id": "absent"}]}`)
	w.ask(422, "POST", "/onyx/v1/execute", `{"code": "1", "files": [{"path": "../a", "file_id": "`+made["file_id"].(string)+`"}]}`)
	body, media = form(t, "file", "a", "1", "b", "2")
	w.ask(422, "POST", "/onyx/v1/files", body, "Content-Type", media)
	w.ask(501, "POST", "/onyx/v1/sessions", `{}`)
}

func TestOnyxStream(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	rec := w.do("POST", "/onyx/v1/execute/stream", `{"code": "print(1)\neprint(2)\nwrite(\"a\", \"\")\n42"}`)
	if rec.Code != 200 || rec.Header().Get("Content-Type") != "text/event-stream" {
		t.Fatalf("got %d %s", rec.Code, rec.Body)
	}
	var names []string
	for frame := range strings.SplitSeq(strings.TrimSuffix(rec.Body.String(), "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(strings.TrimPrefix(frame, "event: "), "\ndata: ")
		if !ok || strings.Contains(data, "\n") {
			t.Errorf("got the frame %q", frame)
		}
		names = append(names, name+" "+data)
	}
	all := strings.Join(names, "\n")
	for _, want := range []string{`output {"data":"1\n","stream":"stdout"}`, `output {"data":"2\n","stream":"stderr"}`, `output {"data":"42\n","stream":"stdout"}`} {
		if !strings.Contains(all, want) {
			t.Errorf("got %s, want %s in it", all, want)
		}
	}
	if last := names[len(names)-1]; !strings.HasPrefix(last, `result {"duration_ms":`) || !strings.Contains(last, `"path":"a"`) || strings.Contains(last, "stdout") {
		t.Errorf("got %s", last)
	}
	rec = w.do("POST", "/onyx/v1/execute/stream", `{"code": "x"}`)
	if got := rec.Body.String(); !strings.Contains(got, `"stream":"stderr"`) || !strings.Contains(got, "NameError") || !strings.Contains(got, `"exit_code":1`) {
		t.Errorf("got %s", got)
	}
}
