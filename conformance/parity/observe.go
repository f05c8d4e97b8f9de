package parity

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Fields is what was observed of a cell: by name of a field, its value as text. A field that is
// empty is absent.
//
// The names: "refused" (what the backend lacks; then there is nothing else), "error" (of the
// infrastructure), "status" with its reason, "exit code", "signal", "exception", "stdout",
// "stderr", "errors" (stderr and the exception, as a script has both on stderr), "values" (media
// types, and the text where there is one), "artifacts", "state", "left running" (which explains,
// and is not compared).
type Fields map[string]string

// leftRunning is the field that is not compared.
const leftRunning = "left running"

// plainFields are those that a plain interpreter has too.
var plainFields = []string{"status", "exit code", "signal", "stdout", "errors", "artifacts"}

// maxText bounds a field in bytes. Of what is longer there is the beginning, the size and a hash.
const maxText = 4 << 10

// wallTime bounds a cell. It is the same everywhere, so that a program that does not end says so
// everywhere.
const wallTime = 20 * time.Second

// notFound is the exit code of a command that is not there.
const notFound = 127

// A subject is what runs programs: a backend, or the plain interpreter of its image.
type subject struct {
	name, typ string
	plain     bool
	executor.Executor
}

// A sandbox is that of a subject for programs of one language, one after the other.
type sandbox struct {
	executor.Session
	programs int // that it has run
}

// key names a sandbox that a worker holds.
type key struct {
	subject  int
	language executor.Language
}

// A worker runs programs one after the other.
type worker struct {
	subjects []subject
	reuse    int // programs for each sandbox
	held     map[key]*sandbox
	errs     []error // of closing
}

// close closes what the worker holds.
func (w *worker) close() error {
	for k := range w.held {
		w.drop(k)
	}
	return errors.Join(w.errs...)
}

func (w *worker) drop(k key) {
	if s := w.held[k]; s != nil {
		delete(w.held, k)
		if err := s.Close(); err != nil {
			w.errs = append(w.errs, fmt.Errorf("%s: closing a sandbox: %w", w.subjects[k.subject].name, err))
		}
	}
}

// sandbox returns one without files and variables.
func (w *worker) sandbox(ctx context.Context, k key) (*sandbox, error) {
	if s := w.held[k]; s != nil {
		if s.programs < w.reuse && clean(ctx, s, w.subjects[k.subject].plain) == nil {
			return s, nil
		}
		w.drop(k)
	}
	session, err := w.subjects[k.subject].Create(ctx, executor.Spec{Languages: []executor.Language{k.language}})
	if err != nil {
		return nil, err
	}
	s := &sandbox{Session: session}
	w.held[k] = s
	return s, nil
}

