package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// scripted is an endpoint that is compatible with chat completions. It answers from a script and
// checks its requests.
type scripted struct {
	*testing.T
	mu    sync.Mutex
	turns []turn
}

// turn is one answer of the model. wants must be in the last message before it.
type turn struct{ wants, text, call string }

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Model    string
		Messages []message
		Stream   bool
		Tools    []struct{ Function struct{ Name string } }
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer secret" ||
		in.Model != "tiny" || !in.Stream || len(in.Tools) != 1 || in.Tools[0].Function.Name != "execute_code" || len(in.Messages) < 2 {
		s.Errorf("got %s %s %+v, %v", r.URL.Path, r.Header, in, err)
	}
	s.mu.Lock()
	if len(s.turns) == 0 {
		s.mu.Unlock()
		http.Error(w, "the script is at its end", http.StatusInternalServerError)
		return
	}
	t := s.turns[0]
	s.turns = s.turns[1:]
	s.mu.Unlock()
	last := in.Messages[len(in.Messages)-1]
	if !strings.Contains(last.Content, t.wants) {
		s.Errorf("the model is told %q, want %q in it", last.Content, t.wants)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(delta map[string]any, finish any) {
		b, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"delta": delta, "finish_reason": finish}}})
		fmt.Fprintf(w, "data: %s\n\n", b)
	}
	for part := range strings.SplitAfterSeq(t.text, " ") { // in pieces, as models do
		send(map[string]any{"content": part}, nil)
	}
	if t.call != "" {
		half := len(t.call) / 2
		for half > 0 && t.call[half]&0xc0 == 0x80 {
			half--
		}
		send(map[string]any{"tool_calls": []any{map[string]any{"index": 0, "id": "c1", "type": "function", "function": map[string]any{"name": "execute_code", "arguments": t.call[:half]}}}}, nil)
		send(map[string]any{"tool_calls": []any{map[string]any{"index": 0, "function": map[string]any{"arguments": t.call[half:]}}}}, nil)
	}
	send(map[string]any{}, "stop")
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// chart is code that displays an image without any packages.
const chart = `class Chart:
    def _repr_svg_(self):
        return '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><rect width="40" height="%d"/></svg>' % total
Chart()`

func arguments(code string) string {
	b, _ := json.Marshal(map[string]string{"code": code})
	return string(b)
}

// script is a conversation with a file, state, output, an error that is corrected, a chart and a
// file that the code creates.
func script() []turn {
	return []turn{
		{wants: "How much", text: "Let me add. ", call: arguments("total = sum(int(l) for l in open('in.csv'))\nprint('total', total)")},
		{wants: `total 6`, text: "It is 6."},
		// The model puts a fence into its call, and makes an error that it corrects when it sees
		// the message.
		{wants: "chart", call: arguments("```python\nprint(totl)\n```")},
		{wants: "NameError", call: arguments("open('out.txt', 'w').write('total ' + str(total))\n" + chart)},
		{wants: "[The user sees the images.]", text: "Here it is."},
	}
}

// start serves the chat with a configuration and a scripted model.
func start(t *testing.T, cfg backends.Config, turns []turn) (url string, m *scripted) {
	t.Helper()
	m = &scripted{T: t, turns: turns}
	api := httptest.NewServer(m)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, l, cfg, &openAI{url: api.URL + "/v1", name: "tiny", key: "secret"}) }()
	t.Cleanup(func() {
		cancel()
		client.CloseIdleConnections()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := <-done; err != nil && err != http.ErrServerClosed {
			t.Error(err)
		}
		api.Close()
	})
	return "http://" + l.Addr().String(), m
}

