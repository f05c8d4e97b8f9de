package tool

import (
	"context"
	_ "embed" // the programs
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// The programs that ask an interpreter for its version and packages. They print JSON.
var (
	//go:embed learn.py
	learnPython string
	//go:embed learn.js
	learnJavaScript string
)

const (
	// learnedFor is how long answers are valid. The tag of an image may move, and configurations
	// are reloaded.
	learnedFor = time.Hour
	// learnTime bounds the run of one program, and maxSaid its output.
	learnTime = 20 * time.Second
	maxSaid   = 256 << 10
	// maxTold is the number of packages of a language that a model is told. maxName is the largest
	// size of a name and of a version in bytes.
	maxTold = 25
	maxName = 64
)

// The forms of names and versions of packages. Everything else that a sandbox prints is dropped,
// because a model reads it.
var (
	installedName    = regexp.MustCompile(`^(@[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*$`)
	installedVersion = regexp.MustCompile(`^[0-9][A-Za-z0-9.+!_-]*$`)
)

// common are the packages that models ask for most, in the order in which models are told of them.
var common = strings.Fields(`numpy pandas scipy matplotlib seaborn plotly scikit-learn statsmodels sympy pillow openpyxl xlsxwriter python-docx
	python-pptx pypdf reportlab requests httpx beautifulsoup4 lxml pyarrow polars duckdb sqlalchemy networkx nltk torch tensorflow transformers
	opencv-python lodash axios express typescript`)

// installers are packages that are not used by programs.
var installers = []string{"pip", "setuptools", "wheel", "npm", "corepack"}

// commands are commands that an image may have in addition to the usual ones.
var commands = strings.Fields(`python3 node git jq make gcc g++ java perl ruby php sqlite3 psql zip unzip 7z pandoc pdftotext ffmpeg
	convert dot`)

// facts are what sandboxes have said about themselves.
type facts struct {
	languages map[executor.Language]interpreter
	commands  []string // those of the variable commands that exist
}

// interpreter describes the interpreter of a language.
type interpreter struct {
	version  string            // "3.13.5", "Node.js 20.19.2"; empty: not known
	packages map[string]string // versions by name; a version may be empty
}

// learned are the facts of one backend.
type learned struct {
	facts
	at time.Time
}

// several is an Executor that uses several others, such as backends.Broker.
type several interface {
	Backends() map[string]executor.Executor
}

// Learn finds out what Definition can tell beyond the declarations of the backend: versions of the
// languages, installed packages and common commands. It creates a sandbox for that, like those of
// conversations, and removes it. Results are kept for an hour. With a backends.Broker it asks every
// backend that a conversation may use, and Definition tells what all of them have in common.
//
// Until Learn has returned, and after an error, Definition does not change. If the program for
// Python or Node cannot be run, nothing is learned about the language, and the error says so.
func (t *Tool) Learn(ctx context.Context) error {
	select {
	case t.learning <- struct{}{}:
		defer func() { <-t.learning }()
	case <-ctx.Done():
		return ctx.Err()
	}
	all := map[string]executor.Executor{"": t.x}
	if x, ok := t.x.(several); ok {
		all = x.Backends()
	}
	t.mu.Lock()
	maps.DeleteFunc(t.learned, func(name string, _ learned) bool { return all[name] == nil })
	for name, l := range t.learned {
		if time.Since(l.at) <= learnedFor {
			delete(all, name)
		}
	}
	t.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, name := range slices.Sorted(maps.Keys(all)) {
		wg.Go(func() {
			f, err := t.ask(ctx, all[name])
			if err != nil && name != "" {
				err = fmt.Errorf("%s: %w", name, err)
			}
			errs[i] = err
			if len(f.languages) > 0 {
				t.mu.Lock()
				defer t.mu.Unlock()
				t.learned[name] = learned{f, time.Now()}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ask finds out what the sandboxes of a backend have. It creates one sandbox, or one for each
// language.
func (t *Tool) ask(ctx context.Context, x executor.Executor) (f facts, err error) {
	f.languages = map[executor.Language]interpreter{}
	caps := t.Capabilities()
	o := t.o.with(caps)
	var errs []error
	for _, spec := range t.o.Specs(caps) {
		if len(spec.Languages) == 0 || len(x.Info().Capabilities.MissingFor(spec)) > 0 {
			continue // conversations get no such sandbox
		}
		s, err := x.Create(ctx, spec)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, l := range spec.Languages {
			i, known, err := inspect(ctx, s, l, min(learnTime, o.MaxTimeout))
			errs = append(errs, err)
			if known {
				f.languages[l] = i
			}
		}
		if slices.Contains(o.Languages, Bash) && f.commands == nil {
			f.commands, err = which(ctx, s, min(learnTime, o.MaxTimeout))
			errs = append(errs, err)
		}
		errs = append(errs, s.Close())
	}
	return f, errors.Join(errs...)
}

// inspect asks the interpreter of a language.
func inspect(ctx context.Context, s executor.Session, l executor.Language, limit time.Duration) (i interpreter, known bool, err error) {
	code := map[executor.Language]string{executor.Python: learnPython, executor.JavaScript: learnJavaScript}[l]
	if code == "" {
		return i, false, nil
	}
	said, err := answer(ctx, s, executor.Request{Language: l, Code: code}, limit)
	if err != nil {
		return i, false, fmt.Errorf("what %s is: %w", l, err)
	}
	if i, err = readInterpreter(said); err != nil {
		return i, false, fmt.Errorf("what %s is: %w", l, err)
	}
	return i, true, nil
}

// readInterpreter reads what a sandbox says about an interpreter. It keeps only valid names and
// versions.
func readInterpreter(said []byte) (i interpreter, err error) {
	var a struct {
		Name, Version string
		Packages      map[string]string
	}
	if err := json.Unmarshal(said, &a); err != nil {
		return i, fmt.Errorf("the sandbox does not describe it: %w", err)
	}
	if len(a.Version) <= maxName && installedVersion.MatchString(a.Version) {
		i.version = a.Version
	}
	switch {
	case a.Name == "Node.js" && i.version != "":
		i.version = "Node.js " + i.version
	case a.Name == "ECMAScript":
		i.version = "ECMAScript without Node.js"
	}
	i.packages = map[string]string{}
	for name, version := range a.Packages {
		name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		if len(name) > maxName || !installedName.MatchString(name) || slices.Contains(installers, name) || strings.HasPrefix(name, "@types/") {
			continue
		}
		version, _, _ = strings.Cut(version, "+") // the part after + names the builder
		if len(version) > maxName || !installedVersion.MatchString(version) {
			version = ""
		}
		i.packages[name] = version
	}
	return i, nil
}

// which asks the shell which commands exist.
func which(ctx context.Context, s executor.Session, limit time.Duration) (found []string, err error) {
	script := "for c in " + strings.Join(commands, " ") + "; do command -v $c >/dev/null && echo $c; done; true"
	said, err := answer(ctx, s, executor.Request{Command: []string{"bash", "-c", script}}, limit)
	if err != nil {
		return nil, fmt.Errorf("which commands there are: %w", err)
	}
	found = []string{}
	lines := strings.Fields(string(said))
	for _, c := range commands {
		if slices.Contains(lines, c) {
			found = append(found, c)
		}
	}
	return found, nil
}

// answer returns the output of a program.
func answer(ctx context.Context, s executor.Session, r executor.Request, limit time.Duration) ([]byte, error) {
	r.Keep, r.Limits.WallTime = maxSaid, limit
	res, err := s.Run(ctx, r, nil)
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		return nil, err
	}
	return res.Stdout, nil
}

// facts returns what all backends have in common, as far as it is known.
func (t *Tool) facts() (f facts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, name := range slices.Sorted(maps.Keys(t.learned)) {
		if l := t.learned[name]; i == 0 {
			f = facts{maps.Clone(l.languages), l.commands}
		} else {
			f = f.and(l.facts)
		}
	}
	return f
}

// Installed returns the version of a language and its installed packages with their versions, as
// far as Learn has found them. An empty version and nil mean not known.
func (t *Tool) Installed(l executor.Language) (version string, packages map[string]string) {
	i := t.facts().languages[l]
	return i.version, maps.Clone(i.packages)
}

// and returns what is true on both of two backends.
func (f facts) and(g facts) facts {
	both := facts{languages: maps.Clone(f.languages)}
	for l, i := range g.languages {
		had, ok := both.languages[l]
		if !ok {
			both.languages[l] = i // only some have the language
			continue
		}
		common := interpreter{version: had.version, packages: map[string]string{}}
		if i.version != had.version {
			common.version = ""
		}
		for name, version := range had.packages {
			if other, ok := i.packages[name]; ok && other == version {
				common.packages[name] = version
			} else if ok {
				common.packages[name] = ""
			}
		}
		if len(common.packages) == 0 && len(had.packages)+len(i.packages) > 0 {
			common.packages = nil // an empty map would mean that there are none
		}
		both.languages[l] = common
	}
	for _, c := range f.commands {
		if slices.Contains(g.commands, c) {
			both.commands = append(both.commands, c)
		}
	}
	return both
}

// installed says which packages there are, as far as that is known.
func (f facts) installed(ls []executor.Language) string {
	var b strings.Builder
	for _, l := range ls {
		i := f.languages[l]
		names := i.told()
		switch {
		case i.packages == nil:
		case len(names) == 0:
			fmt.Fprintf(&b, " For %s no packages are installed.", l)
		default:
			fmt.Fprintf(&b, " Installed for %s: %s", l, strings.Join(names, ", "))
			if more := len(i.packages) - len(names); more > 0 {
				fmt.Fprintf(&b, " and %d others", more)
			}
			b.WriteString(".")
		}
	}
	return b.String()
}

// told returns the packages with their versions, the common ones first, and at most maxTold.
func (i interpreter) told() (names []string) {
	all := slices.Sorted(maps.Keys(i.packages))
	slices.SortStableFunc(all, func(a, b string) int { return rank(a) - rank(b) })
	for _, name := range all[:min(len(all), maxTold)] {
		names = append(names, strings.TrimSpace(name+" "+i.packages[name]))
	}
	return names
}

func rank(name string) int {
	if at := slices.Index(common, name); at >= 0 {
		return at
	}
	return len(common)
}
