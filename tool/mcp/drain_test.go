package mcp_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/tool"
	"github.com/execbroker/execbroker/tool/mcp"
)

// A server that shuts down starts no new call and waits for those in progress, which clients can
// still cancel.
func TestHTTPDrain(t *testing.T) {
	s, b, srv := serveHTTP(t, mcp.HTTPOptions{})
	o, started := listener()
	c, idle := dial(t, srv.URL, alice, o), dial(t, srv.URL, bob, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := begun(t, ctx, c, started)

	late := errors.New("too late")
	soon, giveUp := context.WithCancelCause(t.Context())
	giveUp(late)
	if err := s.Drain(soon); !errors.Is(err, late) {
		t.Errorf("in the middle of a call: got %v", err)
	}
	has(t, code(t, idle, `print(1)`), "shutting down", "Nothing was run")
	var refused tool.Output
	if structured(t, call(t, idle, "execute_code", map[string]any{"code": "print(1)"}), &refused); refused.Language != executor.Python {
		t.Errorf("got %+v, want an answer of the form that the definition has", refused)
	}
	has(t, text(call(t, idle, "list_files", nil)), "shutting down")
	if _, err := idle.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "sandbox:///workspace/x"}); err == nil {
		t.Error("a resource was read")
	}
	begin := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	if got := send(t, srv.URL, request{key: bob, body: begin}); got.status != http.StatusServiceUnavailable {
		t.Errorf("a new session: got %d %s", got.status, got.body)
	}
	if n := len(b.Sandboxes()); n != 1 {
		t.Errorf("got %d sandboxes, want 1", n)
	}

	cancel()
	<-done
	for range 2 { // it may be called again
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