// parse reads one of the files of this directory.
func parse(t *testing.T, file string) backends.Config {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := backends.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// request sends a request and returns the answer.
func request(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// say sends a message and returns the events, one in each line.
func say(t *testing.T, url, text string) string {
	t.Helper()
	status, body := request(t, "POST", url, fmt.Sprintf(`{"text": %q}`, text))
	if status != 200 {
		t.Fatalf("got %d %s", status, body)
	}
	var b strings.Builder
	for message := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		var e event
		kind, data, ok := strings.Cut(strings.TrimPrefix(message, "event: "), "\ndata: ")
		if err := json.Unmarshal([]byte(data), &e); err != nil || !ok {
			t.Fatalf("%q: %v", message, err)
		}
		b.WriteString(kind + " " + strings.ReplaceAll(e.Text+e.Data.String()+e.Message, "\n", "|"))
		if e.Try > 1 {
			fmt.Fprintf(&b, " (try %d)", e.Try)
		}
		if e.Output != nil {
			b.WriteString(e.Output.Data["image/svg+xml"].String())
		}
		if kind == "result" {
			fmt.Fprintf(&b, "%t %s", e.Error == "", strings.Join(e.Files, " "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// converse runs the conversation of the script and compares the events. They are the same on every
// backend.
func converse(t *testing.T, cfg backends.Config) {
	t.Helper()
	url, m := start(t, cfg, script())
	url += "/chat/0123456789abcdef"
	if status, body := request(t, "PUT", url+"/files/in.csv", "1\n2\n3\n"); status != http.StatusCreated {
		t.Fatalf("got %d %s", status, body)
	}
	got := say(t, url, "How much is it?") + say(t, url, "And a chart?")
	want := `text Let 
text me 
text add. 
code total = sum(int(l) for l in open('in.csv'))|print('total', total)
stdout total 6|
result true 
text It 
text is 
text 6.
done 
code print(totl)
result false 
code open('out.txt', 'w').write('total ' + str(total))|` + strings.ReplaceAll(chart, "\n", "|") + ` (try 2)
value <svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><rect width="40" height="6"/></svg>
result true out.txt
text Here 
text it 
text is.
done 
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if status, body := request(t, "GET", url+"/files/out.txt", ""); status != 200 || body != "total 6" {
		t.Errorf("got %d %q", status, body)
	}
	for path, want := range map[string]int{"/files/absent": 400, "/files/..%2f..%2fetc%2fpasswd": 400, "/../x": 404} {
		if status, body := request(t, "GET", url+path, ""); status != want && status != http.StatusMovedPermanently && status != http.StatusTemporaryRedirect && status != http.StatusMethodNotAllowed {
			t.Errorf("%s: got %d %s", path, status, body)
		}
	}
	if len(m.turns) > 0 {
		t.Errorf("%d turns were not taken", len(m.turns))
	}
	// Another conversation has neither the file nor the variable. A failure of the model is an
	// event, and the conversation continues.
	other := strings.Replace(url, "0123", "3210", 1)
	if status, _ := request(t, "GET", other+"/files/out.txt", ""); status != 400 {
		t.Errorf("another conversation has the file: %d", status)
	}
	if got := say(t, url, "More?"); !strings.Contains(got, "error The answer could not be finished") {
		t.Errorf("got %s", got)
	}
	for path, want := range map[string]int{"/chat/short": 404, "/chat/0123456789ABCDEF": 404} {
		if status, _ := request(t, "POST", url[:strings.Index(url, "/chat/")]+path, `{"text": "x"}`); status != want {
			t.Errorf("%s: got %d", path, status)
		}
	}
	for _, body := range []string{"", "{", `{"text": " "}`, `{"text": "` + strings.Repeat("x", 70<<10) + `"}`} {
		if status, _ := request(t, "POST", url, body); status != http.StatusBadRequest {
			t.Errorf("%.20s: got %d", body, status)
		}
	}
}

func TestPyodide(t *testing.T) { converse(t, parse(t, "pyodide.yaml")) }

// Only the configuration file selects the sandbox.
func TestDocker(t *testing.T) {
	cfg := parse(t, "docker.yaml")
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"host": host, "image": dockertest.Python, "pull": "never"} {
		cfg.Backends["code"].Settings[key] = json.RawMessage(strconv.Quote(value))
	}
	converse(t, cfg)
}
