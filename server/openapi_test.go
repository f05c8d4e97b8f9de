package server

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/npmtest"
)

// schema is the part of a JSON schema that the description uses.
type schema struct {
	Ref        string `json:"$ref"`
	Type       string
	Properties map[string]schema
	Required   []string
	Items      *schema
	Additional json.RawMessage `json:"additionalProperties"` // false, or a schema
}

// description compares schemas with the Go types that they describe.
type description struct {
	*testing.T
	schemas map[string]schema
	seen    map[string]reflect.Type // by the name of the schema
}

// same checks that a schema has exactly the fields of a type in JSON. In requests, a type makes no
// field required.
func (d description) same(where string, s schema, t reflect.Type, sent bool) {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		if s, ok = d.schemas[name]; !ok {
			d.Errorf("%s: there is no schema %s", where, name)
			return
		}
		if other, ok := d.seen[name]; ok {
			if other != t && other != reflect.PointerTo(t) && t != reflect.PointerTo(other) {
				d.Errorf("%s: %s describes %v, and %v elsewhere", where, name, t, other)
			}
			return
		}
		d.seen[name], where = t, name
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	want := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer", reflect.Float64: "number",
		reflect.Slice: "array", reflect.Array: "array", reflect.Map: "object", reflect.Struct: "object",
	}[t.Kind()]
	switch t {
	case reflect.TypeFor[time.Duration]():
		d.Errorf("%s: times are numbers of seconds", where)
	case reflect.TypeFor[time.Time](), reflect.TypeFor[executor.Money](): // decimal
		want = "string"
	case reflect.TypeFor[executor.Bytes]():
		want = "" // has one of two forms
	}
	if s.Type != want {
		d.Errorf("%s: is described as %q, and is %q", where, s.Type, want)
		return
	}
	var additional schema
	switch {
	case want == "array" && s.Items != nil:
		d.same(where+"[]", *s.Items, t.Elem(), sent)
	case want == "array":
		d.Errorf("%s: does not say of what", where)
	case t.Kind() == reflect.Map:
		if err := json.Unmarshal(s.Additional, &additional); err != nil {
			d.Errorf("%s: does not say of what: %v", where, err)
			return
		}
		d.same(where+"{}", additional, t.Elem(), sent)
	case want == "object":
		if (string(s.Additional) == "false") != sent {
			d.Errorf("%s: unknown fields are refused in what clients send, and may come in answers", where)
		}
		d.fields(where, s, t, sent)
	}
}

func (d description) fields(where string, s schema, t reflect.Type, sent bool) {
	there := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || !f.IsExported() || f.Anonymous {
			continue
		}
		there[name] = true
		p, ok := s.Properties[name]
		if !ok {
			d.Errorf("%s.%s is not described", where, name)
			continue
		}
		if always := !strings.Contains(options, "omit"); !sent && always != slices.Contains(s.Required, name) {
			d.Errorf("%s.%s: is always there: %v, and required: %v", where, name, always, !always)
		}
		d.same(where+"."+name, p, f.Type, sent)
	}
	for name := range s.Properties {
		if !there[name] {
			d.Errorf("%s.%s is described, and there is none", where, name)
		}
	}
}

