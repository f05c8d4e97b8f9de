package compat

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/server"
)

// made has what alice has made at each interface, for the wildcards of its routes.
func (w *world) made(api string) map[string]string {
	w.t.Helper()
	switch api {
	case "librechat":
		a := w.ask(200, "POST", "/librechat/exec", `{"lang": "py", "code": "write(\"a.txt\", \"mine\")"}`)
		return map[string]string{"{session}": a["session_id"].(string), "{file}": a["files"].([]any)[0].(map[string]any)["id"].(string)}
	case "judge0":
		a := w.ask(201, "POST", "/judge0/submissions?wait=true", `{"language_id": 71, "source_code": "print(1)"}`)
		return map[string]string{"{token}": a["token"].(string)}
	case "onyx":
		a := w.ask(200, "POST", "/onyx/v1/execute", `{"code": "write(\"a.txt\", \"mine\")"}`)
		return map[string]string{"{file}": a["files"].([]any)[0].(map[string]any)["file_id"].(string)}
	}
	return nil
}

// TestEveryFront asks every route of every front: without a key, with a wrong one, from a page of
// another origin, for another host, and for what belongs to another subject.
func TestEveryFront(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	for _, a := range apis {
		ids := w.made(a.name)
		runs := w.b.Calls("create")
		for pattern, rt := range a.routes {
			for _, base := range a.bases {
				method, path, _ := strings.Cut(pattern, " ")
				path = "/" + a.name + base + strings.TrimSuffix(path, "{$}")
				own := path
				for wildcard, id := range ids {
					own = strings.ReplaceAll(own, wildcard, id)
				}
				foreign := []string{"Origin", "https://evil.example"}
				if method == "GET" { // a page may open a WebSocket by it
					foreign = append(foreign, "Upgrade", "websocket", "Connection", "Upgrade")
				}
				for name, test := range map[string]struct {
					status  int
					headers []string
				}{
					"no-key":      {401, []string{"Authorization", ""}},
					"wrong-key":   {401, []string{"Authorization", "Bearer wrong-key-0123456789"}},
					"wrong-kept":  {401, []string{"Authorization", "", "X-API-Key", "wrong-key-0123456789"}},
					"key-in-url":  {401, []string{"Authorization", "", "in-url", ""}},
					"origin":      {403, foreign},
					"host":        {421, []string{"Host", "evil.example"}},
					"host-rebind": {421, []string{"Host", "evil.example", "Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"}},
				} {
					if rt.open && (test.status == 401 || name == "origin") {
						continue
					}
					url := own
					if name == "key-in-url" {
						url += "?token=" + alice + "&api_key=" + alice
					}
					rec := w.do(method, url, "{}", test.headers...)
					if rec.Code != test.status || !json.Valid(rec.Body.Bytes()) {
						t.Errorf("%s: %s %s: got %d %s, want %d", name, method, own, rec.Code, rec.Body, test.status)
					}
				}
				if own == path {
					continue
				}
				if rec := w.do(method, own, "", "Authorization", "Bearer "+bob); rec.Code != 404 || strings.Contains(rec.Body.String(), "mine") {
					t.Errorf("%s %s: for another subject: got %d %s", method, own, rec.Code, rec.Body)
				}
			}
		}
		if n := w.b.Calls("create"); n != runs {
			t.Errorf("%s: %d refused requests ran", a.name, n-runs)
		}
		for wildcard, id := range ids { // refused requests have removed nothing
			if items := w.s.kept.below("alice", id); wildcard != "{file}" && len(items) == 0 {
				t.Errorf("%s: nothing is left of %s", a.name, wildcard)
			}
		}
	}
	// Foreign IDs in bodies and queries.
	c := w.made("librechat")
	for _, body := range []string{
		fmt.Sprintf(`{"lang": "py", "code": "print(read(\"a.txt\"))", "files": [{"id": %q, "session_id": %q, "name": "a.txt"}]}`, c["{file}"], c["{session}"]),
		fmt.Sprintf(`{"lang": "py", "code": "print(read(\"a.txt\"))", "session_id": %q}`, c["{session}"]),
	} {
		if got := w.ask(200, "POST", "/librechat/exec", body); got["stdout"] != "mine\n" {
			t.Errorf("got %v", got)
		}
		w.ask(404, "POST", "/librechat/exec", body, "Authorization", "Bearer "+bob)
	}
	body := fmt.Sprintf(`{"code": "print(read(\"b.txt\"))", "files": [{"path": "b.txt", "file_id": %q}]}`, w.made("onyx")["{file}"])
	want(t, w.ask(200, "POST", "/onyx/v1/execute", body), map[string]any{"stdout": "mine\n"})
	w.ask(404, "POST", "/onyx/v1/execute", body, "Authorization", "Bearer "+bob)
	token := w.made("judge0")["{token}"]
	want(t, w.ask(200, "GET", "/judge0/submissions/batch?tokens="+token, "", "Authorization", "Bearer "+bob), map[string]any{"submissions": []any{nil}})
}

