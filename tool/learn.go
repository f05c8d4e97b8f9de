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

// The programs that ask an interpreter what it is. They print an answer in JSON.
var (
	//go:embed learn.py
	learnPython string
	//go:embed learn.js
	learnJavaScript string
)

const (
	// learnedFor is how long answers hold: the tag of an image moves, and configurations are loaded
	// again.
	learnedFor = time.Hour
	// learnTime bounds the run of one program, and maxSaid what it prints.
	learnTime = 20 * time.Second
	maxSaid   = 256 << 10
	// maxTold is how many packages of a language a model is told of, and maxName the bytes of the
	// name and the version of one.
	maxTold = 25
	maxName = 64
)

// What names and versions of packages are. Everything else that a sandbox says is left out: a model
// reads it.
var (
	installedName    = regexp.MustCompile(`^(@[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*$`)
	installedVersion = regexp.MustCompile(`^[0-9][A-Za-z0-9.+!_-]*$`)
)

// common are the packages that models ask for most, in the order in which they are told.
var common = strings.Fields(`numpy pandas scipy matplotlib seaborn plotly scikit-learn statsmodels sympy pillow openpyxl xlsxwriter python-docx
	python-pptx pypdf reportlab requests httpx beautifulsoup4 lxml pyarrow polars duckdb sqlalchemy networkx nltk torch tensorflow transformers
	opencv-python lodash axios express typescript`)

// installers are packages that no program is written with.
var installers = []string{"pip", "setuptools", "wheel", "npm", "corepack"}

// commands are those that an image may have beside the usual ones.
var commands = strings.Fields(`python3 node git jq make gcc g++ java perl ruby php sqlite3 psql zip unzip 7z pandoc pdftotext ffmpeg
	convert dot`)

// facts are what sandboxes say of themselves.
type facts struct {
	languages map[executor.Language]interpreter
	commands  []string // of common ones
}

// interpreter is what runs a language.
type interpreter struct {
	version  string            // "3.13.5", "Node.js 20.19.2"; empty: not known
	packages map[string]string // versions by name, some of them empty
}

// learned are the facts of one backend.
type learned struct {
	facts
	at time.Time
}

// several is an Executor over others, as backends.Broker is.
type several interface {
	Backends() map[string]executor.Executor
}

// Learn asks what Definition tells beyond what the backend declares: versions of the languages,
// packages that are installed and common commands. It makes a sandbox for that, as conversations
// get one, and removes it. What it has learned it does not ask again for an hour. Over a
// backends.Broker every backend is asked to which a conversation may go, and Definition tells what
// they have in common.
//
// Until Learn has returned, and after an error, Definition tells what it told before. Where
// Python's or Node's program cannot be run nothing is learned of the language, and the error says
// so.
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

// ask has sandboxes of a backend say what they are, one or one for each language.
func (t *Tool) ask(ctx context.Context, x executor.Executor) (f facts, err error) {
	f.languages = map[executor.Language]interpreter{}
	caps := t.Capabilities()
	o := t.o.with(caps)
	var errs []error
	for _, spec := range t.o.Specs(caps) {
		if len(spec.Languages) == 0 || len(x.Info().Capabilities.MissingFor(spec)) > 0 {
			continue // no conversation gets such a sandbox
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

// readInterpreter reads what a sandbox says of an interpreter, and keeps of it what is the name or
// the version of something.
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
		version, _, _ = strings.Cut(version, "+") // who has built it
		if len(version) > maxName || !installedVersion.MatchString(version) {
			version = ""
		}
		i.packages[name] = version
	}
	return i, nil
}

// which asks the shell for commands.
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

// answer returns what a program prints.
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

// facts returns what all backends have in common of which something is known.
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

// Installed returns the version of a language and the packages that are installed, with their
// versions, as far as Learn has learned them. An empty version and nil are not known.
func (t *Tool) Installed(l executor.Language) (version string, packages map[string]string) {
	i := t.facts().languages[l]
	return i.version, maps.Clone(i.packages)
}

// and returns what holds whichever of the two a conversation meets.
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
			common.packages = nil // "none" would be wrong
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

// told are the packages with their versions, the common ones first, and not more than a model
// should read.
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
