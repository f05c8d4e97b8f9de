package tool

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// The limits of a notebook that is read.
const (
	MaxNotebook      = 32 << 20 // bytes
	maxNotebookCells = 10_000
)

// NotebookCell is a cell of a Jupyter notebook: text, or a call and its answer.
type NotebookCell struct {
	Markdown string // the text of a Markdown cell; then the other fields are empty
	Input    Input
	Output   *Output // nil: the cell was not run
}

// The parts of a notebook, as nbformat 4.5 names them.
type (
	notebook struct {
		Cells    []notebookCell `json:"cells"`
		Metadata map[string]any `json:"metadata"`
		Format   int            `json:"nbformat"`
		Minor    int            `json:"nbformat_minor"`
	}
	notebookCell struct {
		ID       string            `json:"id,omitempty"`
		Type     string            `json:"cell_type"`
		Count    *int              `json:"execution_count"`
		Metadata map[string]any    `json:"metadata"`
		Source   lines             `json:"source"`
		Outputs  *[]notebookOutput `json:"outputs,omitempty"`
	}
	notebookOutput struct {
		Type      string                     `json:"output_type"`
		Name      string                     `json:"name,omitempty"`
		Text      lines                      `json:"text,omitempty"`
		Data      map[string]json.RawMessage `json:"data,omitempty"`
		Metadata  *map[string]any            `json:"metadata,omitempty"`
		Count     *int                       `json:"execution_count,omitempty"`
		Ename     *string                    `json:"ename,omitempty"`
		Evalue    *string                    `json:"evalue,omitempty"`
		Traceback *[]string                  `json:"traceback,omitempty"`
	}
)

// lines is text that is a string or a list of strings in JSON.
type lines string

// UnmarshalJSON implements json.Unmarshaler.
func (l *lines) UnmarshalJSON(p []byte) error {
	var list []string
	if json.Unmarshal(p, &list) == nil {
		*l = lines(strings.Join(list, ""))
		return nil
	}
	return json.Unmarshal(p, (*string)(l))
}

// MarshalJSON writes a cell. A Markdown cell has neither outputs nor a count, and a code cell has
// both.
func (c notebookCell) MarshalJSON() ([]byte, error) {
	if c.Type != "code" {
		return json.Marshal(struct {
			ID       string         `json:"id"`
			Type     string         `json:"cell_type"`
			Metadata map[string]any `json:"metadata"`
			Source   lines          `json:"source"`
		}{c.ID, c.Type, c.Metadata, c.Source})
	}
	type code notebookCell
	return json.Marshal(code(c))
}

// magics are the first lines of cells in another language than Python.
var magics = map[executor.Language]string{executor.JavaScript: "%%javascript", executor.TypeScript: "%%typescript", Bash: "%%bash"}

