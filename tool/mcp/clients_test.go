package mcp_test

import (
	"testing"

	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/front/fronttest"
	"github.com/execbroker/execbroker/tool"
	"github.com/execbroker/execbroker/tool/mcp"
)

func TestHTTPClients(t *testing.T) {
	fronttest.Clients(t, func(t *testing.T) fronttest.Front {
		s, _ := newServer(t, fake.Options{}, tool.Options{}, sessions.Options{})
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		bearer := "Authorization: Bearer " + alice
		return fronttest.Front{
			Handler: s.Handler(mcp.HTTPOptions{Authenticate: func(key string) (string, map[string]string, bool) { return "alice", nil, key == alice }}),
			Refused: [][]string{{"POST /mcp"}, {"DELETE /mcp"}, {"POST /mcp", bearer, "Sec-Fetch-Site: cross-site"}},
			Reads:   [][]string{{"POST /mcp", bearer, "Content-Type: application/json", "Accept: application/json, text/event-stream"}},
			Answers: [][]string{{"GET /mcp"}, {"GET /mcp", bearer}},
		}
	})
}