// clean ends the interpreters and removes the files. A plain interpreter has ended with its
// command.
func clean(ctx context.Context, s *sandbox, plain bool) error {
	if !plain {
		if err := s.Reset(ctx, executor.Interpreter{}); err != nil {
			return err
		}
	}
	if !s.Info().Capabilities.Has(executor.FeatureFiles) {
		return nil
	}
	var names []string
	for f, err := range s.Files().List(ctx, executor.Workdir) {
		if err != nil {
			return err
		}
		names = append(names, f.Name)
	}
	for _, name := range names {
		if err := s.Files().Remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// observe runs a program on a subject: nil if the subject does not run such programs, or lacks the
// interpreter. What a backend refuses or fails to do is in the Fields. An error is of ctx.
func (w *worker) observe(ctx context.Context, at int, p Program) ([]Fields, error) {
	k := key{at, p.Language}
	sub := w.subjects[at]
	requests := cellRequests(p)
	if sub.plain {
		if requests = plainRequest(p); requests == nil {
			return nil, nil
		}
	}
	s, err := w.sandbox(ctx, k)
	if err != nil {
		return failed(ctx, nil, err)
	}
	s.programs++
	files := maps.Clone(p.Files)
	if sub.plain {
		if files == nil {
			files = map[string]string{}
		}
		files[requests[0].Command[1]] = p.Cells[0].Code
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := s.Files().Write(ctx, name, strings.NewReader(files[name]), 0); err != nil {
			w.drop(k)
			return failed(ctx, nil, err)
		}
	}
	artifacts := s.Info().Capabilities.HasFor(p.Language, executor.FeatureArtifacts)
	var all []Fields
	for i, req := range requests {
		req.Limits.WallTime = wallTime
		if in := p.Cells[i].Stdin; in != "" {
			req.Stdin = strings.NewReader(in)
		}
		if artifacts || sub.plain {
			req.Artifacts = &executor.ArtifactRequest{}
		}
		r, err := s.Run(ctx, req, nil)
		if err != nil {
			w.drop(k)
			return failed(ctx, all, err)
		}
		f := describe(p.Language, r)
		if sub.plain {
			if r.ExitCode == notFound {
				return nil, nil
			}
			maps.DeleteFunc(f, func(name, _ string) bool { return !slices.Contains(plainFields, name) })
		}
		all = append(all, f)
		if r.FilesLost {
			w.drop(k)
			if i < len(requests)-1 {
				break
			}
		}
	}
	return all, nil
}

func cellRequests(p Program) (all []executor.Request) {
	for _, c := range p.Cells {
		all = append(all, executor.Request{Language: p.Language, Code: c.Code})
	}
	return all
}

// plainRequest is how a program runs as a file of its own. Only one of a single cell does, in a
// language that the interpreter takes.
func plainRequest(p Program) []executor.Request {
	if len(p.Cells) != 1 || p.Language == executor.TypeScript {
		return nil
	}
	command := []string{"python3", "cell.py"}
	if p.Language == executor.JavaScript {
		command = []string{"node", "cell.js"}
		if p.Module {
			command[1] = "cell.mjs"
		}
	}
	return []executor.Request{{Command: command}}
}

// failed adds to what was observed a run that did not take place, or an end that is not known.
func failed(ctx context.Context, all []Fields, err error) ([]Fields, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var e *executor.Error
	if errors.As(err, &e) && errors.Is(err, executor.ErrUnsupported) {
		return append(all, Fields{"refused": strings.Join(slices.Sorted(slices.Values(e.Missing)), ", ")}), nil
	}
	return append(all, Fields{"error": clip(err.Error())}), nil
}

// describe is what a program, or a user, sees of a result. Durations and identities differ from run
// to run and are left out.
func describe(l executor.Language, r *executor.Result) Fields {
	f := Fields{}
	set := func(name, value string) {
		if value != "" {
			f[name] = clip(value)
		}
	}
	set("status", strings.TrimSpace(string(r.Status)+" "+string(r.Reason)))
	if r.ExitCode != 0 {
		set("exit code", fmt.Sprint(r.ExitCode))
	}
	set("signal", r.Signal)
	errors := string(r.Stderr)
	if e := r.Exception; e != nil {
		set("exception", fmt.Sprintf("%s: %s (line %d)", e.Type, e.Message, e.Line))
		errors = strings.TrimRight(errors, "\n") + "\n" + e.Traceback
	}
	set("stdout", string(r.Stdout))
	set("stderr", withoutFrames(l, string(r.Stderr)))
	set("errors", withoutFrames(l, errors))
	var values []string
	for _, o := range r.Outputs {
		values = append(values, value(o))
	}
	set("values", strings.Join(values, "\n"))
	var made []string
	for _, a := range r.Artifacts {
		size := fmt.Sprintf(" %d bytes", a.Size)
		if !strings.HasPrefix(a.MIME, "text/") { // compressed: the libraries' versions show in the size
			size = ""
		}
		made = append(made, a.Name+" "+a.MIME+size)
	}
	slices.Sort(made)
	set("artifacts", strings.Join(made, "\n"))
	var state []string
	for what, is := range map[string]bool{"lost": r.StateLost, "files lost": r.FilesLost} {
		if is {
			state = append(state, what)
		}
	}
	slices.Sort(state)
	set("state", strings.Join(state, ", "))
	set(leftRunning, strings.Join(r.LeftRunning, ", "))
	return f
}

// value is the media types of an output, and its plain text.
func value(o executor.Output) string {
	s := strings.Join(slices.Sorted(maps.Keys(o.Data)), " ")
	if o.Main {
		s = "main " + s
	}
	if _, text, ok := o.Data.Best("text/plain"); ok {
		s += " " + string(text)
	}
	return s
}

// frames are the lines of stderr that say where an exception was raised. Which inner frames a
// language names, and how it quotes the source, differs between its versions and with the name of
// the file.
var frames = map[executor.Language][]*regexp.Regexp{
	executor.Python: {
		regexp.MustCompile(`(?m)^Traceback \(most recent call last\):\n(([ \t].*)?\n)*`),
		regexp.MustCompile(`(?m)^[ |]*\+? ?Exception Group Traceback \(most recent call last\):\n`),
		regexp.MustCompile(`(?m)^[ |]+File ".*", line \d+.*\n([ |]* {4}[^|\n]*\n)*`),
	},
	executor.JavaScript: {
		regexp.MustCompile(`(?m)^    at .* \{\n(  .*\n)*\}\n?`), // with what the error has besides
		regexp.MustCompile(`(?m)^    (at|\.\.\. \d+ lines matching) .*\n?`),
		regexp.MustCompile(`(?m)^(Caused by|One of): .*\n?`),
		regexp.MustCompile("(?m)^\\(Use `node --trace-.*\n?"),
		regexp.MustCompile(`(?m)^(<cell \d+>|/.*|file:.*|node:.*):\d+\n((.*\n){0,2}[ \t]*\^+\n\n?)?`),
		regexp.MustCompile(`(?m)^<anonymous_script>:\d+\n(.+\n){0,2}[ \t^]*\n+`),
		regexp.MustCompile(`(?m)^Emitted .* event .*at:\n( +\[\.\.\. lines.*\n)?`),
		regexp.MustCompile(`(?m)^Node\.js v\d.*\n?`),
	},
}

// What differs from run to run: the addresses of objects, the numbers of Node's timers, and how
// long tests took.
var (
	addresses = regexp.MustCompile(`\b0x[0-9a-f]{5,16}\b`)
	counters  = regexp.MustCompile(`((?:_idleStart|Symbol\((?:asyncId|triggerId)\)\]?): |Ran \d+ tests? in )[\d.]+`)
)

// ownNames are what a script and a cell are called.
var ownNames = regexp.MustCompile(`(?:/[^\s'":]*/)?\bcell\.(?:py|m?js)\b|<cell \d+>`)

func withoutFrames(l executor.Language, stderr string) string {
	if l == executor.TypeScript {
		l = executor.JavaScript
	}
	for _, re := range frames[l] {
		stderr = re.ReplaceAllString(stderr, "")
	}
	return strings.TrimSpace(ownNames.ReplaceAllLiteralString(stderr, "<cell>"))
}

// clip bounds a text from a sandbox, and leaves out what differs from run to run.
func clip(s string) string {
	s = counters.ReplaceAllString(addresses.ReplaceAllLiteralString(s, "0x…"), "${1}…")
	if len(s) > maxText {
		s = fmt.Sprintf("%s... %d bytes, SHA-256 %x", s[:maxText], len(s), sha256.Sum256([]byte(s)))
	}
	return strings.ToValidUTF8(s, "�")
}
