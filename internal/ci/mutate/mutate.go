package mutate

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
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

// patience is how long a command that is interrupted may take to end by itself.
const patience = 30 * time.Second

type options struct {
	seed  uint64
	n     int
	jobs  int
	limit time.Duration
	list  bool
	out   string
	// within makes Run what runs each command of a trial: see the function of this name.
	within bool
}

// Run is the command. The working directory is the root of the module.
func Run(ctx context.Context, args []string) error {
	var o options
	set := flag.NewFlagSet("mutate", flag.ContinueOnError)
	set.Uint64Var(&o.seed, "seed", Seed, "draws the changes")
	set.IntVar(&o.n, "n", 30, "how many changes")
	set.IntVar(&o.jobs, "jobs", 2, "how many at a time are tried by the tests of their own package, each in a copy of the working tree")
	set.DurationVar(&o.limit, "limit", 15*time.Minute, "how long these may take; a change that makes them take longer is noticed")
	set.BoolVar(&o.list, "list", false, "only say what would be changed")
	set.StringVar(&o.out, "o", "", "file for the table, which goes to standard output otherwise")
	set.BoolVar(&o.within, "within", false, "run the command that follows and kill what it leaves; for this program's own use")
	if err := set.Parse(args); err != nil {
		return err
	}
	if o.within {
		return within(ctx, set.Args())
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
	near    []string // patterns of the package that is changed and of others of its subject
	far     []string // of the other packages with tests that depend on it
	tier    int      // of the test that has noticed it
	by      string   // that test; empty: none so far
	decided bool     // if no test has noticed it, none does
	err     error    // why it was given up
	took    time.Duration
}

// open reports whether there is more to try.
func (t *trial) open() bool { return t.by == "" && t.err == nil && !t.decided }

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

func stillOpen(trials []*trial) (open []*trial) {
	for _, t := range trials {
		if t.open() {
			open = append(open, t)
		}
	}
	return open
}

// try tries n changes that compile. Each is tried alone by the tests of its own package, which
// notice most. Those that are left are made together, because what depends on a package takes long
// to test.
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
		tr := &trial{Mutation: m}
		if tr.near, tr.far, err = t.dependants(ctx, m); err != nil {
			return trials, err
		}
		trials = append(trials, tr)
	}
	trees <- t
	var wg sync.WaitGroup
	for _, tr := range trials {
		t := <-trees
		wg.Go(func() {
			defer func() { trees <- t }()
			begin := time.Now()
			t.alone(ctx, tr, o.limit)
			tr.took = time.Since(begin)
			fmt.Printf("%2d %s: %s (%.1f min)\n", slices.Index(trials, tr)+1, tr.Mutation, tr.outcome(), tr.took.Minutes())
		})
	}
	wg.Wait()
	for tier := range tiers {
		if err := t.together(ctx, stillOpen(trials), tier); err != nil {
			return trials, err
		}
	}
	for _, tr := range stillOpen(trials) {
		tr.decided = true
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
	cmd, err := t.command(ctx, append([]string{name}, args...)...)
	if err != nil {
		return "", err
	}
	b, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, b)
	}
	return string(b), err
}

// command returns a command in the tree that leaves no process.
func (t *tree) command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"mutate", "-within"}, args...)...)
	cmd.Dir = t.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * patience
	return cmd, nil
}

// with makes changes, does something and takes them back.
func (t *tree) with(changes []Mutation, do func() error) (err error) {
	changes = slices.Clone(changes)
	slices.SortFunc(changes, func(a, b Mutation) int { return b.start - a.start }) // so that no change moves the next one
	was := map[string][]byte{}
	defer func() {
		for path, text := range was {
			err = errors.Join(err, os.WriteFile(path, text, 0o644))
		}
	}()
	for _, m := range changes {
		path := filepath.Join(t.dir, filepath.FromSlash(m.File))
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, ok := was[path]; !ok {
			was[path] = text
		}
		if err := os.WriteFile(path, m.apply(text), 0o644); err != nil {
			return err
		}
	}
	return do()
}

// builds reports whether a change compiles.
func (t *tree) builds(ctx context.Context, m Mutation) (good bool, err error) {
	err = t.with([]Mutation{m}, func() error {
		if filepath.Ext(m.File) != ".py" {
			_, err := t.run(ctx, "go", "build", "./"+m.Package)
			good = err == nil
			return nil
		}
		text, err := os.Open(filepath.Join(t.dir, filepath.FromSlash(m.File)))
		if err != nil {
			return err
		}
		defer text.Close()
		cmd := exec.CommandContext(ctx, "python3", "-c", compiles)
		cmd.Stdin = text
		good = cmd.Run() == nil
		return nil
	})
	return good, errors.Join(err, ctx.Err())
}

// alone tries a change by the tests of make test that are near to it.
func (t *tree) alone(ctx context.Context, tr *trial, limit time.Duration) {
	for unsteady := map[string]bool{}; ; {
		tctx, cancel := context.WithTimeout(ctx, limit)
		var failed []failed
		err := t.with([]Mutation{tr.Mutation}, func() (err error) {
			failed, err = t.failing(tctx, slices.Concat(tiers[0], tr.near), unsteady, 1)
			return err
		})
		late := tctx.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case late:
			tr.by = strings.Join(tr.near, " ") + " in more than " + limit.String()
		case err == nil && len(failed) > 0:
			var notices bool
			if notices, err = t.notices(ctx, failed[0], tr.Mutation); err == nil && !notices {
				fmt.Printf("   %s is not steady: left out of account for %s\n", failed[0], tr.Mutation)
				unsteady[failed[0].String()] = true
				continue
			}
			if err == nil {
				tr.by = failed[0].String()
			}
		}
		if ctx.Err() == nil {
			tr.err = err
		}
		return
	}
}

