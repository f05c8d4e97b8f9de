package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/tool"
	"github.com/execbroker/execbroker/tool/mcp"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// patience is how long a test waits for something that must happen.
const patience = 2 * time.Minute

// newServer makes a server over a backend in memory. At the end of the test nothing of it may be
// left.
func newServer(t *testing.T, fo fake.Options, o tool.Options, so sessions.Options) (*mcp.Server, *fake.Backend) {
	t.Helper()
	b := fake.New(fo)
	x, err := b.Open(driver.Env{Instance: "a"})
	if err != nil {
		t.Fatal(err)
	}
	so.Instance = "a"
	m, err := sessions.New(x, sessions.NewMemoryStore(), so)
	if err != nil {
		t.Fatal(err)
	}
	tl, err := tool.New(x, m, o)
	if err != nil {
		t.Fatal(err)
	}
	s := mcp.New(tl, mcp.Options{Subject: "me"})
	t.Cleanup(func() {
		for _, c := range []func() error{s.Close, s.Close, func() error { return m.Close(context.WithoutCancel(t.Context())) }, x.Close} {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
		if left := b.Sandboxes(); len(left) > 0 {
			t.Errorf("%d sandboxes left", len(left))
		}
	})
	return s, b
}

// connect makes a client over a pair of pipes. The result of Serve is sent to the channel.
func connect(t *testing.T, s *mcp.Server, o *sdk.ClientOptions) (*sdk.ClientSession, chan error) {
	t.Helper()
	return connectAt(t, s, o, "")
}

// connectAt is connect with a version of the protocol; empty means the latest.
func connectAt(t *testing.T, s *mcp.Server, o *sdk.ClientOptions, version string) (*sdk.ClientSession, chan error) {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		err := s.Serve(ctx, inR, outW)
		outW.Close()
		served <- err
	}()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), &sdk.IOTransport{Reader: outR, Writer: inW}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		inW.Close()
		c.Close()
		cancel()
	})
	return c, served
}

func call(t *testing.T, c *sdk.ClientSession, name string, arguments any) *sdk.CallToolResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return res
}

// text returns the texts of a result.
func text(res *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range res.Content {
		if c, ok := c.(*sdk.TextContent); ok {
			b.WriteString(c.Text)
		}
	}
	return b.String()
}

// structured reads the structured content of a result.
func structured(t *testing.T, res *sdk.CallToolResult, v any) {
	t.Helper()
	data, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
}

// code runs code and returns what it printed.
func code(t *testing.T, c *sdk.ClientSession, src string) string {
	t.Helper()
	res := call(t, c, "execute_code", map[string]any{"code": src})
	var out tool.Output
	structured(t, res, &out)
	if got := text(res); strings.HasPrefix(got, "{") || !strings.Contains(got, strings.TrimRight(out.Stdout, "\n")) || !strings.Contains(got, out.Error) {
		t.Errorf("got text %q, want %+v for readers", got, out)
	}
	if out.Success == res.IsError {
		t.Errorf("success is %v and isError %v", out.Success, res.IsError)
	}
	return out.Stdout + out.Error
}

func has(t *testing.T, got string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}

