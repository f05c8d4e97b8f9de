package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor/driver"
)

// initFlags are the flags of init.
type initFlags struct {
	file  string
	force bool
}

func (a *app) initCommand() *cobra.Command {
	var f initFlags
	c := &cobra.Command{
		Use:   "init",
		Short: "Write a configuration for this machine, with comments",
		Long: `Look at the machine as "doctor" does, write a configuration for the backends that
work there, and say which commands to try with it. --backend names other backends,
by their types and in the order in which they are tried: also those that need an
account, or something else that "doctor" finds missing.

A file that exists is not overwritten, unless --force is given.

Exit codes: 0 the file is written, 2 it is not.`,
		Example: `  execbroker init
  execbroker init --backend docker,pyodide --file app.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("config") {
				return usage("init reads no configuration; name the new file with --file")
			}
			return a.init(cmd.Context(), f)
		},
	}
	c.Flags().StringVar(&f.file, "file", "execbroker.yaml", "the `file` to write")
	c.Flags().BoolVar(&f.force, "force", false, "overwrite the file if it exists")
	must(c.MarkFlagFilename("file", "yaml", "yml"))
	return c
}

// begun is what init answers.
type begun struct {
	File     string     `json:"file"`
	Backends []examined `json:"backends"`
	Try      []string   `json:"try"`
}

func (a *app) init(ctx context.Context, f initFlags) error {
	if _, err := os.Lstat(f.file); err == nil && !f.force {
		return usage("--file: %s exists; name another file, or overwrite it with --force", f.file)
	}
	types, found, err := a.choose(ctx)
	if err != nil {
		return err
	}
	text := firstConfig(f.file, types)
	cfg, err := backends.Parse(text)
	if err = errors.Join(err, cfg.Check(a.reg)); err != nil {
		return usage("init knows no settings for these backends, so write the file yourself: %w", err)
	}
	b, err := backends.Open(ctx, a.env(), a.reg, a.shared(cfg), backends.WithoutPools())
	if err != nil {
		return usage("no file is written: correct this, or leave the backend out of --backend: %w", err)
	}
	a.closing(newProgress(a.err), "closing", b.Close)
	if err := writeNew(f.file, text, f.force); err != nil {
		return usage("--file: %w", err)
	}
	done := begun{File: f.file}
	for _, typ := range types {
		done.Backends = append(done.Backends, examine(typ, typ, true, found[typ]))
	}
	for _, args := range []string{"doctor", "run", "serve"} {
		line := "execbroker " + args + " --config " + shellWord(f.file)
		if args == "run" {
			line += " -c 'print(6*7)'"
		}
		done.Try = append(done.Try, line)
	}
	return a.answer(done, true, func(w io.Writer) {
		printExamined(w, done.Backends)
		fmt.Fprintf(w, "\n%s is written. ", plain(f.file))
		if !slices.ContainsFunc(done.Backends, ready) {
			fmt.Fprint(w, "Nothing works here yet: do first what stands behind \"fix\". ")
		}
		fmt.Fprint(w, "Try:\n\n")
		for _, line := range done.Try {
			fmt.Fprintf(w, "  %s\n", plain(line))
		}
	})
}

// choose returns the types of --backend, or those that work here, the standard one first, with what
// doctor finds about them.
func (a *app) choose(ctx context.Context) ([]string, map[string][]driver.Check, error) {
	var named []string
	if a.backend != "" {
		named = strings.Split(a.backend, ",")
	}
	cfg := backends.Config{Backends: map[string]backends.Backend{}}
	for i, typ := range named {
		if !slices.Contains(a.reg.Types(), typ) {
			return nil, nil, usage("--backend: %w", driver.Unknown("type", typ, a.reg.Types()))
		}
		if slices.Contains(named[:i], typ) {
			return nil, nil, usage("--backend: %s is named twice", typ)
		}
	}
	for _, typ := range a.reg.Types() {
		if named != nil && !slices.Contains(named, typ) {
			continue
		}
		one, err := backends.Parse(firstConfig("", []string{typ}))
		if err == nil && (named != nil || needsNothing(typ) && one.Check(a.reg) == nil) {
			cfg.Backends[typ] = one.Backends[typ]
		}
	}
	ctx, end := newProgress(a.err).begin(ctx, "examining backends")
	found := backends.Doctor(ctx, a.env(), a.reg, cfg)
	end()
	if err := ctx.Err(); err != nil || named != nil {
		return named, found, err
	}
	var works []string
	for typ, checks := range found {
		if ready(examine(typ, typ, true, checks)) {
			works = append(works, typ)
		}
	}
	if len(works) == 0 { // doctor says what it lacks
		return []string{a.standard}, found, nil
	}
	slices.Sort(works)
	if i := slices.Index(works, a.standard); i > 0 {
		works = slices.Insert(slices.Delete(works, i, i+1), 0, a.standard)
	}
	return works, found, nil
}

// ready reports whether a backend works, or does after the first run has set it up.
func ready(e examined) bool {
	return !slices.ContainsFunc(e.Checks, func(c driver.Check) bool { return !c.OK && !c.Setup })
}

// starter is what init writes about a type.
type starter struct {
	about   []string
	account bool // the settings are examples: a cluster or an account has to be named
	keys    []string
}

var starters = map[string]starter{
	"pyodide":    {about: []string{"Python and JavaScript in WebAssembly, on this machine."}},
	"bubblewrap": {about: []string{"The programs of this Linux machine, in namespaces of their own."}},
	"docker": {about: []string{"Containers of a Docker engine. They share the kernel of its machine."}, keys: []string{
		`# image: my-registry.example/sandbox:3 # with python3, and node for JavaScript`,
		`# runtime: runsc                       # gVisor, if the engine has it`,
		`limits: {memory: 512MiB}`,
	}},
	"kubernetes": {about: []string{"Pods of a cluster.", "The rights it needs: execbroker kubernetes rbac --namespace sandboxes"}, account: true, keys: []string{
		`namespace: sandboxes`,
		`limits: {memory: 512MiB}`,
	}},
	"e2b":         {about: []string{"Sandboxes of E2B. The file names the key, and never contains it."}, account: true, keys: []string{`api_key: {env: E2B_API_KEY}`}},
	"modal":       {about: []string{"Sandboxes of Modal, in an app of their own. The file names the token, and never contains it."}, account: true, keys: []string{`app: my-sandboxes`, `token_id: {env: MODAL_TOKEN_ID}`, `token_secret: {env: MODAL_TOKEN_SECRET}`}},
	"flymachines": {about: []string{"Machines of Fly, in an app of their own."}, account: true, keys: []string{`app: my-sandboxes`, `token: {env: FLY_API_TOKEN}`}},
}

