package jupyter

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/execbroker/execbroker/executor"
)

// kernelspec describes the kernel of a language.
type kernelspec struct {
	name     string
	other    string // by which clients may ask for it, too
	display  string
	language executor.Language
	version  string
	mime     string
	file     string // the extension of its files
	mode     any    // of the editor
}

var kernelspecs = []kernelspec{
	{name: "python3", other: "python", display: "Python 3", language: executor.Python, mime: "text/x-python", file: ".py", mode: map[string]any{"name": "ipython", "version": 3}},
	{name: "javascript", display: "JavaScript", language: executor.JavaScript, mime: "text/javascript", file: ".js", mode: "javascript"},
	{name: "typescript", display: "TypeScript", language: executor.TypeScript, mime: "text/typescript", file: ".ts", mode: "text/typescript"},
}

// specs returns the kernels of the backend's languages. The first is the default.
func (s *Server) specs() (specs []kernelspec) {
	caps := s.x.Info().Capabilities
	for _, about := range kernelspecs {
		if r, ok := caps.Runtime(about.language); ok {
			about.version = r.Version
			specs = append(specs, about)
		}
	}
	return specs
}

// spec returns the kernel with a name. The empty name is the default.
func (s *Server) spec(name string) (kernelspec, error) {
	specs := s.specs()
	i := slices.IndexFunc(specs, func(k kernelspec) bool { return name == "" || name == k.name || name == k.other })
	if i < 0 {
		return kernelspec{}, refuse(http.StatusNotFound, "there is no kernel %.100q; see /api/kernelspecs", name)
	}
	return specs[i], nil
}

// information is language_info of the protocol.
func (k kernelspec) information() any {
	return map[string]any{
		"name": k.language, "version": k.version, "mimetype": k.mime, "file_extension": k.file,
		"codemirror_mode": k.mode, "pygments_lexer": k.language, "nbconvert_exporter": map[bool]string{true: "python", false: "script"}[k.language == executor.Python],
	}
}

func (k kernelspec) model() any {
	return map[string]any{
		"name": k.name, "resources": struct{}{},
		"spec": map[string]any{
			"argv": []string{}, "env": struct{}{}, "display_name": fmt.Sprintf("%s (sandbox)", k.display), "language": k.language,
			"interrupt_mode": "message", "metadata": struct{}{},
		},
	}
}

func (c *call) listSpecs() (int, any, error) {
	specs := c.specs()
	all, first := map[string]any{}, ""
	for _, k := range slices.Backward(specs) {
		all[k.name], first = k.model(), k.name
	}
	return http.StatusOK, map[string]any{"default": first, "kernelspecs": all}, nil
}

func (c *call) getSpec() (int, any, error) {
	k, err := c.spec(c.r.PathValue("name"))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, k.model(), nil
}
