package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// The exit codes. A further one is 128 plus the number of a signal that ended the program.
const (
	exitOK             = 0
	exitFailed         = 1 // the code failed, or a check found a problem
	exitUsage          = 2 // the command line or the configuration is wrong, or needs something that the backend does not have
	exitInfrastructure = 3
	exitTimeout        = 124
	exitHangup         = 129 // the terminal was closed: 128 plus SIGHUP
	exitPipe           = 141 // the reader of the output is gone: 128 plus SIGPIPE
)

// exitCode is an error that was reported already, or that must not be reported.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// usageError is an error on the command line.
type usageError struct {
	err     error
	command string // the command whose help explains more; may be empty
}

func (e *usageError) Error() string {
	if e.command == "" {
		return e.err.Error()
	}
	return e.err.Error() + "; see " + e.command + " --help"
}

func (e *usageError) Unwrap() error { return e.err }

func usage(format string, args ...any) error { return &usageError{err: fmt.Errorf(format, args...)} }

// finish reports err and returns the exit code.
func (a *app) finish(ctx context.Context, err error) int {
	var reported exitCode
	switch {
	case err == nil, errors.As(err, &reported), unread(err):
	case a.json:
		doc := struct {
			Error *errorReport `json:"error"`
		}{newErrorReport(err)}
		if err := a.printJSON(doc); err != nil {
			return codeOf(ctx, err)
		}
	case signaled(ctx) == nil || !errors.Is(err, context.Canceled): // a user who has pressed Ctrl-C needs no message
		printError(a.err, err)
	}
	return codeOf(ctx, err)
}

// signaled returns the signal that has ended ctx, or nil.
func signaled(ctx context.Context) *signalError {
	var by *signalError
	errors.As(context.Cause(ctx), &by)
	return by
}

// unread reports whether err says that the reader of this program's output is gone. A broken pipe
// to a sandbox is something else.
func unread(err error) bool {
	var e *executor.Error
	return errors.Is(err, syscall.EPIPE) && !errors.As(err, &e)
}

// userKinds are the kinds of executor.Error that the user can correct.
var userKinds = []error{
	executor.ErrInvalid, executor.ErrUnsupported, executor.ErrDenied, executor.ErrTooLarge,
	fs.ErrNotExist, fs.ErrExist, fs.ErrInvalid, fs.ErrPermission,
}

// codeOf returns the exit code for err. It separates errors of the user from failures of the
// infrastructure.
func codeOf(ctx context.Context, err error) int {
	var (
		code  exitCode
		wrong *usageError
		in    *executor.FieldError
		e     *executor.Error
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case unread(err):
		return exitPipe
	case signaled(ctx) != nil:
		return signaled(ctx).code()
	case errors.As(err, &wrong):
		return exitUsage
	case errors.As(err, &e): // also at a path of the configuration, as setup reports it
		if slices.ContainsFunc(userKinds, func(k error) bool { return errors.Is(e.Kind, k) }) {
			return exitUsage
		}
	case errors.As(err, &in):
		return exitUsage
	}
	return exitInfrastructure
}

// printError prints what went wrong and, if known, what to do.
func printError(w io.Writer, err error) {
	var in *configError
	if !errors.As(err, &in) {
		fmt.Fprintf(w, "execbroker: %s\n", plainText(err.Error()))
		if hint := hintFor(err); hint != "" {
			fmt.Fprintf(w, "  %s\n", hint)
		}
		return
	}
	found := executor.FieldErrors(in.err)
	fmt.Fprintf(w, "execbroker: %s: %s\n", plain(in.file), count(len(found), "error"))
	for _, e := range found {
		fmt.Fprintf(w, "  %s\n", plain(e.Error()))
	}
}

func hintFor(err error) string {
	switch {
	case errors.Is(err, executor.ErrUnavailable), errors.Is(err, executor.ErrAuth):
		return "run execbroker doctor to find out what is missing"
	case errors.Is(err, executor.ErrInternal):
		return "this is a bug in execbroker or in the backend; --verbose says more"
	}
	return ""
}

func count(n int, what string) string {
	if n == 1 { // the other words in this program have a regular plural
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// errorReport is an error in JSON.
type errorReport struct {
	Message string          `json:"message"`
	Kind    string          `json:"kind"` // "usage", "configuration", or the Kind of the executor.Error
	Op      string          `json:"op,omitempty"`
	Backend string          `json:"backend,omitempty"`
	Session string          `json:"session,omitempty"`
	Ran     string          `json:"ran,omitempty"` // whether the code may have run: "no", "maybe", "yes"
	Missing []string        `json:"missing,omitempty"`
	Retry   driver.Duration `json:"retry_after,omitzero"`
	Errors  []fieldReport   `json:"errors,omitempty"` // of the configuration
}

// fieldReport is an executor.FieldError in JSON.
type fieldReport struct {
	Path    string `json:"path,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Problem string `json:"problem"`
}

func fieldReports(errs []*executor.FieldError) (all []fieldReport) {
	for _, e := range errs {
		all = append(all, fieldReport{e.Path, e.Line, e.Column, e.Err.Error()})
	}
	return all
}

func newErrorReport(err error) *errorReport {
	r := &errorReport{Message: err.Error(), Kind: "other"}
	var (
		in    *configError
		wrong *usageError
		e     *executor.Error
	)
	switch {
	case errors.As(err, &in):
		r.Kind = "configuration"
		r.Errors = fieldReports(executor.FieldErrors(in.err))
	case errors.As(err, &wrong):
		r.Kind = "usage"
	case errors.As(err, &e):
		r.Op, r.Backend, r.Session, r.Ran, r.Missing, r.Retry = e.Op, e.Backend, e.Session, e.Ran.String(), e.Missing, driver.Duration(e.RetryAfter)
		r.Kind = executor.KindName(e)
	}
	return r
}

// printDocument prints the result of a command in JSON, together with the error, which is stored in
// report, a field of doc. The error that it returns counts as reported.
func (a *app) printDocument(ctx context.Context, doc any, report **errorReport, err error) error {
	if err != nil {
		*report = newErrorReport(err)
		err = exitCode(codeOf(ctx, err))
	}
	return errors.Join(a.printJSON(doc), err)
}

// printJSON writes the only document of a command. Characters that a terminal would obey are
// escaped, even if JSON allows them.
func (a *app) printJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	var text []byte
	for _, r := range b.String() { // JSON is UTF-8
		if r >= 0x7f && r <= 0x9f {
			text = fmt.Appendf(text, `\u%04x`, r)
		} else {
			text = utf8.AppendRune(text, r)
		}
	}
	_, err := a.out.Write(text)
	return err
}

// answer prints the answer of a command: doc with --json, and otherwise what text writes. The exit
// code is 0 if good, and 1 otherwise.
func (a *app) answer(doc any, good bool, text func(w io.Writer)) (err error) {
	if a.json {
		err = a.printJSON(doc)
	} else {
		var b bytes.Buffer
		text(&b)
		_, err = a.out.Write(b.Bytes())
	}
	if err == nil && !good {
		err = exitCode(exitFailed)
	}
	return err
}
