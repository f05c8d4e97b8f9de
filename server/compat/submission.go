package compat

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// submission is a submission, as a client sends it and as it is kept. Base64 is decoded.
type submission struct {
	Source   string   `json:"source_code"`
	Language int      `json:"language_id"`
	Stdin    *string  `json:"stdin"`
	Expected *string  `json:"expected_output"`
	Args     string   `json:"command_line_arguments"`
	CPU      float64  `json:"cpu_time_limit"` // seconds, as the next two
	Extra    float64  `json:"cpu_extra_time"`
	Wall     float64  `json:"wall_time_limit"`
	Memory   *float64 `json:"memory_limit"` // KB
	Merge    bool     `json:"redirect_stderr_to_stdout"`
	Network  *bool    `json:"enable_network"`
	// What no backend can do. Null and the zero value mean that it is not asked for.
	Runs     int     `json:"number_of_runs"`
	Callback string  `json:"callback_url"`
	Files    string  `json:"additional_files"`
	Options  string  `json:"compiler_options"`
	Stack    float64 `json:"stack_limit"`
	Procs    float64 `json:"max_processes_and_or_threads"`
	FileSize float64 `json:"max_file_size"`

	token          string
	status         int
	stdout, stderr string
	message        string
	finished       time.Time // zero: it is waiting or running
	ended          outcome   // without a Result if the code did not run
}

// invalid has the errors in the fields of a submission, which the client gets in this form.
type invalid map[string][]string

func (v invalid) Error() string { return fmt.Sprint(map[string][]string(v)) }

// decodeJudge reads a submission. The error is a refusal or invalid.
func decodeJudge(c *call, raw []byte) (submission, job, error) {
	q := submission{token: newID(), status: 1}
	if err := json.Unmarshal(raw, &q); err != nil {
		return q, job{}, bad("the submission is not JSON of the right types: %v", err)
	}
	wrong := invalid{}
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			wrong[field] = append(wrong[field], fmt.Sprintf(format, args...))
		}
	}
	for name, field := range map[string]*string{"source_code": &q.Source, "stdin": q.Stdin, "expected_output": q.Expected} {
		if field != nil && c.encoded() {
			data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(*field), ""))
			check(err == nil, name, "is not base64: %v", err)
			*field = string(data)
		}
	}
	j := job{code: q.Source, args: strings.Fields(q.Args), offline: q.Network != nil && !*q.Network}
	known := false
	for _, l := range judgeIDs {
		if l.id == q.Language {
			j.runtime, known = c.language(l.name)
		}
	}
	check(q.Source != "", "source_code", "can't be blank")
	check(known, "language_id", "language with id %d doesn't exist", q.Language)
	if q.Stdin != nil && *q.Stdin != "" {
		j.stdin = strings.NewReader(*q.Stdin)
	}
	most := c.cfg.MaxTimeout.Seconds()
	for name, n := range map[string]float64{"cpu_time_limit": q.CPU, "cpu_extra_time": q.Extra, "wall_time_limit": q.Wall} {
		check(n >= 0 && n <= most, name, "must be from 0 to %v", most)
	}
	if q.Wall == 0 { // then a run may take twice the time of the processor
		q.Wall = min(2*(q.CPU+q.Extra), most)
	}
	j.timeout = time.Duration(q.Wall * float64(time.Second))
	if q.Memory != nil {
		check(*q.Memory >= 2048, "memory_limit", "must be greater than or equal to 2048")
		j.memory = wholeBytes(*q.Memory * 1024)
		if e := c.moreMemory(j); e != nil && e.Most > 0 {
			check(false, "memory_limit", "must be less than or equal to %d", int64(e.Most)>>10)
		} else if e != nil {
			check(false, "memory_limit", "is not supported by this server: %v", e)
		}
	}
	mode := c.cfg.Spec.Network.Mode
	for name, asked := range map[string]bool{
		"callback_url": q.Callback != "", "additional_files": q.Files != "", "compiler_options": q.Options != "", "stack_limit": q.Stack != 0,
		"max_processes_and_or_threads": q.Procs != 0, "max_file_size": q.FileSize != 0, "number_of_runs": q.Runs > 1,
		"enable_network": q.Network != nil && *q.Network && (mode == "" || mode == executor.NetworkNone),
	} {
		check(!asked, name, "is not supported by this server")
	}
	if len(wrong) > 0 {
		return q, job{}, wrong
	}
	return q, j, nil
}

// verdict judges how a submission has ended.
func (q *submission) verdict() int {
	o := q.ended
	limit := time.Duration((q.CPU + q.Extra) * float64(time.Second))
	switch {
	case o.Status == executor.StatusTimedOut, q.CPU > 0 && o.Usage.CPU > limit:
		return 5
	case o.Status == executor.StatusKilled:
		if at := slices.Index([]string{"SIGSEGV", "SIGXFSZ", "SIGFPE", "SIGABRT"}, o.signal()); at >= 0 {
			return 7 + at
		}
		return 12
	case o.Status == executor.StatusFailed:
		return 11
	case q.Expected != nil && lines(*q.Expected) != lines(q.stdout):
		return 4
	}
	return 3
}

// lines returns text without the spaces at the ends of its lines, which a verdict does not look at.
func lines(text string) string {
	all := strings.Split(text, "\n")
	for i, l := range all {
		all[i] = strings.TrimRight(l, " \t\r\f\v\x00")
	}
	return strings.TrimRight(strings.Join(all, "\n"), "\n")
}

func (c *call) encoded() bool { return c.r.URL.Query().Get("base64_encoded") == "true" }

// fields returns what a request asks for of a submission.
func (q submission) fields(c *call) (map[string]any, error) {
	var binary bool
	text := func(s *string) any {
		if s == nil || s != q.Stdin && s != q.Expected && *s == "" {
			return nil
		}
		if c.encoded() {
			return base64.StdEncoding.EncodeToString([]byte(*s))
		}
		binary = binary || !utf8.ValidString(*s)
		return *s
	}
	all := map[string]any{"token": q.token, "status": judgeStatuses[q.status-1], "status_id": q.status, "language_id": q.Language}
	for _, name := range []string{"compile_output", "time", "memory", "exit_code", "exit_signal", "finished_at"} {
		all[name] = nil
	}
	if !q.finished.IsZero() {
		all["finished_at"] = q.finished.UTC().Format(time.RFC3339Nano)
	}
	if o := q.ended; o.Result != nil {
		all["exit_code"], all["time"] = o.ExitCode, strconv.FormatFloat(max(o.Usage.CPU, o.Duration).Seconds(), 'f', 3, 64)
		if n := o.Usage.PeakMemory; n > 0 {
			all["memory"] = n >> 10
		}
	}
	names := []string{"stdout", "time", "memory", "stderr", "token", "compile_output", "message", "status"}
	texts := map[string]*string{"source_code": &q.Source, "stdin": q.Stdin, "expected_output": q.Expected, "stdout": &q.stdout, "stderr": &q.stderr, "message": &q.message}
	switch f := c.r.URL.Query().Get("fields"); f {
	case "":
	case "*":
		names = slices.AppendSeq(slices.Collect(maps.Keys(all)), maps.Keys(texts))
	default:
		names = strings.Split(f, ",")
	}
	some := map[string]any{}
	for _, name := range names {
		v, ok := all[name]
		if t, is := texts[name]; is {
			v, ok = text(t), true
		}
		if !ok {
			return nil, bad("invalid fields: [%.100s]", name)
		}
		some[name] = v
	}
	if binary {
		return nil, bad("some attributes for this submission cannot be converted to UTF-8, use base64_encoded=true query parameter")
	}
	return some, nil
}
