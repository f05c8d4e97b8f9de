package jupyter

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// TestEveryRoute asks every route: without a key, with a wrong one, from a page of another origin,
// for another host, and for what belongs to another subject.
func TestEveryRoute(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.start("python3")
	session := ask[sessionModel](w, 201, "POST", "/api/sessions", `{"path": "mine.ipynb", "kernel": {"id": "`+id+`"}}`).ID
	ask[entry](w, 201, "PUT", "/api/contents/"+id+"/a.txt", `{"type": "file", "format": "text", "content": "mine"}`)
	runs, created := w.b.Calls(fake.OpRun), w.b.Calls(fake.OpCreate)
	for pattern := range w.s.operations() {
		method, path, _ := strings.Cut(pattern, " ")
		own := strings.NewReplacer("{id}", id, "{session}", session, "{path...}", id+"/a.txt", "{name}", "python3").Replace(path)
		foreign := []string{"Origin", "https://evil.example"}
		if method == "GET" { // a page may open a WebSocket by it
			foreign = append(foreign, "Upgrade", "websocket", "Connection", "Upgrade")
		}
		for name, test := range map[string]struct {
			status  int
			headers []string
		}{
			"no-key":      {403, []string{"Authorization", ""}},
			"wrong-key":   {403, []string{"Authorization", "token wrong-key-0123456789"}},
			"basic":       {403, []string{"Authorization", "Basic " + alice}},
			"origin":      {403, foreign},
			"cross-site":  {403, []string{"Sec-Fetch-Site", "cross-site"}},
			"host":        {421, []string{"Host", "evil.example"}},
			"host-rebind": {421, []string{"Host", "evil.example", "Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"}},
		} {
			rec := w.do(method, own, "{}", test.headers...)
			if rec.Code != test.status || !json.Valid(rec.Body.Bytes()) {
				t.Errorf("%s: %s: got %d %s, want %d", name, pattern, rec.Code, rec.Body, test.status)
			}
			if rec := w.do(method, own+"?token=wrong-key-0123456789", "{}", "Authorization", ""); rec.Code != 403 {
				t.Errorf("%s with a wrong key in its URL: got %d", pattern, rec.Code)
			}
		}
		rec := w.do(method, own, `{"type": "directory"}`, "Authorization", "token "+bob)
		for _, mine := range []string{"mine", id, session} {
			if strings.Contains(rec.Body.String(), mine) && !strings.Contains(rec.Body.String(), "not exist") && !strings.Contains(rec.Body.String(), "not found") {
				t.Errorf("%s: for another subject: got %s", pattern, rec.Body)
			}
		}
		if own != path && path != "/api/kernelspecs/{name}" && method != "POST" && rec.Code != 404 {
			t.Errorf("%s: for another subject: got %d %s", pattern, rec.Code, rec.Body)
		}
	}
	rec := w.do("POST", "/api/sessions", `{"path": "b", "kernel": {"id": "`+id+`"}}`, "Authorization", "Bearer "+bob)
	if rec.Code != 404 {
		t.Errorf("a session with the kernel of another subject: got %d", rec.Code)
	}
	if w.b.Calls(fake.OpRun) != runs || w.b.Calls(fake.OpCreate) > created+2 { // bob's own
		t.Error("refused requests ran")
	}
	ask[kernelModel](w, 200, "GET", "/api/kernels/"+id, "") // refused requests have ended nothing
	if e := ask[entry](w, 200, "GET", "/api/contents/"+id+"/a.txt", ""); e.Content != "mine" {
		t.Errorf("got %v", e)
	}
}

// The key of a URL opens a request, and is in no answer and no log.
func TestKeyInURL(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, fake.Options{}, Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	w.b.Fail(fake.OpCreate, -1, driver.Fail(executor.ErrInternal, executor.RanNo, errors.New("broken")))
	for _, path := range []string{"/api/kernels", "//api//kernels", "/api/kernels/", "/api/../api/kernels", "/none", "/api/contents/x", "/api/kernels/x/channels"} {
		for _, method := range []string{"GET", "POST"} {
			rec := w.do(method, path+"?a=1&token="+alice, "{}", "Authorization", "", "Referer", "http://localhost/?token="+alice)
			if rec.Code == 403 {
				t.Errorf("%s %s: got %d", method, path, rec.Code)
			}
			if strings.Contains(rec.Body.String(), alice) || strings.Contains(text(rec.Header()), alice) || rec.Header().Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("%s %s: got %v %s", method, path, rec.Header(), rec.Body)
			}
		}
	}
	if strings.Contains(log.String(), alice) || !strings.Contains(log.String(), "request failed") {
		t.Errorf("the log has %s", log.String())
	}
}