// needsNothing reports whether a type may work without settings of the user.
func needsNothing(typ string) bool { return !starters[typ].account }

// firstConfig returns a configuration with comments for backends of some types, which are tried in
// this order.
func firstConfig(file string, types []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Where code runs. After a change: execbroker config check --config %s\n", shellWord(file))
	fmt.Fprint(&b, "# The guide docs/guides/configuration.md has all keys.\n\nbackends:\n")
	for _, typ := range types {
		s := starters[typ]
		for _, line := range s.about {
			fmt.Fprintf(&b, "  # %s\n", line)
		}
		fmt.Fprintf(&b, "  %s:\n    type: %s\n", typ, typ)
		for _, line := range s.keys {
			fmt.Fprintf(&b, "    %s\n", line)
		}
		fmt.Fprint(&b, "    # broker: {pools: [{size: 2}]} # sessions that are ready before they are asked for\n")
	}
	fmt.Fprintf(&b, `
# New sessions go to the first backend, and to those of fallback if it is down or full, or
# cannot do what is asked. A session stays where it is.
routes:
  - name: default
    split: [{backend: %s, weight: 1}]
`, types[0])
	if len(types) > 1 {
		fmt.Fprintf(&b, "    fallback: [%s]\n", strings.Join(types[1:], ", "))
	}
	fmt.Fprint(&b, `
# What each user may use of all backends together.
guard: {runs_at_once: 4, runs_per_minute: 60}

# Where it is noted which conversation has which sandbox. A file outlives the program;
# docs/guides/replicas.md is about several programs.
sessions: {store: memory}
# sessions: {store: "sqlite:sessions.db"}
`)
	return b.Bytes()
}

// writeNew writes a file that nobody has read yet, and replaces one only if it is told to.
func writeNew(name string, text []byte, replace bool) error {
	mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if replace {
		mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(name, mode, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists; overwrite it with --force", name)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// shellWord returns a text as a shell takes it for one word.
func shellWord(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("./_-", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