// The places where clients send keys, and what a key brings along.
func TestKeys(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	for _, headers := range [][]string{
		{"Authorization", "bearer " + alice}, {"Authorization", alice}, {"Authorization", "", "X-API-Key", alice}, {"Authorization", "", "X-Auth-Token", alice},
	} {
		w.ask(200, "GET", "/dify/v1/sandbox/dependencies", "", headers...)
	}
	c := &call{Server: w.s, api: &piston, client: server.Client{Subject: "alice", Attributes: map[string]string{"plan": "pro"}}}
	if spec, err := c.spec(job{}); err != nil || spec.Subject != "alice" || spec.Attributes["plan"] != "pro" {
		t.Errorf("got %+v", spec)
	}
}

// Without a key, a front serves only where its configuration allows it.
func TestWithoutKeys(t *testing.T) {
	body := `{"language": "python", "version": "*", "files": [{"content": "print(1)"}]}`
	for name, test := range map[string]struct {
		cfg     Config
		subject string // empty: refused
	}{
		"local":           {Config{Fronts: []Front{{API: "piston"}}, Local: true}, "local"},
		"allowed":         {Config{Fronts: []Front{{API: "piston", Subject: "team", AllowUnauthenticated: true}}}, "team"},
		"allowed-keys":    {Config{Fronts: []Front{{API: "piston", Subject: "team", AllowUnauthenticated: true}}, Keys: testKeys(t)}, "team"},
		"local-with-keys": {Config{Fronts: []Front{{API: "piston"}}, Keys: testKeys(t), Local: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fake.Options{}, test.cfg)
			rec := w.do("POST", "/api/v2/execute", body, "Authorization", "")
			c, err := w.s.admit(w.s.cfg.Fronts[0], &piston, httptest.NewRequestWithContext(t.Context(), "POST", "/", nil))
			if (rec.Code == 200) != (test.subject != "") || (err == nil) != (test.subject != "") || c.Subject != test.subject {
				t.Errorf("got %d %s and %q, %v", rec.Code, rec.Body, c.Subject, err)
			}
			if test.cfg.Keys.Len() > 0 { // a wrong key is not like none
				w.ask(401, "POST", "/api/v2/execute", body, "Authorization", "Bearer wrong-key-0123456789")
				w.ask(200, "POST", "/api/v2/execute", body)
			}
		})
	}
}

