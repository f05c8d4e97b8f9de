package fake

import (
	"bytes"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	starlarkjson "go.starlark.net/lib/json"
	"go.starlark.net/starlark"

	"github.com/execbroker/execbroker/executor"
)

// The programs of package checkpoint are Python and JavaScript, of which Starlark has not enough.
// What follows keeps to their protocols: variables that have a JSON form are carried, and functions
// are listed. A function that is named reduce is called while a checkpoint is made, as Python calls
// __reduce__.

// checkpointCell returns the literal of the arguments in a cell of package checkpoint, and whether
// the cell is JavaScript.
func checkpointCell(src string) (args string, script, ok bool) {
	const mark = "<checkpoint of execbroker>"
	for i, parts := range [][3]string{
		{"(lambda b: ", `"args": `, `}))(__import__("builtins"))`},
		{"void ((args) => {", "})(JSON.parse(", ")) // " + mark},
	} {
		rest, ends := strings.CutSuffix(src, parts[2])
		at := strings.LastIndex(rest, parts[1])
		if ends && at >= 0 && strings.HasPrefix(src, parts[0]) && strings.Contains(src, mark) {
			return rest[at+len(parts[1]):], i == 1, true
		}
	}
	return "", false, false
}

// A carried variable is a step of a manifest, or, without a size, something that is omitted.
type carried struct {
	Op     string `json:"op,omitempty"`
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Size   int    `json:"size,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// checkpoint does what the cell of package checkpoint asks for, and reports whether src is one.
func (e *execution) checkpoint(t *starlark.Thread, src string) bool {
	literal, script, ok := checkpointCell(src)
	if !ok {
		return false
	}
	var args struct {
		Path  string `json:"path"`
		Limit *int   `json:"limit"` // only to make one
	}
	text, err := strconv.Unquote(literal)
	if err == nil {
		err = json.Unmarshal([]byte(text), &args)
	}
	e.must(err)
	switch {
	case args.Limit == nil && script:
		e.restoreScript(t, args.Path)
	case args.Limit == nil:
		e.restoreCheckpoint(t, args.Path)
	default:
		e.makeCheckpoint(t, args.Path, *args.Limit, script)
	}
	return true
}

func (e *execution) makeCheckpoint(t *starlark.Thread, file string, limit int, script bool) {
	var values []byte
	graph := map[string]json.RawMessage{} // of JavaScript
	steps, omitted := []carried{}, []carried{}
	for _, name := range slices.Sorted(maps.Keys(e.in.vars)) {
		v := e.in.vars[name]
		if v == nil {
			continue
		}
		if f, ok := v.(*starlark.Function); ok {
			if name == "reduce" {
				if _, err := starlark.Call(t, f, nil, nil); err != nil {
					e.check()
					panic(ending(err))
				}
			}
			omitted = append(omitted, carried{Name: name, Kind: "function", Reason: "functions are not carried"})
			continue
		}
		raw := encode(v)
		switch {
		case raw == nil:
			omitted = append(omitted, carried{Name: name, Kind: v.Type(), Reason: "it has no JSON form"})
		case len(values)+len(raw) > limit:
			omitted = append(omitted, carried{Name: name, Kind: v.Type(), Reason: "it is larger than what is left of the bound of the archive"})
		default:
			steps = append(steps, carried{Op: "value", Name: name, Kind: v.Type(), Size: len(raw)})
			values, graph[name] = append(values, raw...), json.RawMessage(raw)
		}
	}
	if script {
		for i := range steps {
			steps[i].Op, steps[i].Size = "", 0
		}
		header, err := json.Marshal(map[string]any{"names": steps, "omitted": omitted})
		e.must(err)
		raw, err := json.Marshal(graph)
		e.must(err)
		e.must(e.box.disk.write(file, slices.Concat(header, []byte("\n"), raw), 0, false))
		return
	}
	header, err := json.Marshal(map[string]any{
		"python": "0", "implementation": "starlark", "platform": "", "dir": ".", "imports": []string{}, "steps": steps, "omitted": omitted,
	})
	e.must(err)
	e.must(e.box.disk.write(file, slices.Concat(header, []byte("\n"), values), 0, false))
}

func (e *execution) restoreCheckpoint(t *starlark.Thread, file string) {
	raw, err := e.box.disk.read(file)
	e.must(err)
	header, values, _ := bytes.Cut(raw, []byte("\n"))
	var plan struct {
		Links []struct{ Name, Target string } `json:"links"`
		Steps []carried                       `json:"steps"`
	}
	e.must(json.Unmarshal(header, &plan))
	for _, l := range plan.Links {
		e.must(e.box.disk.symlink(l.Target, path.Join(executor.Workdir, l.Name)))
	}
	for _, s := range plan.Steps {
		if s.Op != "value" || s.Size > len(values) {
			e.throw("ValueError", "%s: Starlark has no %s", s.Name, s.Op)
		}
		v, err := starlark.Call(t, starlarkjson.Module.Members["decode"], starlark.Tuple{starlark.String(values[:s.Size])}, nil)
		if err != nil {
			e.throw("ValueError", "%s: %v", s.Name, err)
		}
		e.in.vars[s.Name], values = v, values[s.Size:]
	}
	e.must(e.box.disk.write(file+".out", []byte(`{"omitted":[]}`+"\n"), 0, false))
}

func (e *execution) restoreScript(t *starlark.Thread, file string) {
	raw, err := e.box.disk.read(file)
	e.must(err)
	_, values, _ := bytes.Cut(raw, []byte("\n"))
	var graph map[string]json.RawMessage
	e.must(json.Unmarshal(values, &graph))
	for name, raw := range graph {
		v, err := starlark.Call(t, starlarkjson.Module.Members["decode"], starlark.Tuple{starlark.String(raw)}, nil)
		if err != nil {
			e.throw("TypeError", "%s: %v", name, err)
		}
		e.in.vars[name] = v
	}
	e.must(e.box.disk.write(file+".out", []byte(`{"omitted":[]}`+"\n"), 0, false))
}
