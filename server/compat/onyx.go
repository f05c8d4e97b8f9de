package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// onyxFiles is where files are kept: Onyx has no sessions of files.
const onyxFiles = "onyx"

// onyxTimeout is the timeout of requests without one.
const onyxTimeout = 2 * time.Second

// onyx is the code interpreter of Onyx.
var onyx = api{
	name: "onyx", keyless: true,
	bases: []string{""},
	routes: map[string]route{
		"POST /v1/execute":                 {run: &execution{decodeOnyx, encodeOnyx}},
		"POST /v1/execute/stream":          {do: onyxStream},
		"POST /v1/files":                   {do: onyxUpload},
		"GET /v1/files":                    {do: onyxList},
		"GET /v1/files/{file}":             {do: onyxDownload},
		"DELETE /v1/files/{file}":          {do: onyxDelete},
		"POST /v1/sessions":                {do: onyxNoSessions},
		"POST /v1/sessions/{session}/bash": {do: onyxNoSessions},
		"DELETE /v1/sessions/{session}":    {do: onyxNoSessions},
		"GET /health": {open: true, do: func(*call) (int, any, error) {
			return http.StatusOK, map[string]any{"status": "ok", "message": nil}, nil
		}},
	},
	refuse: func(why refusal) any { return map[string]string{"detail": why.text} },
}

// unfit refuses a request as the original does: with 422.
func unfit(err error) error {
	if why := (refusal{}); errors.As(err, &why) && why.status == http.StatusBadRequest {
		why.status = http.StatusUnprocessableEntity
		return why
	}
	return err
}

func decodeOnyx(c *call, body []byte) (job, error) {
	q := struct {
		Code     *string  `json:"code"`
		Stdin    *string  `json:"stdin"`
		Timeout  *float64 `json:"timeout_ms"`
		LastLine *bool    `json:"last_line_interactive"`
		Files    []struct {
			Path string `json:"path"`
			ID   string `json:"file_id"`
		} `json:"files"`
	}{}
	if err := json.Unmarshal(body, &q); err != nil {
		return job{}, unfit(bad("the body is not the JSON of a request: %v", err))
	}
	if q.Code == nil {
		return job{}, unfit(bad("code: it is required"))
	}
	r, ok := c.language("python")
	if !ok {
		return job{}, refusal{http.StatusNotImplemented, "the backend does not run Python"}
	}
	j := job{runtime: r, code: *q.Code, made: true, timeout: min(onyxTimeout, c.cfg.MaxTimeout), quiet: q.LastLine != nil && !*q.LastLine}
	if q.Stdin != nil {
		j.stdin = strings.NewReader(*q.Stdin)
	}
	if q.Timeout != nil {
		if *q.Timeout < 1 {
			return job{}, unfit(bad("timeout_ms: want at least 1"))
		}
		var err error
		if j.timeout, err = c.duration("timeout_ms", *q.Timeout, time.Millisecond); err != nil {
			return job{}, unfit(err)
		}
	}
	if len(q.Files) > maxFiles {
		return job{}, refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("there are %d files; at most %d are allowed", len(q.Files), maxFiles)}
	}
	for _, f := range q.Files {
		kept, err := c.onyxKept(f.ID)
		if err != nil {
			return job{}, err
		}
		j.files = append(j.files, file{f.Path, kept.data})
	}
	return j, unfit(c.check(j))
}

// onyxKept returns a file of the client. One of another subject is like one that never existed.
func (c *call) onyxKept(id string) (*keptFile, error) {
	i, ok := c.kept.get(c.client.Subject, onyxFiles+"/"+id)
	kept, is := i.value.(*keptFile)
	if !ok || !is {
		return nil, refusal{http.StatusNotFound, fmt.Sprintf("File with ID '%.100s' not found", id)}
	}
	return kept, nil
}

func encodeOnyx(c *call, j job, o *outcome) any {
	a, notes := c.onyxResult(o)
	a["stdout"], a["stderr"] = o.stdout()+onyxValue(j, o), o.stderr()+notes
	return a
}