// Kernels and connections are bounded, and what a server is closed with is refused.
func TestBounds(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxKernels: 2})
	id := w.start("python3")
	w.start("javascript")
	ask[any](w, 429, "POST", "/api/kernels", "{}")
	ask[any](w, 404, "POST", "/api/kernels", `{"name": "r"}`)
	ask[kernelModel](w, 201, "POST", "/api/kernels", "", "Authorization", "token "+bob) // has its own
	for range maxConns {
		w.connect(id, framingJSON)
	}
	ask[any](w, 429, "GET", "/api/kernels/"+id+"/channels", "", "Upgrade", "websocket", "Connection", "Upgrade")
	ask[any](w, 426, "GET", "/api/kernels/"+id+"/channels", "")
	if got := ask[map[string]any](w, 200, "GET", "/api/status", ""); got["kernels"] != 2.0 || got["connections"] != float64(maxConns) {
		t.Errorf("got %v", got)
	}
	ask[any](w, 204, "DELETE", "/api/kernels/"+id, "")
	ask[any](w, 404, "DELETE", "/api/kernels/"+id, "")
	if n := len(w.b.Sandboxes()); n != 2 {
		t.Errorf("%d sandboxes are left", n)
	}
	id = w.start("python3")
	if err := w.s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := w.connect(id, framingJSON)
	c.has(c.run("1"), `shell execute_reply {"status":"error","ename":"Refused","evalue":"the server is shutting down"`)
	if err := w.s.Close(); err != nil {
		t.Fatal(err)
	}
	ask[any](w, 429, "POST", "/api/kernels", "{}")
}

// A client that does not read is told what it has missed.
func TestOutbox(t *testing.T) {
	o := newOutbox()
	m, err := answer(iopub, "stream", "s", nil, stream{"stdout", strings.Repeat("x", maxUnread/2)})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		o.put(m, "stream")
	}
	o.put(m, "execute_reply")
	messages, ended := o.take()
	if n := len(messages); n != 3 || ended || !strings.Contains(string(messages[2].Content), "[4 messages of output are left out") {
		t.Errorf("got %d messages, %v", n, ended)
	}
	for range 10 {
		o.put(m, "execute_reply")
	}
	if _, ended := o.take(); !ended {
		t.Error("replies wait without a bound")
	}
}

// FuzzDecode reads messages in both framings: what is accepted has a name and is within the bounds,
// and reading does no more work than there are bytes.
func FuzzDecode(f *testing.F) {
	for _, kind := range []string{"execute_request", "comm_open"} {
		m, err := answer(shell, kind, "s", nil, map[string]any{"code": "1"})
		if err != nil {
			f.Fatal(err)
		}
		for _, fr := range []framing{framingJSON, framingV1} {
			raw, err := fr.encode(m)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw, fr.payload == framingV1.payload)
			f.Add(append(raw, raw[:len(raw)-3]...), fr.payload == framingV1.payload)
		}
	}
	huge := binary.LittleEndian.AppendUint64(nil, 6)
	for _, offset := range []uint64{56, 1 << 62, 1 << 62, 1 << 62, 1 << 62, 1 << 62} {
		huge = binary.LittleEndian.AppendUint64(huge, offset)
	}
	f.Add(huge, true)
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"), true)
	f.Add([]byte(`{"channel": "shell", "header": {"msg_id": "1", "msg_type": "x"}, "buffers": [1]}`), false)
	f.Fuzz(func(t *testing.T, raw []byte, v1 bool) {
		fr := framingJSON
		if v1 {
			fr = framingV1
		}
		next := fr.receiver(bytes.NewReader(raw), 1<<10)
		size := 0
		for {
			q, err := next()
			if err != nil {
				return
			}
			if q.ID == "" || q.Type == "" || q.channel == "" || len(q.ID)+len(q.Type)+len(q.channel) > 3*maxName || len(q.raw) > maxHead {
				t.Fatalf("got %+v", q)
			}
			if size += len(q.raw) + len(q.content); size > len(raw) {
				t.Fatalf("%d bytes from %d", size, len(raw))
			}
		}
	})
}
