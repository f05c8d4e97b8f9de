package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/execbroker/execbroker/executor"
)

// defaultShell is the command that shell runs: Bash if the image has it.
var defaultShell = []string{"sh", "-c", `exec "$(command -v bash || echo sh)"`}

func (a *app) shellCommand() *cobra.Command {
	var o codeOptions
	cmd := &cobra.Command{
		Use:   "shell [COMMAND [ARGUMENT...]]",
		Short: "Open a shell in a new sandbox and remove the sandbox",
		Long: `Open a shell, or execute COMMAND, in a new sandbox at this terminal, and remove the
sandbox when it ends. The backend needs the features command and pty.

The command controls your terminal while it runs, including titles, the clipboard and
questions to the terminal. For code that you do not trust with this, use "run",
which shows only text and colours. All keys go to the sandbox, including Ctrl-C.`,
		Example: `  execbroker shell --config app.yaml --backend box
  execbroker shell --file data.csv --network full python3 -i`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = defaultShell
			}
			return a.shell(cmd.Context(), o, args)
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after COMMAND belong to it
	o.addSandbox(cmd, 0)
	o.raw = true
	return cmd
}

// shell implements the command shell.
func (a *app) shell(ctx context.Context, o codeOptions, command []string) error {
	in, ok := a.in.(*os.File)
	if !ok || a.json || !isTerminal(a.in) || !isTerminal(a.out) {
		return usage("shell needs a terminal as its input and output, and has no JSON; use run without a terminal")
	}
	w, err := a.openWorkplace(ctx, o)
	if err != nil {
		return err
	}
	defer w.close()
	w.spec.Require = []executor.Feature{executor.FeatureCommand, executor.FeaturePTY}
	s, err := w.session(ctx)
	if err != nil {
		return err
	}
	defer w.remove(s)
	r, err := a.atTerminal(ctx, s, in, w.ahead, executor.Request{Command: command, Limits: w.limits, Keep: -1})
	return a.ran(ctx, w.show, r, err)
}

// atTerminal runs a command at the terminal of this program. ahead is what was typed before.
func (a *app) atTerminal(ctx context.Context, s executor.Session, in *os.File, ahead []byte, req executor.Request) (r *executor.Result, err error) {
	keys, err := keyboard()
	if err != nil {
		return nil, err
	}
	defer keys.Close() // it was only open for reading
	fd := int(in.Fd())
	req.Terminal, req.Stdin = new(executor.Terminal), io.MultiReader(bytes.NewReader(ahead), keys)
	defer followSize(fd, req.Terminal)()
	cooked, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, term.Restore(fd, cooked)) }()
	return s.Run(ctx, req, func(ev executor.Event) error {
		_, err := a.out.Write(ev.Data) // a terminal has one output
		return err
	})
}

// takeSize gives t the size of this program's terminal, if it has one.
func takeSize(fd int, t *executor.Terminal) {
	if columns, rows, err := term.GetSize(fd); err == nil {
		_ = t.Resize(executor.TerminalSize{Rows: rows, Columns: columns}) // a terminal with 0 rows has no size
	}
}
