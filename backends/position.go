package backends

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/settings"
)

// positions knows where in a text the values of a configuration are, and which of them Parse has
// refused. The zero value knows nothing.
type positions struct {
	doc   *yaml.Node
	wrong map[string]bool // paths
}

// locate returns the errors that are joined in err, with their positions and in the order of those.
func (p positions) locate(err error) []*executor.FieldError {
	all := executor.FieldErrors(err)
	for i, e := range all {
		path := e.Path
		switch {
		case e.Field != "" && path != "":
			path += "." + e.Field
		case e.Field != "":
			path = e.Field
		}
		if n := find(p.doc, path); n != nil && e.Line == 0 && path != "" {
			at := *e
			at.Line, at.Column = n.Line, n.Column
			all[i] = &at
		}
	}
	return all
}

// report joins the errors that are joined in err, with their positions.
func (p positions) report(err error) error { return settings.Join(p.locate(err), 0) }

// find returns the node at path, or nil. A key that itself looks like a path is found too.
func find(n *yaml.Node, path string) *yaml.Node {
	if n == nil || path == "" {
		return n
	}
	for i, c := range n.Content {
		var rest string
		var ok bool
		switch {
		case n.Kind == yaml.SequenceNode:
			rest, ok = strings.CutPrefix(path, fmt.Sprintf("[%d]", i))
		case n.Kind == yaml.MappingNode && i%2 == 1:
			rest, ok = strings.CutPrefix(path, n.Content[i-1].Value)
			c = n.Content[i]
		}
		if !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		if rest == "" && n.Kind == yaml.MappingNode {
			return n.Content[i-1]
		}
		if found := find(c, strings.TrimPrefix(rest, ".")); found != nil {
			return found
		}
	}
	return nil
}
