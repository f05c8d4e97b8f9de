package mcp

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/tool"
)

// The names of the other tools, besides the one that runs code.
const (
	toolInstall      = "install_packages"
	toolUpload       = "upload_file"
	toolDownload     = "download_file"
	toolList         = "list_files"
	toolPackages     = "list_packages"
	toolCapabilities = "get_capabilities"
	toolReset        = "reset_session"
)

// maxEmbedded is the largest file whose content is in a result. For larger files the result has a
// link.
const maxEmbedded = 64 << 10

// handler answers a call of a client.
type handler func(ctx context.Context, c *client, arguments json.RawMessage, p *progress) *sdk.CallToolResult

func (s *Server) addTools() {
	d, caps := s.t.Definition(), s.t.Capabilities()
	s.addExecute(d)
	object := func(properties map[string]*tool.Schema, required ...string) *tool.Schema {
		return &tool.Schema{Type: "object", Properties: properties, Required: required, Closed: true}
	}
	language := *d.Input.Properties["language"]
	language.Description = "The language that imports the packages; " + language.Enum[0] + " if not given."
	if p := d.Input.Properties["packages"]; p != nil {
		s.add(&sdk.Tool{
			Name: toolInstall, Title: "Install packages", Annotations: hints(false, true),
			Description: "Installs packages in the sandbox of this session, for the code that runs after it.",
			InputSchema: object(map[string]*tool.Schema{"packages": p, "language": &language}, "packages"),
		}, taking(s.install))
	}
	if ls := s.t.FileLanguages(); len(ls) > 0 {
		with := func(properties map[string]*tool.Schema) map[string]*tool.Schema {
			// If languages cannot be mixed, each has its own files.
			if !caps.Has(executor.FeatureMixedLanguages) && len(ls) > 1 {
				l := &tool.Schema{Type: "string", Default: string(ls[0]), Description: "The language whose files these are: each has its own here."}
				for _, name := range ls {
					l.Enum = append(l.Enum, string(name))
				}
				properties["language"] = l
			}
			return properties
		}
		name := &tool.Schema{Type: "string", Description: "Name relative to the working directory."}
		s.add(&sdk.Tool{
			Name: toolUpload, Title: "Upload a file", Annotations: hints(false, true),
			Description: "Writes a file into the working directory of the sandbox. Give its content as text or as base64.",
			InputSchema: object(with(map[string]*tool.Schema{
				"name": name, "content": {Type: "string", Description: "The content, as text."},
				"base64": {Type: "string", Description: "The content in base64, for what is not text."},
			}), "name"),
		}, taking(s.upload))
		s.add(&sdk.Tool{
			Name: toolDownload, Title: "Download a file", Annotations: hints(true, true),
			Description: "Returns a file of the working directory of the sandbox, an image as an image and anything else as a resource.",
			InputSchema: object(with(map[string]*tool.Schema{"name": name}), "name"),
		}, taking(s.download))
		s.add(&sdk.Tool{
			Name: toolList, Title: "List files", Annotations: hints(true, true),
			Description: "Lists the files in the working directory of the sandbox, or in a directory below it.",
			InputSchema: object(with(map[string]*tool.Schema{"directory": {Type: "string", Description: "Name relative to the working directory; itself if not given."}})),
		}, taking(s.list))
	}
	interpreted := language
	interpreted.Enum = slices.DeleteFunc(slices.Clone(language.Enum), func(l string) bool { return l == string(tool.Bash) })
	interpreted.Description = "The language of the packages; " + language.Enum[0] + " if not given."
	s.add(&sdk.Tool{
		Name: toolPackages, Title: "List packages", Annotations: hints(true, true),
		Description: "Lists the packages that code in the sandbox can import, with their versions.",
		InputSchema: object(map[string]*tool.Schema{"language": &interpreted}),
	}, taking(s.packages))
	s.add(&sdk.Tool{
		Name: toolCapabilities, Title: "Capabilities", Annotations: hints(true, true),
		Description: "Says what the sandbox can do: languages and their versions, limits, network, how packages are installed.",
		InputSchema: object(nil),
	}, taking(s.capabilities))
	s.add(&sdk.Tool{
		Name: toolReset, Title: "Reset", Annotations: hints(false, true),
		Description: "Removes the sandbox of this session with all variables and files. The next call gets a new one.",
		InputSchema: object(nil),
	}, taking(s.reset))
}

// addExecute adds or replaces the tool that runs code.
func (s *Server) addExecute(d tool.Definition) {
	m := d.MCP()
	s.add(&sdk.Tool{Name: m.Name, Title: m.Title, Description: m.Description, InputSchema: m.InputSchema, OutputSchema: m.OutputSchema, Annotations: hints(false, false)}, s.execute)
}