func TestTools(t *testing.T) {
	s, b := newServer(t, fake.Options{Packages: []string{"six"}}, tool.Options{Packages: map[executor.Language][]string{executor.Python: {"six"}}}, sessions.Options{})
	c, served := connect(t, s, nil)
	var names []string
	for tl, err := range c.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tl.Name)
		if tl.Annotations == nil || tl.Description == "" || *tl.Annotations.OpenWorldHint {
			t.Errorf("%s: %+v", tl.Name, tl)
		}
	}
	if want := []string{"download_file", "execute_code", "get_capabilities", "install_packages", "list_files", "list_packages", "reset_session", "upload_file"}; !slices.Equal(names, want) {
		t.Errorf("got tools %q, want %q", names, want)
	}

	has(t, code(t, c, "```python\nx = 41\nprint(x)\n```"), "41\n")
	has(t, code(t, c, `print(x + 1)`), "42\n")
	has(t, code(t, c, `print(y)`), "NameError")

	res := call(t, c, "install_packages", map[string]any{"packages": []string{"six"}})
	has(t, text(res), "Installed: six.")
	has(t, code(t, c, `print(imported("six"))`), "true")
	res = call(t, c, "install_packages", map[string]any{"packages": []string{"requests"}})
	if has(t, text(res), "Not allowed here: requests"); !res.IsError {
		t.Error("want an error")
	}

	has(t, text(call(t, c, "upload_file", map[string]any{"name": "in/a.txt", "content": "hello"})), "Wrote 5 bytes")
	has(t, text(call(t, c, "upload_file", map[string]any{"name": "b.bin", "base64": "AAH/"})), "Wrote 3 bytes")
	has(t, code(t, c, `print(read("in/a.txt"))`), "hello")
	res = call(t, c, "list_files", nil)
	has(t, text(res), "b.bin (3 bytes)\n", "in/\n")
	var files struct {
		Files []struct {
			Name, Kind string
			Size       int
		}
	}
	if structured(t, res, &files); fmt.Sprint(files.Files) != "[{b.bin file 3} {in directory 0}]" {
		t.Errorf("got %+v", files)
	}
	has(t, text(call(t, c, "list_files", map[string]any{"directory": "in"})), "in/a.txt (5 bytes)")
	r := call(t, c, "download_file", map[string]any{"name": "in/a.txt"}).Content[0].(*sdk.EmbeddedResource).Resource
	if r.Text != "hello" || r.URI != "sandbox:///workspace/in/a.txt" || r.MIMEType != "text/plain" {
		t.Errorf("got %+v", r)
	}
	r = call(t, c, "download_file", map[string]any{"name": "b.bin"}).Content[0].(*sdk.EmbeddedResource).Resource
	if !bytes.Equal(r.Blob, []byte{0, 1, 255}) {
		t.Errorf("got %+v", r)
	}
	for _, name := range []string{"../etc/passwd", "/etc/passwd", "in/../../x", "", "a\x00b", "absent"} {
		for _, tl := range []string{"download_file", "upload_file", "list_files"} {
			arguments := map[string]any{"name": name}
			switch tl {
			case "upload_file":
				arguments["content"] = "x"
			case "list_files":
				arguments = map[string]any{"directory": name}
			}
			if allowed := name == "absent" && tl == "upload_file" || name == "" && tl == "list_files"; call(t, c, tl, arguments).IsError == allowed {
				t.Errorf("%s %q: want an error: %v", tl, name, !allowed)
			}
		}
		call(t, c, "execute_code", map[string]any{"code": `remove("absent")`})
	}
	res = call(t, c, "get_capabilities", nil)
	has(t, text(res), "Runs python, javascript or bash code", "no network")
	data, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	has(t, string(data), `"language":"python"`, `"packages":["six"]`, `"network":"none"`, `"max_timeout_seconds":120`)
	has(t, text(call(t, c, "get_capabilities", map[string]any{"x": 1})), `unknown field "x"`)

	resources, err := c.ListResources(t.Context(), nil)
	if err != nil || len(resources.Resources) != 2 || resources.Resources[0].URI != "sandbox:///workspace/b.bin" || resources.Resources[1].URI != "sandbox:///workspace/in/a.txt" {
		t.Errorf("got %+v, %v", resources, err)
	}
	read, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "sandbox:///workspace/in/a.txt"})
	if err != nil || len(read.Contents) != 1 || read.Contents[0].Text != "hello" {
		t.Errorf("got %+v, %v", read, err)
	}
	for _, uri := range []string{"sandbox:///workspace/absent2", "sandbox:///workspace/..%2f..%2fetc%2fpasswd", "sandbox:///workspace/../../etc/passwd", "file:///etc/passwd", "sandbox:///etc/passwd"} {
		if read, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%s: got %+v", uri, read)
		}
	}

	// Images and files are separate content. Large ones are a link.
	res = call(t, c, "execute_code", map[string]any{"code": "figure(1)\nplot()\nwrite(\"small.txt\", \"s\")\nwrite(\"large.txt\", \"x\" * 70000)"})
	var kinds []string
	for _, content := range res.Content {
		switch content := content.(type) {
		case *sdk.ImageContent:
			kinds = append(kinds, content.MIMEType)
			has(t, string(content.Data), "figure 1")
		case *sdk.EmbeddedResource:
			kinds = append(kinds, content.Resource.URI+"="+content.Resource.Text)
		case *sdk.ResourceLink:
			kinds = append(kinds, content.URI)
		}
	}
	if want := []string{"image/png", "sandbox:///workspace/large.txt", "sandbox:///workspace/small.txt=s"}; !slices.Equal(kinds, want) {
		t.Errorf("got %q, want %q", kinds, want)
	}
	if strings.Contains(text(res), "xxxx") {
		t.Error("the content of a file is in the text as well")
	}

	// A reset removes the sandbox, and the end of the client removes the next one.
	if n := len(b.Sandboxes()); n != 1 {
		t.Errorf("got %d sandboxes, want 1", n)
	}
	has(t, text(call(t, c, "reset_session", nil)), "gone")
	if n := len(b.Sandboxes()); n != 0 {
		t.Errorf("got %d sandboxes after a reset", n)
	}
	has(t, code(t, c, `print(x)`), "NameError")
	c.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n := len(b.Sandboxes()); n != 0 {
		t.Errorf("got %d sandboxes after the client had gone", n)
	}
}

