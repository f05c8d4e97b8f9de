package e2b

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/execbroker/execbroker/internal/envd/processpb"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/front/fronttest"
)

// raw sends text over a connection of its own and returns what comes back before it ends.
func (d daemon) raw(text string) string {
	d.Helper()
	got, err := d.exchange(text)
	if err != nil {
		d.Errorf("%.60q: %v", text, err)
	}
	return got
}

// exchange is raw on any goroutine. That the connection breaks after an answer is no error.
func (d daemon) exchange(text string) (string, error) {
	c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	got, err := io.ReadAll(c)
	if len(got) > 0 {
		err = nil
	}
	return string(got), err
}

func (d daemon) head(method, target string, port int, more ...string) string {
	h := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-API-KEY: %s\r\n", method, target, alice)
	if port > 0 {
		h += fmt.Sprintf("E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: %d\r\nX-Access-Token: %s\r\n", d.box.SandboxID, port, d.box.EnvdAccessToken)
	}
	return h + strings.Join(append(more, "\r\n"), "\r\n")
}

// A body that does not come holds nothing for longer than the server's patience, wherever it is
// sent to.
func TestSlowBodies(t *testing.T) {
	d := daemonOf(newWorld(t, fake.Options{}, Config{BodyTime: 2 * time.Second})) // enough for bodies that do come, on a machine that has much to do
	var all sync.WaitGroup
	defer all.Wait()
	for name, text := range map[string]string{
		"create":    d.head("POST", "/v2/sandboxes", 0, "Content-Length: 100") + `{"templateID"`,
		"timeout":   d.head("POST", "/sandboxes/"+d.box.SandboxID+"/timeout", 0, "Content-Length: 100"),
		"execute":   d.head("POST", "/execute", interpreterPort, "Content-Length: 100") + `{"code": "`,
		"unary":     d.head("POST", "/process.Process/List", envdPort, "Content-Type: application/json", "Content-Length: 100") + `{`,
		"streaming": d.head("POST", "/process.Process/Start", envdPort, "Content-Type: application/connect+json", "Content-Length: 100") + "\x00\x00\x00\x00\x50{",
	} {
		all.Go(func() {
			got, err := d.exchange(text)
			refused := !strings.HasPrefix(got, "HTTP/1.1 2")
			if name == "streaming" {
				refused = strings.Contains(got, `"error"`)
			}
			if err != nil || !refused {
				t.Errorf("%s: got %q, %v, want a refusal", name, got, err)
			}
		})
	}
	// It is the body that has to come in time, not what is done then.
	_, s := d.start(t.Context(), "print(1)\nsleep(4000)\nprint(2)", nil)
	defer s.Close()
	if out, end := follow(s, ""); out != "1\n2\n" || !end.GetExited() {
		t.Errorf("got %q, %v, %v", out, end, s.Err())
	}
}

// Clients that hold connections.
func TestClients(t *testing.T) {
	fronttest.Clients(t, func(t *testing.T) fronttest.Front {
		w := newWorld(t, fake.Options{}, Config{})
		box := w.create("")
		key := "X-API-KEY: " + alice
		to := func(line string, port int, headers ...string) []string {
			return append([]string{line, "E2b-Sandbox-Id: " + box.SandboxID, fmt.Sprintf("E2b-Sandbox-Port: %d", port)}, headers...)
		}
		token := "X-Access-Token: " + box.EnvdAccessToken
		return fronttest.Front{
			Handler: w.s,
			Refused: [][]string{
				{"POST /v2/sandboxes"}, {"POST /nothing"}, {"POST /v2/sandboxes", key, "Sec-Fetch-Site: cross-site"}, {"POST /files"},
				to("POST /process.Process/List", envdPort, "Content-Type: application/json"), to("POST /files?path=a", envdPort),
				to("POST /execute", interpreterPort, "X-Access-Token: wrong"), to("POST /", 3000),
				{"POST /execute", "E2b-Sandbox-Id: none", "E2b-Sandbox-Port: 49999"},
			},
			Reads: [][]string{
				{"POST /v2/sandboxes", key}, {"POST /sandboxes/" + box.SandboxID + "/timeout", key}, to("POST /execute", interpreterPort),
				to("POST /process.Process/List", envdPort, token, "Content-Type: application/json"),
				to("POST /files?path=a", envdPort, token, "Content-Type: application/octet-stream"),
			},
			Answers: [][]string{{"GET /health"}, {"GET /v2/sandboxes"}, {"GET /v2/sandboxes", key}, to("GET /contexts", interpreterPort)},
		}
	})
}

