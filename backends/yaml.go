package backends

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/execbroker/execbroker/executor"
)

// The bounds of YAML. The parser itself allows 10,000 levels.
const (
	maxDepth = 32
	maxKey   = 128 // bytes; a path has one for each level
)

// converter turns YAML into JSON and refuses what JSON cannot express. For a value that it refuses
// it writes null and records the path, so that the value is reported only once.
type converter struct {
	out     []byte
	errs    []*executor.FieldError
	refused map[string]bool
}

func (y *converter) wrong(path string, n *yaml.Node, problem string) {
	y.errs = append(y.errs, &executor.FieldError{Path: path, Line: n.Line, Column: n.Column, Err: errors.New(problem)})
}

func (y *converter) value(path string, depth int, n *yaml.Node) {
	problem := ""
	switch {
	case depth > maxDepth:
		problem = fmt.Sprintf("nested deeper than %d levels", maxDepth)
	case n.Anchor != "" || n.Kind == yaml.AliasNode:
		problem = "anchors and aliases are not supported; write the value out"
	case n.Style&yaml.TaggedStyle != 0:
		problem = "the tag " + strconv.Quote(n.Tag) + " is not supported; remove it"
	case n.Kind == yaml.MappingNode:
		y.mapping(path, depth, n)
	case n.Kind == yaml.SequenceNode:
		y.out = append(y.out, '[')
		for i, e := range n.Content {
			if i > 0 {
				y.out = append(y.out, ',')
			}
			y.value(fmt.Sprintf("%s[%d]", path, i), depth+1, e)
		}
		y.out = append(y.out, ']')
	default:
		problem = y.scalar(n)
	}
	if problem != "" {
		y.wrong(path, n, problem)
		y.refused[path] = true
		y.out = append(y.out, "null"...)
	}
}

// mapping keeps repeated keys: one check finds them later for both YAML and JSON.
func (y *converter) mapping(path string, depth int, n *yaml.Node) {
	y.out = append(y.out, '{')
	sep := ""
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if problem := keyProblem(k); problem != "" {
			y.wrong(path, k, problem)
			continue
		}
		y.out = append(y.out, sep...)
		y.text(k.Value)
		y.out = append(y.out, ':')
		sep = ","
		below := k.Value
		if path != "" {
			below = path + "." + k.Value
		}
		y.value(below, depth+1, v)
	}
	y.out = append(y.out, '}')
}

func keyProblem(k *yaml.Node) string {
	tag := k.ShortTag()
	switch {
	case k.Value == "<<" && tag == "!!merge":
		return "merge keys are not supported; write the fields out"
	case k.Anchor != "" || k.Kind == yaml.AliasNode:
		return "anchors and aliases are not supported; write the key out"
	case k.Kind != yaml.ScalarNode:
		return "a key is not text"
	case len(k.Value) > maxKey:
		return fmt.Sprintf("a key has %d bytes; at most %d are allowed", len(k.Value), maxKey)
	case k.Style&yaml.TaggedStyle != 0:
		return "the tag " + strconv.Quote(k.Tag) + " is not supported; remove it"
	case tag != "!!str" && tag != "!!timestamp": // YAML takes 2026-11-01 for a time, but as a key it is meant as text
		return "the key " + strconv.Quote(k.Value) + " is not text; put it in quotes"
	}
	return ""
}

// number matches the numbers of JSON. Other forms that YAML takes for numbers are ambiguous: 0777,
// 0o777, 1_000.
var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// scalar writes n, or returns why it cannot.
func (y *converter) scalar(n *yaml.Node) (problem string) {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		y.out = append(y.out, "null"...)
	case "!!bool":
		if n.Value != "true" && n.Value != "false" {
			return "write true or false, or put text in quotes"
		}
		y.out = append(y.out, n.Value...)
	case "!!int", "!!float":
		if !number.MatchString(n.Value) {
			return "the number is not plain decimal; write it so, or put text in quotes"
		}
		y.out = append(y.out, n.Value...)
	default: // text, including what YAML takes for a time
		y.text(n.Value)
	}
	return ""
}

func (y *converter) text(s string) {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string is always JSON
	}
	y.out = append(y.out, b...)
}
