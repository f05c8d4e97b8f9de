package tool

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// The limits of what a call may carry besides code.
const (
	maxPackages = 50
	maxFiles    = 100
)

// Check returns everything that is wrong with a call to a tool with options o on a backend with
// capabilities c, before anything runs. The error is an *InputError with problems that a model can
// correct. Limits that depend on earlier calls of the user are checked by the executor, not here:
// see Explain.
func Check(in Input, c executor.Capabilities, o Options) error {
	o = o.with(c)
	k := checker{in: in, c: c, o: o}
	if len(o.Languages) == 0 {
		k.add("No language is available here; the tool cannot be used.")
	}
	if in.Language == "" && len(o.Languages) > 0 {
		k.in.Language = o.Languages[0]
	}
	known := o.takes(c, k.in.Language)
	if !known && len(o.Languages) > 0 {
		k.add("The language %.40q is not available. Use %s.", k.in.Language, words(o.Languages, "or"))
	}
	k.code()
	if in.Timeout > o.MaxTimeout {
		k.add("A timeout of %s is too long; at most %s are allowed. Ask for less, or divide the work into several calls.", inSeconds(in.Timeout), inSeconds(o.MaxTimeout))
	}
	if known {
		k.packages()
	}
	k.files()
	if len(k.problems) > 0 {
		return &InputError{k.problems}
	}
	return nil
}

// inSeconds formats a time for models, which always get times in seconds.
func inSeconds(d time.Duration) string {
	return fmt.Sprintf("%v s", math.Round(d.Seconds()*100)/100)
}

type checker struct {
	in       Input
	c        executor.Capabilities
	o        Options
	problems []string
}

func (k *checker) add(format string, args ...any) {
	k.problems = append(k.problems, fmt.Sprintf(format, args...))
}

func (k *checker) code() {
	code := k.in.Code
	if n := len(code); n > k.o.MaxCode {
		advice := "Make it shorter or divide it into several calls."
		if k.o.takesFiles(k.c) {
			advice = `Make it shorter, divide it into several calls, or pass data in the argument "files".`
		}
		k.add("The code has %d bytes; at most %d are allowed. %s", n, k.o.MaxCode, advice)
	}
	if strings.TrimSpace(code) == "" {
		k.add(`The argument "code" is empty. Pass the program to run.`)
	}
	if i := strings.IndexByte(code, 0); i >= 0 {
		k.add(`The code has a NUL byte in line %d, which no program may have. In a string write \x00 instead.`, 1+strings.Count(code[:i], "\n"))
	}
	if !utf8.ValidString(code) {
		k.add(`The code is not valid UTF-8. Write bytes that are no text as escapes, such as \xff.`)
	}
}

func (k *checker) packages() {
	names, l := k.in.Packages, k.c.Interpreter(k.in.Language)
	switch {
	case len(names) == 0:
		return
	case len(names) > maxPackages:
		k.add("%d packages are too many; at most %d can be installed in a call.", len(names), maxPackages)
		return
	case !slices.Contains(k.o.installs(k.c), l):
		k.add("Packages cannot be installed for %s here. Use what is there already, and leave the argument \"packages\" out.", l)
		return
	}
	var refused []string
	for _, text := range names {
		name, ok := packageName(l, text)
		if !ok {
			k.add("%.60q is not the name of a package, with or without a version.", text)
		} else if k.o.Packages != nil && !hasPackage(k.o.Packages[l], l, name) {
			refused = append(refused, name)
		}
	}
	if len(refused) > 0 {
		k.add("Not allowed here: %s. Allowed packages for %s: %s. Solve the task with these or without packages.",
			strings.Join(refused, ", "), l, strings.Join(k.o.Packages[l], ", "))
	}
}

// A requirement names a package and optionally versions. A requirement with a URL or path would
// bypass every list of allowed names.
var (
	pythonRequirement = regexp.MustCompile(`^([A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?)(?:\[[A-Za-z0-9._, -]{0,100}\])?\s*(?:[<>=!~][A-Za-z0-9.*+!<>=~, -]{0,100})?$`)
	npmRequirement    = regexp.MustCompile(`^((?:@[a-z0-9][a-z0-9._-]{0,99}/)?[a-z0-9][a-z0-9._-]{0,99})(?:@[A-Za-z0-9.*^~<>=| +-]{1,100})?$`)
	separators        = regexp.MustCompile(`[-_.]+`)
)

// packageName returns the normalized package name of a requirement.
func packageName(l executor.Language, text string) (name string, ok bool) {
	if l == executor.JavaScript {
		m := npmRequirement.FindStringSubmatch(strings.ToLower(strings.TrimSpace(text)))
		if m == nil {
			return "", false
		}
		return m[1], true
	}
	m := pythonRequirement.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return "", false
	}
	return separators.ReplaceAllString(strings.ToLower(m[1]), "-"), true
}

// hasPackage reports whether one of the requirements is of a package.
func hasPackage(requirements []string, l executor.Language, name string) bool {
	return slices.ContainsFunc(requirements, func(text string) bool {
		n, ok := packageName(l, text)
		return ok && n == name
	})
}

func (k *checker) files() {
	if len(k.in.Files) == 0 {
		return
	}
	if !k.o.takesFiles(k.c) {
		k.add(`Files cannot be passed here. Leave the argument "files" out and write the data into the code.`)
		return
	}
	if n := len(k.in.Files); n > maxFiles {
		k.add("%d files are too many; at most %d can be passed in a call.", n, maxFiles)
		return
	}
	seen := map[string]bool{}
	for _, f := range k.in.Files {
		name, ok := k.o.fileName(f.Name)
		switch {
		case !ok:
			k.add("%.80q is no name for a file: names are relative to %s and do not leave it.", f.Name, executor.Workdir)
		case seen[name]:
			k.add("The file %q is there twice.", name)
		}
		seen[name] = true
	}
}

// fileName returns a name relative to the working directory, if the name is in it. The name may be
// quoted, as the model has seen it.
func (o Options) fileName(name string) (string, bool) {
	name = UnquoteName(name)
	if name == "" || len(name) > 1024 || strings.HasSuffix(name, "/") || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return "", false
	}
	if !path.IsAbs(name) {
		name = path.Join(executor.Workdir, name)
	}
	for _, dir := range append([]string{executor.Workdir}, o.Spec.Aliases...) {
		if below, ok := strings.CutPrefix(path.Clean(name), dir+"/"); ok {
			return below, true
		}
	}
	return "", false
}