// ExportNotebook writes calls and their answers as a Jupyter notebook (nbformat 4.5): code, output,
// values, images and errors, but no files. A cell in another language than Python begins with a
// cell magic.
func ExportNotebook(cells []NotebookCell) ([]byte, error) {
	nb := notebook{Cells: []notebookCell{}, Format: 4, Minor: 5, Metadata: map[string]any{
		"kernelspec":    map[string]any{"name": "python3", "display_name": "Python 3", "language": "python"},
		"language_info": map[string]any{"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
	}}
	ran := 0
	for i, c := range cells {
		cell := notebookCell{ID: fmt.Sprintf("cell-%d", i+1), Type: "markdown", Metadata: map[string]any{}, Source: lines(plain([]byte(c.Markdown)))}
		if c.Markdown == "" {
			cell.Type, cell.Source = "code", lines(plain([]byte(c.Input.Code)))
			if magic, ok := magics[c.Input.Language]; ok {
				cell.Source = lines(magic+"\n") + cell.Source
			}
			cell.Outputs = &[]notebookOutput{}
			if c.Output != nil {
				ran++
				n := ran
				cell.Count, cell.Outputs = &n, exportOutputs(*c.Output, n)
			}
		}
		nb.Cells = append(nb.Cells, cell)
	}
	return json.MarshalIndent(nb, "", " ")
}

func exportOutputs(o Output, count int) *[]notebookOutput {
	outs := []notebookOutput{}
	for _, s := range []struct{ name, text string }{{"stdout", o.Stdout}, {"stderr", o.Stderr}} {
		if s.text != "" {
			outs = append(outs, notebookOutput{Type: "stream", Name: s.name, Text: lines(s.text)})
		}
	}
	text := func(s string) json.RawMessage {
		b, _ := json.Marshal(s) // a string can always be encoded
		return b
	}
	for _, i := range o.Images {
		data := text(base64.StdEncoding.EncodeToString(i.Base64))
		if i.Type == "image/svg+xml" {
			data = text(plain(i.Base64))
		}
		outs = append(outs, notebookOutput{Type: "display_data", Metadata: &map[string]any{}, Data: map[string]json.RawMessage{i.Type: data}})
	}
	if o.ReturnValue != nil {
		data := map[string]json.RawMessage{}
		if s, ok := o.ReturnValue.(string); ok {
			data["text/plain"] = text(s)
		} else if b, err := json.Marshal(o.ReturnValue); err == nil {
			data["application/json"], data["text/plain"] = b, text(string(b))
		}
		if len(data) > 0 {
			outs = append(outs, notebookOutput{Type: "execute_result", Metadata: &map[string]any{}, Count: &count, Data: data})
		}
	}
	if o.Error != "" {
		first, _, _ := strings.Cut(o.Error, "\nHint: ")
		last := first[strings.LastIndexByte(strings.TrimRight(first, "\n"), '\n')+1:]
		name, value, ok := strings.Cut(last, ": ")
		if !ok || strings.ContainsAny(name, " \t") {
			name, value = "Error", last
		}
		trace := strings.Split(o.Error, "\n")
		outs = append(outs, notebookOutput{Type: "error", Ename: &name, Evalue: &value, Traceback: &trace})
	}
	return &outs
}

// ImportNotebook reads a Jupyter notebook of nbformat 4, with the outputs that an Output can have.
// Text cells become Markdown. A cell magic for JavaScript or Bash sets the language of its cell. A
// notebook is untrusted: nothing in it is run.
func ImportNotebook(data []byte) ([]NotebookCell, error) {
	if len(data) > MaxNotebook {
		return nil, fmt.Errorf("tool: notebook: has %d bytes; at most %d are read", len(data), MaxNotebook)
	}
	var nb notebook
	if err := json.Unmarshal(data, &nb); err != nil {
		return nil, fmt.Errorf("tool: notebook: %w", err)
	}
	if nb.Format != 4 {
		return nil, fmt.Errorf("tool: notebook: nbformat %d; want 4, so convert it first", nb.Format)
	}
	if len(nb.Cells) > maxNotebookCells {
		return nil, fmt.Errorf("tool: notebook: has %d cells; at most %d are read", len(nb.Cells), maxNotebookCells)
	}
	language, err := notebookLanguage(nb.Metadata)
	if err != nil {
		return nil, err
	}
	cells := []NotebookCell{}
	for i, c := range nb.Cells {
		switch c.Type {
		case "markdown", "raw":
			if c.Source != "" {
				cells = append(cells, NotebookCell{Markdown: string(c.Source)})
			}
		case "code":
			cell := NotebookCell{Input: Input{Code: string(c.Source), Language: language}}
			for l, magic := range magics {
				if rest, ok := strings.CutPrefix(cell.Input.Code, magic+"\n"); ok {
					cell.Input.Code, cell.Input.Language = rest, l
				}
			}
			if c.Outputs != nil && (len(*c.Outputs) > 0 || c.Count != nil) {
				out := importOutputs(*c.Outputs)
				out.Language = cell.Input.Language
				cell.Output = &out
			}
			cells = append(cells, cell)
		default:
			return nil, fmt.Errorf("tool: notebook: cell %d: unknown type %.40q", i+1, c.Type)
		}
	}
	return cells, nil
}

func notebookLanguage(metadata map[string]any) (executor.Language, error) {
	for _, key := range []struct{ part, name string }{{"language_info", "name"}, {"kernelspec", "language"}} {
		part, _ := metadata[key.part].(map[string]any)
		switch name, _ := part[key.name].(string); strings.ToLower(name) {
		case "python", "ipython":
			return executor.Python, nil
		case "javascript":
			return executor.JavaScript, nil
		case "typescript":
			return executor.TypeScript, nil
		case "":
		default:
			return "", fmt.Errorf("tool: notebook: its language is %.40q; python, javascript and typescript can be read", name)
		}
	}
	return executor.Python, nil
}

func importOutputs(outs []notebookOutput) (o Output) {
	o.Success = true
	str := func(b json.RawMessage) string {
		var l lines
		if json.Unmarshal(b, &l) != nil {
			return ""
		}
		return string(l)
	}
	for _, n := range outs {
		switch n.Type {
		case "stream":
			if n.Name == "stderr" {
				o.Stderr += string(n.Text)
			} else {
				o.Stdout += string(n.Text)
			}
		case "error":
			o.Success = false
			if n.Traceback != nil {
				o.Error = strings.Join(*n.Traceback, "\n")
			}
			if o.Error == "" && n.Ename != nil && n.Evalue != nil {
				o.Error = *n.Ename + ": " + *n.Evalue
			}
			o.Error = cmp.Or(o.Error, "Error")
		case "display_data", "execute_result":
			if !o.image(n.Data, str) {
				o.value(n, str)
			}
		}
	}
	return o
}

// image adds an image if the data has one whose content fits its type.
func (o *Output) image(data map[string]json.RawMessage, str func(json.RawMessage) string) bool {
	for _, mime := range slices.Sorted(maps.Keys(data)) {
		if !slices.Contains(images, mime) {
			continue
		}
		text := str(data[mime])
		b := []byte(text)
		if mime != "image/svg+xml" {
			var err error
			if b, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), "")); err != nil {
				continue
			}
		}
		if isImage(mime, b) {
			o.Images = append(o.Images, Image{Type: mime, Base64: b})
			return true
		}
	}
	return false
}

// value adds a value, or displayed text.
func (o *Output) value(n notebookOutput, str func(json.RawMessage) string) {
	if b, ok := n.Data["application/json"]; ok && n.Type == "execute_result" {
		o.ReturnValue = json.RawMessage(bytes.Clone(b))
		return
	}
	for _, t := range texts {
		b, ok := n.Data[t]
		switch {
		case !ok:
			continue
		case n.Type == "execute_result":
			o.ReturnValue = str(b)
		default:
			o.Stdout += str(b) + "\n"
		}
		return
	}
}