// together makes all changes at once and runs a tier of all that depends on them. Each failure is
// then tried with each change alone. As one change may hide another, what is left is tried again
// until nothing is found.
func (t *tree) together(ctx context.Context, open []*trial, tier int) error {
	for found := true; found && len(open) > 0; open = stillOpen(open) {
		found = false
		var packages []string
		for _, tr := range open {
			packages = append(packages, tr.far...)
			if tier > 0 {
				packages = append(packages, tr.near...)
			}
		}
		slices.Sort(packages)
		packages = slices.Compact(packages)
		if len(packages) == 0 {
			return nil
		}
		fmt.Printf("make %s of %d packages with %d changes\n", tiers[tier][0], len(packages), len(open))
		var failures []failed
		err := t.with(mutations(open), func() (err error) {
			failures, err = t.failing(ctx, slices.Concat(tiers[tier], packages), nil, math.MaxInt)
			return err
		})
		if err != nil {
			return err
		}
		for _, f := range failures {
			// What has been found explains most of the others.
			if fails, err := t.fails(ctx, f, mutations(stillOpen(open))...); err != nil {
				return err
			} else if !fails {
				continue
			}
			for _, tr := range stillOpen(open) {
				notices, err := t.notices(ctx, f, tr.Mutation)
				if err != nil {
					return err
				}
				if notices {
					tr.by, tr.tier, found = f.String(), tier, true
					fmt.Printf("   %s: %s\n", tr.Mutation, tr.outcome())
				}
			}
		}
	}
	return nil
}

func mutations(trials []*trial) (all []Mutation) {
	for _, t := range trials {
		all = append(all, t.Mutation)
	}
	return all
}

// dependants returns the patterns of the packages whose tests depend on a change, those of its
// subject apart.
func (t *tree) dependants(ctx context.Context, m Mutation) (near, far []string, err error) {
	module, err := t.run(ctx, "go", "list", "-m")
	if err != nil {
		return nil, nil, err
	}
	module = strings.TrimSpace(module)
	out, err := t.run(ctx, "go", "list", "-test", "-f", `{{if .ForTest}}{{.ForTest}} {{.ImportPath}} {{join .Deps " "}}{{end}}`, "./...")
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 0 || !slices.ContainsFunc(f, func(s string) bool { return s == module+"/"+m.Package }) {
			continue
		}
		dir := cmp.Or(strings.TrimPrefix(strings.TrimPrefix(f[0], module), "/"), ".")
		switch pattern := "./" + dir; {
		case slices.Contains(near, pattern) || slices.Contains(far, pattern) || dir == "internal/ci/mutate" || dir == "internal/ci":
		case dir == m.Package || slices.Contains(subjects[m.Subject], dir):
			near = append(near, pattern)
		default:
			far = append(far, pattern)
		}
	}
	if near == nil {
		return nil, nil, fmt.Errorf("%s has no tests", m.Package)
	}
	return near, far, nil
}

// failure is a line of internal/ci about a test that failed.
var (
	failure = regexp.MustCompile(`^FAIL +(\S+)(?: (\S+))?`)
	isTest  = regexp.MustCompile("^(Test|Example|Fuzz)")
)

// failed is a test, or a package as a whole if the name of the test is empty.
type failed struct{ pkg, test string }

func (f failed) String() string {
	if f.test == "" {
		return f.pkg + " as a whole"
	}
	return f.pkg + " " + f.test
}

// notices reports whether a test fails with a change and not without.
func (t *tree) notices(ctx context.Context, f failed, m Mutation) (bool, error) {
	with, err := t.fails(ctx, f, m)
	if err != nil || !with {
		return false, err
	}
	without, err := t.fails(ctx, f)
	return !without, err
}

// fails reports whether a test fails with changes.
func (t *tree) fails(ctx context.Context, f failed, changes ...Mutation) (fails bool, err error) {
	args := []string{"test", "-race", "-vet=off", "-count=1", "-timeout=10m"}
	if f.test != "" {
		args = append(args, "-run="+pattern(f.test))
	}
	err = t.with(changes, func() error {
		_, err := t.run(ctx, "go", append(args, f.pkg)...)
		fails = err != nil
		return nil
	})
	return fails, errors.Join(err, ctx.Err())
}

// failing runs a command of internal/ci and returns the first tests that fail, but for some.
func (t *tree) failing(ctx context.Context, args []string, but map[string]bool, most int) ([]failed, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd, err := t.command(ctx, append([]string{t.ci}, args...)...)
	if err != nil {
		return nil, err
	}
	found := &failures{enough: stop, most: most, but: but}
	cmd.Stdout = found
	err = cmd.Run()
	if len(found.all) == 0 && err != nil && ctx.Err() == nil && len(but) == 0 {
		return nil, fmt.Errorf("%s: %w, and no test failed", strings.Join(args, " "), err)
	}
	return found.all, nil
}

// failures collects the lines about tests that failed of what is written to it.
type failures struct {
	enough func() // is called when there are most
	most   int
	but    map[string]bool
	line   []byte
	all    []failed
}

func (f *failures) Write(p []byte) (int, error) {
	for _, c := range p {
		if c != '\n' {
			f.line = append(f.line, c)
			continue
		}
		if m := failure.FindStringSubmatch(string(f.line)); m != nil && len(f.all) < f.most {
			test := strings.TrimSuffix(m[2], ":")
			if !isTest.MatchString(test) {
				test = ""
			}
			if one := (failed{m[1], test}); !f.but[one.String()] && !slices.Contains(f.all, one) {
				if f.all = append(f.all, one); len(f.all) == f.most {
					f.enough()
				}
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