func TestSessionsAreApart(t *testing.T) {
	s, b := newServer(t, fake.Options{}, tool.Options{}, sessions.Options{})
	one, _ := connect(t, s, nil)
	two, _ := connect(t, s, nil)
	code(t, one, `x = 1`)
	has(t, code(t, two, `print(x)`), "NameError")
	if n := len(b.Sandboxes()); n != 2 {
		t.Errorf("got %d sandboxes, want 2", n)
	}
}

// begun calls code that does not end, and returns when the code runs. The error of the call is sent
// to the channel.
func begun(t *testing.T, ctx context.Context, c *sdk.ClientSession, started <-chan string) chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		p := &sdk.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "print(\"here\")\nsleep(3600000)", "timeout": 100}}
		p.SetProgressToken("p")
		_, err := c.CallTool(ctx, p)
		done <- err
	}()
	select {
	case <-started:
	case err := <-done:
		t.Fatalf("the call has ended: %v", err)
	case <-time.After(patience):
		t.Fatal("the code does not start")
	}
	return done
}

// listener returns options that send progress messages with the output of begun to a channel.
func listener() (*sdk.ClientOptions, chan string) {
	started := make(chan string, 16)
	return &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
		if strings.Contains(r.Params.Message, "here") {
			started <- r.Params.Message
		}
	}}, started
}

// A call that is cancelled is stopped: the next one finds the sandbox free, with its state.
func TestCancel(t *testing.T) {
	s, _ := newServer(t, fake.Options{}, tool.Options{}, sessions.Options{})
	o, started := listener()
	c, _ := connect(t, s, o)
	code(t, c, `x = 41`)
	ctx, cancel := context.WithCancel(t.Context())
	done := begun(t, ctx, c, started)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	has(t, code(t, c, `print(x + 1)`), "42")
}

// If a client disconnects during a call, nothing is left.
func TestClientGoes(t *testing.T) {
	s, b := newServer(t, fake.Options{}, tool.Options{}, sessions.Options{})
	o, started := listener()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), inR, outW) }()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), &sdk.IOTransport{Reader: outR, Writer: inW}, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := begun(t, t.Context(), c, started)
	inW.Close() // as if its process had died
	outR.Close()
	select {
	case <-served:
	case <-time.After(patience):
		t.Fatal("Serve goes on without its client")
	}
	if n := len(b.Sandboxes()); n != 0 {
		t.Errorf("got %d sandboxes", n)
	}
	c.Close()
	<-done
}

