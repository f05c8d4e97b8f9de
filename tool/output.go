package tool

import (
	"encoding/json"

	"github.com/execbroker/execbroker/executor"
)

// Output is the answer to a call. As JSON it is what Definition.Output describes, with every field.
type Output struct {
	Success       bool              `json:"success"` // the code ran to its end without an error
	Language      executor.Language `json:"language"`
	Stdout        string            `json:"stdout"` // with the text of what was displayed after it
	Stderr        string            `json:"stderr"` // with notes on the run in square brackets
	ReturnValue   any               `json:"returnValue"`
	ExecutionTime float64           `json:"executionTime"` // seconds
	Images        []Image           `json:"images"`
	Files         []File            `json:"files"`
	Error         string            `json:"error"` // empty, and null in JSON: none
}

// Image is what the code displayed as one. It comes from the sandbox: an SVG may have scripts in
// it.
type Image struct {
	Type   string `json:"type"` // media type
	Base64 []byte `json:"base64"`
	File   string `json:"file,omitempty"` // that has the same content; empty: none
}

// File is one that the code made or changed.
type File struct {
	Name   string `json:"name"` // relative to executor.Workdir
	Type   string `json:"type"` // media type, by content
	Size   int64  `json:"size"`
	Base64 []byte `json:"base64,omitempty"` // nil if it is that of an Image, or Options.MaxFileBytes does not allow it
}

// MarshalJSON implements json.Marshaler.
func (o Output) MarshalJSON() ([]byte, error) {
	type plain Output
	v := struct {
		plain
		Error *string `json:"error"`
	}{plain: plain(o)}
	if o.Error != "" {
		v.Error = &o.Error
	}
	if v.Images == nil {
		v.Images = []Image{}
	}
	if v.Files == nil {
		v.Files = []File{}
	}
	return json.Marshal(v)
}

// note adds a remark on the run, which is neither output of the code nor an error.
func (o *Output) note(text string) {
	if o.Stderr != "" && o.Stderr[len(o.Stderr)-1] != '\n' {
		o.Stderr += "\n"
	}
	o.Stderr += "[" + text + "]\n"
}
