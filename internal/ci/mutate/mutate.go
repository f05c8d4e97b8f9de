package mutate

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Seed draws the changes of the run that is on record.
const Seed = 1

// ErrLost says that there are changes that only the exhaustive tests notice.
var ErrLost = errors.New("make test does not notice what make exhaustive does: its selection lacks a test")

// The tiers, by the commands of internal/ci that run them.
var tiers = [][]string{{"test"}, {"exhaustive", "-fuzztime", "0"}}

type options struct {
	seed  uint64
	n     int
	jobs  int
	limit time.Duration
	list  bool
	out   string
}

// Run is the command. The working directory is the root of the module.
func Run(ctx context.Context, args []string) error {
	var o options
	set := flag.NewFlagSet("mutate", flag.ContinueOnError)
	set.Uint64Var(&o.seed, "seed", Seed, "draws the changes")
	set.IntVar(&o.n, "n", 30, "how many changes")
	set.IntVar(&o.jobs, "jobs", 2, "how many at a time, each in a copy of the working tree")
	set.DurationVar(&o.limit, "limit", 15*time.Minute, "how long one command may take; a change that makes it take longer is noticed")
	set.BoolVar(&o.list, "list", false, "only say what would be changed")
	set.StringVar(&o.out, "o", "", "file for the table, which goes to standard output otherwise")
	if err := set.Parse(args); err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	names := set.Args()
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(subjects))
	}
	all := map[string][]Mutation{}
	for _, name := range names {
		if all[name], err = candidates(ctx, root, name); err != nil {
			return err
		}
		fmt.Printf("%-8s %5d changes\n", name, len(all[name]))
	}
	next := draw(o.seed, all)
	if o.list {
		for range o.n {
			if m, ok := next(); ok {
				fmt.Println(m)
			}
		}
		return nil
	}
	trials, err := try(ctx, root, o, next)
	w := io.Writer(os.Stdout)
	if o.out != "" {
		f, ferr := os.Create(o.out)
		if ferr != nil {
			return errors.Join(err, ferr)
		}
		defer f.Close()
		w = f
	}
	lost := table(w, o.seed, trials)
	if err == nil && lost > 0 {
		err = ErrLost
	}
	return err
}

// trial is what is known of a change.
type trial struct {
	Mutation
	steps []step // that are left
	tier  int    // of the test that has noticed it
	by    string // that test; empty: none so far
	err   error  // why it was given up
	took  time.Duration
}

// step is a command of internal/ci.
type step struct {
	tier     int
	packages []string
}

// open reports whether there is more to try.
func (t *trial) open() bool { return t.by == "" && t.err == nil && len(t.steps) > 0 }

func (t *trial) outcome() string {
	switch {
	case t.err != nil:
		return "given up: " + strings.Join(strings.Fields(t.err.Error()), " ")
	case t.by != "":
		return "make " + tiers[t.tier][0] + ": " + t.by
	case t.open():
		return "not known yet"
	}
	return "no test"
}

// try tries n changes that compile. All of them take their first step before any takes its second: most are
// noticed by the tests of their own package.
func try(ctx context.Context, root string, o options, next func() (Mutation, bool)) (trials []*trial, err error) {
	trees := make(chan *tree, o.jobs)
	for range o.jobs {
		t, err := newTree(ctx, root)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, t.close()) }()
		trees <- t
	}
	t := <-trees
	for len(trials) < o.n {
		m, ok := next()
		if !ok {
			break
		}
		good, err := t.builds(ctx, m)
		if err != nil {
			return trials, err
		}
		if !good {
			continue
		}
		steps, err := t.steps(ctx, m)
		if err != nil {
			return trials, err
		}
		trials = append(trials, &trial{Mutation: m, steps: steps})
	}
	trees <- t
	for left := slices.Clone(trials); len(left) > 0; left = slices.DeleteFunc(left, func(t *trial) bool { return !t.open() }) {
		var wg sync.WaitGroup
		for _, tr := range left {
			t := <-trees
			wg.Go(func() {
				defer func() { trees <- t }()
				begin := time.Now()
				t.step(ctx, tr, o.limit)
				tr.took += time.Since(begin)
				fmt.Printf("%2d %s: %s (%.1f min)\n", slices.Index(trials, tr)+1, tr.Mutation, tr.outcome(), tr.took.Minutes())
			})
		}
		wg.Wait()
		if ctx.Err() != nil {
			return trials, ctx.Err()
		}
	}
	return trials, nil
}