// The description has all operations, with the fields of their requests and answers.
func TestOpenAPI(t *testing.T) {
	type content map[string]struct{ Schema schema }
	var doc struct {
		Servers    []struct{ URL string }
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Schemas   map[string]schema
			Responses map[string]struct{ Content content }
		}
	}
	if err := json.Unmarshal(OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Servers) == 0 {
		t.Error("the description has no servers")
	}
	// The types of request and answer of each operation; nil means none, or not JSON.
	operations := map[string]struct{ takes, gives any }{
		"get /v1/health":                              {nil, Health{}},
		"get /v1/openapi.json":                        {nil, nil},
		"get /v1/capabilities":                        {nil, Capabilities{}},
		"get /v1/stats":                               {nil, Stats{}},
		"get /v1/experiments":                         {nil, ExperimentList{}},
		"get /v1/overview":                            {nil, Overview{}},
		"post /v1/run":                                {OnceRequest{}, Result{}},
		"post /v1/run/stream":                         {OnceRequest{}, nil},
		"put /v1/conversations/{key}":                 {SessionRequest{}, Conversation{}},
		"get /v1/conversations/{key}":                 {nil, Conversation{}},
		"delete /v1/conversations/{key}":              {nil, nil},
		"post /v1/conversations/{key}/run":            {ConversationRequest{}, Result{}},
		"post /v1/conversations/{key}/run/stream":     {ConversationRequest{}, nil},
		"post /v1/conversations/{key}/reset":          {ResetRequest{}, nil},
		"post /v1/conversations/{key}/packages":       {PackagesRequest{}, Result{}},
		"get /v1/conversations/{key}/files":           {nil, FileList{}},
		"get /v1/conversations/{key}/files/{name}":    {nil, nil},
		"put /v1/conversations/{key}/files/{name}":    {nil, Written{}},
		"delete /v1/conversations/{key}/files/{name}": {nil, nil},
		"get /v1/sessions":                            {nil, SessionList{}},
		"post /v1/sessions":                           {SessionRequest{}, Session{}},
		"get /v1/sessions/{id}":                       {nil, Session{}},
		"delete /v1/sessions/{id}":                    {nil, nil},
		"post /v1/sessions/{id}/run":                  {RunRequest{}, Result{}},
		"post /v1/sessions/{id}/run/stream":           {RunRequest{}, nil},
		"post /v1/sessions/{id}/reset":                {ResetRequest{}, nil},
		"post /v1/sessions/{id}/packages":             {PackagesRequest{}, Result{}},
		"post /v1/sessions/{id}/ports/{port}":         {nil, nil},
		"post /v1/sessions/{id}/runs/{run}/input":     {nil, nil},
		"put /v1/sessions/{id}/runs/{run}/terminal":   {executor.TerminalSize{}, nil},
		"get /v1/sessions/{id}/files":                 {nil, FileList{}},
		"get /v1/sessions/{id}/files/{name}":          {nil, nil},
		"put /v1/sessions/{id}/files/{name}":          {nil, Written{}},
		"delete /v1/sessions/{id}/files/{name}":       {nil, nil},
	}
	w := newWorld(t, fake.Options{}, Config{})
	d := description{t, doc.Components.Schemas, map[string]reflect.Type{}}
	compare := func(where string, c content, v any, sent bool) {
		if s, ok := c["application/json"]; ok && s.Schema.Ref != "" != (v != nil) {
			t.Errorf("%s: got the schema %q for %T", where, s.Schema.Ref, v)
		} else if v != nil {
			d.same(where, s.Schema, reflect.TypeOf(v), sent)
		}
	}
	for path, ops := range doc.Paths {
		for method, text := range ops {
			if method == "parameters" {
				continue
			}
			name := method + " " + path
			is, ok := operations[name]
			if !ok {
				t.Errorf("%s is described, and there is none", name)
				continue
			}
			delete(operations, name)
			target := strings.NewReplacer("{id}", "x", "{key}", "k", "{name}", "y").Replace(path)
			if res, got := w.do(strings.ToUpper(method), target, "{}"); res.StatusCode == 404 && strings.Contains(got, "no-such-operation") {
				t.Errorf("%s is described, and there is none: %d", name, res.StatusCode)
			}
			var op struct {
				RequestBody struct{ Content content }
				Responses   map[string]struct{ Content content }
			}
			if err := json.Unmarshal(text, &op); err != nil {
				t.Fatal(err)
			}
			compare(name, op.RequestBody.Content, is.takes, true)
			for status, res := range op.Responses {
				if res.Content != nil {
					compare(name+" "+status, res.Content, is.gives, false)
				}
			}
		}
	}
	for name := range operations {
		t.Errorf("%s is not described", name)
	}
	for name, res := range doc.Components.Responses {
		compare(name, res.Content, Problem{}, false)
	}
}

// Result has everything that the contract's result has, except the provider's name of the sandbox.
func TestResultIsWhole(t *testing.T) {
	for _, pair := range [][2]reflect.Type{
		{reflect.TypeFor[executor.Result](), reflect.TypeFor[Result]()},
		{reflect.TypeFor[executor.Usage](), reflect.TypeFor[Usage]()},
		{reflect.TypeFor[executor.Origin](), reflect.TypeFor[Origin]()},
		{reflect.TypeFor[executor.Capabilities](), reflect.TypeFor[BackendCapabilities]()},
		{reflect.TypeFor[executor.RunLimits](), reflect.TypeFor[RunLimits]()},
	} {
		for f := range pair[0].Fields() {
			name := f.Name
			if f.Type == reflect.TypeFor[time.Duration]() {
				name += "Seconds"
			}
			if _, ok := pair[1].FieldByName(name); !ok && pair[0].String()+"."+name != "executor.Origin.Session" {
				t.Errorf("%v has no %s", pair[1], name)
			}
		}
	}
	full := executor.Result{Queued: 1500 * time.Millisecond, Duration: 2 * time.Second, Usage: executor.Usage{CPU: time.Second, PeakMemory: 7}}
	full.Origin = executor.Origin{Backend: "box", Session: "container-1", Route: "all", Assigned: "other"}
	b, err := json.Marshal(resultOf(&full))
	if err != nil {
		t.Fatal(err)
	}
	has(t, string(b), `"queued_seconds":1.5,"duration_seconds":2,"usage":{"cpu_seconds":1,"peak_memory":7},"origin":{"backend":"box","route":"all","assigned":"other"}`)
	b, err = json.Marshal(capabilitiesOf(executor.Capabilities{MaxLife: time.Hour, MaxRun: executor.RunLimits{WallTime: time.Minute}}))
	if err != nil {
		t.Fatal(err)
	}
	has(t, string(b), `"max_run":{"wall_time_seconds":60},"max_life_seconds":3600`)
}

// A third-party linter finds no problem in the description.
func TestOpenAPILint(t *testing.T) {
	t.Parallel()
	dir := npmtest.Install(t, "testdata/lint")
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), OpenAPI, 0o600); err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(t.Context(), "node", "node_modules/@redocly/cli/bin/cli.js", "lint", "--extends=recommended-strict", "--format=json", "openapi.json")
	node.Dir = dir
	node.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	var stderr strings.Builder
	node.Stderr = &stderr
	out, err := node.Output()
	var found struct {
		Totals   struct{ Errors, Warnings, Ignored int }
		Problems []json.RawMessage
	}
	if bad := json.Unmarshal(out, &found); err != nil || bad != nil || found.Totals.Errors+found.Totals.Warnings+found.Totals.Ignored+len(found.Problems) > 0 {
		t.Errorf("%v, %v: %s\n%s", err, bad, out, &stderr)
	}
}
