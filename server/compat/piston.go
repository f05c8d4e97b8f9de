package compat

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// piston is version 2 of the interface of Piston. The public instance has it below a path of its
// own, and clients of a language model's toolkit have the whole path in their configuration.
var piston = api{
	name: "piston", keyless: true,
	bases: []string{"/api/v2", "/api/v2/piston", ""},
	routes: map[string]route{
		"POST /execute":  {run: &execution{decodePiston, encodePiston}},
		"GET /runtimes":  {do: pistonRuntimes},
		"GET /packages":  {do: pistonPackages},
		"POST /packages": {do: pistonInstalls}, "DELETE /packages": {do: pistonInstalls},
		"GET /connect": {do: pistonConnect},
	},
	refuse: func(why refusal) any { return map[string]string{"message": why.text} },
}

// pistonRequest is the body of execute. Fields that a wrong type would make undecodable are checked
// with the messages of the original.
type pistonRequest struct {
	Type           string          `json:"type"` // "init", over a WebSocket
	Language       json.RawMessage `json:"language"`
	Version        json.RawMessage `json:"version"`
	Files          json.RawMessage `json:"files"`
	Stdin          string          `json:"stdin"`
	Args           []string        `json:"args"`
	RunTimeout     json.RawMessage `json:"run_timeout"`
	CompileTimeout json.RawMessage `json:"compile_timeout"`
	RunCPUTime     json.RawMessage `json:"run_cpu_time"`
	CompileCPUTime json.RawMessage `json:"compile_cpu_time"`
	RunMemory      json.RawMessage `json:"run_memory_limit"`
	CompileMemory  json.RawMessage `json:"compile_memory_limit"`
}

type pistonFile struct {
	Name     string  `json:"name"`
	Content  *string `json:"content"`
	Encoding string  `json:"encoding"`
}

// pistonVersion matches what selects a version: a version of SemVer, or a range of them.
var pistonVersion = regexp.MustCompile(`^[0-9xX*^~<>=| .+A-Za-z-]{1,64}$`)

func decodePiston(c *call, body []byte) (job, error) {
	var q pistonRequest
	if err := json.Unmarshal(body, &q); err != nil {
		return job{}, bad("the body is not the JSON of a request: %v", err)
	}
	var language, version string
	if json.Unmarshal(q.Language, &language) != nil || language == "" {
		return job{}, bad("language is required as a string")
	}
	if json.Unmarshal(q.Version, &version) != nil || version == "" {
		return job{}, bad("version is required as a string")
	}
	var files []json.RawMessage
	if json.Unmarshal(q.Files, &files) != nil || files == nil {
		return job{}, bad("files is required as an array")
	}
	j := job{args: q.Args}
	var ok bool
	if j.runtime, ok = c.language(language); !ok || !pistonVersion.MatchString(version) {
		return job{}, bad("%.100s-%.100s runtime is unknown", language, version)
	}
	if len(files) > maxFiles {
		return job{}, bad("files: there are %d; at most %d are allowed", len(files), maxFiles)
	}
	main := false
	for i, raw := range files {
		var f pistonFile
		if json.Unmarshal(raw, &f) != nil || f.Content == nil {
			return job{}, bad("files[%d].content is required as a string", i)
		}
		data, err := pistonContent(f)
		if err != nil {
			return job{}, bad("files[%d].content is not %s: %v", i, f.Encoding, err)
		}
		name := cmp.Or(f.Name, fmt.Sprintf("file%d.code", i))
		j.files = append(j.files, file{name, data})
		if (f.Encoding == "" || f.Encoding == "utf8") && !main {
			main, j.name, j.code = true, name, *f.Content
		}
	}
	if !main {
		return job{}, bad("files must include at least one utf8 encoded file")
	}
	if q.Stdin != "" {
		j.stdin = strings.NewReader(q.Stdin)
	}
	return j, c.pistonLimits(&j, q)
}

func pistonContent(f pistonFile) ([]byte, error) {
	switch f.Encoding {
	case "base64":
		return base64.StdEncoding.DecodeString(*f.Content)
	case "hex":
		return hex.DecodeString(*f.Content)
	case "", "utf8":
		return []byte(*f.Content), nil
	}
	return nil, fmt.Errorf("%.20q is unknown; want utf8, base64 or hex", f.Encoding)
}

