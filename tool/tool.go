package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// Tool runs the calls of a model, with a separate session for each conversation. All methods are
// safe for concurrent use; calls of one conversation run one after the other.
type Tool struct {
	x executor.Executor
	m *sessions.Manager
	o Options

	learning chan struct{} // contains a value while Learn runs

	mu      sync.Mutex
	learned map[string]learned // by backend
}

// Conversation says which conversation a call belongs to.
type Conversation struct {
	ID         string            // chosen by the application, not empty; calls with the same ID share variables and files
	Subject    string            // see executor.Spec; the same in all calls of a conversation
	Attributes map[string]string // see executor.Spec; nil: those of Options.Spec
	Mirror     Mirror            // nil: files are only in the sandbox
}

// Mirror copies files between the sessions of a conversation and another place, such as a directory
// of the user. A conversation has several sessions if the backend cannot mix languages, and gets a
// new one after a loss. Calls for one session do not overlap.
type Mirror interface {
	// Enter is called with the session before each use of it. If it fails, the call is not made;
	// an *InputError says to the model what to do.
	Enter(ctx context.Context, s executor.Session) error
	// Leave is called after each run with the files that it created or changed. It returns remarks
	// for the model, one sentence each without the full stop.
	Leave(ctx context.Context, s executor.Session, changed []executor.Artifact) (remarks []string)
}