// hints returns annotations for the host of a client. No tool changes anything outside the sandbox.
func hints(readOnly, idempotent bool) *sdk.ToolAnnotations {
	return &sdk.ToolAnnotations{ReadOnlyHint: readOnly, IdempotentHint: idempotent, DestructiveHint: new(bool), OpenWorldHint: new(bool)}
}

// tooLate is the answer to a call while the server shuts down.
const tooLate = "The server is shutting down. Nothing was run. Try again in a few seconds."

// add adds a tool to the SDK. Its calls end when the client disconnects.
func (s *Server) add(t *sdk.Tool, h handler) {
	s.sdk.AddTool(t, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		leave, ok := s.calls.Enter()
		if !ok {
			if t.OutputSchema != nil {
				return result(s.t.Refuse(tooLate)), nil
			}
			return refuse(tooLate), nil
		}
		defer leave()
		c, err := s.caller(req.Session, req.Extra)
		if err != nil {
			return nil, err
		}
		if req.Extra != nil {
			ctx = front.WithRequestID(ctx, req.Extra.Header.Get(front.RequestIDHeader))
		}
		ctx, stop := front.Both(asking(ctx, req.Session), c.life)
		defer stop()
		c.used.Store(true)
		p := newProgress(ctx, req)
		defer p.end()
		return h(ctx, c, req.Params.Arguments, p), nil
	})
}

func (s *Server) execute(ctx context.Context, c *client, arguments json.RawMessage, p *progress) *sdk.CallToolResult {
	out, err := s.t.Call(executor.WithProgress(ctx, p.step), c.Conversation, string(arguments), p.event)
	s.log(ctx, s.t.Options().Name, err)
	return result(out)
}

// result returns an answer as content: text for the model, then images and files as separate
// content. The structured content is for the host of the client and contains neither images nor
// files.
func result(out tool.Output) *sdk.CallToolResult {
	rest := []sdk.Content{&sdk.TextContent{Text: out.ForModel().Text}}
	for _, i := range out.Images {
		rest = append(rest, &sdk.ImageContent{Data: i.Base64, MIMEType: i.Type})
	}
	out.Images = nil
	out.Files = slices.Clone(out.Files)
	for i, f := range out.Files {
		if f.Base64 != nil && f.Size <= maxEmbedded {
			rest = append(rest, &sdk.EmbeddedResource{Resource: contents(uri(tool.UnquoteName(f.Name)), f.Type, f.Base64)})
		} else {
			rest = append(rest, &sdk.ResourceLink{URI: uri(tool.UnquoteName(f.Name)), Name: f.Name, MIMEType: f.Type, Size: &f.Size})
		}
		out.Files[i].Base64 = nil
	}
	text, err := json.Marshal(out)
	if err != nil { // impossible: values of the code were decoded from JSON
		text, _ = json.Marshal(tool.Output{Language: out.Language, Error: "The value could not be written as JSON."})
		out.Success = false
	}
	return &sdk.CallToolResult{
		Content:           rest,
		StructuredContent: json.RawMessage(text),
		IsError:           !out.Success,
	}
}

// packagesInput has the arguments of install_packages.
type packagesInput struct {
	Packages []string          `json:"packages"`
	Language executor.Language `json:"language"`
}

func (s *Server) install(ctx context.Context, c *client, in packagesInput, p *progress) *sdk.CallToolResult {
	out, err := s.t.Install(executor.WithProgress(ctx, p.step), c.Conversation, executor.Packages{Language: in.Language, Names: in.Packages})
	s.log(ctx, toolInstall, err)
	if !out.Success {
		return refuse(out.Error)
	}
	return say("Installed: %s.", strings.Join(in.Packages, ", "))
}

// uploadInput has the arguments of upload_file.
type uploadInput struct {
	Name     string            `json:"name"`
	Content  *string           `json:"content"`
	Base64   *string           `json:"base64"`
	Language executor.Language `json:"language"`
}

func (s *Server) upload(ctx context.Context, c *client, in uploadInput, _ *progress) *sdk.CallToolResult {
	f := tool.InputFile{Name: in.Name}
	switch {
	case (in.Content == nil) == (in.Base64 == nil):
		return refuse(`Pass either "content" or "base64".`)
	case in.Content != nil:
		f.Content = []byte(*in.Content)
	default:
		var err error
		if f.Content, err = base64.StdEncoding.DecodeString(*in.Base64); err != nil {
			return refuse(`The argument "base64" is not base64.`)
		}
	}
	if err := s.t.WriteFile(ctx, c.Conversation, in.Language, f); err != nil {
		return s.failed(ctx, toolUpload, err)
	}
	return say("Wrote %d bytes to %s.", len(f.Content), tool.QuoteName(tool.UnquoteName(in.Name)))
}