// pistonLimits reads the limits. Nothing is compiled, so those of the compiler are only checked.
func (c *call) pistonLimits(j *job, q pistonRequest) error {
	limits := map[string]float64{}
	for _, l := range []struct {
		name string
		raw  json.RawMessage
	}{
		{"compile_timeout", q.CompileTimeout}, {"compile_cpu_time", q.CompileCPUTime}, {"compile_memory_limit", q.CompileMemory},
		{"run_timeout", q.RunTimeout}, {"run_cpu_time", q.RunCPUTime}, {"run_memory_limit", q.RunMemory},
	} {
		var n *float64
		switch memory := strings.HasSuffix(l.name, "memory_limit"); {
		case len(l.raw) > 0 && json.Unmarshal(l.raw, &n) != nil:
			return bad("If specified, %s must be a number", l.name)
		case n == nil:
			continue
		case *n < 0 && !(memory && *n == -1):
			return bad("%s must be non-negative", l.name)
		}
		limits[l.name] = *n
	}
	most := c.cfg.MaxTimeout.Milliseconds()
	if limits["run_timeout"] > float64(most) {
		return bad("run_timeout cannot exceed the configured limit of %d", most)
	}
	var err error
	if j.timeout, err = c.duration("run_timeout", limits["run_timeout"]/1000, 1e9); err != nil {
		return err
	}
	if cpu, ok := limits["run_cpu_time"]; ok && cpu > 0 && cpu < limits["run_timeout"] {
		return bad("run_cpu_time: the backend bounds the time of a clock; set run_timeout")
	}
	if n := limits["run_memory_limit"]; n > 0 { // -1 is no limit of its own
		j.memory = wholeBytes(n)
	}
	if e := c.moreMemory(*j); e != nil && e.Most > 0 {
		return bad("run_memory_limit cannot exceed the configured limit of %.0f", e.Most)
	} else if e != nil {
		return bad("run_memory_limit: %v", e)
	}
	return nil
}

// pistonStage is what a run has done. A signal and a code exclude each other.
type pistonStage struct {
	Signal   *string `json:"signal"`
	Stdout   string  `json:"stdout"`
	Stderr   string  `json:"stderr"`
	Code     *int    `json:"code"`
	Output   string  `json:"output"`
	Memory   *int64  `json:"memory"` // bytes
	Message  *string `json:"message"`
	Status   *string `json:"status"`
	CPUTime  *int64  `json:"cpu_time"` // milliseconds
	WallTime int64   `json:"wall_time"`
}

func encodePiston(_ *call, j job, o *outcome) any {
	return map[string]any{"language": j.runtime.Language, "version": pistonVersionOf(j.runtime), "run": pistonStageOf(o)}
}

func pistonStageOf(o *outcome) pistonStage {
	s := pistonStage{Stdout: o.stdout(), Stderr: o.stderr(), WallTime: o.Duration.Milliseconds()}
	s.Output = strings.ToValidUTF8(string(o.both), "\ufffd") + o.ending()
	if sig := o.signal(); sig != "" {
		s.Signal = &sig
	} else {
		s.Code = &o.ExitCode
	}
	if n := o.Usage.PeakMemory; n > 0 {
		s.Memory = &n
	}
	if n := o.Usage.CPU.Milliseconds(); o.Usage.CPU > 0 {
		s.CPUTime = &n
	}
	status, message := "", ""
	switch {
	case o.Status == executor.StatusTimedOut:
		status, message = "TO", "Time limit exceeded"
	case o.Reason == executor.ReasonOutput:
		status, message = "OL", "Output limit exceeded"
	case o.Status == executor.StatusKilled && o.Reason == executor.ReasonSandbox:
		status, message = "XX", o.Err().Error()
	case o.Status == executor.StatusKilled:
		status, message = "SG", o.Err().Error()
	case o.Status == executor.StatusFailed:
		status, message = "RE", o.Err().Error()
	}
	if status != "" {
		s.Status, s.Message = &status, &message
	}
	return s
}

func pistonVersionOf(r executor.Runtime) string { return cmp.Or(r.Version, "0.0.0") }

func pistonRuntimes(c *call) (int, any, error) {
	all := []map[string]any{}
	for _, r := range c.languages() {
		one := map[string]any{"language": r.Language, "version": pistonVersionOf(r), "aliases": aliasesOf(r.Language)}
		if r.Language == executor.JavaScript || r.Language == executor.TypeScript {
			one["runtime"] = "node"
		}
		all = append(all, one)
	}
	return http.StatusOK, all, nil
}

// aliasesOf returns what clients call a language besides its name.
func aliasesOf(l executor.Language) []string {
	all := []string{}
	for name, of := range names {
		if of == l && name != string(l) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// pistonPackages lists the languages: the packages of Piston are its runtimes.
func pistonPackages(c *call) (int, any, error) {
	all := []map[string]any{}
	for _, r := range c.languages() {
		all = append(all, map[string]any{"language": r.Language, "language_version": pistonVersionOf(r), "installed": true})
	}
	return http.StatusOK, all, nil
}

// pistonInstalls refuses to change the installation. What a backend runs is its configuration.
func pistonInstalls(c *call) (int, any, error) {
	if !c.client.Operator {
		return 0, nil, refusal{http.StatusForbidden, "changing the runtimes needs the key of an operator"}
	}
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(c.w, c.r.Body, 64<<10)); err != nil {
		return 0, nil, err
	}
	return 0, nil, refusal{http.StatusNotImplemented, "the runtimes are those of the backend: change its configuration"}
}