var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// New makes a Tool over x and a manager of sessions over x. It owns neither. Errors in o are
// ErrInvalid, and so is a backend that has none of the languages.
func New(x executor.Executor, m *sessions.Manager, o Options) (*Tool, error) {
	var errs []error
	full := o.with(x.Info().Capabilities)
	if !toolName.MatchString(full.Name) {
		errs = append(errs, fmt.Errorf("name: %q: want 1 to 64 of A-Z, a-z, 0-9, '_' and '-'", o.Name))
	}
	if o.Timeout < 0 || o.MaxTimeout < 0 || o.MaxCode < 0 {
		errs = append(errs, errors.New("timeout, max timeout or max code: negative"))
	}
	if !slices.ContainsFunc(full.Languages, func(l executor.Language) bool { return l != Bash }) {
		errs = append(errs, fmt.Errorf("languages: %s has none of them", x.Info().Name))
	}
	for l, names := range o.Packages {
		for _, name := range names {
			if _, ok := packageName(l, name); !ok {
				errs = append(errs, fmt.Errorf("packages.%s: %.60q is not the name of a package", l, name))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &executor.Error{Op: "tool", Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: err}
	}
	return &Tool{x: x, m: m, o: o, learning: make(chan struct{}, 1), learned: map[string]learned{}}, nil
}

// Definition describes the tool as the backend supports it now, with the results of Learn. It does
// no I/O.
func (t *Tool) Definition() Definition { return define(t.x.Info().Capabilities, t.o, t.facts()) }

// Call runs a call as the model wrote it. The Output is always for the model. If the call is wrong,
// the Output says why. The error is a failure or refusal of the executor, for logs, and the Output
// contains what the model may know about it.
//
// emit gets the events of the run, as in executor.Session. It may be nil.
func (t *Tool) Call(ctx context.Context, c Conversation, arguments string, emit func(executor.Event) error) (Output, error) {
	l := t.language("")
	in, err := ParseInput(arguments, l)
	if err != nil {
		return refused(l, err), nil
	}
	return t.Run(ctx, c, in, emit)
}

// Run is Call for a call that has already been read.
func (t *Tool) Run(ctx context.Context, c Conversation, in Input, emit func(executor.Event) error) (out Output, err error) {
	caps := t.x.Info().Capabilities
	o := t.o.with(caps)
	if in.Language == "" && len(o.Languages) > 0 {
		in.Language = o.Languages[0]
	}
	if err := Check(in, caps, t.o); err != nil {
		return refused(in.Language, err), nil
	}
	lease, err := t.acquire(ctx, c, in.Language, caps)
	if err != nil {
		return refused(in.Language, err), err
	}
	// The answer is valid even if the session cannot be released without an error.
	defer func() { err = errors.Join(err, lease.Release()) }()
	if out, ok, err := furnish(ctx, lease, in); !ok {
		return out, err
	}
	info := lease.Info()
	r := Outcome{Input: in, Lost: lease.Lost, Why: lease.Why, Kept: lease.Kept, First: !lease.Ran(in.Language)}
	res, err := lease.Run(ctx, request(in, o, info), emit)
	if res == nil {
		return refused(in.Language, err), err
	}
	r.Result = res
	if missesFile(res) && ctx.Err() == nil {
		r.There = list(ctx, lease)
	}
	out = Report(r, info.Capabilities, t.o)
	if c.Mirror != nil {
		for _, text := range c.Mirror.Leave(ctx, lease, res.Artifacts) {
			out.note(text)
		}
	}
	return out, err
}

// furnish writes the files of a call and installs its packages. If that fails, the Output says so.
func furnish(ctx context.Context, s executor.Session, in Input) (out Output, ok bool, err error) {
	for _, f := range in.Files {
		name, _ := Options{Spec: executor.Spec{Aliases: s.Info().Aliases}}.fileName(f.Name) // Check has checked the name
		if err := s.Files().Write(ctx, name, bytes.NewReader(f.Content), 0); err != nil {
			out, err = unwritten(in.Language, name, err)
			return out, false, err
		}
	}
	if len(in.Packages) > 0 {
		res, err := s.Install(ctx, executor.Packages{Language: in.Language, Names: in.Packages}, nil)
		if res == nil || err != nil {
			return refused(in.Language, err), false, err
		}
		if res.Status != executor.StatusOK {
			return uninstalled(in, res), false, nil
		}
	}
	return Output{}, true, nil
}

// Reset ends the sessions of a conversation, with their variables and files. The next call gets a
// new session.
func (t *Tool) Reset(ctx context.Context, c Conversation) error {
	groups, err := t.groups(ctx, c.ID)
	errs := []error{err}
	for _, g := range groups {
		if err := t.m.Discard(ctx, key(c.ID, g)); err != nil && !errors.Is(err, executor.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// interpreters returns the languages that have an interpreter.
func interpreters(ls []executor.Language) []executor.Language {
	return slices.DeleteFunc(slices.Clone(ls), func(l executor.Language) bool { return l == Bash })
}

// spec returns the Spec of the session for a call.
func (t *Tool) spec(c Conversation, l executor.Language, caps executor.Capabilities) executor.Spec {
	o := t.o.with(caps)
	s := o.Spec
	s.Subject = c.Subject
	if c.Attributes != nil {
		s.Attributes = c.Attributes
	}
	s.Languages = interpreters(o.Languages)
	if !caps.Has(executor.FeatureMixedLanguages) {
		if l == Bash { // runs in the session of the first interpreter, with its files
			l = s.Languages[0]
		}
		s.Languages = []executor.Language{l}
	}
	if s.MaxRun.WallTime != executor.NoLimit {
		s.MaxRun.WallTime = max(s.MaxRun.WallTime, o.MaxTimeout)
	}
	return s
}

// request returns the run of a call in a session, which may have been created under other Options.
func request(in Input, o Options, i executor.SessionInfo) executor.Request {
	r := executor.Request{Language: in.Language, Code: in.Code, Keep: o.MaxOutput}
	if o.MaxOutput == 0 {
		r.Keep = -1
	}
	if in.Language == Bash {
		r.Language, r.Code, r.Command = "", "", []string{"bash", "-c", in.Code}
	}
	r.Limits.WallTime = o.Timeout
	if in.Timeout > 0 {
		r.Limits.WallTime = in.Timeout
	}
	if most := i.MaxRun.WallTime; most > 0 {
		r.Limits.WallTime = min(r.Limits.WallTime, most)
	}
	if in.Language == Bash || i.Capabilities.HasFor(in.Language, executor.FeatureArtifacts) {
		r.Artifacts = &executor.ArtifactRequest{MaxFiles: max(o.MaxFiles, 1), MaxBytes: max(o.MaxFileBytes, 1), Contents: o.MaxFileBytes > 0}
	}
	return r
}

// Refuse returns the answer to a call that the caller does not make. text is the reason, for the
// model.
func (t *Tool) Refuse(text string) Output { return Output{Language: t.language(""), Error: text} }

// refused returns the answer to a call that was not run.
func refused(l executor.Language, err error) Output {
	return Output{Language: l, Error: Explain(err)}
}

// unwritten returns the answer if a file of the call could not be written. If its name is that of a
// directory, the model can choose another name.
func unwritten(l executor.Language, name string, err error) (Output, error) {
	for _, kind := range []error{fs.ErrExist, fs.ErrPermission, fs.ErrInvalid, fs.ErrNotExist} {
		if errors.Is(err, kind) {
			return Output{Language: l, Error: fmt.Sprintf("The file %q could not be written there: %v. Use another name. The code was not run.", name, kind)}, nil
		}
	}
	return refused(l, err), err
}

// uninstalled returns the answer if the packages of the call could not be installed, with the
// installer's message.
func uninstalled(in Input, res *executor.Result) Output {
	text := "The packages could not be installed, so the code was not run."
	if res.Status == executor.StatusTimedOut {
		text = "Installing the packages took too long, so the code was not run."
	}
	for _, said := range []string{plain(res.Stderr), plain(res.Stdout)} {
		if said = strings.TrimSpace(said); said != "" {
			text += "\n" + scrub(said)
			break
		}
	}
	if e := res.Exception; e != nil {
		text += "\n" + scrub(plain([]byte(e.Message)))
	}
	return Output{Language: in.Language, ExecutionTime: res.Duration.Seconds(), Error: text + "\nHint: check the names, ask for other versions, or do without."}
}

// missesFile reports whether the code tried to use a file that does not exist.
func missesFile(res *executor.Result) bool {
	e := res.Exception
	return e != nil && (e.Type == "FileNotFoundError" || strings.Contains(e.Message, "ENOENT"))
}

// list returns the contents of the working directory, with a slash after directories. It returns
// nil if that cannot be found out.
func list(ctx context.Context, s executor.Session) []string {
	names := []string{}
	for f, err := range s.Files().List(ctx, ".") {
		if err != nil {
			return nil // the list is only a hint
		}
		name := QuoteName(f.Name)
		if f.Mode.IsDir() {
			name += "/"
		}
		if names = append(names, name); len(names) == 10*maxNames {
			break
		}
	}
	return names
}
