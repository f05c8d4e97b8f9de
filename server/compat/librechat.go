package compat

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// librechat is the code interpreter of LibreChat. Its base URL has the version in it.
var librechat = api{
	name: "librechat", alias: executor.DataDir,
	bases: []string{"", "/v1"},
	routes: map[string]route{
		"POST /exec":                             {run: &execution{decodeLibrechat, encodeLibrechat}},
		"POST /exec/programmatic":                {do: librechatNoTools},
		"POST /upload":                           {do: librechatUpload},
		"POST /upload/batch":                     {do: librechatUpload},
		"GET /files/{session}":                   {do: librechatList},
		"DELETE /files/{session}/{file}":         {do: librechatDelete},
		"GET /download/{session}/{file}":         {do: librechatDownload},
		"GET /sessions/{session}/objects/{file}": {do: librechatStat},
		"GET /health": {open: true, do: func(*call) (int, any, error) {
			return http.StatusOK, map[string]string{"status": "ok"}, nil
		}},
	},
	refuse: func(why refusal) any { return map[string]string{"error": why.text, "message": why.text} },
}

// librechatFile refers to a file. Clients of several ages give the session by different names.
type librechatFile struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Session string `json:"session_id"`
	Storage string `json:"storage_session_id"`
}

// arguments are the arguments of a script: a list, or all in one string.
type arguments []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *arguments) UnmarshalJSON(p []byte) error {
	var text string
	if json.Unmarshal(p, &text) == nil {
		*a = strings.Fields(text)
		return nil
	}
	return json.Unmarshal(p, (*[]string)(a))
}

func decodeLibrechat(c *call, body []byte) (job, error) {
	var q struct {
		Code    string          `json:"code"`
		Lang    string          `json:"lang"`
		Args    arguments       `json:"args"`
		Session string          `json:"session_id"`
		Files   []librechatFile `json:"files"`
		Timeout float64         `json:"timeout"` // milliseconds
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return job{}, bad("the body is not the JSON of a request: %v", err)
	}
	j := job{code: q.Code, args: q.Args, made: true}
	var ok bool
	if j.runtime, ok = c.language(q.Lang); !ok {
		return job{}, bad("Unsupported language: %.100s", q.Lang)
	}
	var err error
	if j.timeout, err = c.duration("timeout", q.Timeout, time.Millisecond); err != nil {
		return job{}, err
	}
	if len(q.Files) > maxFiles {
		return job{}, bad("there are %d files; at most %d are allowed", len(q.Files), maxFiles)
	}
	for _, f := range q.Files {
		session := f.Storage
		if session == "" {
			session = f.Session
		}
		kept, _, err := c.librechatKept(session, f.ID)
		if err != nil {
			return job{}, err
		}
		name := kept.name
		if f.Name != "" {
			name = f.Name
		}
		j.files = append(j.files, file{strings.TrimPrefix(name, executor.DataDir+"/"), kept.data})
	}
	if q.Session != "" && len(q.Files) == 0 {
		found := c.kept.below(c.client.Subject, q.Session+"/")
		if len(found) == 0 {
			return job{}, refusal{http.StatusNotFound, "Session not found"}
		}
		for _, i := range found {
			kept := i.value.(*keptFile)
			j.files = append(j.files, file{kept.name, kept.data})
		}
	}
	return j, nil
}

// librechatKept returns a file of the client. One of another subject is like one that never
// existed.
func (c *call) librechatKept(session, id string) (*keptFile, time.Time, error) {
	i, ok := c.kept.get(c.client.Subject, session+"/"+id)
	kept, is := i.value.(*keptFile)
	if !ok || !is {
		return nil, time.Time{}, refusal{http.StatusNotFound, fmt.Sprintf("File not found: %.100s", id)}
	}
	return kept, i.added, nil
}

func encodeLibrechat(c *call, _ job, o *outcome) any {
	session := newID()
	stdout, stderr, files := o.stdout(), o.stderr(), []map[string]string{}
	stderr += c.keepMade(session, o, func(id, name string) {
		files = append(files, map[string]string{"id": id, "name": name, "session_id": session, "storage_session_id": session})
	})
	a := map[string]any{"session_id": session, "stdout": stdout, "files": files, "wall_time": o.Duration.Milliseconds()}
	if sig := o.signal(); sig != "" {
		a["signal"], a["status"], a["message"] = sig, string(o.Status), o.Err().Error()
		if o.Status == executor.StatusTimedOut {
			stderr += "Time limit exceeded\n"
		}
	} else {
		a["code"] = o.ExitCode
	}
	a["stderr"] = stderr
	return a
}

// librechatUpload keeps the files of a form in a new session.
func librechatUpload(c *call) (int, any, error) {
	files, err := c.form()
	if err != nil {
		return 0, nil, err
	}
	session, kept := newID(), []map[string]string{}
	for _, f := range files {
		id, err := c.keep(session, f.name, "application/octet-stream", f.data)
		if err != nil { // a part of an upload is of no use
			for _, k := range kept {
				c.kept.remove(c.client.Subject, session+"/"+k["fileId"])
			}
			return 0, nil, err
		}
		kept = append(kept, map[string]string{"status": "success", "fileId": id, "filename": f.name})
	}
	return http.StatusOK, map[string]any{
		"message": "success", "session_id": session, "storage_session_id": session, "files": kept, "succeeded": len(kept), "failed": 0,
	}, nil
}

func librechatList(c *call) (int, any, error) {
	session := c.r.PathValue("session")
	found := c.kept.below(c.client.Subject, session+"/")
	if len(found) == 0 {
		return 0, nil, refusal{http.StatusNotFound, "Session not found"}
	}
	all := []map[string]any{}
	for _, i := range found {
		id := strings.TrimPrefix(i.id, session+"/")
		all = append(all, librechatObject(session, id, i.value.(*keptFile), i.added))
	}
	return http.StatusOK, all, nil
}

// librechatObject describes a file. Its name is that of the object in the storage of the original.
func librechatObject(session, id string, f *keptFile, added time.Time) map[string]any {
	return map[string]any{
		"name": session + "/" + id + path.Ext(f.name), "id": id, "session_id": session, "size": len(f.data),
		"lastModified": added.UTC().Format(time.RFC3339Nano), "contentType": f.mime, "metadata": map[string]string{"original-filename": f.name},
	}
}

func librechatStat(c *call) (int, any, error) {
	session, id := c.r.PathValue("session"), c.r.PathValue("file")
	f, added, err := c.librechatKept(session, id)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, librechatObject(session, id, f, added), nil
}

func librechatDownload(c *call) (int, any, error) {
	f, _, err := c.librechatKept(c.r.PathValue("session"), c.r.PathValue("file"))
	if err != nil {
		return 0, nil, err
	}
	c.attach(f)
	return 0, nil, nil
}

func librechatDelete(c *call) (int, any, error) {
	session, id := c.r.PathValue("session"), c.r.PathValue("file")
	if _, _, err := c.librechatKept(session, id); err != nil {
		return 0, nil, err
	}
	c.kept.remove(c.client.Subject, session+"/"+id)
	return http.StatusOK, map[string]string{"message": "success", "session": session, "fileId": id}, nil
}

func librechatNoTools(*call) (int, any, error) {
	return 0, nil, refusal{http.StatusNotImplemented, "code cannot call tools of the client here"}
}
