//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMCPInstall(t *testing.T) {
	for client, c := range mcpClients {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			file := c.file(userDirs{home, filepath.Join(home, ".config")})
			install := func(want int, args ...string) *process {
				t.Helper()
				p := command(t, append([]string{"mcp", "install", client}, args...)...)
				p.Env = append(p.Env, "HOME="+home, "XDG_CONFIG_HOME=")
				if got := p.code(t, p.Run()); got != want {
					t.Fatalf("%q: got exit code %d, want %d: %s", args, got, want, p.err.String())
				}
				return p
			}
			contains(t, install(exitOK, "--dry-run").out.String(), "would be:", `"mcp"`)
			if _, err := os.Stat(file); err == nil {
				t.Error("a dry run has written the file")
			}
			contains(t, install(exitOK).out.String(), "sandbox is now a server of "+c.title)
			contains(t, install(exitOK).out.String(), "sandbox was already")
			contains(t, install(exitUsage, "--backend", "fake").err.String(), "another server named")
			install(exitOK, "--backend", "fake", "--name", "second")
			install(exitOK, "--dir", home, "--name", "third")
			contains(t, install(exitUsage, "--dir", file+"-absent", "--name", "fourth").err.String(), "--dir: ")
			var doc map[string]map[string]mcpEntry
			data, err := os.ReadFile(file)
			if err != nil || json.Unmarshal(data, &doc) != nil {
				t.Fatalf("%v: %s", err, data)
			}
			first, second := doc[c.list]["sandbox"], doc[c.list]["second"]
			if !filepath.IsAbs(first.Command) || strings.Join(first.Args, " ") != "mcp" || strings.Join(second.Args, " ") != "mcp --backend fake" || strings.Join(doc[c.list]["third"].Args, " ") != "mcp --dir "+home {
				t.Errorf("got %s", data)
			}
		})
	}
	contains(t, run(t, exitUsage, "mcp", "install", "cursr").err.String(), `did you mean "cursor"?`)
}

// The rest of a client's file stays unchanged, and a file that cannot be parsed is not changed.
func TestAddServer(t *testing.T) {
	dir := t.TempDir()
	entry := mcpEntry{Command: "/bin/x", Args: []string{"mcp"}}
	file := write(t, dir, "a.json", `{"z": 1.50, "servers": {"other": {"command": "y"}}, "a": "<é>"}`)
	if text, changed, err := addServer(file, "servers", "sandbox", entry, true); err != nil || !changed || !strings.Contains(string(text), "/bin/x") || strings.Contains(read(t, file), "/bin/x") {
		t.Fatalf("dry run: got %s, %v, %v", text, changed, err)
	}
	before := read(t, file)
	if _, changed, err := addServer(file, "servers", "sandbox", entry, false); err != nil || !changed {
		t.Fatalf("got %v, %v", changed, err)
	}
	const want = "{\n  \"z\": 1.50,\n  \"servers\": {\n    \"other\": {\n      \"command\": \"y\"\n    },\n    \"sandbox\": {\n      \"command\": \"/bin/x\",\n      \"args\": [\n        \"mcp\"\n      ]\n    }\n  },\n  \"a\": \"<é>\"\n}\n"
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
	if got := read(t, file+backupSuffix); got != before {
		t.Errorf("got the backup %s", got)
	}
	for name, text := range map[string]string{"comments": "{ // mine\n}", "list": "[]", "null": "null", "servers": `{"servers": []}`, "half": `{"servers": {`} {
		file := write(t, dir, name+".json", text)
		if _, _, err := addServer(file, "servers", "sandbox", entry, false); err == nil {
			t.Errorf("%s: got no error", name)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