// What is sent to a process of a sandbox that ends does not hold the server.
func TestInputOutlivesNothing(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	yes := true
	pid, s := d.start(t.Context(), "print(readline())\nforever()", func(m *pb.StartRequest) { m.Stdin = &yes })
	defer s.Close()
	first := fmt.Sprintf(`{"start": {"process": {"pid": %d}}}`, pid)
	const hello = `{"data": {"input": {"stdin": "aGVsbG8K"}}}`
	text := d.head("POST", "/process.Process/StreamInput", envdPort, "Content-Type: application/connect+json", "Content-Length: 1000") + envelope(0, uint32(len(first)), first) + envelope(0, uint32(len(hello)), hello)
	answer := make(chan string)
	go func() { answer <- d.raw(text) }()
	if out, _ := follow(s, "hello"); out != "hello\n" { // the stream has begun
		t.Errorf("got %q", out)
	}
	d.want(204, "DELETE", "/sandboxes/"+d.box.SandboxID, "")
	if got := <-answer; !strings.Contains(got, `"error"`) {
		t.Errorf("got %q", got)
	}
}

// envelope is a message of a stream, or what looks like one.
func envelope(flags byte, size uint32, payload string) string {
	return string(append(binary.BigEndian.AppendUint32([]byte{flags}, size), payload...))
}

// Broken envelopes are told from whole ones, and promise what they like.
func TestBrokenEnvelopes(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	io.CopyN(z, endlessly(' '), 64<<20)
	z.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for name, c := range map[string]struct{ body, code string }{
		"promises-4-GB": {envelope(0, 1<<32-1, "{}"), "resource_exhausted"},
		"cut":           {envelope(0, 100, "{}"), "invalid_argument"},
		"no-envelope":   {"{}", "invalid_argument"},
		"not-json":      {envelope(0, 4, "????"), "invalid_argument"},
		"odd-flags":     {envelope(0xff, 2, "{}"), ""},
		"empty":         {"", "unimplemented"},
		"bomb":          {envelope(1, uint32(bomb.Len()), bomb.String()), "resource_exhausted"},
		"nothing-in-it": {envelope(0, 2, "{}"), "invalid_argument"},
	} {
		t.Run(name, func(t *testing.T) {
			more := []string{"Content-Type: application/connect+json", fmt.Sprintf("Content-Length: %d", len(c.body))}
			if name == "bomb" {
				more = append(more, "Connect-Content-Encoding: gzip")
			}
			head := d.head("POST", "/process.Process/Start", envdPort, more...)
			got := daemon{world: world{t, d.b, d.s}, box: d.box, url: d.url}.raw(head + c.body)
			if name == "bomb" { // the answer is packed as well
				_, frame, _ := strings.Cut(got, "\r\n\r\n")
				_, frame, _ = strings.Cut(frame, "\r\n") // of the length of the chunk
				z, err := gzip.NewReader(strings.NewReader(frame[min(5, len(frame)):]))
				if err != nil {
					t.Fatalf("%v: %q", err, got)
				}
				end, _ := io.ReadAll(z) // something follows it
				got = string(end)
			}
			if !strings.Contains(got, `"error"`) || !strings.Contains(got, c.code) {
				t.Errorf("got %q, want %s", got, c.code)
			}
		})
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 128<<20 {
		t.Errorf("%d MB were allocated for what envelopes promised", got>>20)
	}
	if l, err := d.procs.List(t.Context(), connect.NewRequest(&pb.ListRequest{})); err != nil || len(l.Msg.Processes) > 0 {
		t.Errorf("got %v, %v", l, err)
	}
}

// endlessly is a reader of one byte for ever.
type endlessly byte

func (e endlessly) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

// A body without an end is refused where its bound is.
func TestEndlessBodies(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	for name, c := range map[string]struct {
		target string
		port   int
		status int
	}{
		"create":  {"/v2/sandboxes", 0, 413},
		"timeout": {"/sandboxes/" + d.box.SandboxID + "/timeout", 0, 413},
		"execute": {"/execute", interpreterPort, 413},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", d.url+c.target, io.NopCloser(endlessly(' ')))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-KEY", alice)
		if c.port > 0 {
			r.Header.Set("E2b-Sandbox-Id", d.box.SandboxID)
			r.Header.Set("E2b-Sandbox-Port", fmt.Sprint(c.port))
		}
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			t.Errorf("%s: got no answer: %v", name, err)
			continue
		}
		res.Body.Close()
		if res.StatusCode != c.status {
			t.Errorf("%s: got %d, want %d", name, res.StatusCode, c.status)
		}
	}
	d.detail(d.box.SandboxID)
}

