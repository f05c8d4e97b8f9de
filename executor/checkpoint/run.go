package checkpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// part begins the names of files that only exist during a call. Backends do not report files with
// this beginning as artifacts.
const part = ".execbroker-"

// cleanup bounds the removal of such files, also after the end of the caller's context.
const cleanup = 10 * time.Second

// A program runs in the sandbox and writes its answer to a file, because code of the user may write
// anything to its output.
type program struct {
	session executor.Session
	op      string
	opts    Options
	path    string // absolute name of its file in the sandbox
	ran     executor.Ran
}

func newProgram(s executor.Session, op string, opts Options) *program {
	return &program{s, op, opts, path.Join(executor.Workdir, part+"checkpoint-"+rand.Text()), executor.RanNo}
}

// has reports whether the session has an interpreter whose variables can be carried.
func (p *program) has(l executor.Language) bool {
	c := p.session.Info().Capabilities
	_, ok := c.Runtime(l)
	return ok && c.HasFor(l, executor.FeatureState)
}

// run executes source with args and returns its Result. It fails if the code did not end normally.
func (p *program) run(ctx context.Context, l executor.Language, source string, args map[string]any) (*executor.Result, error) {
	args["path"] = p.path
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	code := python(source, raw)
	if l == executor.JavaScript {
		if code, err = javascript(source, raw); err != nil {
			return nil, err
		}
	}
	p.ran = executor.RanYes
	res, err := p.session.Run(ctx, executor.Request{
		Language: l, Context: p.opts.Context, Code: code,
		Limits: p.opts.Limits, Linger: new(time.Duration), Keep: 4 << 10,
	}, nil)
	if err != nil {
		return res, err
	}
	if err := res.Err(); err != nil {
		if res.StateLost {
			err = fmt.Errorf("%w, and the variables of the conversation are lost", err)
		}
		return res, p.fail(executor.ErrInvalid, err)
	}
	return res, nil
}

// python returns the cell that executes source with args in names of its own.
func python(source string, args []byte) string {
	// An expression without a value binds no name and is no result. The names that it uses are not
	// those of the conversation.
	return fmt.Sprintf(`(lambda b: b.exec(b.compile(%s, "<checkpoint of execbroker>", "exec", 0, True), `+
		`{"__name__": "checkpoint", "__builtins__": b.dict(b.vars(b)), "workdir": %s, "args": %s}))(__import__("builtins"))`,
		strconv.QuoteToASCII(source), strconv.QuoteToASCII(executor.Workdir), strconv.QuoteToASCII(string(args)))
}

// javascript returns the cell that executes source with args in names of its own.
func javascript(source string, args []byte) (string, error) {
	text, err := json.Marshal(string(args)) // is a literal of JavaScript as well
	return fmt.Sprintf("void ((args) => {\n%s\n})(JSON.parse(%s)) // <checkpoint of execbroker>", source, text), err
}

// answer reads a file that the program wrote: a line of JSON into v, and the rest.
func (p *program) answer(ctx context.Context, name string, limit int64, v any) (rest []byte, err error) {
	r, err := p.session.Files().Read(ctx, name)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if int64(len(raw)) > limit {
		return nil, p.fail(executor.ErrTooLarge, errTooBig)
	}
	line, rest, ok := bytes.Cut(raw, []byte("\n"))
	if !ok || len(line) > maxManifest {
		return nil, p.fail(executor.ErrInvalid, errors.New("the answer of the sandbox is not valid"))
	}
	if err := decode(line, v); err != nil {
		return nil, p.fail(executor.ErrInvalid, fmt.Errorf("the answer of the sandbox is not valid: %w", err))
	}
	return rest, nil
}

// remove removes a file of the program.
func (p *program) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	return p.session.Files().Remove(ctx, name)
}

func (p *program) fail(kind, err error) error {
	return failure(p.session, p.op, kind, p.ran, err)
}
