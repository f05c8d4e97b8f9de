package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/executor"
)

// maxCode is the largest code that is read, in bytes.
const maxCode = 16 << 20

// runOptions are the flags of run.
type runOptions struct {
	codeOptions
	code    string
	hasCode bool
	file    string // "-": stdin
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [-c CODE | FILE | -]",
		Short: "Run code in a new sandbox and remove the sandbox",
		Long: `Run code in a new sandbox, show its output while it runs, and remove the
sandbox. Charts are shown in terminals with images (kitty's protocol, iTerm2's or
sixel). Otherwise they are saved in the directory of --out or a new one.

The code is FILE, the text after -c, or, with -, standard input. Without - standard
input is the input of the code. The value of the last expression is printed. The
sandbox sees no file of this machine except copies of those that --file names, and
has no network without --network. Dependencies in a PEP 723 header of the code are
installed as with --package.

Exit codes: 0 the code ended without an error, 1 it failed or left a file that
cannot be saved, 124 it was stopped at its time limit, 2 the command line or the
configuration is wrong or needs something that the backend lacks, 3 the
infrastructure failed, 130 Ctrl-C. Ctrl-C stops the code and removes the sandbox. A
second Ctrl-C ends the program at once.`,
		Example: `  execbroker run -c '[n*n for n in range(5)]'
  execbroker run analysis.py --file data.csv --out results
  echo 'console.log(6*7)' | execbroker run - --language javascript
  execbroker run --package numpy -c 'import numpy; numpy.arange(3)'
  execbroker run --json -c '1/0'`,
		Args: func(cmd *cobra.Command, args []string) error {
			o.hasCode = cmd.Flags().Changed("code")
			switch {
			case o.hasCode && len(args) > 0:
				return errors.New("both -c and a file")
			case !o.hasCode && len(args) == 0:
				return errors.New("no code: give a FILE, -c CODE, or - for standard input")
			case len(args) > 1:
				return fmt.Errorf("%d files of code; a run has one; copy other files with --file", len(args))
			case len(args) == 1:
				o.file = args[0]
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return a.run(cmd.Context(), o) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return []cobra.Completion{"py", "js", "mjs", "cjs"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	cmd.Flags().StringVarP(&o.code, "code", "c", "", "run this `text`")
	o.addTo(cmd)
	return cmd
}

// run implements the command run.
func (a *app) run(ctx context.Context, o runOptions) error {
	code, err := a.source(&o)
	if err != nil {
		return err
	}
	if l := named(o.language); l == "" || l == executor.Python {
		needs, err := header(code)
		if err != nil {
			return usage("%w", err)
		}
		o.packages = append(o.packages, needs...)
	}
	w, err := a.openWorkplace(ctx, o.codeOptions)
	if err != nil {
		return err
	}
	defer w.close()
	s, err := w.session(ctx)
	if err != nil {
		return err
	}
	defer w.remove(s)
	req := executor.Request{Code: code}
	// Standard input exists even if nobody wants to use it, so it is no reason to refuse a backend
	// without stdin.
	if o.file != "-" && s.Info().Capabilities.HasFor(w.language(), executor.FeatureStdin) {
		req.Stdin = a.in
		if len(w.ahead) > 0 && isTerminal(a.in) {
			req.Stdin = io.MultiReader(bytes.NewReader(bytes.ReplaceAll(w.ahead, []byte("\r"), []byte("\n"))), a.in)
		}
	}
	r, err := w.run(ctx, s, req)
	return a.ran(ctx, w.show, r, err)
}

// runDocument is the JSON output of run.
type runDocument struct {
	Result *executor.Result `json:"result"`
	Saved  []savedFile      `json:"saved,omitempty"`
	Missed []missedFile     `json:"not_saved,omitempty"`
	Error  *errorReport     `json:"error,omitempty"`
}

// ran reports how a run ended.
func (a *app) ran(ctx context.Context, v *show, r *executor.Result, err error) error {
	if a.json && r != nil {
		doc := runDocument{Result: r, Saved: v.saved, Missed: v.missing}
		err = a.printDocument(ctx, &doc, &doc.Error, err)
	}
	if err != nil {
		return err
	}
	if code := v.result(r); code != exitOK {
		return exitCode(code)
	}
	return nil
}

// source returns the code. It sets the language if the file name has a known extension.
func (a *app) source(o *runOptions) (code string, err error) {
	if o.hasCode {
		return o.code, nil
	}
	in := a.in
	if o.file != "-" {
		if o.language == "" {
			l, err := languageOf(o.file)
			if err != nil {
				return "", err
			}
			o.language = string(l)
		}
		f, err := os.Open(o.file)
		if err != nil {
			return "", usage("%w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxCode+1))
	if err != nil {
		return "", usage("%w", err)
	}
	if len(data) > maxCode {
		return "", usage("%s: more than %s of code", plain(o.file), size(maxCode))
	}
	return string(data), nil
}
