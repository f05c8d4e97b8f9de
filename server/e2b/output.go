package e2b

import (
	"bytes"
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

// tabular is what data frames are as data. E2B has their columns instead.
const tabular = "application/vnd.dataresource+json"

// maxCells is the most that the columns of a result have.
const maxCells = 1 << 20

// resultLine is the line of a value or display.
func resultLine(o *executor.Output) []byte {
	extra := map[string]any{}
	line := map[string]any{"type": "result", "is_main_result": o.Main, "extra": extra}
	rows := columns(o.Data[tabular])
	for mime, data := range o.Data {
		f, known := formats[mime]
		switch {
		case mime == "application/json" && plainValue(o):
		case mime == tabular && o.Data["e2b/data"] == nil && rows != nil:
			line["data"] = rows
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

// plainValue reports whether o has JSON only because its value consists of plain containers. At E2B
// only objects that are displayed as JSON have it: their text is a name in angle brackets, or they
// have other media types, too.
func plainValue(o *executor.Output) bool {
	text, ok := o.Data["text/plain"]
	return ok && len(o.Data) == 2 && !bytes.HasPrefix(text, []byte("<"))
}

// columns returns the columns of tabular data, in their order, without its index: an object with a
// list for each. It is nil if data is something else.
func columns(data []byte) json.RawMessage {
	var t struct {
		Schema struct {
			Fields []struct {
				Name json.RawMessage `json:"name"` // a text or a number
			} `json:"fields"`
			PrimaryKey []json.RawMessage `json:"primaryKey"`
		} `json:"schema"`
		Data []map[string]json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(data, &t); err != nil || len(t.Schema.Fields) == 0 || len(t.Schema.Fields)*len(t.Data) > maxCells {
		return nil
	}
	text := func(name json.RawMessage) (s string) {
		if json.Unmarshal(name, &s) != nil {
			s = string(name)
		}
		return s
	}
	index := map[string]bool{}
	for _, name := range t.Schema.PrimaryKey {
		index[text(name)] = true
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for _, f := range t.Schema.Fields {
		name := text(f.Name)
		if index[name] {
			continue
		}
		column := make([]json.RawMessage, len(t.Data))
		for i, row := range t.Data {
			column[i] = row[name]
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil
		}
		values, err := json.Marshal(column) // what is not there is null
		if err != nil {
			return nil
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(values)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// unquote removes the quotes around the value of a string, as E2B does.
func unquote(s string) string {
	if n := len(s); n >= 2 && s[0] == s[n-1] && (s[0] == '\'' || s[0] == '"') {
		return s[1 : n-1]
	}
	return s
}