func TestConfiguration(t *testing.T) {
	x, err := fake.New(fake.Options{}).Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	public := server.Keys{}
	if err := public.Add("test-api-key-for-development-only", server.Client{}); err != nil {
		t.Fatal(err)
	}
	fronts := func(f ...Front) Config { return Config{Fronts: f, Keys: testKeys(t)} }
	for name, test := range map[string]struct {
		cfg  Config
		want string // empty: it is right
	}{
		"none":              {fronts(), "fronts: at least one is required"},
		"unknown":           {fronts(Front{API: "pistol"}), `fronts[0].api: "pistol" is unknown; want one of piston, terrarium, dify, librechat, judge0, onyx`},
		"path":              {fronts(Front{API: "piston", Path: "piston/"}), `fronts[0].path: "piston/" is not a path such as /piston`},
		"same-path":         {fronts(Front{API: "piston", Path: "/a"}, Front{API: "dify", Path: "/a"}), `fronts[1].path: "/a" collides with "/a" of fronts[0]`},
		"path-below":        {fronts(Front{API: "piston", Path: "/a/b"}, Front{API: "dify", Path: "/a"}), `fronts[1].path: "/a" collides with "/a/b" of fronts[0]`},
		"root":              {fronts(Front{API: "piston", Path: "/a"}, Front{API: "dify"}), `fronts[1].path: "" collides with "/a" of fronts[0]`},
		"beside":            {fronts(Front{API: "piston", Path: "/a"}, Front{API: "dify", Path: "/ab"}), ""},
		"keyless":           {Config{Fronts: []Front{{API: "terrarium"}}}, "clients of terrarium can send no key, and other machines can reach the server"},
		"keyless-local":     {Config{Fronts: []Front{{API: "terrarium"}}, Local: true}, ""},
		"keyless-keys":      {fronts(Front{API: "terrarium"}), ""},
		"subject-alone":     {fronts(Front{API: "piston", Subject: "team"}), "subject: set it together with allow_unauthenticated"},
		"allow-alone":       {fronts(Front{API: "piston", AllowUnauthenticated: true}), "subject: set it together with allow_unauthenticated"},
		"allow-with-keys":   {fronts(Front{API: "dify", Subject: "team", AllowUnauthenticated: true}), "allow_unauthenticated: clients of dify send keys"},
		"keyed":             {Config{Fronts: []Front{{API: "judge0"}}, Local: true}, "clients of judge0 send keys, and none is configured"},
		"published":         {Config{Fronts: []Front{{API: "librechat"}}, Keys: public}, `keys: "test-api-key-for-development-only" is published`},
		"negative":          {Config{Fronts: []Front{{API: "piston"}}, Local: true, MaxRuns: -1}, "limits: none may be negative"},
		"host":              {Config{Fronts: []Front{{API: "piston"}}, Local: true, Hosts: []string{"https://x"}}, "hosts: "},
		"without-a-backend": {Config{Fronts: []Front{{API: "piston"}}, Local: true, Spec: executor.Spec{Template: "none"}}, "template:none"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(x, test.cfg)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err == nil {
				s.Close()
			}
		})
	}
}

// What clients send is bounded in size, time and number.
func TestBounds(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxBody: 1000, BodyTime: 50 * time.Millisecond, MaxRuns: 1})
	for _, a := range apis {
		for pattern, rt := range a.routes {
			method, path, _ := strings.Cut(pattern, " ")
			if rt.open || method != "POST" || strings.HasSuffix(path, "/packages") || strings.Contains(path, "dependencies") || strings.HasSuffix(path, "programmatic") || strings.Contains(path, "/sessions") {
				continue // it reads no body
			}
			path = "/" + a.name + a.bases[0] + strings.TrimSuffix(path, "{$}")
			contentType := "application/json"
			if strings.Contains(path, "upload") || strings.HasSuffix(path, "/files") {
				contentType = "multipart/form-data; boundary=x"
			}
			w.ask(413, method, path, `{"x": "`+strings.Repeat("x", 1000)+`"}`, "Content-Type", contentType)
		}
	}
	srv := httptest.NewServer(w.s)
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /terrarium HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\nContent-Length: 100\r\n\r\n{", alice)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != http.StatusRequestTimeout {
		t.Fatalf("got %v, %v", res, err)
	}
	res.Body.Close()

	release := w.b.Hold("create")
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() { done <- w.do("POST", "/terrarium", `{"code": "print(1)"}`) }()
	waittest.Until(t, "the run starts", func() error {
		if w.b.Calls("create") == 0 {
			return errors.New("nothing is created")
		}
		return nil
	})
	want(t, w.ask(503, "POST", "/dify/v1/sandbox/run", `{"language": "python3", "code": "1"}`), map[string]any{"code": -503, "data": nil})
	drained := make(chan error, 1)
	go func() { drained <- w.s.Drain(t.Context()) }()
	release()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if rec := <-done; rec.Code != 200 {
		t.Errorf("got %d %s", rec.Code, rec.Body)
	}
	want(t, w.ask(503, "POST", "/terrarium", `{"code": "print(1)"}`), map[string]any{"success": false, "error.message": "the server is shutting down"})
}

