//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpWith starts execbroker mcp over standard input and output with the SDK's client.
// An empty version of the protocol means the latest.
func mcpWith(t *testing.T, o *sdk.ClientOptions, version string, args ...string) (call func(name string, arguments map[string]any) string, c *sdk.ClientSession) {
	t.Helper()
	p := command(t, append([]string{"mcp"}, args...)...)
	p.Stdout = nil
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), &sdk.CommandTransport{Command: p.Cmd}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("%v: %s", err, p.err.String())
	}
	t.Cleanup(func() { p.clean(t) }) // the caller closes the client before
	return func(name string, arguments map[string]any) string {
		t.Helper()
		res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, content := range res.Content {
			if content, ok := content.(*sdk.TextContent); ok {
				b.WriteString(content.Text)
			}
		}
		return b.String()
	}, c
}

// Files of the directory are copied in, results are copied out, and nothing else.
func TestMCPDir(t *testing.T) {
	t.Parallel()
	outside := write(t, t.TempDir(), "outside.txt", "secret")
	dir := t.TempDir()
	write(t, dir, "a.txt", "one")
	write(t, dir, ".env", "KEY=1")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "sub/b.txt", "below")
	for link, target := range map[string]string{"out.txt": outside, "up": filepath.Dir(outside)} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	call, c := mcpWith(t, nil, "", "--dir", dir)
	defer c.Close()
	code := func(src string) string {
		t.Helper()
		return call("execute_code", map[string]any{"code": src})
	}
	listed, err := c.ListResources(t.Context(), nil)
	if err != nil || len(listed.Resources) != 0 {
		t.Errorf("got %+v, %v before anything has run", listed, err)
	}
	contains(t, call("list_files", nil), "a.txt (3 bytes)", "sub/\n")
	contains(t, code(`print(read("a.txt") + read("sub/b.txt"))`), "onebelow")
	for _, name := range []string{".env", "out.txt", "up/outside.txt"} {
		if got := code(fmt.Sprintf("print(read(%q))", name)); strings.Contains(got, "secret") || strings.Contains(got, "KEY") {
			t.Errorf("%s: got %s", name, got)
		}
	}
	code(`write("made.txt", "new")`)
	if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	code(`write("sub/er.txt", "new")`)
	code(`write("a.txt", "two")`)
	for name, want := range map[string]string{"made.txt": "new", "sub/er.txt": "new", "a.txt": "two"} {
		if got := read(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%s: got %q", name, got)
		}
	}
	write(t, dir, "a.txt", "three!")
	contains(t, code(`print(read("a.txt"))`), "three!")

	// Names of the sandbox do not leave the directory, follow links, or make hidden files.
	for _, name := range []string{"up/x", ".git/x"} {
		call("upload_file", map[string]any{"name": name, "content": "x"})
	}
	contains(t, code(`write(".git/config", "x")`), "_.git/config")
	contains(t, code(`write("out.txt", "x")`), "was not copied", "not a regular file")
	contains(t, code(`write("up/outside.txt", "x")`), "was not copied")
	if got := read(t, outside); got != "secret" {
		t.Errorf("got %q outside", got)
	}
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		t.Error("there is a hidden directory")
	}

	listed, err = c.ListResources(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var uris []string
	for _, r := range listed.Resources {
		uris = append(uris, r.URI)
	}
	contains(t, strings.Join(uris, "\n"), "sandbox:///workspace/a.txt", "sandbox:///workspace/sub/er.txt")

	// A new sandbox gets the files again.
	call("reset_session", nil)
	contains(t, code(`print(read("a.txt"))`), "three!")
	if listed, err := c.ListResources(t.Context(), nil); err != nil || len(listed.Resources) == 0 {
		t.Errorf("got %+v, %v", listed, err)
	}
	write(t, dir, "many.bin", strings.Repeat("x", maxDirBytes))
	contains(t, code(`print("ran")`), "cannot be copied", "Nothing was run")
}

// A file that has changed on both sides is replaced only if the user agrees. Otherwise both are
// kept.
func TestMCPDirConflict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version, action, want, kept string
	}{
		"accept":  {version: "2025-11-25", action: "accept", want: "code"},
		"decline": {version: "2025-11-25", action: "decline", want: "user", kept: "code"},
		"silent":  {version: "2025-11-25", want: "user", kept: "code"}, // it cannot ask
		"latest":  {want: "user", kept: "code"},                        // a server cannot ask during a call
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "a.txt", "one")
			o := &sdk.ClientOptions{}
			asked, steps := make(chan string, 10), make(chan string, 10)
			if c.action != "" {
				o.ElicitationHandler = func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					asked <- r.Params.Message
					return &sdk.ElicitResult{Action: c.action}, nil
				}
			}
			o.ProgressNotificationHandler = func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
				if strings.Contains(r.Params.Message, "here") {
					steps <- r.Params.Message
				}
			}
			_, s := mcpWith(t, o, c.version, "--dir", dir)
			defer s.Close()
			answer := make(chan string, 1)
			go func() {
				p := &sdk.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "print(\"here\")\nsleep(4000)\nwrite(\"a.txt\", \"code\")"}}
				p.SetProgressToken("p")
				res, err := s.CallTool(t.Context(), p)
				if err != nil {
					answer <- err.Error()
					return
				}
				text, _ := res.Content[0].(*sdk.TextContent)
				answer <- text.Text
			}()
			select {
			case <-steps:
			case got := <-answer:
				t.Fatalf("the call has ended: %s", got)
			}
			write(t, dir, "a.txt", "user") // while the code runs
			got := <-answer
			if was := read(t, filepath.Join(dir, "a.txt")); was != c.want {
				t.Errorf("got %q, want %q: %s", was, c.want, got)
			}
			if c.kept != "" {
				contains(t, got, `what the code made is "a-2.txt"`)
				if was := read(t, filepath.Join(dir, "a-2.txt")); was != c.kept {
					t.Errorf("got %q, want %q", was, c.kept)
				}
			}
			if c.action != "" {
				contains(t, <-asked, `changed "a.txt"`)
			}
		})
	}
}
