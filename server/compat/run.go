package compat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/drain"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/internal/narrow"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/tool"
)

// The bounds of what a request brings.
const (
	maxFiles     = 200
	maxArguments = 200
	maxMade      = 100      // files that a run has made
	maxMadeBytes = 32 << 20 // of all of them
)

// shell is the language of scripts for bash, which run as a command.
const shell executor.Language = "bash"

// names are what clients call languages.
var names = map[string]executor.Language{
	"python": executor.Python, "python3": executor.Python, "py": executor.Python, "py3": executor.Python,
	"javascript": executor.JavaScript, "js": executor.JavaScript, "node": executor.JavaScript, "nodejs": executor.JavaScript, "node-js": executor.JavaScript, "node-javascript": executor.JavaScript,
	"typescript": executor.TypeScript, "ts": executor.TypeScript, "node-ts": executor.TypeScript, "tsc": executor.TypeScript,
	"bash": shell, "sh": shell,
}

// language returns the language of a name, if the backend runs it.
func (s *Server) language(name string) (executor.Runtime, bool) {
	caps := s.x.Info().Capabilities
	switch l, ok := names[name]; {
	case !ok:
		return executor.Runtime{}, false
	case l == shell:
		return executor.Runtime{Language: l}, caps.Has(executor.FeatureCommand)
	default:
		return caps.Runtime(l)
	}
}

// languages returns the languages that the backend runs.
func (s *Server) languages() (all []executor.Runtime) {
	for _, name := range []string{"python", "javascript", "typescript", "bash"} {
		if r, ok := s.language(name); ok {
			all = append(all, r)
		}
	}
	return all
}

// job is code to run in a sandbox of its own.
type job struct {
	runtime executor.Runtime
	name    string // of the script, for its arguments
	code    string
	args    []string
	stdin   io.Reader
	files   []file
	timeout time.Duration // zero: the default
	memory  int64         // bytes; zero: that of the configuration
	offline bool          // without network, whatever the configuration
	quiet   bool          // the value of the last expression is not wanted
	made    bool          // the files that the run makes are wanted
}

// file is a file in the working directory.
type file struct {
	name string
	data []byte
}

// outcome is how a job has ended.
type outcome struct {
	*executor.Result
	both []byte // stdout and stderr as they came, at most maxOutput bytes
}

func (o *outcome) stdout() string { return server.Text(o.Result, executor.EventStdout) }

// stderr returns the standard error with what an interpreter prints about the end of a script.
func (o *outcome) stderr() string {
	text := server.Text(o.Result, executor.EventStderr)
	if end := o.ending(); end != "" && text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + o.ending()
}

// ending is what an interpreter prints as the last of a script: its traceback, or nothing.
func (o *outcome) ending() string {
	if o.Exception == nil {
		return ""
	}
	return strings.TrimRight(server.Failure(o.Result), "\n") + "\n"
}

// signal returns the signal that ended the code, as a process that was stopped would have it.
func (o *outcome) signal() string {
	switch {
	case o.Signal != "":
		return o.Signal
	case o.Status == executor.StatusTimedOut, o.Status == executor.StatusKilled:
		return "SIGKILL"
	}
	return ""
}

// runs counts runs, of each subject and of all.
type runs struct {
	most, mostTotal int
	gate            drain.Gate

	mu sync.Mutex
	of map[string]int
}

// begin counts a run of a subject until end is called.
func (r *runs) begin(subject string) (end func(), err error) {
	leave, ok := r.gate.Enter()
	if !ok {
		return nil, refusal{http.StatusServiceUnavailable, "the server is shutting down"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]int{}
	}
	if r.of[subject] >= r.most || r.gate.Busy() > r.mostTotal {
		leave()
		return nil, refusal{http.StatusServiceUnavailable, "there are too many runs at the moment; try again later"}
	}
	r.of[subject]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.of[subject]--; r.of[subject] == 0 {
			delete(r.of, subject)
		}
		leave()
	}, nil
}

// body reads the body of a request.
func (c *call) body() ([]byte, error) { return front.Body(c.w, c.r, c.cfg.MaxBody) }