// downloadInput has the arguments of download_file.
type downloadInput struct {
	Name     string            `json:"name"`
	Language executor.Language `json:"language"`
}

func (s *Server) download(ctx context.Context, c *client, in downloadInput, _ *progress) *sdk.CallToolResult {
	data, err := s.t.ReadFile(ctx, c.Conversation, in.Language, in.Name, s.mostBytes())
	if err != nil {
		return s.failed(ctx, toolDownload, err)
	}
	typ := mediaType(tool.UnquoteName(in.Name), data)
	if strings.HasPrefix(typ, "image/") {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.ImageContent{Data: data, MIMEType: typ}}}
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.EmbeddedResource{Resource: contents(uri(tool.UnquoteName(in.Name)), typ, data)}}}
}

// listed is a file in the answer of list_files.
type listed struct {
	Name string `json:"name"` // as tool.QuoteName returns it
	Size int64  `json:"size,omitempty"`
	Kind string `json:"kind"` // "file", "directory", or "other"
}

// listInput has the arguments of list_files.
type listInput struct {
	Directory string            `json:"directory"`
	Language  executor.Language `json:"language"`
}

func (s *Server) list(ctx context.Context, c *client, in listInput, _ *progress) *sdk.CallToolResult {
	files, more, err := s.t.ListFiles(ctx, c.Conversation, in.Language, in.Directory)
	if err != nil {
		return s.failed(ctx, toolList, err)
	}
	all := make([]listed, 0, len(files))
	var b strings.Builder
	for _, f := range files {
		l := listed{Name: tool.QuoteName(path.Join(tool.UnquoteName(in.Directory), f.Name)), Kind: "other"}
		switch {
		case f.Mode.IsDir():
			l.Kind = "directory"
			fmt.Fprintf(&b, "%s/\n", l.Name)
		case f.Mode.IsRegular():
			l.Kind, l.Size = "file", f.Size
			fmt.Fprintf(&b, "%s (%d bytes)\n", l.Name, l.Size)
		default:
			fmt.Fprintf(&b, "%s (neither a file nor a directory)\n", l.Name)
		}
		all = append(all, l)
	}
	if len(all) == 0 {
		b.WriteString("There are no files.\n")
	}
	if more {
		b.WriteString("There are more than these.\n")
	}
	return document(b.String(), map[string]any{"files": all, "more": more})
}

// packagesOf has the arguments of list_packages.
type packagesOf struct {
	Language executor.Language `json:"language"`
}

func (s *Server) packages(ctx context.Context, c *client, in packagesOf, _ *progress) *sdk.CallToolResult {
	version, packages, err := s.t.ListPackages(ctx, c.Conversation, in.Language)
	if err != nil {
		return s.failed(ctx, toolPackages, err)
	}
	type installed struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	all := make([]installed, 0, len(packages))
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		all = append(all, installed{name, packages[name]})
		b.WriteString(strings.TrimSpace(name+" "+packages[name]) + "\n")
	}
	if len(all) == 0 {
		b.WriteString("No packages are installed.\n")
	}
	return document(b.String(), map[string]any{"version": version, "packages": all})
}