// No name leads out of where files may be, however it is written, and none is cut short.
func TestPathsOfAttackers(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	for _, name := range []string{
		"..", "../x", "a/../../x", "./../../etc/passwd", "~", "~root/x", "a\x00b", "\xff", strings.Repeat("a/", 3000), strings.Repeat("x", 256), "",
	} {
		q := url.Values{"path": {name}}.Encode()
		for _, method := range []string{"GET", "POST"} {
			if got := d.ask(400, d.http, method, q, octets, []byte("x")); !bytes.Contains(got, []byte(`"message"`)) {
				t.Errorf("%.20q: got %s", name, got)
			}
		}
	}
}

// Nobody reaches a sandbox by what belongs to another.
func TestOthersSandboxes(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	d.ask(200, d.http, "POST", "path=secret", octets, []byte("secret"))
	other := d.create("", "X-API-KEY", bob)
	for name, token := range map[string]string{"none": "", "of-another-sandbox": other.EnvdAccessToken, "api-key": bob, "own-api-key": alice} {
		c := d.client(token)
		for _, c := range []struct{ method, query string }{{"GET", "path=secret"}, {"POST", "path=secret"}} {
			d.ask(401, d.client(token), c.method, c.query, octets, []byte("x"))
		}
		_, err := pb.NewProcessClient(c, d.url).List(t.Context(), connect.NewRequest(&pb.ListRequest{}))
		wantCode(t, name, err, connect.CodeUnauthenticated)
		if token != "" {
			rec := d.do("POST", "/execute", body("1"), at(d.box.SandboxID, interpreterPort, "X-Access-Token", token)...)
			if rec.Code != 401 {
				t.Errorf("%s: got %d for code", name, rec.Code)
			}
		}
	}
	if got := d.ask(200, d.http, "GET", "path=secret", "", nil); string(got) != "secret" {
		t.Errorf("got %q", got)
	}
}

// A thousand connections, half of which say nothing and half of which never stop listening, keep
// nobody else from the server.
func TestThousandConnections(t *testing.T) {
	const boxes, streams, idle = 10, 50, 500
	d := newDaemon(t, fake.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range idle {
		c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /he"); err != nil {
			t.Fatal(err)
		}
	}
	up := make(chan error, boxes*streams)
	for range boxes {
		e := d
		e.box = d.create("")
		procs := pb.NewProcessClient(e.client(e.box.EnvdAccessToken), e.url)
		for range streams {
			wg.Go(func() {
				m := &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "script", Args: []string{"print(1)\nforever()"}}}
				s, err := procs.Start(ctx, connect.NewRequest(m))
				if err != nil {
					up <- err
					return
				}
				defer s.Close()
				for s.Receive() {
					if s.Msg().Event.GetData() != nil {
						up <- nil
					}
				}
			})
		}
	}
	for i := range boxes * streams {
		if err := <-up; err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	in := bufio.NewReader(d.post(t.Context(), "print(6 * 7)").Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "end_of_execution") {
			break
		}
	}
	if got := d.do("GET", "/v2/sandboxes", ""); got.Code != 200 {
		t.Errorf("got %d", got.Code)
	}
}

// post runs code over a connection and returns the answer as it comes.
func (d daemon) post(ctx context.Context, code string) *http.Response {
	d.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", d.url+"/execute", strings.NewReader(body(code)))
	if err != nil {
		d.Fatal(err)
	}
	r.Header.Set("E2b-Sandbox-Id", d.box.SandboxID)
	r.Header.Set("E2b-Sandbox-Port", "49999")
	tr := http.DefaultTransport.(*http.Transport).Clone()
	d.Cleanup(tr.CloseIdleConnections)
	res, err := tr.RoundTrip(r)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { res.Body.Close() })
	return res
}
