//go:build unix

package main

import (
	"bufio"
	"fmt"
	"syscall"
	"testing"
)

// Over standard input and output the program ends with its client, or by a signal though nobody closes its input.
func TestMCP(t *testing.T) {
	for name, end := range map[string]func(*process, func()) int{
		"input": func(_ *process, closeInput func()) int { closeInput(); return exitOK },
		"signal": func(p *process, _ func()) int {
			_ = p.Process.Signal(syscall.SIGTERM)
			return 128 + int(syscall.SIGTERM)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := command(t, "mcp")
			p.Stdout = nil
			in, err := p.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := p.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			answers := bufio.NewReader(out)
			ask := func(request, want string) {
				t.Helper()
				fmt.Fprintln(in, request)
				if want == "" {
					return
				}
				line, err := answers.ReadString('\n')
				if err != nil {
					t.Fatalf("%v: %s", err, p.err.String())
				}
				contains(t, line, want)
			}
			ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, `"serverInfo"`)
			ask(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "")
			ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print(6 * 7)"}}}`, `42\\n`)
			want := end(p, func() { in.Close() })
			if got := p.code(t, p.Wait()); got != want {
				t.Errorf("got exit code %d, want %d: %s", got, want, p.err.String())
			}
			p.clean(t)
		})
	}
}

func TestMCPMistakes(t *testing.T) {
	keys := write(t, t.TempDir(), "keys.json", `[{"key": "short"}]`)
	for name, args := range map[string][]string{
		"listen":    {"--listen", "nowhere"},
		"address":   {"--listen", "0.0.0.0:0"}, // without keys
		"network":   {"--network", "some"},
		"timeout":   {"--max-timeout", "0s"},
		"sessions":  {"--max-sessions", "0"},
		"keys":      {"--listen", "127.0.0.1:0", "--keys", keys},
		"no-listen": {"--keys", keys},
		"arguments": {"more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if p := run(t, exitUsage, append([]string{"mcp"}, args...)...); p.out.Len() > 0 {
				t.Errorf("got %s", p.out.String())
			}
		})
	}
}
