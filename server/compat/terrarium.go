package compat

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/server"
)

// earth is the working directory of the original.
const earth = "/home/earth"

// terrarium is the interface of Cohere's Terrarium. Its client reads the first line of an answer.
var terrarium = api{
	name: "terrarium", keyless: true, alias: earth,
	bases: []string{""},
	routes: map[string]route{
		"POST /{$}":   {run: &execution{decodeTerrarium, encodeTerrarium}},
		"GET /health": {open: true, do: terrariumHealth},
	},
	refuse: func(why refusal) any {
		return terrariumAnswer{Error: &terrariumError{Message: why.text}}
	},
}

func terrariumHealth(c *call) (int, any, error) {
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprint(c.w, "hi!")
	return 0, nil, nil
}

func decodeTerrarium(c *call, body []byte) (job, error) {
	var q struct {
		Code  string `json:"code"`
		Files []struct {
			Name string `json:"filename"`
			Data []byte `json:"b64_data"`
		} `json:"files"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return job{}, bad("the body is not the JSON of a request: %v", err)
	}
	if q.Code == "" {
		return job{}, bad("no code provided")
	}
	r, ok := c.language("python")
	if !ok {
		return job{}, refusal{http.StatusNotImplemented, "the backend does not run Python"}
	}
	j := job{runtime: r, code: q.Code, made: true}
	for _, f := range q.Files {
		j.files = append(j.files, file{strings.TrimPrefix(f.Name, earth+"/"), f.Data})
	}
	return j, nil
}

type terrariumAnswer struct {
	Success bool             `json:"success"`
	Error   *terrariumError  `json:"error,omitempty"`
	Files   []terrariumFile  `json:"output_files,omitzero"`
	Final   *json.RawMessage `json:"final_expression,omitempty"`
	Stdout  string           `json:"std_out"`
	Stderr  string           `json:"std_err"`
	Runtime int64            `json:"code_runtime"` // milliseconds
}

type terrariumError struct {
	Type    string `json:"type,omitempty"`
	Message string `json:"message"`
}

type terrariumFile struct {
	Name string `json:"filename"`
	Data string `json:"b64_data"`
}

func encodeTerrarium(_ *call, _ job, o *outcome) any {
	a := terrariumAnswer{
		Success: o.Status == executor.StatusOK, Stdout: o.stdout(), Stderr: server.Text(o.Result, executor.EventStderr), Runtime: o.Duration.Milliseconds(),
		Files: []terrariumFile{},
	}
	for _, f := range o.Artifacts {
		if int64(len(f.Data)) < f.Size {
			a.Stderr += tooLarge(f)
			continue
		}
		a.Files = append(a.Files, terrariumFile{f.Name, base64.StdEncoding.EncodeToString(f.Data)})
	}
	a.Stderr += omitted(o)
	if !a.Success {
		a.Error = &terrariumError{Type: string(o.Status), Message: server.Failure(o.Result)}
		if o.Exception != nil {
			a.Error.Type = o.Exception.Type
		}
		return a
	}
	for _, out := range o.Outputs {
		if out.Main {
			a.Final = terrariumValue(out.Data)
		}
	}
	return a
}

// tooLarge and omitted say that files of a run are not in its answer.
func tooLarge(f executor.Artifact) string {
	return fmt.Sprintf("[%s is left out: it has %d bytes]\n", f.Name, f.Size)
}

func omitted(o *outcome) string {
	if o.ArtifactsOmitted == 0 {
		return ""
	}
	return fmt.Sprintf("[%d more files are left out]\n", o.ArtifactsOmitted)
}

// terrariumValue returns the value of the last expression as JSON: what the backend says of it, and
// otherwise numbers, booleans and simple strings. Other values are text, as Python writes them.
func terrariumValue(data executor.MIMEBundle) *json.RawMessage {
	if v, ok := data["application/json"]; ok && json.Valid(v) {
		raw := json.RawMessage(v)
		return &raw
	}
	_, v, ok := data.Best("text/plain")
	if !ok {
		return nil
	}
	text := strings.ToValidUTF8(v.String(), "\ufffd")
	var value any = text
	n, last := json.Number(""), len(text)-1
	switch {
	case text == "True" || text == "False":
		value = text == "True"
	case json.Unmarshal([]byte(text), &n) == nil && text[0] != '"' && n != "":
		value = n
	case last > 0 && (text[0] == '\'' || text[0] == '"') && text[last] == text[0] && !strings.ContainsAny(text[1:last], `\`+text[:1]):
		value = text[1:last]
	}
	b, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	raw := json.RawMessage(b)
	return &raw
}
