package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/internal/npmtest"
)

// inspect installs the protocol's own inspector at its pinned version and returns a function that
// makes one request with it.
func inspect(t *testing.T) func(wantFailure bool, args ...string) string {
	t.Helper()
	dir := npmtest.Install(t, "testdata/inspector")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	file, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return func(wantFailure bool, args ...string) string {
		t.Helper()
		node := exec.CommandContext(ctx, "node", append([]string{filepath.Join(dir, "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"), "--cli"}, args...)...)
		node.Dir = dir
		node.Env = append(os.Environ(), "PATH="+filepath.Dir(file)+":"+os.Getenv("PATH"), "MCP_INSPECTOR_SECRET_STORE=memory", "EXECBROKER_CONFIG=")
		var stderr strings.Builder
		node.Stderr = &stderr
		out, err := node.Output()
		if (err != nil) != wantFailure {
			t.Fatalf("%q: %v\n%s\n%s", args, err, out, &stderr)
		}
		return string(out) + stderr.String()
	}
}

var jsonBlock = regexp.MustCompile("(?s)```json\n(.*?)```")

// The one line of the documentation gives a third-party client a sandbox.
func TestInspector(t *testing.T) {
	t.Parallel()
	inspector := inspect(t)
	line := jsonBlock.FindStringSubmatch(read(t, "../../docs/guides/mcp.md"))
	if line == nil || strings.Count(line[1], "\n") != 1 {
		t.Fatalf("the guide has no single line of configuration: %q", line)
	}
	config := write(t, t.TempDir(), "mcp.json", line[1])
	stdio := func(args ...string) []string {
		return append([]string{"--config", config, "--server", "sandbox", "--method"}, args...)
	}
	contains(t, inspector(false, stdio("tools/list")...), `"download_file"`, `"execute_code"`, `"inputSchema"`, `"outputSchema"`, `"get_capabilities"`, `"install_packages"`, `"list_files"`, `"list_packages"`, `"reset_session"`, `"upload_file"`)

	// An image, a file, a value and output, in the forms of the protocol.
	type result struct {
		Content []struct {
			Type, Text, Data, MimeType string
			Resource                   struct{ URI, Text string }
		}
		StructuredContent map[string]any
		IsError           bool
	}
	call := func(wantFailure bool, where []string, args ...string) (r result) {
		t.Helper()
		out := inspector(wantFailure, append(append(where, "tools/call", "--tool-name"), args...)...)
		_, object, _ := strings.Cut(out, "{\n")
		if err := json.NewDecoder(strings.NewReader("{\n" + object)).Decode(&r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return r
	}
	program := `class Picture:
    def _repr_png_(self):
        return b'\x89PNG\r\n\x1a\n0'
open('a.txt', 'w').write('made')
print(6 * 7)
Picture()`
	r := call(false, stdio(), "execute_code", "--tool-arg", "code="+program)
	if len(r.Content) != 3 || r.IsError || r.StructuredContent["stdout"] != "42\n" || r.Content[1].MimeType != "image/png" || r.Content[1].Data != "iVBORw0KGgow" ||
		r.Content[2].Resource.URI != "sandbox:///workspace/a.txt" || r.Content[2].Resource.Text != "made" {
		t.Errorf("got %+v", r)
	}
	r = call(true, stdio(), "execute_code", "--tool-arg", "code=open('absent')") // the inspector fails with the tool
	if !r.IsError {
		t.Errorf("got %+v", r)
	}
	contains(t, r.Content[0].Text, "FileNotFoundError")
	r = call(false, stdio(), "upload_file", "--tool-arg", "name=in.txt", "--tool-arg", "content=hello")
	contains(t, r.Content[0].Text, "Wrote 5 bytes")
	r = call(true, stdio(), "download_file", "--tool-arg", "name=../../etc/passwd")
	contains(t, r.Content[0].Text, "is no name for a file")
	contains(t, inspector(false, stdio("resources/templates/list")...), "sandbox:///workspace/{+name}")

	r = call(false, stdio(), "list_packages")
	if version, _ := r.StructuredContent["version"].(string); !strings.HasPrefix(version, "3.") {
		t.Errorf("got %+v", r)
	}

	// The same over HTTP, with a key.
	p := installed(t, "mcp", "--listen", "127.0.0.1:0", "--json")
	s := announced[serving](t, p)
	where := []string{s.URL, "--transport", "http", "--header", "Authorization: Bearer " + s.Key, "--method"}
	r = call(false, where, "execute_code", "--tool-arg", "code=6 * 7")
	if r.StructuredContent["returnValue"] != 42.0 {
		t.Errorf("got %+v", r)
	}
	inspector(true, s.URL, "--transport", "http", "--header", "Authorization: Bearer wrong", "--method", "tools/list")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := p.code(t, p.Wait()); got != 128+int(syscall.SIGTERM) {
		t.Errorf("got exit code %d: %s", got, p.err.String())
	}
}
