package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/complete"
)

func (a *app) replCommand() *cobra.Command {
	var o codeOptions
	cmd := &cobra.Command{
		Use:   "repl",
		Short: "Run code interactively in a sandbox",
		Long: `Open a sandbox and run what you type, line by line. Variables stay.

A line that begins with % is a command for execbroker, not code. %help lists
the commands for files, packages and the session. The body of a def or a loop
ends at an empty line. Tab indents and completes: names of the language, names that
you typed, commands, and files of this machine. Ctrl-R searches the history, which
includes earlier sessions. Ctrl-C stops the running code, or discards the current
input. Ctrl-D, exit() and quit() leave. The sandbox is removed at the end.

If standard input is not a terminal, it is read without prompts, and the exit
code is 1 if any code failed. The history is kept in the state
directory of the user, without lines that begin with a blank.`,
		Example: `  execbroker repl
  execbroker repl --file data.csv --out plots
  execbroker repl --language javascript`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.repl(cmd.Context(), o) },
	}
	o.addTo(cmd)
	return cmd
}

// repl is an interactive session with a sandbox.
type repl struct {
	*workplace
	s        executor.Session
	ed       editor
	terminal bool
	lines    []string // the code that is being typed
	words    *words   // names for Tab
	failed   bool
}

func (a *app) repl(ctx context.Context, o codeOptions) error {
	if a.json {
		return usage("repl has no --json; use run")
	}
	w, err := a.openWorkplace(ctx, o)
	if err != nil {
		return err
	}
	defer w.close()
	// The user may change the time limit during the session.
	w.spec.MaxRun = w.b.Info().Capabilities.MaxRun.Or(executor.RunLimits{WallTime: executor.NoLimit})
	r := &repl{workplace: w, words: newWords(w.language())}
	if r.s, err = w.session(ctx); err != nil {
		return err
	}
	defer func() { w.remove(r.s) }()
	r.openEditor()
	return r.loop(ctx)
}

// openEditor chooses how lines are read, and prints the greeting for a person.
func (r *repl) openEditor() {
	in, ok := r.a.in.(*os.File)
	if !ok || !isTerminal(in) || !isTerminal(r.a.out) {
		r.ed = &plainEditor{bufio.NewReader(r.a.in)}
		return
	}
	r.terminal = true
	r.a.signals.atPrompt()
	h := &history{}
	dir, err := stateDir(r.a.getenv)
	if err == nil {
		h, err = openHistory(filepath.Join(dir, "history"))
	}
	if err != nil {
		r.note("the history is not kept: %s", plainText(err.Error()))
	}
	r.ed = &terminalEditor{in: in, out: r.a.out, history: h, tab: r.tab, ahead: r.ahead}
	info := r.s.Info()
	rt, _ := info.Capabilities.Runtime(r.language())
	r.note("%s in a sandbox of %s; %%help lists commands, Ctrl-D leaves",
		plain(strings.TrimSpace(string(rt.Language)+" "+rt.Version)), plain(r.b.Info().Name))
}

// leaves matches what people type to leave, in any language.
var leaves = regexp.MustCompile(`^(exit|quit)\(\)\s*;?\s*$`)

// errLeave ends the loop.
var errLeave = errors.New("leave")

func (r *repl) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		t := r.read(ctx)
		switch {
		case errors.Is(t.err, errInterrupt):
			r.lines = nil
			continue
		case errors.Is(t.err, io.EOF):
			return r.leave(ctx)
		case errors.Is(t.err, syscall.EIO): // the terminal is gone; the signal for that may come later
			return exitCode(exitHangup)
		case t.err != nil:
			return t.err
		}
		if len(r.lines) == 0 && leaves.MatchString(t.text) {
			return r.leave(ctx)
		}
		if len(r.lines) == 0 && (strings.HasPrefix(t.text, "%") || strings.TrimSpace(t.text) == "") {
			if err := r.command(ctx, t.text); errors.Is(err, errLeave) {
				return r.leave(ctx)
			} else if err != nil {
				r.complain(ctx, err)
			}
			continue
		}
		r.lines = append(r.lines, t.text)
		if !t.pasted && complete.Statement(r.language(), r.lines) {
			r.flush(ctx)
		}
	}
	return ctx.Err()
}

// read reads a line. On a terminal the output of the code must end before the prompt.
func (r *repl) read(ctx context.Context) typed {
	if r.terminal && r.midway {
		if err := r.write(r.a.out, []byte("\n")); err != nil {
			return typed{err: err}
		}
	}
	first, next := ">>> ", "... "
	if l := r.language(); l == executor.JavaScript || l == executor.TypeScript {
		first, next = "> ", "... "
	}
	if len(r.lines) > 0 {
		first = next
	}
	return readLine(ctx, r.ed, coloured(r.terminal && r.a.colours(r.a.out), colourPrompt, first))
}

// leave runs the rest of the code at the end of the input.
func (r *repl) leave(ctx context.Context) error {
	if !r.terminal && len(r.lines) > 0 {
		r.flush(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !r.terminal && r.failed {
		return exitCode(exitFailed)
	}
	return nil
}

// flush runs the code that was typed.
func (r *repl) flush(ctx context.Context) {
	code := strings.Join(r.lines, "\n")
	r.lines = nil
	r.words.learn(code)
	if err := r.run(ctx, code); err != nil {
		r.complain(ctx, err)
	}
}

func (r *repl) run(ctx context.Context, code string) error {
	req := executor.Request{Code: code}
	var keys *keyboardInput
	if r.terminal && r.s.Info().Capabilities.HasFor(r.language(), executor.FeatureStdin) {
		if in, err := keyboard(); err == nil {
			keys = newKeyboardInput(in)
			req.Stdin = keys
		}
	}
	rctx, done := r.a.signals.interruptible(ctx)
	res, err := r.workplace.run(rctx, r.s, req)
	stopped := rctx.Err() != nil && ctx.Err() == nil
	done()
	if keys != nil {
		ahead := keys.close()
		if e, ok := r.ed.(*terminalEditor); ok && !stopped { // Ctrl-C discards what was typed
			e.unread(ahead)
		}
	}
	if res != nil {
		defer r.lost(res)
	}
	if stopped && errors.Is(err, context.Canceled) {
		r.note("stopped")
		return nil
	}
	if err != nil {
		return err
	}
	r.failed = r.result(res) != exitOK || r.failed
	return nil
}

// lost says what state a run has lost.
func (r *repl) lost(res *executor.Result) {
	switch {
	case res.FilesLost:
		r.note("the sandbox was replaced: variables and files are gone")
	case res.StateLost:
		r.note("the interpreter was restarted: variables are gone, files are still there")
	case res.StateFresh && res.Cell > 1:
		r.note("the interpreter had been restarted: earlier variables were gone")
	}
}

// complain reports an error and continues. If the sandbox is gone, it is replaced.
func (r *repl) complain(ctx context.Context, err error) {
	r.failed = true
	if ctx.Err() != nil {
		return
	}
	r.progress.pause()
	printError(r.a.err, err)
	if !errors.Is(err, executor.ErrNotFound) {
		return
	}
	if err := r.restart(ctx, nil); err != nil {
		printError(r.a.err, fmt.Errorf("create a new sandbox: %w; %%restart tries again", err))
		return
	}
	r.note("this is a new sandbox: variables and files are gone")
}