func (s *Server) capabilities(_ context.Context, _ *client, _ struct{}, _ *progress) *sdk.CallToolResult {
	caps, o := s.t.Capabilities(), s.t.Options()
	type language struct {
		Language string `json:"language"`
		Version  string `json:"version,omitempty"`
		Packages any    `json:"packages"` // false, true, or the allowed names

		Installed map[string]string `json:"installed_packages,omitempty"` // versions by name, as far as known
		State     bool              `json:"state"`
	}
	doc := struct {
		Languages     []language           `json:"languages"`
		OneSandbox    bool                 `json:"languages_share_files"`
		Isolation     executor.Isolation   `json:"isolation"`
		Network       executor.NetworkMode `json:"network"`
		Hosts         []string             `json:"hosts,omitempty"`
		Workdir       string               `json:"working_directory"`
		Timeout       float64              `json:"timeout_seconds"`
		MaxTimeout    float64              `json:"max_timeout_seconds"`
		MaxCode       int                  `json:"max_code_bytes"`
		MaxFile       int64                `json:"max_download_bytes"`
		SandboxLimits executor.Limits      `json:"limits"`
	}{
		Languages: []language{}, OneSandbox: caps.Has(executor.FeatureMixedLanguages), Isolation: caps.Isolation, Network: cmp.Or(o.Spec.Network.Mode, executor.NetworkNone),
		Hosts: o.Spec.Network.Hosts, Workdir: executor.Workdir, Timeout: o.Timeout.Seconds(), MaxTimeout: o.MaxTimeout.Seconds(),
		MaxCode: o.MaxCode, MaxFile: s.mostBytes(), SandboxLimits: o.Spec.Limits,
	}
	for _, l := range o.Languages {
		d := language{Language: string(l), Packages: false}
		if r, ok := caps.Runtime(l); ok {
			d.Version, d.Installed = s.t.Installed(l)
			d.Version, d.State = cmp.Or(d.Version, r.Version), caps.HasFor(l, executor.FeatureState)
			if names, bounded := o.Packages[l], o.Packages != nil; caps.HasFor(l, executor.FeaturePackages) && bounded && len(names) > 0 {
				d.Packages = names
			} else if caps.HasFor(l, executor.FeaturePackages) {
				d.Packages = !bounded
			}
		}
		doc.Languages = append(doc.Languages, d)
	}
	text := s.t.Definition().Description
	for _, d := range doc.Languages {
		if d.Version != "" {
			text += fmt.Sprintf(" %s is %s.", d.Language, d.Version)
		}
	}
	if most := doc.MaxFile; most > 0 {
		text += fmt.Sprintf(" Files of up to %d bytes can be downloaded.", most)
	}
	return document(text, doc)
}

func (s *Server) reset(ctx context.Context, c *client, _ struct{}, _ *progress) *sdk.CallToolResult {
	if err := s.t.Reset(ctx, c.Conversation); err != nil {
		return s.failed(ctx, toolReset, err)
	}
	c.used.Store(false)
	return say("The sandbox is gone; the next call gets a new one.")
}

// taking makes a handler that reads its arguments strictly. If they are wrong, the answer is one
// that the model can act on.
func taking[T any](h func(ctx context.Context, c *client, in T, p *progress) *sdk.CallToolResult) handler {
	return func(ctx context.Context, c *client, arguments json.RawMessage, p *progress) *sdk.CallToolResult {
		d := json.NewDecoder(strings.NewReader(cmp.Or(string(arguments), "{}")))
		d.DisallowUnknownFields()
		var in T
		if err := d.Decode(&in); err != nil {
			return refuse("The arguments are wrong: " + strings.TrimPrefix(err.Error(), "json: ") + ".")
		}
		return h(ctx, c, in, p)
	}
}

// failed returns the answer for an error.
func (s *Server) failed(ctx context.Context, op string, err error) *sdk.CallToolResult {
	if bad := (*tool.InputError)(nil); !errors.As(err, &bad) {
		s.log(ctx, op, err)
	}
	return refuse(tool.Explain(err))
}

func (s *Server) log(ctx context.Context, op string, err error) {
	if err == nil {
		return
	}
	s.o.Log.WarnContext(ctx, "call failed", "id", front.RequestID(ctx), "tool", op, "kind", executor.KindName(err), "err", err)
	tell(ctx, "warning", fmt.Sprintf("%s: %s: %s", op, executor.KindName(err), tool.Explain(err)))
}

func refuse(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: true}
}

func say(format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// document returns an answer with plain data, and with readable as the text for the model.
func document(readable string, v any) *sdk.CallToolResult {
	text, err := json.Marshal(v)
	if err != nil { // impossible: v has a type of this package
		return refuse("The answer could not be written.")
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: readable}}, StructuredContent: json.RawMessage(text)}
}

// mostBytes is the largest size of a file that is passed on.
func (s *Server) mostBytes() int64 { return s.t.Options().MaxFileBytes }

// mediaType returns the media type of a file, by its content and, for text, its name. It is an
// image type only if that is certain.
func mediaType(name string, data []byte) string {
	typ, _, _ := mime.ParseMediaType(http.DetectContentType(data))
	if strings.HasPrefix(typ, "text/") || typ == "" {
		if byName, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(name))); err == nil && !strings.HasPrefix(byName, "image/") {
			return byName
		}
	}
	return typ
}

// contents returns a file as a resource: as text if it is text.
func contents(uri, typ string, data []byte) *sdk.ResourceContents {
	r := &sdk.ResourceContents{URI: uri, MIMEType: typ}
	if utf8.Valid(data) && !strings.ContainsRune(string(data), 0) {
		r.Text = string(data)
	} else {
		r.Blob = data
	}
	return r
}