// onyxResult is how a run has ended, without its output. notes are for the end of stderr.
func (c *call) onyxResult(o *outcome) (a map[string]any, notes string) {
	files := []map[string]string{}
	notes = c.keepMade(onyxFiles, o, func(id, name string) {
		files = append(files, map[string]string{"path": name, "kind": "file", "file_id": id})
	})
	a = map[string]any{"exit_code": o.ExitCode, "timed_out": o.Status == executor.StatusTimedOut, "duration_ms": o.Duration.Milliseconds(), "files": files}
	if o.signal() != "" {
		a["exit_code"] = nil
		if o.Status != executor.StatusTimedOut {
			notes += fmt.Sprintf("[%v]\n", o.Err())
		}
	}
	return a, notes
}

// onyxValue is the value of the last expression, as an interpreter prints it.
func onyxValue(j job, o *outcome) string {
	for _, out := range o.Outputs {
		if _, v, ok := out.Data.Best("text/plain"); ok && out.Main && !j.quiet {
			return strings.ToValidUTF8(v.String(), "\ufffd") + "\n"
		}
	}
	return ""
}

// onyxStream is /v1/execute with server-sent events.
func onyxStream(c *call) (int, any, error) {
	body, err := c.body()
	if err != nil {
		return 0, nil, err
	}
	j, err := decodeOnyx(c, body)
	if err != nil {
		return 0, nil, err
	}
	began := false
	send := func(name string, v any) error {
		if !began {
			began = true
			h := c.w.Header()
			h.Set("Content-Type", "text/event-stream")
			h.Set("X-Accel-Buffering", "no") // otherwise proxies would delay the events
		}
		data, err := json.Marshal(v)
		if err != nil {
			return err // impossible: v has a type of this file
		}
		rc := http.NewResponseController(c.w)
		if _, err := fmt.Fprintf(c.w, "event: %s\ndata: %s\n\n", name, data); err != nil {
			return err
		}
		return rc.Flush()
	}
	output := func(stream executor.EventKind, text string) error {
		if text == "" {
			return nil
		}
		return send("output", map[string]any{"stream": stream, "data": strings.ToValidUTF8(text, "\ufffd")})
	}
	o, err := c.run(c.r.Context(), j, func(e executor.Event) error {
		if e.Kind != executor.EventStdout && e.Kind != executor.EventStderr {
			return nil
		}
		return output(e.Kind, e.Data.String())
	})
	if err != nil && !began {
		return 0, nil, err
	}
	if err != nil {
		_ = send("error", map[string]string{"message": c.refusal(err).text}) // a client that has disconnected needs no answer
		return 0, nil, nil
	}
	a, notes := c.onyxResult(o)
	_ = errors.Join(output(executor.EventStdout, onyxValue(j, o)), output(executor.EventStderr, o.ending()+notes), send("result", a)) // likewise
	return 0, nil, nil
}

func onyxUpload(c *call) (int, any, error) {
	files, err := c.form()
	if err == nil && len(files) != 1 {
		err = bad("the form has %d files; send one", len(files))
	}
	if err != nil {
		return 0, nil, unfit(err)
	}
	id, err := c.keep(onyxFiles, files[0].name, "application/octet-stream", files[0].data)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, map[string]any{"file_id": id, "filename": files[0].name, "size_bytes": len(files[0].data)}, nil
}

func onyxList(c *call) (int, any, error) {
	all := []map[string]any{}
	for _, i := range c.kept.below(c.client.Subject, onyxFiles+"/") {
		f := i.value.(*keptFile)
		all = append(all, map[string]any{
			"file_id": strings.TrimPrefix(i.id, onyxFiles+"/"), "filename": f.name, "size_bytes": len(f.data), "upload_time": float64(i.added.UnixMilli()) / 1000,
		})
	}
	return http.StatusOK, map[string]any{"files": all}, nil
}

func onyxDownload(c *call) (int, any, error) {
	f, err := c.onyxKept(c.r.PathValue("file"))
	if err != nil {
		return 0, nil, err
	}
	c.attach(f)
	return 0, nil, nil
}

func onyxDelete(c *call) (int, any, error) {
	if !c.kept.remove(c.client.Subject, onyxFiles+"/"+c.r.PathValue("file")) {
		return 0, nil, refusal{http.StatusNotFound, "the file was not found"}
	}
	c.w.WriteHeader(http.StatusNoContent)
	return 0, nil, nil
}

func onyxNoSessions(*call) (int, any, error) {
	return 0, nil, refusal{http.StatusNotImplemented, "there are no sessions for bash here"}
}
