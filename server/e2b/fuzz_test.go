package e2b

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/fake"
)

// FuzzCreate sends bodies to create: the answer has the shape of E2B's, and there is a sandbox only
// with status 201.
func FuzzCreate(f *testing.F) {
	for _, seed := range []string{
		`{"templateID": "base"}`, `{"templateID": "base", "timeout": 60, "metadata": {"Ä b": "&="}, "envVars": {"A": "1"}}`, `{"templateID": "base"}{}`, `{"timeout": -1}`,
		`{"templateID": "base", "network": {"denyOut": ["0.0.0.0/0"], "allowOut": ["example.org"]}}`, `{"templateID":"base","volumeMounts":[{}]}`, "", "null", "[]", "{",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := newWorld(t, fake.Options{}, Config{})
		rec := w.do("POST", "/v2/sandboxes", body)
		if n := len(w.b.Sandboxes()); (rec.Code == http.StatusCreated) != (n == 1) || n > 1 {
			t.Errorf("got %d and %d sandboxes", rec.Code, n)
		}
		if rec.Code >= 500 && rec.Code != http.StatusNotImplemented {
			t.Errorf("got %d %s", rec.Code, rec.Body)
		}
		if rec.Code != http.StatusCreated {
			if e := decode[apiError](t, rec); e.Status != rec.Code || e.Message == "" {
				t.Errorf("got %s", rec.Body)
			}
		}
	})
}

// FuzzFilter parses queries of lists: what it accepts is within its bounds.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{"", "metadata=a%253Db%3Dc&state=running,paused&limit=3&order=asc", "nextToken=AA&startedAfter=2026-11-22T00:00:00Z", "limit=-1", "metadata=%25"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		if got, err := parseFilter(q, true); err == nil && (got.limit < 1 || got.limit > maxPage) {
			t.Errorf("got limit %d", got.limit)
		}
	})
}

// FuzzPaths makes names of files absolute: a relative one stays below the working directory, and
// what is absolute stays what it is.
func FuzzPaths(f *testing.F) {
	for _, seed := range []string{"a", "../x", "a/../../x", "/etc/../x", "~", "~/x", "", ".", "/", "a//b", "./.."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		abs, err := (&sandbox{home: home}).absolute(name)
		switch {
		case err != nil:
		case abs != path.Clean(abs) || !strings.HasPrefix(abs, "/"):
			t.Errorf("%q: got %q", name, abs)
		case !strings.HasPrefix(name, "/") && abs != home && !strings.HasPrefix(abs, home+"/"):
			t.Errorf("%q: got %q, which is outside", name, abs)
		}
	})
}

// FuzzForm reads forms with files: what it hands out is bounded, and it ends.
func FuzzForm(f *testing.F) {
	f.Add("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a \\\"b%22\"\r\n\r\nx\r\n--b--\r\n")
	f.Add("--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n")
	f.Add("--b--")
	f.Add("")
	f.Fuzz(func(t *testing.T, form string) {
		n := 0
		err := eachPart(strings.NewReader(form), "b", func(name string, data io.Reader) error {
			n++
			rest := len(form)
			for b := make([]byte, 512); ; {
				m, err := data.Read(b)
				if rest -= m; rest < 0 {
					t.Fatal("a part is longer than its form")
				}
				if err != nil {
					return nil
				}
			}
		})
		if n > maxParts || err != nil && asAPIError(err).Status >= 500 {
			t.Errorf("got %d parts, %v", n, err)
		}
	})
}

// FuzzAddress finds who requests are for: never a port that is none, nor a sandbox without one.
func FuzzAddress(f *testing.F) {
	f.Add("49983-i0.boxes.test:3000", "", "")
	f.Add("x", "i0", "49999")
	f.Add("", "i0", "")
	f.Add("99999-i.x", "-", "-1")
	s := &Server{}
	f.Fuzz(func(t *testing.T, host, id, port string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		r.Header["E2b-Sandbox-Id"], r.Header["E2b-Sandbox-Port"] = []string{id}, []string{port}
		if to, err := s.address(r); err == nil && (to.port < 0 || to.port > 65535 || to.sandbox == "" && to.port != 0) {
			t.Errorf("got %+v", to)
		}
	})
}
