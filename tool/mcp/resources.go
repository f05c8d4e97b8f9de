package mcp

import (
	"context"
	"errors"
	"net/url"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/tool"
)

// root is the URI of the files of a session as resources. The host name is empty: each client sees
// its own files.
const root = "sandbox://" + executor.Workdir + "/"

// uri returns the URI of a file.
func uri(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, executor.Workdir), "/")
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return root + strings.Join(parts, "/")
}

func (s *Server) addResources() {
	if len(s.t.FileLanguages()) == 0 {
		return
	}
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "file", Title: "File of the sandbox", URITemplate: root + "{+name}",
		Description: "A file in the working directory of the sandbox of this session.",
	}, s.readResource)
}

func (s *Server) readResource(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	leave, ok := s.calls.Enter()
	if !ok {
		return nil, errDraining
	}
	defer leave()
	c, err := s.caller(req.Session, req.Extra)
	if err != nil {
		return nil, err
	}
	ctx, stop := front.Both(ctx, c.life)
	defer stop()
	escaped, ok := strings.CutPrefix(req.Params.URI, root)
	name, err := url.PathUnescape(escaped)
	if !ok || err != nil {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	data, err := s.t.ReadFile(ctx, c.Conversation, "", name, s.mostBytes())
	if bad := (*tool.InputError)(nil); errors.As(err, &bad) {
		if strings.Contains(bad.Error(), "does not exist") {
			return nil, sdk.ResourceNotFoundError(req.Params.URI)
		}
		return nil, bad
	}
	if err != nil {
		s.log(ctx, "resources/read", err)
		return nil, errors.New(tool.Explain(err))
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{contents(req.Params.URI, mediaType(name, data), data)}}, nil
}
