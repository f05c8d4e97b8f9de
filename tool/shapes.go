package tool

import (
	"encoding/json"
	"maps"
	"strings"
)

// OpenAIFunction is an element of "functions" in OpenAI's first format of tools, and a part of the
// later format.
type OpenAIFunction struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Parameters  *Schema `json:"parameters"`
}

// OpenAITool is an element of "tools" of OpenAI's chat completions and of the many compatible APIs.
type OpenAITool struct {
	Type     string         `json:"type"`
	Function OpenAIFunction `json:"function"`
}

// OpenAIResponsesTool is an element of "tools" of OpenAI's responses API. In that API functions are
// strict by default, and strict functions cannot have optional parameters.
type OpenAIResponsesTool struct {
	Type string `json:"type"`
	OpenAIFunction
	Strict bool `json:"strict"`
}

// AnthropicTool is an element of "tools" of Anthropic's messages API.
type AnthropicTool struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	InputSchema *Schema `json:"input_schema"`
}

// GeminiFunction is an element of "functionDeclarations" of Gemini's API, whose schema is a subset
// of OpenAPI's.
type GeminiFunction struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Parameters  *Schema `json:"parameters"`
}

// MCPTool is an element of the answer to tools/list of the Model Context Protocol.
type MCPTool struct {
	Name         string         `json:"name"`
	Title        string         `json:"title"`
	Description  string         `json:"description"`
	InputSchema  *Schema        `json:"inputSchema"`
	OutputSchema *Schema        `json:"outputSchema"`
	Annotations  MCPAnnotations `json:"annotations"`
}

// MCPAnnotations are hints for the host of an MCP client. The protocol's defaults are the
// pessimistic ones, so all fields are always sent.
type MCPAnnotations struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

// OpenAIFunction returns d in OpenAI's first format of tools.
func (d Definition) OpenAIFunction() OpenAIFunction {
	return OpenAIFunction{d.Name, d.Description, d.Input}
}

// OpenAI returns d for chat completions.
func (d Definition) OpenAI() OpenAITool { return OpenAITool{"function", d.OpenAIFunction()} }

// OpenAIResponses returns d for the responses API.
func (d Definition) OpenAIResponses() OpenAIResponsesTool {
	return OpenAIResponsesTool{Type: "function", OpenAIFunction: d.OpenAIFunction()}
}

// Anthropic returns d for the messages API.
func (d Definition) Anthropic() AnthropicTool { return AnthropicTool{d.Name, d.Description, d.Input} }

// Gemini returns d as a function declaration.
func (d Definition) Gemini() GeminiFunction {
	return GeminiFunction{d.Name, d.Description, d.Input.gemini()}
}

// MCP returns d for tools/list. Code changes nothing outside its sandbox, and two runs may differ.
func (d Definition) MCP() MCPTool {
	return MCPTool{d.Name, "Run code", d.Description, d.Input, d.Output, MCPAnnotations{}}
}

// gemini returns s with the type names of the enumeration in OpenAPI, and without the keywords that
// the API refuses.
func (s *Schema) gemini() *Schema {
	if s == nil {
		return nil
	}
	g := *s
	g.Type, g.Closed, g.Default, g.MaxLength = strings.ToUpper(s.Type), false, nil, 0
	g.Items, g.Properties = s.Items.gemini(), maps.Clone(s.Properties)
	for name, p := range s.Properties {
		g.Properties[name] = p.gemini()
	}
	return &g
}

// MarshalJSON implements json.Marshaler.
func (s *Schema) MarshalJSON() ([]byte, error) {
	type plain Schema
	v := struct {
		Type any `json:"type,omitempty"`
		*plain
		AdditionalProperties *bool `json:"additionalProperties,omitempty"`
	}{plain: (*plain)(s)}
	if s.Type != "" {
		v.Type = s.Type
	}
	if s.Nullable {
		v.Type = []string{s.Type, "null"}
	}
	if s.Closed {
		v.AdditionalProperties = new(bool)
	}
	return json.Marshal(v)
}