// An invalid message does not end other sessions, and creates no sandbox.
func TestNonsense(t *testing.T) {
	s, b := newServer(t, fake.Options{}, tool.Options{}, sessions.Options{})
	good, _ := connect(t, s, nil)
	for name, in := range map[string]string{
		"text": "hello\n", "json": "{}\n", "array": "[1,2]\n", "method": `{"jsonrpc":"2.0","id":1,"method":"tools/call"}` + "\n",
		"half": `{"jsonrpc":"2.0","id":1,"meth`, "empty": "", "deep": strings.Repeat("[", 100_000) + "\n",
		"early": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print(1)"}}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = s.Serve(t.Context(), io.NopCloser(strings.NewReader(in)), nopCloser{io.Discard})
			}()
			select {
			case <-done:
			case <-time.After(patience):
				t.Fatal("it does not end")
			}
		})
	}
	has(t, code(t, good, `print(6 * 7)`), "42")
	if n := len(b.Sandboxes()); n != 1 {
		t.Errorf("got %d sandboxes, want that of the good client", n)
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// A list of resources creates no sandbox, and neither does it after a reset.
func TestResourcesOfNothing(t *testing.T) {
	s, b := newServer(t, fake.Options{}, tool.Options{}, sessions.Options{})
	c, _ := connect(t, s, nil)
	for range 2 {
		if got, err := c.ListResources(t.Context(), nil); err != nil || got.Resources == nil || len(got.Resources) > 0 {
			t.Errorf("got %+v, %v", got, err)
		}
		call(t, c, "reset_session", nil)
	}
	if n := b.Calls(fake.OpCreate); n != 0 {
		t.Errorf("%d sandboxes were made", n)
	}
}

// A client that asks for logs is told of failures, without what is in them.
func TestLogs(t *testing.T) {
	s, b := newServer(t, fake.Options{}, tool.Options{}, sessions.Options{})
	logs := make(chan string, 10)
	c, _ := connectAt(t, s, &sdk.ClientOptions{LoggingMessageHandler: func(_ context.Context, r *sdk.LoggingMessageRequest) { //nolint:staticcheck // see mcp.New
		logs <- fmt.Sprint(r.Params.Level, ": ", r.Params.Data)
	}}, "2025-11-25")
	b.Fail(fake.OpCreate, 2, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("secret host")))
	if res := call(t, c, "execute_code", map[string]any{"code": "print(1)"}); !res.IsError {
		t.Errorf("got %+v", res)
	}
	if err := c.SetLoggingLevel(t.Context(), &sdk.SetLoggingLevelParams{Level: "warning"}); err != nil { //nolint:staticcheck // see mcp.New
		t.Fatal(err)
	}
	call(t, c, "execute_code", map[string]any{"code": "print(1)"})
	select {
	case got := <-logs:
		if has(t, got, "warning: execute_code: unavailable: "); strings.Contains(got, "secret") {
			t.Errorf("got %q", got)
		}
	case <-time.After(patience):
		t.Fatal("no log")
	}
	if len(logs) > 0 {
		t.Errorf("got %q before the client had asked for it", <-logs)
	}
}

// denied is a Mirror that refuses every call.
type denied struct{}

func (denied) Enter(context.Context, executor.Session) error {
	return &tool.InputError{Problems: []string{"Not today."}}
}
func (denied) Leave(context.Context, executor.Session, []executor.Artifact) []string { return nil }

// list_packages says what the sandbox has, and a Mirror that fails refuses every call.
func TestListPackages(t *testing.T) {
	b := fake.New(fake.Options{})
	x, err := b.Open(driver.Env{Instance: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	m, err := sessions.New(described{x}, sessions.NewMemoryStore(), sessions.Options{Instance: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.WithoutCancel(t.Context()))
	tl, err := tool.New(described{x}, m, tool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := mcp.New(tl, mcp.Options{})
	defer s.Close()
	c, _ := connect(t, s, nil)
	var doc struct {
		Version  string
		Packages []struct{ Name, Version string }
	}
	res := call(t, c, "list_packages", map[string]any{"language": "python"})
	if structured(t, res, &doc); text(res) != "numpy 2.2.4\n" || doc.Version != "3.13.5" || len(doc.Packages) != 1 {
		t.Errorf("got %q, %+v", text(res), doc)
	}
	has(t, text(call(t, c, "list_packages", map[string]any{"language": "cobol"})), "no packages for the language", "python or javascript")

	s2 := mcp.New(tl, mcp.Options{Mirror: denied{}})
	defer s2.Close()
	c2, _ := connect(t, s2, nil)
	for _, name := range []string{"execute_code", "list_files", "list_packages"} {
		arguments := map[string]any{}
		if name == "execute_code" {
			arguments["code"] = "print(1)"
		}
		if res := call(t, c2, name, arguments); !res.IsError || text(res) == "" || !strings.Contains(text(res), "Not today.") {
			t.Errorf("%s: got %q", name, text(res))
		}
	}
}