// table writes what was found and returns how many changes only the last tier has noticed.
func table(w io.Writer, seed uint64, trials []*trial) (lost int) {
	fmt.Fprintf(w, "Seed %d.\n\n| | change | noticed by | minutes |\n|---|---|---|---|\n", seed)
	noticed, open := make([]int, len(tiers)), 0
	for i, t := range trials {
		switch {
		case t.by != "":
			noticed[t.tier]++
		case t.err != nil || t.open():
			open++
		}
		fmt.Fprintf(w, "| %d | %s | %s | %.1f |\n", i+1, strings.ReplaceAll(t.Mutation.String(), "|", "\\|"), t.outcome(), t.took.Minutes())
	}
	fmt.Fprintf(w, "\nOf %d changes make test notices %d, make exhaustive %d more, and no test %d; %d are not decided.\n",
		len(trials), noticed[0], noticed[1], len(trials)-noticed[0]-noticed[1]-open, open)
	return noticed[1]
}

// tree is a copy of the working tree in which one change at a time is tried.
type tree struct {
	dir string
	ci  string // the program of internal/ci, without any change
}

func newTree(ctx context.Context, root string) (*tree, error) {
	dir, err := os.MkdirTemp("", "execbroker-mutate-")
	if err != nil {
		return nil, err
	}
	t := &tree{dir: dir, ci: filepath.Join(dir, ".ci-program")}
	if err = copyTree(ctx, root, dir); err == nil {
		_, err = t.run(ctx, "go", "build", "-o", t.ci, "./internal/ci")
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tree) close() error { return os.RemoveAll(t.dir) }

// run runs a program in the tree to its end. Failure is an answer, not an error of the caller.
func (t *tree) run(ctx context.Context, name string, args ...string) (out string, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.dir
	cmd.WaitDelay = time.Minute // what it has left may hold its output
	group(cmd)
	b, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		ungroup(cmd)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, b)
	}
	return string(b), err
}

// change makes the change and returns what takes it back.
func (t *tree) change(m Mutation) (restore func() error, err error) {
	path := filepath.Join(t.dir, filepath.FromSlash(m.File))
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	restore = func() error { return os.WriteFile(path, text, 0o644) }
	return restore, os.WriteFile(path, m.apply(text), 0o644)
}

// builds reports whether a change compiles.
func (t *tree) builds(ctx context.Context, m Mutation) (good bool, err error) {
	restore, err := t.change(m)
	if err != nil {
		return false, err
	}
	if filepath.Ext(m.File) == ".py" {
		text, rerr := os.ReadFile(filepath.Join(t.dir, filepath.FromSlash(m.File)))
		if rerr != nil {
			return false, rerr
		}
		cmd := exec.CommandContext(ctx, "python3", "-c", compiles)
		cmd.Stdin = bytes.NewReader(text)
		good = cmd.Run() == nil
	} else {
		_, berr := t.run(ctx, "go", "build", "./"+m.Package)
		good = berr == nil
	}
	return good, errors.Join(restore(), ctx.Err())
}

// step takes the next step of a trial.
func (t *tree) step(ctx context.Context, tr *trial, limit time.Duration) {
	next := tr.steps[0]
	restore, err := t.change(tr.Mutation)
	if err == nil {
		tr.tier = next.tier
		tr.by, err = t.noticed(ctx, tiers[next.tier], next.packages, tr.Mutation, limit)
		err = errors.Join(err, restore())
	}
	if ctx.Err() == nil { // otherwise it was not taken
		tr.steps, tr.err = tr.steps[1:], err
	}
}

// costly are the packages whose tests take minutes, in the order in which they are tried, after all others.
var costly = []string{"internal/runner", "conformance/conformancetest", "docker", "pyodide", "examples/thirdparty", "cmd/execbroker", "e2b", "flymachines", "backends/all"}

