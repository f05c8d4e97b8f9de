package mcp

import (
	"context"
	"errors"
	"mime"
	"net/url"
	"path"
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

// quoted returns a name in the form in which names of models are taken. Empty is the working
// directory.
func quoted(name string) string {
	if name == "" {
		return ""
	}
	return tool.QuoteName(name)
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

// The limits of a list of resources: most files, and most directories that are read for it.
const (
	maxResources   = 1000
	maxDirectories = 50
)

// withFiles adds the files of the client's sandbox to its list of resources. It creates no sandbox:
// clients ask for the list before anything has run.
func (s *Server) withFiles(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		res, err := next(ctx, method, req)
		list, ok := res.(*sdk.ListResourcesResult)
		session, known := req.GetSession().(*sdk.ServerSession)
		if err != nil || !ok || !known {
			return res, err
		}
		leave, open := s.calls.Enter()
		if !open {
			return nil, errDraining
		}
		defer leave()
		c, err := s.caller(session, req.GetExtra())
		if err != nil {
			return nil, err
		}
		if len(s.t.FileLanguages()) == 0 || !c.used.Load() {
			return list, nil
		}
		ctx, stop := front.Both(ctx, c.life)
		defer stop()
		list.Resources, err = s.files(ctx, c)
		if err != nil {
			s.log(ctx, "resources/list", err)
			return nil, errors.New(tool.Explain(err))
		}
		return list, nil
	}
}

// files returns the files of a client's sandbox, directory by directory.
func (s *Server) files(ctx context.Context, c *client) ([]*sdk.Resource, error) {
	all := []*sdk.Resource{}
	dirs := []string{""}
	for read := 0; read < len(dirs) && read < maxDirectories; read++ {
		files, _, err := s.t.ListFiles(ctx, c.Conversation, "", quoted(dirs[read]))
		if bad := (*tool.InputError)(nil); read > 0 && errors.As(err, &bad) {
			continue // the directory has gone meanwhile, or code has given it a name that is not listed
		} else if err != nil {
			return nil, err
		}
		for _, f := range files {
			name := path.Join(dirs[read], f.Name)
			switch {
			case f.Mode.IsDir():
				dirs = append(dirs, name)
			case f.Mode.IsRegular():
				all = append(all, &sdk.Resource{URI: uri(name), Name: tool.QuoteName(name), MIMEType: mime.TypeByExtension(path.Ext(name)), Size: f.Size})
			}
			if len(all) == maxResources {
				return all, nil
			}
		}
	}
	return all, nil
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
	data, err := s.t.ReadFile(ctx, c.Conversation, "", quoted(name), s.mostBytes())
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
