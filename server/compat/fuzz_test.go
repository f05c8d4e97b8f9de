package compat

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// request is a request with nothing in it.
func (w *world) request(method string) *http.Request {
	return httptest.NewRequestWithContext(w.t.Context(), method, "http://localhost/", nil)
}

// fuzzDecoder fuzzes the decoder of an interface: what it accepts is within the bounds, and what it
// refuses has a status that blames the client.
func fuzzDecoder(f *testing.F, a *api, decode func(*call, []byte) (job, error), seeds ...string) {
	x, err := fake.New(fake.Options{}).Open(driver.Env{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { x.Close() })
	s, err := New(x, Config{Fronts: []Front{{API: "piston"}}, Local: true, MaxTimeout: time.Minute})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	for _, seed := range append(seeds, "", "null", "[]", "{", "{}", `"x"`) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		c := &call{Server: s, api: a, r: httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/", nil)}
		j, err := decode(c, []byte(body))
		if err == nil {
			err = c.check(j)
		}
		if err != nil {
			why, wrong := refusal{}, invalid{}
			if !errors.As(err, &wrong) && (!errors.As(err, &why) || why.status < 400 || why.status >= 500 || why.text == "") {
				t.Errorf("got %#v", err)
			}
			return
		}
		if _, ok := c.language(string(j.runtime.Language)); !ok || j.timeout < 0 || j.timeout > time.Minute || j.memory < 0 || len(j.args) > maxArguments {
			t.Errorf("got %+v", j)
		}
		size := 0
		for _, g := range j.files {
			if size += len(g.data); !fs.ValidPath(g.name) {
				t.Errorf("got the file %q", g.name)
			}
		}
		if size > len(body) {
			t.Errorf("%d bytes of files from a body of %d", size, len(body))
		}
		if code := setArguments(j.runtime.Language, j.name, j.args); strings.ContainsAny(code, "\n\r\u2028\u2029") {
			t.Errorf("the code for arguments has several lines: %q", code)
		}
	})
}

func FuzzPiston(f *testing.F) {
	fuzzDecoder(f, &piston, decodePiston,
		`{"language": "python", "version": "3.x", "files": [{"content": "1"}, {"name": "a/b", "content": "00ff", "encoding": "hex"}], "args": ["\u2028\n"], "run_timeout": 1, "run_memory_limit": 1e6}`,
		`{"language": "js", "version": "*", "files": [{"content": "1"}], "run_timeout": 1e308}`)
}

func FuzzTerrarium(f *testing.F) {
	fuzzDecoder(f, &terrarium, decodeTerrarium, `{"code": "1", "files": [{"filename": "/home/earth/a", "b64_data": "AA=="}]}`)
}

func FuzzDify(f *testing.F) {
	fuzzDecoder(f, &dify, decodeDify, `{"language": "python3", "code": "1", "preload": "x", "enable_network": true}`)
}

func FuzzLibrechat(f *testing.F) {
	fuzzDecoder(f, &librechat, decodeLibrechat, `{"lang": "py", "code": "1", "args": "a b", "timeout": 5, "session_id": "x"}`, `{"lang": "js", "code": "1", "files": [{"id": "a", "session_id": "b"}]}`)
}

func FuzzJudge0(f *testing.F) {
	fuzzDecoder(f, &judge0, func(c *call, body []byte) (job, error) {
		_, j, err := decodeJudge(c, body)
		return j, err
	}, `{"language_id": 71, "source_code": "1", "cpu_time_limit": 1e-300, "wall_time_limit": 59.9, "memory_limit": 128000, "command_line_arguments": "a"}`, `{"language_id": 71, "source_code": "1", "memory_limit": 1e300}`)
}

func FuzzOnyx(f *testing.F) {
	fuzzDecoder(f, &onyx, decodeOnyx, `{"code": "1", "stdin": "x", "timeout_ms": 1, "last_line_interactive": false, "files": [{"path": "a", "file_id": "b"}]}`, `{"code": "", "timeout_ms": 1e308}`)
}

// FuzzForm reads forms with files: what it accepts has names below the working directory.
func FuzzForm(f *testing.F) {
	f.Add("--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a/../b.txt\"\r\n\r\ndata\r\n--x--\r\n")
	f.Add("--x--")
	f.Fuzz(func(t *testing.T, body string) {
		files, err := formFiles([]byte(body), "x")
		size := 0
		for _, g := range files {
			if size += len(g.data); !fs.ValidPath(g.name) || strings.Contains(g.name, "/") {
				t.Errorf("got the file %q", g.name)
			}
		}
		if err == nil && len(files) == 0 || size > len(body) {
			t.Errorf("got %d files with %d bytes, %v", len(files), size, err)
		}
	})
}

// FuzzValue makes values of what a sandbox shows: they are always JSON.
func FuzzValue(f *testing.F) {
	for _, seed := range []string{"1", "'a'", `"`, "1e999", "True", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, shown string) {
		if got := terrariumValue(executor.MIMEBundle{"text/plain": executor.Bytes(shown)}); got == nil || !json.Valid(*got) {
			t.Errorf("%q: got %v", shown, got)
		}
	})
}
