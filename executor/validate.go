package executor

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// invalid collects all errors in a value, so that its user can fix them all at once.
type invalid []error

func (i *invalid) add(format string, args ...any) { *i = append(*i, fmt.Errorf(format, args...)) }

// err returns the list as one ErrInvalid, or nil if it is empty.
func (i invalid) err(op string) error {
	if len(i) == 0 {
		return nil
	}
	return &Error{Op: op, Kind: ErrInvalid, Ran: RanNo, Err: errors.Join(i...)}
}

// The forms of names that go to every provider, in paths, headers and labels.
var (
	labelKey = regexp.MustCompile(`^[a-z0-9._-]{1,63}$`)
	plainID  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// Validate returns all errors in s that no backend could accept, as one ErrInvalid. The error shows
// the names of variables but not their values.
func (s Spec) Validate() error {
	var bad invalid
	for i, l := range s.Languages {
		if l == "" || slices.Contains(s.Languages[:i], l) {
			bad.add("languages: %q is empty or repeated", l)
		}
	}
	for _, p := range s.Packages {
		if p.Language != "" && len(s.Languages) > 0 && !slices.Contains(s.Languages, p.Language) {
			bad.add("packages: %q is not one of the languages", p.Language)
		}
		p.check(&bad)
	}
	checkEnv(s.Env, &bad)
	checkAliases(s.Aliases, &bad)
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		if strings.HasPrefix(k, ReservedPrefix) {
			bad.add("labels: key %q: names that begin with %q are reserved", k, ReservedPrefix)
		} else if !labelKey.MatchString(k) {
			bad.add("labels: key %q: want 1 to 63 of a-z, 0-9, '.', '_' and '-'", k)
		}
		if v := s.Labels[k]; len(v) > 255 || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) {
			bad.add("labels: value of %q: want at most 255 bytes of printable ASCII", k)
		}
	}
	if l := s.Limits; !(l.CPUs >= 0) || math.IsInf(l.CPUs, 0) || l.MemoryBytes < 0 || l.DiskBytes < 0 || l.Processes < 0 {
		bad.add("limits: negative or not a number")
	}
	s.Run.check("run", &bad)
	s.MaxRun.check("max run", &bad)
	if run, _ := s.Bounds(); len(run.Exceeds(s.MaxRun)) > 0 {
		bad.add("run: exceeds max run: %s", strings.Join(run.Exceeds(s.MaxRun), ", "))
	}
	s.Network.check(&bad)
	if s.IdleTTL < 0 {
		bad.add("idle ttl: negative")
	}
	if s.MaxLife < 0 {
		bad.add("max life: negative")
	}
	if _, ok := isolations[s.MinIsolation]; !ok && s.MinIsolation != "" {
		bad.add("min isolation: unknown level %q", s.MinIsolation)
	}
	if slices.Contains(s.Require, "") {
		bad.add("require: empty feature")
	}
	return bad.err("create")
}

// Validate returns all errors in r that no session could accept, as one ErrInvalid. The error shows
// names but neither code nor values.
func (r Request) Validate() error {
	var bad invalid
	if r.ID != "" && !plainID.MatchString(r.ID) {
		bad.add("id %q: want 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', beginning with a letter or digit", r.ID)
	}
	if r.Context != "" && !plainID.MatchString(r.Context) {
		bad.add("context %q: want 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', beginning with a letter or digit", r.Context)
	}
	switch {
	case r.Command == nil:
		if r.Code == "" && r.Language == "" {
			bad.add("neither code nor command; for empty code set the language")
		}
		if !utf8.ValidString(r.Code) {
			bad.add("code: not UTF-8")
		}
		if r.Terminal != nil {
			bad.add("terminal: requires a command")
		}
	case r.Code != "" || r.Language != "" || r.Context != "":
		bad.add("command excludes code, language and context")
	case r.Linger != nil:
		bad.add("command excludes linger: nothing of a command runs after its end")
	case len(r.Command) == 0 || r.Command[0] == "":
		bad.add("command: no program")
	case slices.ContainsFunc(r.Command, func(a string) bool { return !plainText(a) }):
		bad.add("command: contains NUL, or is not UTF-8")
	}
	checkEnv(r.Env, &bad)
	if d := path.Clean(r.Dir); !plainText(r.Dir) || len(r.Dir) > 4095 {
		bad.add("dir: contains NUL, is not UTF-8, or has more than 4095 bytes")
	} else if d == ".." || strings.HasPrefix(d, "../") {
		bad.add("dir %q: a relative directory must be below %s", r.Dir, Workdir)
	}
	if r.Linger != nil && *r.Linger < 0 {
		bad.add("linger: negative")
	}
	r.Limits.check("limits", &bad)
	if a := r.Artifacts; a != nil {
		a.check(&bad)
	}
	return bad.err("run")
}

func (p Packages) check(bad *invalid) {
	if len(p.Names) == 0 {
		bad.add("packages: none named")
	}
	for _, n := range p.Names {
		if strings.TrimSpace(n) == "" || n[0] == '-' || !utf8.ValidString(n) || strings.ContainsFunc(n, unicode.IsControl) {
			bad.add("packages: %q is not the name of a package", n)
		} else if isLocation(n) {
			bad.add("packages: %q is a URL or a file; use the name of a package: packages come from the source that the backend is configured with", n)
		}
	}
}

// isLocation reports whether a requirement says where a package is instead of its name. Names of
// npm may have a scope, "@scope/name".
func isLocation(n string) bool {
	n = strings.TrimSpace(n)
	path := strings.Contains(n, "/") && (n[0] != '@' || strings.Count(n, "/") > 1)
	return path || n[0] == '.' || strings.Contains(n, `\`) || strings.HasPrefix(n, "file:") || strings.HasPrefix(n, "git@")
}

func (l RunLimits) check(field string, bad *invalid) {
	if l.WallTime < NoLimit {
		bad.add("%s: wall time: negative", field)
	}
	if l.OutputBytes < 0 {
		bad.add("%s: output: negative", field)
	}
}

// The bounds of ArtifactRequest.Globs. Clients can send requests too, so they are untrusted.
const (
	maxGlobs = 100
	maxGlob  = 1024
)

func (a *ArtifactRequest) check(bad *invalid) {
	if len(a.Globs) > maxGlobs {
		bad.add("artifacts: more than %d globs", maxGlobs)
		return
	}
	for _, g := range a.Globs {
		_, err := path.Match(g, "")
		switch {
		case err != nil || g == "" || len(g) > maxGlob || !plainText(g):
			bad.add("artifacts: glob %q: not a pattern", g)
		case slices.Contains(strings.Split(g, "/"), ".."), path.IsAbs(g) && !below(g, Workdir) && strings.Count(g, "/") < 3: // an alias has at least two elements
			bad.add("artifacts: glob %q: want one relative to %s, or below it", g, Workdir)
		}
	}
	if a.MaxFiles < 0 || a.MaxBytes < 0 {
		bad.add("artifacts: negative limit")
	}
}

func checkEnv(env map[string]string, bad *invalid) {
	for _, k := range slices.Sorted(maps.Keys(env)) {
		switch {
		case k == "" || strings.Contains(k, "=") || !plainText(k):
			bad.add("env: name %q: is empty, contains '=' or NUL, or is not UTF-8", k)
		case !plainText(env[k]):
			bad.add("env: value of %q: contains NUL, or is not UTF-8", k)
		}
	}
}

// plainText reports whether s can be an argument or a variable on every backend. The operating
// system ends a string at a NUL, and JSON cannot carry what is not UTF-8.
func plainText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
