//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Over standard input and output the program ends with its client, or by a signal even if its input
// stays open.
func TestMCP(t *testing.T) {
	t.Parallel()
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
			ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print(6 * 7)"}}}`, `"stdout":"42\n"`)
			want := end(p, func() { in.Close() })
			if got := p.code(t, p.Wait()); got != want {
				t.Errorf("got exit code %d, want %d: %s", got, want, p.err.String())
			}
			p.clean(t)
		})
	}
}

func TestMCPUsageErrors(t *testing.T) {
	t.Parallel()
	keys := write(t, t.TempDir(), "keys.json", `[{"key": "short"}]`)
	for name, args := range map[string][]string{
		"listen":    {"--listen", "nowhere"},
		"address":   {"--listen", "0.0.0.0:0"}, // without keys
		"network":   {"--network", "some"},
		"timeout":   {"--max-timeout", "0s"},
		"sessions":  {"--max-sessions", "0"},
		"per-key":   {"--max-sessions-per-key", "0"},
		"idle":      {"--idle", "0s"},
		"keys":      {"--listen", "127.0.0.1:0", "--keys", keys},
		"drain":     {"--listen", "127.0.0.1:0", "--drain", "-1s"},
		"dir":       {"--dir", "absent"},
		"shared":    {"--dir", ".", "--listen", "127.0.0.1:0"},
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

// bearer sends a key with every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// At a signal an HTTP server lets a call end, and answers it.
func TestMCPOverHTTPLosesNoCall(t *testing.T) {
	t.Parallel()
	p := command(t, "mcp", "--listen", "127.0.0.1:0", "--json")
	s := announced[serving](t, p)
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	started := make(chan struct{}, 1)
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) {
			select {
			case started <- struct{}{}:
			default:
			}
		},
	}).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: s.URL, HTTPClient: &http.Client{Transport: bearer(s.Key)}, MaxRetries: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer := make(chan string, 1)
	go func() {
		call := &sdk.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "print(\"here\")\nsleep(1000)\nprint(\"whole\")"}}
		call.SetProgressToken("p")
		res, err := c.CallTool(t.Context(), call)
		if err != nil {
			answer <- err.Error()
			return
		}
		text, err := json.Marshal(res)
		answer <- fmt.Sprint(string(text), err)
	}()
	select {
	case <-started:
	case got := <-answer:
		t.Fatalf("the call ended without a sign of life: %s", got)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	contains(t, <-answer, "whole")
	if got := p.code(t, p.Wait()); got != 128+int(syscall.SIGTERM) {
		t.Errorf("got exit code %d: %s", got, p.err.String())
	}
	p.clean(t)
}