// steps returns what finds out whether a change is noticed: the tests of make test of the packages that depend on
// its package, that and the subject itself first, then all that are done soon, and each of the others; and then
// those of make exhaustive.
func (t *tree) steps(ctx context.Context, m Mutation) (all []step, err error) {
	module, err := t.run(ctx, "go", "list", "-m")
	if err != nil {
		return nil, err
	}
	prefix := strings.TrimSpace(module) + "/"
	out, err := t.run(ctx, "go", "list", "-test", "-f", `{{if .ForTest}}{{.ForTest}} {{.ImportPath}} {{join .Deps " "}}{{end}}`, "./...")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 0 || !slices.ContainsFunc(f, func(s string) bool { return s == prefix+m.Package }) {
			continue
		}
		if dir := strings.TrimPrefix(f[0], prefix); !slices.Contains(found, dir) && dir != "internal/ci/mutate" && dir != "internal/ci" {
			found = append(found, dir)
		}
	}
	groups := make([][]string, 2+len(costly))
	for _, dir := range found {
		i := 2 + slices.Index(costly, dir) // what is not costly is in the second
		if dir == m.Package || slices.Contains(subjects[m.Subject], dir) {
			i = 0
		}
		groups[i] = append(groups[i], "./"+dir)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no tests depend on it", m.Package)
	}
	for _, g := range groups {
		if g != nil {
			all = append(all, step{0, g})
		}
	}
	return append(all, step{1, slices.Concat(groups...)}), nil
}

// failure is a line of internal/ci about a test that failed.
var (
	failure = regexp.MustCompile(`^FAIL +(\S+)(?: (\S+))?`)
	isTest  = regexp.MustCompile("^(Test|Example|Fuzz)")
)

// noticed runs the tests of packages in a tier and returns the first that fails, if it fails again and does not
// without the change. One that is not steady is left out of account, and the others are run anew.
func (t *tree) noticed(ctx context.Context, command, packages []string, m Mutation, limit time.Duration) (by string, err error) {
	unsteady := map[string]bool{}
	for {
		tctx, cancel := context.WithTimeout(ctx, limit)
		pkg, test, err := t.first(tctx, slices.Concat(command, packages), unsteady)
		late := tctx.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case pkg == "" && late:
			return strings.Join(packages, " ") + " in more than " + limit.String(), nil
		case err != nil || pkg == "":
			return "", err
		case test == "":
			return pkg + " as a whole", nil
		}
		steady, err := t.steady(ctx, m, pkg, test, limit)
		if err != nil {
			return "", err
		}
		if steady {
			return pkg + " " + test, nil
		}
		fmt.Printf("   %s %s is not steady: left out of account for %s\n", pkg, test, m)
		unsteady[pkg+" "+test] = true
	}
}

// steady reports whether a test fails with the change, which has been made, and not without.
func (t *tree) steady(ctx context.Context, m Mutation, pkg, test string, limit time.Duration) (bool, error) {
	args := []string{"test", "-race", "-vet=off", "-count=1", "-timeout=" + limit.String(), "-run=" + pattern(test), pkg}
	if _, err := t.run(ctx, "go", args...); err == nil || ctx.Err() != nil {
		return false, ctx.Err()
	}
	path := filepath.Join(t.dir, filepath.FromSlash(m.File))
	changed, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	original := slices.Concat(changed[:m.start], []byte(m.was), changed[m.start+len(m.with):])
	if err := os.WriteFile(path, original, 0o644); err != nil {
		return false, err
	}
	_, failed := t.run(ctx, "go", args...)
	return failed == nil, errors.Join(os.WriteFile(path, changed, 0o644), ctx.Err())
}

// first runs a command of internal/ci until a test fails, but for some, and returns its package and its name, which
// is empty if the package fails as a whole.
func (t *tree) first(ctx context.Context, args []string, but map[string]bool) (pkg, test string, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, t.ci, args...)
	cmd.Dir = t.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its children
	cmd.WaitDelay = time.Minute
	found := &failures{first: stop, but: but}
	cmd.Stdout = found
	group(cmd)
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	err = cmd.Wait()
	ungroup(cmd)
	if found.pkg != "" || ctx.Err() != nil {
		return found.pkg, found.test, nil
	}
	if err != nil && len(but) == 0 {
		return "", "", fmt.Errorf("%s: %w, and no test failed", strings.Join(args, " "), err)
	}
	return "", "", nil
}

// failures looks for the first line about a test that failed in what is written to it.
type failures struct {
	first     func() // is called when it is there
	but       map[string]bool
	line      []byte
	pkg, test string
}

func (f *failures) Write(p []byte) (int, error) {
	for _, c := range p {
		if c != '\n' {
			f.line = append(f.line, c)
			continue
		}
		if m := failure.FindStringSubmatch(string(f.line)); m != nil && f.pkg == "" {
			test := strings.TrimSuffix(m[2], ":")
			if !isTest.MatchString(test) {
				test = ""
			}
			if !f.but[m[1]+" "+test] {
				f.pkg, f.test = m[1], test
				f.first()
			}
		}
		f.line = f.line[:0]
	}
	return len(p), nil
}

// pattern is the argument of -run for one test or subtest.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}
