package backends

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/execbroker/execbroker/executor/driver"
)

// A Mistake is one thing that is wrong in a configuration. Parse, Check and Open return them joined.
type Mistake struct {
	Path    string `json:"path,omitempty"` // "backends.box.image"; empty: the whole
	Line    int    `json:"line,omitempty"` // in the text, from 1; 0: not known
	Column  int    `json:"column,omitempty"`
	Problem string `json:"problem"` // what is wrong and what was probably meant; no value stands in it, since it may be a secret

	field string // below Path, that nobody knows
	cause error
}

// Unwrap returns the error that an adapter gave, if the mistake is one that it found when it was opened.
func (m *Mistake) Unwrap() error { return m.cause }

// Error returns `backends.box: unknown field "imgae"; did you mean "image"? (line 3, column 5)`.
func (m *Mistake) Error() string {
	var b strings.Builder
	if m.Path != "" {
		b.WriteString(m.Path + ": ")
	}
	b.WriteString(m.Problem)
	switch {
	case m.Line > 0 && m.Column > 0:
		fmt.Fprintf(&b, " (line %d, column %d)", m.Line, m.Column)
	case m.Line > 0:
		fmt.Fprintf(&b, " (line %d)", m.Line)
	}
	return b.String()
}

// Mistakes returns the mistakes that an error of Parse, Check or Open is made of, in the order of the text. An error that is none is
// the Problem of one.
func Mistakes(err error) []*Mistake {
	ms := split(err)
	slices.SortStableFunc(ms, func(a, b *Mistake) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	return ms
}

func split(err error) (ms []*Mistake) {
	switch e := err.(type) { //nolint:errorlint // a wrapped one has a text of its own, which must not be lost
	case nil:
	case *Mistake:
		ms = append(ms, e)
	case *driver.FieldError:
		ms = append(ms, &Mistake{Path: e.Path, Problem: e.Err.Error(), field: e.Field, cause: e.Err})
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			ms = append(ms, split(part)...)
		}
	default:
		ms = append(ms, &Mistake{Problem: err.Error(), cause: err})
	}
	return ms
}

// maxMistakes bounds what a list of a hundred thousand wrong elements costs the reader.
const maxMistakes = 100

// report joins mistakes.
func report(ms []*Mistake) error {
	errs := make([]error, 0, min(len(ms), maxMistakes+1))
	for i, m := range ms {
		if i == maxMistakes {
			errs = append(errs, &Mistake{Problem: fmt.Sprintf("and %d more mistakes", len(ms)-i)})
			break
		}
		errs = append(errs, m)
	}
	return errors.Join(errs...)
}

// places knows where in a text the values of a configuration stand, and what Parse did not like. The zero value knows nothing.
type places struct {
	doc   *yaml.Node
	wrong map[string]bool // paths
}

// locate fills in the positions of ms.
func (p places) locate(ms []*Mistake) []*Mistake {
	for _, m := range ms {
		path := m.Path
		switch {
		case m.field != "" && path != "":
			path += "." + m.field
		case m.field != "":
			path = m.field
		}
		if n := find(p.doc, path); n != nil && m.Line == 0 && path != "" {
			m.Line, m.Column = n.Line, n.Column
		}
	}
	return ms
}

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
