package compat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/server"
)

// dify is the interface of DifySandbox.
var dify = api{
	name:  "dify",
	bases: []string{""},
	routes: map[string]route{
		"POST /v1/sandbox/run":                  {run: &execution{decodeDify, encodeDify}},
		"GET /v1/sandbox/dependencies":          {do: difyDependencies},
		"GET /v1/sandbox/dependencies/refresh":  {do: difyDependencies},
		"POST /v1/sandbox/dependencies/update":  {do: difyInstalls},
		"POST /v1/sandbox/dependencies/refresh": {do: difyInstalls},
		"GET /health":                           {open: true, do: func(*call) (int, any, error) { return http.StatusOK, "ok", nil }},
	},
	refuse: func(why refusal) any { return difyAnswer{Code: -why.status, Message: why.text} },
}

type difyAnswer struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data"`
}

func difySuccess(data any) difyAnswer { return difyAnswer{Message: "success", Data: data} }

func decodeDify(c *call, body []byte) (job, error) {
	var q struct {
		Language string `json:"language"`
		Code     string `json:"code"`
		Preload  string `json:"preload"`
		Network  *bool  `json:"enable_network"`
	}
	t, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if t == "application/x-www-form-urlencoded" && !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) { // curl -d says so of JSON too
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return job{}, bad("the form: %v", err)
		}
		q.Language, q.Code, q.Preload = form.Get("language"), form.Get("code"), form.Get("preload")
		if form.Has("enable_network") {
			on := form.Get("enable_network") == "true"
			q.Network = &on
		}
	} else if err := json.Unmarshal(body, &q); err != nil {
		return job{}, bad("the body is not the JSON of a request: %v", err)
	}
	if q.Language == "" || q.Code == "" {
		return job{}, bad("language and code are required")
	}
	r, ok := c.language(q.Language)
	if !ok || q.Language != "python3" && q.Language != "nodejs" {
		return job{}, bad("unsupported language")
	}
	j := job{runtime: r, code: q.Code, offline: q.Network != nil && !*q.Network}
	if q.Preload != "" {
		j.code = q.Preload + "\n" + q.Code
	}
	return j, nil
}

func encodeDify(_ *call, _ job, o *outcome) any {
	data := struct {
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
		Error    string `json:"error"`
		ExitCode int    `json:"exit_code"`
	}{o.stdout(), o.stderr(), "", o.ExitCode}
	switch o.Status {
	case executor.StatusOK:
	case executor.StatusTimedOut:
		data.Error = "process exited with code -1\nerror: timeout\n"
	case executor.StatusFailed:
		data.Error = fmt.Sprintf("process exited with code %d\n", o.ExitCode) + data.Stderr
	default:
		data.Error = fmt.Sprintf("process exited with code %d\nerror: %s\n", o.ExitCode, strings.TrimSpace(server.Failure(o.Result)))
	}
	return difySuccess(data)
}

// difyDependencies lists no packages: what a backend has is not known before code imports it.
func difyDependencies(*call) (int, any, error) {
	return http.StatusOK, difySuccess(map[string]any{"dependencies": []any{}}), nil
}

// difyInstalls refuses to change the installation.
func difyInstalls(c *call) (int, any, error) {
	if !c.client.Operator {
		return 0, nil, refusal{http.StatusForbidden, "changing the dependencies needs the key of an operator"}
	}
	return 0, nil, refusal{http.StatusNotImplemented, "the packages are those of the backend: change its configuration"}
}
