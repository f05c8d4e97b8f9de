package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// replCommand is a command of the repl: a line that begins with %.
type replCommand struct {
	name, args, doc string
	least, most     int // arguments; most < 0: any number
	do              func(r *repl, ctx context.Context, args []string) error
}

// replCommands are in the order of %help. They are filled in by init because %help reads them.
var replCommands []replCommand

func init() {
	replCommands = []replCommand{
		{"help", "", "list these commands", 0, 0, (*repl).help},
		{"files", "[DIR]", "list the files of the sandbox", 0, 1, (*repl).files},
		{"put", "FILE [NAME]", "copy a file of this machine into the sandbox", 1, 2, (*repl).put},
		{"get", "NAME [FILE]", "copy a file of the sandbox to this machine", 1, 2, (*repl).get},
		{"remove", "NAME...", "remove files or directories of the sandbox", 1, -1, (*repl).removeFiles},
		{"install", "PACKAGE...", "make packages importable", 1, -1, (*repl).install},
		{"run", "FILE", "run a file of this machine", 1, 1, (*repl).runFile},
		{"timeout", "[TIME]", "show or set how long code may run, such as 90s; 0 means no limit", 0, 1, (*repl).setTimeout},
		{"info", "", "show what this sandbox is and can do", 0, 0, (*repl).info},
		{"reset", "", "forget the variables; files stay", 0, 0, (*repl).reset},
		{"restart", "", "replace the sandbox by a new one", 0, 0, (*repl).restart},
		{"quit", "", "leave; so do Ctrl-D, exit() and quit()", 0, 0, func(*repl, context.Context, []string) error { return errLeave }},
	}
}

// command runs the command of a line that begins with %. An empty line does nothing.
func (r *repl) command(ctx context.Context, line string) error {
	words, err := splitWords(strings.TrimPrefix(line, "%"))
	if err != nil {
		return &usageError{err: err}
	}
	if len(words) == 0 {
		return nil
	}
	var names []string
	for _, c := range replCommands {
		if args := words[1:]; c.name == words[0] {
			if len(args) < c.least || c.most >= 0 && len(args) > c.most {
				return usage("usage: %%%s %s", c.name, c.args)
			}
			return r.interruptibly(ctx, c, args)
		}
		names = append(names, c.name)
	}
	return &usageError{err: driver.Unknown("command", words[0], names)}
}

func (r *repl) interruptibly(ctx context.Context, c replCommand, args []string) error {
	if c.name == "run" { // it does that itself
		return c.do(r, ctx, args)
	}
	cctx, done := r.a.signals.interruptible(ctx)
	defer done()
	err := c.do(r, cctx, args)
	if cctx.Err() != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) {
		r.note("stopped")
		return nil
	}
	return err
}

// splitWords splits a line at blanks. Single and double quotes keep blanks in a word.
func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	quote, in := rune(0), false
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '"' || c == '\'':
			quote, in = c, true
		case c == ' ' || c == '\t':
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
		default:
			word.WriteRune(c)
			in = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("the quote %c is not closed", quote)
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}

func (r *repl) help(context.Context, []string) error {
	w := tabwriter.NewWriter(r.a.out, 0, 0, 2, ' ', 0)
	for _, c := range replCommands {
		fmt.Fprintf(w, "%%%s %s\t%s\n", c.name, c.args, c.doc)
	}
	return w.Flush()
}

func (r *repl) files(ctx context.Context, args []string) error {
	dir := executor.Workdir
	if len(args) > 0 {
		dir = args[0]
	}
	w := tabwriter.NewWriter(r.a.out, 0, 0, 2, ' ', 0)
	for f, err := range r.s.Files().List(ctx, dir) {
		if err != nil {
			return err
		}
		name, what := plain(f.Name), size(f.Size)
		switch {
		case f.Mode.IsDir():
			name, what = name+"/", ""
		case f.Target != "":
			name += " -> " + plain(f.Target)
		}
		fmt.Fprintf(w, "%s\t%s\n", name, what)
	}
	return w.Flush()
}

func (r *repl) put(ctx context.Context, args []string) error {
	u := upload{src: args[0], dst: filepath.Base(args[0])}
	if len(args) > 1 {
		u.dst = args[1]
	}
	return r.upload(ctx, r.s, u)
}

func (r *repl) get(ctx context.Context, args []string) (err error) {
	dst := localElement(path.Base(args[0]))
	if len(args) > 1 {
		dst = args[1]
	}
	f, err := r.s.Files().Read(ctx, args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return usage("%w", err)
	}
	n, err := io.Copy(w, io.LimitReader(f, maxArtifact))
	if err = errors.Join(err, w.Close()); err != nil {
		os.Remove(dst)
		return err
	}
	r.note("saved %s (%s)", plain(dst), size(n))
	return nil
}

func (r *repl) removeFiles(ctx context.Context, args []string) error {
	for _, name := range args {
		if err := r.s.Files().Remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (r *repl) install(ctx context.Context, args []string) error {
	ctx, end := r.progress.begin(ctx, "installing "+strings.Join(args, " "))
	defer end()
	res, err := r.s.Install(ctx, executor.Packages{Language: r.language(), Names: args}, r.event)
	if err != nil {
		return err
	}
	r.failed = r.result(res) != exitOK || r.failed
	return nil
}

func (r *repl) runFile(ctx context.Context, args []string) error {
	code, err := r.a.source(&runOptions{codeOptions: codeOptions{language: string(r.language())}, file: args[0]})
	if err != nil {
		return err
	}
	return r.run(ctx, code)
}

func (r *repl) setTimeout(_ context.Context, args []string) error {
	if len(args) > 0 {
		d, err := time.ParseDuration(args[0])
		if args[0] == "0" {
			d, err = 0, nil
		}
		if err != nil {
			return &usageError{err: err}
		}
		limits, err := limitsFor(d)
		if err != nil {
			return err
		}
		if over := limits.Exceeds(r.s.Info().MaxRun); len(over) > 0 {
			return usage("the sandbox allows %s; leave and use --timeout", strings.Join(over, ", "))
		}
		r.limits = limits
		return nil
	}
	text := "for ever"
	if r.limits.WallTime != executor.NoLimit {
		text = r.limits.WallTime.String()
	}
	_, err := fmt.Fprintln(r.a.out, text)
	return err
}

func (r *repl) info(ctx context.Context, _ []string) error {
	info, err := r.s.Refresh(ctx)
	if errors.Is(err, executor.ErrUnsupported) {
		info, err = r.s.Info(), nil
	}
	if err != nil {
		return err
	}
	return printSession(r.a.out, r.b.Info(), info)
}

func (r *repl) reset(ctx context.Context, _ []string) error {
	return r.s.Reset(ctx, executor.Interpreter{Language: r.language()})
}

func (r *repl) restart(ctx context.Context, _ []string) error {
	s, err := r.session(ctx)
	if err != nil {
		return err
	}
	r.remove(r.s)
	r.s = s
	return nil
}