// execute decodes the body, runs the code, and encodes the answer.
func (c *call) execute(e *execution) (int, any, error) {
	body, err := c.body()
	if err != nil {
		return 0, nil, err
	}
	j, err := e.decode(c, body)
	if err != nil {
		return 0, nil, err
	}
	o, err := c.run(c.r.Context(), j, nil)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, e.encode(c, j, o), nil
}

// check returns the first thing that is wrong with a job that a client has described.
func (c *call) check(j job) error {
	switch {
	case len(j.files) > maxFiles:
		return refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("there are %d files; at most %d are allowed", len(j.files), maxFiles)}
	case len(j.args) > maxArguments:
		return bad("there are %d arguments; at most %d are allowed", len(j.args), maxArguments)
	}
	for _, f := range j.files {
		if !fs.ValidPath(f.name) || f.name == "." || strings.ContainsAny(f.name, "\x00\\") {
			return bad("the file name %.100q is not one below the working directory", f.name)
		}
	}
	return nil
}

// duration reads a number of units, which must be positive and at most the longest run. Zero is the
// default, which is returned as 0.
func (s *Server) duration(name string, n float64, unit time.Duration) (time.Duration, error) {
	if most := float64(s.cfg.MaxTimeout) / float64(unit); math.IsNaN(n) || n < 0 || n > most {
		return 0, bad("%s: want a number from 0 to %v", name, most)
	}
	if n == 0 {
		return 0, nil
	}
	return max(time.Duration(n*float64(unit)), time.Millisecond), nil
}

