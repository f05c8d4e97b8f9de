package tool

import (
	"encoding/json"

	"github.com/execbroker/execbroker/executor"
)

// Output is the answer to a call. Its JSON form has every field that Definition.Output describes.
type Output struct {
	Success       bool              `json:"success"` // the code ran to its end without an error
	Language      executor.Language `json:"language"`
	Stdout        string            `json:"stdout"` // followed by displayed text
	Stderr        string            `json:"stderr"` // followed by notes on the run in square brackets
	ReturnValue   any               `json:"returnValue"`
	ExecutionTime float64           `json:"executionTime"` // seconds
	Images        []Image           `json:"images"`
	Files         []File            `json:"files"`
	Error         string            `json:"error"` // empty if there is none, which is null in JSON
}

// Image is an image that the code displayed. It comes from the sandbox, so an SVG may contain
// scripts.
type Image struct {
	Type   string `json:"type"` // media type
	Base64 []byte `json:"base64"`
	File   string `json:"file,omitempty"` // the Name of a File with the same content; empty: none
}

// File is a file that the code created or changed.
type File struct {
	Name   string `json:"name"` // relative to executor.Workdir, as QuoteName returns it
	Type   string `json:"type"` // media type, from the content
	Size   int64  `json:"size"`
	Base64 []byte `json:"base64,omitempty"` // nil if the file is also an Image, or exceeds Options.MaxFileBytes
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

// note adds a remark about the run that is neither output of the code nor an error.
func (o *Output) note(text string) {
	if o.Stderr != "" && o.Stderr[len(o.Stderr)-1] != '\n' {
		o.Stderr += "\n"
	}
	o.Stderr += "[" + text + "]\n"
}
