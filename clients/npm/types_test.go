package npm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// schema is a schema of the OpenAPI document, as far as the document uses schemas.
type schema struct {
	Ref         string            `json:"$ref"`
	Type        string            `json:"type"`
	Format      string            `json:"format"`
	Description string            `json:"description"`
	Enum        []string          `json:"enum"`
	OneOf       []schema          `json:"oneOf"`
	Items       *schema           `json:"items"`
	Properties  map[string]schema `json:"properties"`
	Required    []string          `json:"required"`
	Additional  json.RawMessage   `json:"additionalProperties"` // a schema or false
}

// types returns the TypeScript of all schemas of an OpenAPI document. It refuses what it does not
// know.
func types(document []byte) ([]byte, error) {
	var doc struct {
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("// The types of the HTTP API. Made from server/openapi.json by go test ./clients/npm -update; do not edit.\n")
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		var s schema
		d := json.NewDecoder(bytes.NewReader(doc.Components.Schemas[name]))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		t, err := s.typescript("")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(&b, "\n%sexport type %s = %s;\n", comment("", s.Description), name, t)
	}
	return b.Bytes(), nil
}

func comment(indent, text string) string {
	if text == "" {
		return ""
	}
	return indent + "/** " + strings.ReplaceAll(text, "*/", "*\u200b/") + " */\n"
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// typescript returns the type of values of s. indent is that of the line on which it begins.
func (s schema) typescript(indent string) (string, error) {
	list := func(all []schema) (string, error) {
		var ts []string
		for _, one := range all {
			t, err := one.typescript(indent)
			if err != nil {
				return "", err
			}
			ts = append(ts, t)
		}
		return strings.Join(ts, " | "), nil
	}
	switch {
	case s.Ref != "":
		name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/")
		if !ok {
			return "", fmt.Errorf("$ref: %q is elsewhere", s.Ref)
		}
		return name, nil
	case len(s.OneOf) > 0:
		return list(s.OneOf)
	case len(s.Enum) > 0:
		return `"` + strings.Join(s.Enum, `" | "`) + `"`, nil
	}
	switch s.Type {
	case "":
		return "unknown", nil
	case "string", "boolean":
		return s.Type, nil
	case "integer", "number":
		return "number", nil
	case "array":
		if s.Items == nil {
			return "unknown[]", nil
		}
		t, err := s.Items.typescript(indent)
		if strings.Contains(t, " ") && s.Items.Ref == "" {
			t = "(" + t + ")"
		}
		return t + "[]", err
	case "object":
		return s.object(indent)
	}
	return "", fmt.Errorf("type %q is not known", s.Type)
}

func (s schema) object(indent string) (string, error) {
	if len(s.Properties) == 0 {
		var values schema
		if len(s.Additional) == 0 || json.Unmarshal(s.Additional, &values) != nil {
			return "Record<string, unknown>", nil
		}
		t, err := values.typescript(indent)
		return "Record<string, " + t + ">", err
	}
	var b strings.Builder
	b.WriteString("{\n")
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		t, err := p.typescript(indent + "  ")
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		optional := "?"
		if slices.Contains(s.Required, name) {
			optional = ""
		}
		if !plainName.MatchString(name) {
			name = fmt.Sprintf("%q", name)
		}
		fmt.Fprintf(&b, "%s%s  %s%s: %s;\n", comment(indent+"  ", p.Description), indent, name, optional, t)
	}
	return b.String() + indent + "}", nil
}
