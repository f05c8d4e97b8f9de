package e2b

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// formats are the media types that have a field of their own in a result.
var formats = map[string]struct {
	field        string
	binary, json bool
}{
	"text/plain": {field: "text"}, "text/html": {field: "html"}, "text/markdown": {field: "markdown"}, "text/latex": {field: "latex"},
	"image/svg+xml": {field: "svg"}, "application/javascript": {field: "javascript"},
	"image/png": {field: "png", binary: true}, "image/jpeg": {field: "jpeg", binary: true}, "application/pdf": {field: "pdf", binary: true},
	"application/json": {field: "json", json: true}, "e2b/data": {field: "data", json: true}, "e2b/chart": {field: "chart", json: true},
}

// resultLine is the line of a value or display.
func resultLine(o *executor.Output) []byte {
	extra := map[string]any{}
	line := map[string]any{"type": "result", "is_main_result": o.Main, "extra": extra}
	for mime, data := range o.Data {
		f, known := formats[mime]
		switch {
		case known && f.binary:
			line[f.field] = base64.StdEncoding.EncodeToString(data)
		case known && f.json && json.Valid(data):
			line[f.field] = json.RawMessage(data)
		case known && !f.json && utf8.Valid(data):
			line[f.field] = string(data)
		case utf8.Valid(data):
			extra[mime] = string(data)
		default:
			extra[mime] = base64.StdEncoding.EncodeToString(data)
		}
	}
	if text, ok := line["text"].(string); ok {
		line["text"] = unquote(text)
	}
	return jsonLine(line)
}

// unquote removes the quotes around the value of a string, as E2B does.
func unquote(s string) string {
	if n := len(s); n >= 2 && s[0] == s[n-1] && (s[0] == '\'' || s[0] == '"') {
		return s[1 : n-1]
	}
	return s
}
