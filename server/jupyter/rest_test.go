package jupyter

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
)

// A session is a name for a kernel.
func TestSessions(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	s := ask[sessionModel](w, 201, "POST", "/api/sessions", `{"path": "a.ipynb", "name": "a", "type": "notebook", "kernel": {"name": "python3"}}`)
	if s.Path != "a.ipynb" || s.Kernel.Name != "python3" || s.Notebook.Path != "a.ipynb" {
		t.Errorf("got %+v", s)
	}
	if again := ask[sessionModel](w, 201, "POST", "/api/sessions", `{"path": "a.ipynb", "kernel": {"name": "python3"}}`); again.ID != s.ID {
		t.Errorf("got %+v", again)
	}
	path := "/api/sessions/" + s.ID
	if got := ask[sessionModel](w, 200, "PATCH", path, `{"path": "b.ipynb"}`); got.Path != "b.ipynb" || got.Kernel.ID != s.Kernel.ID || got.Name != "a" {
		t.Errorf("got %+v", got)
	}
	got := ask[sessionModel](w, 200, "PATCH", path, `{"kernel": {"name": "javascript"}}`)
	if got.Kernel.Name != "javascript" || got.Kernel.ID == s.Kernel.ID || got.Path != "b.ipynb" {
		t.Errorf("got %+v", got)
	}
	ask[any](w, 400, "PATCH", path, `{"path": "`+strings.Repeat("x", maxPath+1)+`"}`)
	ask[any](w, 404, "PATCH", path, `{"kernel": {"id": "none"}}`)
	if all := ask[[]sessionModel](w, 200, "GET", "/api/sessions", ""); len(all) != 1 || all[0].ID != s.ID {
		t.Errorf("got %+v", all)
	}
	ask[any](w, 204, "DELETE", path, "")
	ask[any](w, 404, "GET", path, "")
	if all := ask[[]kernelModel](w, 200, "GET", "/api/kernels", ""); len(all) != 1 || all[0].ID != s.Kernel.ID {
		t.Errorf("got %+v", all) // the kernel that the session had before
	}
}

// There is a kernel for each language, under the names that clients use.
func TestSpecs(t *testing.T) {
	w := newWorld(t, fake.Options{Capabilities: fake.Without(fake.All(executor.JavaScript), executor.FeatureTypeScript)}, Config{})
	if got := w.do("GET", "/api/kernelspecs", "").Body.String(); !strings.HasPrefix(got, `{"default":"javascript","kernelspecs":{"javascript":{"name":"javascript"`) || strings.Contains(got, "typescript") {
		t.Errorf("got %s", got)
	}
	ask[any](w, 404, "GET", "/api/kernelspecs/python3", "")
	w = newWorld(t, fake.Options{}, Config{})
	for _, name := range []string{"", "python", "python3"} {
		if got := ask[kernelModel](w, 201, "POST", "/api/kernels", `{"name": "`+name+`"}`); got.Name != "python3" || got.State != idle {
			t.Errorf("got %+v", got)
		}
	}
	if got := w.do("GET", "/api/me", "").Body.String(); !strings.Contains(got, `"username":"alice"`) {
		t.Errorf("got %s", got)
	}
	if got := w.do("GET", "/api", "", "Authorization", "").Body.String(); got != `{"version":"`+version+"\"}\n" {
		t.Errorf("got %s", got)
	}
}

// The contents are the files of the kernels.
func TestContents(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxBody: 300})
	id := w.start("python3")
	dir := "/api/contents/" + id
	put := func(status int, name, body string) {
		t.Helper()
		ask[any](w, status, "PUT", dir+"/"+name, body)
	}
	put(201, "a/b.txt", `{"type": "file", "format": "text", "content": "é"}`)
	put(201, "b.bin", `{"type": "file", "format": "base64", "content": "/w=="}`)
	put(201, "c.ipynb", `{"type": "notebook", "format": "json", "content": {"cells": []}}`)
	put(201, "d", `{"type": "directory"}`)
	put(400, "x", `{"type": "file", "format": "base64", "content": "?"}`)
	put(400, "x", `{"type": "file", "format": "text", "content": 1}`)
	put(501, "x", `{"type": "file", "format": "text", "content": "1", "chunk": 1}`)
	put(413, "x", `{"type": "file", "format": "text", "content": "`+strings.Repeat("x", 300)+`"}`)
	put(403, "", `{"type": "directory"}`)
	ask[any](w, 404, "PUT", "/api/contents/none/x", `{"type": "directory"}`)
	ask[any](w, 400, "PUT", dir+"/a%2F..%2F..%2F..%2Fx", `{"type": "file", "format": "text", "content": ""}`)
	ask[any](w, 501, "POST", "/api/contents/", `{"type": "notebook"}`)
	c := w.connect(id, framingV1)
	c.has(c.run("print(read(\"a/b.txt\"))\nwrite(\"big\", \"x\" * 301)"), `iopub stream {"name":"stdout","text":"é\n"}`)
	names := func(e entry) (names []string) {
		for _, f := range e.Content.([]any) {
			m := f.(map[string]any)
			names = append(names, m["type"].(string)+" "+strings.TrimPrefix(m["path"].(string), id))
		}
		return names
	}
	if got := strings.Join(names(ask[entry](w, 200, "GET", dir, "")), ", "); got != "directory /a, file /b.bin, file /big, notebook /c.ipynb, directory /d" {
		t.Errorf("got %s", got)
	}
	if got := names(ask[entry](w, 200, "GET", "/api/contents", "")); len(got) != 1 || got[0] != "directory " {
		t.Errorf("got %s", got)
	}
	for name, want := range map[string]string{"a/b.txt": `"é","format":"text"`, "b.bin": `"/w==","format":"base64"`, "c.ipynb": `{"cells":[]},"format":"json"`, "a/b.txt?content=0": `null,"format":null`, "c.ipynb?type=file": `"{\"cells\": []}","format":"text"`} {
		if got := w.do("GET", dir+"/"+name, "").Body.String(); !strings.Contains(got, `"content":`+want) {
			t.Errorf("%s: got %s", name, got)
		}
	}
	ask[any](w, 413, "GET", dir+"/big", "")
	ask[any](w, 400, "GET", dir+"/b.bin?format=text", "")
	if e := ask[entry](w, 200, "PATCH", dir+"/b.bin", `{"path": "`+id+`/a/c.bin"}`); e.Path != id+"/a/c.bin" {
		t.Errorf("got %+v", e)
	}
	ask[any](w, 409, "PATCH", dir+"/a/c.bin", `{"path": "`+id+`/a/b.txt"}`)
	ask[any](w, 403, "PATCH", dir+"/a/c.bin", `{"path": "`+w.start("python3")+`/c.bin"}`)
	ask[any](w, 204, "DELETE", dir+"/a", "")
	ask[any](w, 404, "GET", dir+"/a/c.bin", "")
	ask[any](w, 404, "DELETE", dir+"/a", "")
}
