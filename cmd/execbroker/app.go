package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	"golang.org/x/term"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/telemetry"
)

// app is the program: its adapters, its environment, and the flags that every command has.
type app struct {
	reg      *backends.Registry
	standard string // the type of the backend that is used if there is no configuration
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	exit     func(code int)         // ends the program immediately, at the second signal
	programs []conformance.Programs // programs of the conformance suite

	config  string
	backend string
	owner   string
	json    bool
	verbose bool

	instance string // the name of this process, for others that share its session store; empty: a random one

	serving bool // the program is a server: warnings are logged without --verbose
	shares  bool // the program uses the session store of the configuration, which counts for all that share it
	hooks   executor.Hooks
	scraped string // where Prometheus gets measurements; empty: nowhere
	entered bool   // a command has begun: later errors are not usage errors
	signals *signals
}

func newApp(reg *backends.Registry) *app {
	return &app{
		reg: reg, standard: "pyodide",
		in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, exit: os.Exit,
		programs: []conformance.Programs{conformance.Python, conformance.JavaScript},
	}
}

// main runs the command that args names and returns the exit code.
func (a *app) main(ctx context.Context, args []string) int {
	ctx, a.signals = watchSignals(ctx, a.exit)
	defer a.signals.stop()
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.entered {
		err = &usageError{err: err, command: cmd.CommandPath()}
		a.json = a.json || slices.Contains(args, "--json") // it may come after the wrong argument
	}
	return a.finish(ctx, err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "execbroker",
		Short: "Run untrusted code in sandboxes",
		Long: `execbroker runs code that you do not trust, in a sandbox where it cannot do harm.

Without a configuration the sandbox is Pyodide: Python in WebAssembly, or
JavaScript, on this machine, without network and without access to your files. A
configuration file can add other backends. --backend chooses one of them; without
it the routes of the file choose.`,
		Example: `  execbroker run -c 'print(6*7)'
  execbroker run analysis.py --file data.csv --out results
  execbroker run --config app.yaml --backend box script.js`,
		Version: version(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			var names []string
			for _, c := range cmd.Commands() {
				names = append(names, c.Name())
			}
			return driver.Unknown("command", args[0], names)
		},
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:    true,
		SilenceUsage:     true,
		PersistentPreRun: func(*cobra.Command, []string) { a.entered = true },
	}
	f := root.PersistentFlags()
	f.StringVar(&a.config, "config", a.getenv("EXECBROKER_CONFIG"), "read the backends from this `file`, YAML or JSON (default $EXECBROKER_CONFIG)")
	f.StringVar(&a.backend, "backend", "", "use this backend: a `name` of the configuration or, without one, a type")
	f.StringVar(&a.owner, "owner", "", "the owner of the sandboxes: a `name` that separates them from those of others (default from your user name)")
	f.BoolVar(&a.json, "json", false, "print one JSON document instead of text for people")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log to stderr what happens inside")
	f.Lookup("config").DefValue = "" // the text contains it
	root.AddCommand(
		a.runCommand(), a.replCommand(), a.shellCommand(), a.sessionCommand(), a.usageCommand(),
		a.rolloutCommand(), a.experimentCommand(), a.shadowCommand(), a.configCommand(), a.doctorCommand(),
		a.initCommand(), a.setupCommand(),
		a.conformanceCommand(), a.parityCommand(),
		a.serveCommand(), a.emulateCommand(), a.mcpCommand(), a.kubernetesCommand(),
		a.versionCommand(), a.manCommand(),
	)
	a.completeFlags(root)
	return root
}

// log returns the logger of the library. A server logs more than warnings, and in JSON unless it
// writes to a terminal.
func (a *app) log() *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	switch {
	case a.verbose:
		o.Level = slog.LevelDebug
	case !a.serving:
		return nil
	}
	var h slog.Handler = slog.NewTextHandler(a.err, o)
	if a.serving && !isTerminal(a.err) {
		h = slog.NewJSONHandler(a.err, o)
	}
	if a.serving && a.otlp("LOGS") {
		h = slog.NewMultiHandler(h, exported{otelslog.NewHandler(telemetry.Scope), o.Level})
	}
	return slog.New(h)
}

// isTerminal reports whether a stream of the program is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