// run runs a job in a sandbox of its own.
func (c *call) run(ctx context.Context, j job, emit func(executor.Event) error) (*outcome, error) {
	if err := c.check(j); err != nil {
		return nil, err
	}
	end, err := c.runs.begin(c.client.Subject)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, stop := front.Both(ctx, c.ctx)
	defer stop()
	spec, err := c.spec(j)
	if err != nil {
		return nil, err
	}
	x, err := c.x.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := x.Close(); err != nil { // the idle TTL removes the sandbox
			c.cfg.Log.WarnContext(ctx, "closing the sandbox of a run", "id", front.RequestID(ctx), "err", err)
		}
	}()
	for _, f := range j.files {
		if err := x.Files().Write(ctx, f.name, strings.NewReader(string(f.data)), 0); err != nil {
			return nil, err
		}
	}
	req, err := c.request(ctx, x, j)
	if err != nil {
		return nil, err
	}
	o := &outcome{}
	o.Result, err = x.Run(ctx, req, func(e executor.Event) error {
		if e.Kind == executor.EventStdout || e.Kind == executor.EventStderr {
			o.both = append(o.both, e.Data[:min(len(e.Data), maxOutput-len(o.both))]...)
		}
		if emit != nil {
			return emit(e)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// later calls f in the background, after the request. Its context ends with the server, and Close
// waits for it.
func (c *call) later(f func(context.Context)) error {
	leave, ok := c.live.Enter()
	if !ok || c.runs.gate.IsShut() {
		if ok {
			leave()
		}
		return refusal{http.StatusServiceUnavailable, "the server is shutting down"}
	}
	go func() {
		defer leave()
		f(front.WithRequestID(c.ctx, front.RequestID(c.r.Context())))
	}()
	return nil
}

// within returns the Spec of the configuration with what a job asks for, which is never more.
func (c *call) within(j job) (executor.Spec, error) {
	ask := narrow.Ask{Limits: executor.Limits{MemoryBytes: j.memory}, Run: executor.RunLimits{WallTime: j.timeout}}
	if j.offline {
		ask.Network = &executor.NetworkPolicy{Mode: executor.NetworkNone}
	}
	return narrow.Spec(c.cfg.Spec, c.x.Info().Capabilities, ask)
}

// moreMemory returns the error of a job that asks for more memory than the configuration gives, and
// nil of others.
func (c *call) moreMemory(j job) (e *narrow.ExcessError) {
	_, err := c.within(job{memory: j.memory})
	errors.As(err, &e)
	return e
}

// wholeBytes returns a number of bytes that a client asks for. Every number beyond what a machine
// can have means the same.
func wholeBytes(n float64) int64 { return int64(math.Ceil(min(n, 1<<60))) }

// spec returns the Spec of the sandbox of a job.
func (c *call) spec(j job) (executor.Spec, error) {
	spec, err := c.within(j)
	if err != nil {
		return spec, bad("%v", err)
	}
	spec.Subject, spec.Attributes = c.client.Subject, c.client.Attributes
	spec.Languages = nil
	if j.runtime.Language != shell {
		spec.Languages = []executor.Language{j.runtime.Language}
	}
	spec.IdleTTL = cmp.Or(spec.IdleTTL, c.cfg.MaxTimeout+time.Minute)
	if most := c.x.Info().Capabilities.MaxLife; most > 0 {
		spec.IdleTTL = min(spec.IdleTTL, most)
	}
	if a := c.api.alias; a != "" && !slices.Contains(spec.Aliases, a) && c.x.Info().Capabilities.Has(executor.FeatureAliases) {
		spec.Aliases = append(slices.Clone(spec.Aliases), a)
	}
	return spec, nil
}

// request returns the Request of a job, and sets the arguments of its script.
func (c *call) request(ctx context.Context, x executor.Session, j job) (executor.Request, error) {
	req := executor.Request{
		Language: j.runtime.Language, Code: j.code, Stdin: j.stdin, Keep: maxOutput,
		Limits: executor.RunLimits{WallTime: cmp.Or(j.timeout, server.DefaultRun(c.cfg.Spec, c.cfg.MaxTimeout))},
	}
	if j.made {
		req.Artifacts = &executor.ArtifactRequest{MaxFiles: maxMade, MaxBytes: maxMadeBytes, Contents: true}
	}
	if j.runtime.Language == shell {
		req.Language, req.Code = "", ""
		req.Command = append([]string{"bash", "-c", j.code, cmp.Or(j.name, "bash")}, j.args...)
		return req, nil
	}
	caps := x.Info().Capabilities
	if req.Artifacts != nil && !caps.HasFor(req.Language, executor.FeatureArtifacts) {
		return req, refusal{http.StatusNotImplemented, "the backend does not report the files that code makes"}
	}
	if len(j.args) == 0 {
		return req, nil
	}
	if !caps.HasFor(req.Language, executor.FeatureState) {
		return req, refusal{http.StatusNotImplemented, "the backend cannot pass arguments to code"}
	}
	res, err := x.Run(ctx, executor.Request{Language: req.Language, Code: setArguments(req.Language, j.name, j.args)}, nil)
	if err != nil {
		return req, err
	}
	return req, res.Err()
}

// setArguments returns code that gives the code after it arguments. JSON, as Go encodes it, is also
// the notation of lists of strings in the languages.
func setArguments(l executor.Language, name string, args []string) string {
	list := func(v []string) string {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err) // impossible: strings can be encoded
		}
		return string(b)
	}
	if l == executor.Python {
		return `__import__("sys").argv[:] = ` + list(append([]string{cmp.Or(name, "main.py")}, args...))
	}
	return `process.argv.splice(2, Infinity, ...` + list(args) + `)`
}

// refusal returns err in the form for clients, and logs what they are not told.
func (c *call) refusal(err error) refusal {
	if why := (refusal{}); errors.As(err, &why) {
		return why
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", large.Limit)}
	}
	if errors.Is(err, front.ErrBody) {
		return refusal{http.StatusRequestTimeout, err.Error()}
	}
	ctx := c.r.Context()
	c.cfg.Log.WarnContext(ctx, "request failed", "id", front.RequestID(ctx), "api", c.api.name, "kind", executor.KindName(err), "err", err)
	why := refusal{http.StatusInternalServerError, tool.Explain(err)}
	e := (*executor.Error)(nil)
	switch {
	case !errors.As(err, &e):
	case e.Kind == executor.ErrDenied || e.Kind == executor.ErrExhausted:
		why.status = http.StatusTooManyRequests
	case e.Kind == executor.ErrInvalid || e.Kind == executor.ErrUnsupported || errors.Is(e.Kind, fs.ErrInvalid):
		why.status = http.StatusBadRequest
	case e.Kind == executor.ErrTooLarge:
		why.status = http.StatusRequestEntityTooLarge
	case executor.Retryable(err):
		why.status = http.StatusServiceUnavailable
	}
	return why
}