// Failures of the infrastructure are answered in the form of each interface, without what names the
// host.
func TestFailures(t *testing.T) {
	for kind, status := range map[error]int{executor.ErrUnavailable: 503, executor.ErrDenied: 429, executor.ErrInternal: 500, executor.ErrInvalid: 400} {
		w := newWorld(t, fake.Options{}, Config{})
		w.b.Fail("create", -1, &executor.Error{Kind: kind, Ran: executor.RanNo, Err: fmt.Errorf("dial /run/secret.sock")})
		for _, test := range []struct{ path, body, message string }{
			{"/piston/execute", `{"language": "py", "version": "*", "files": [{"content": "1"}]}`, "message"},
			{"/terrarium", `{"code": "1"}`, "error.message"},
			{"/dify/v1/sandbox/run", `{"language": "python3", "code": "1"}`, "message"},
			{"/librechat/exec", `{"lang": "py", "code": "1"}`, "error"},
			{"/onyx/v1/execute", `{"code": "1"}`, "detail"},
			{"/onyx/v1/execute/stream", `{"code": "1"}`, "detail"},
		} {
			rec := w.do("POST", test.path, test.body)
			if rec.Code != status || strings.Contains(rec.Body.String(), "secret.sock") && kind != executor.ErrInvalid && kind != executor.ErrDenied {
				t.Errorf("%v: %s: got %d %s, want %d", kind, test.path, rec.Code, rec.Body, status)
			}
		}
		a := w.ask(201, "POST", "/judge0/submissions?wait=true", `{"language_id": 71, "source_code": "1"}`)
		want(t, a, map[string]any{"status.id": 13, "stdout": nil})
	}
}

// What is kept is bounded, expires, and is never given up for something else.
func TestShelf(t *testing.T) {
	s := shelf{mostBytes: 10, keep: time.Hour}
	put := func(subject, id string, cost int64, ok bool) {
		t.Helper()
		if err := s.put(subject, id, id, cost); (err == nil) != ok {
			t.Errorf("%s: got %v", id, err)
		}
	}
	put("a", "x/1", 6, true)
	put("a", "x/2", 5, false)
	put("a", "x/1", 10, true) // in its place
	put("b", "x/1", 10, true)
	if _, ok := s.get("c", "x/1"); ok || len(s.below("a", "x/")) != 1 || len(s.below("a", "y/")) != 0 {
		t.Error("subjects or prefixes are not apart")
	}
	if !s.remove("a", "x/1") || s.remove("a", "x/1") {
		t.Error("remove")
	}
	put("a", "x/2", 10, true)
	s.keep = 0 // all has expired
	if _, ok := s.get("a", "x/2"); ok || len(s.below("a", "")) != 0 {
		t.Error("it has not expired")
	}
	put("a", "x/3", 10, true)
	for i := range maxItems {
		s.keep = time.Hour
		if err := s.put("n", fmt.Sprint(i), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	put("n", "more", 0, false)
}
