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

// mistakes collects everything that is wrong with a value, so that its user can mend it in one go.
type mistakes []error

func (m *mistakes) add(format string, args ...any) { *m = append(*m, fmt.Errorf(format, args...)) }

// err returns the mistakes as one ErrInvalid, or nil.
func (m mistakes) err(op string) error {
	if len(m) == 0 {
		return nil
	}
	return &Error{Op: op, Kind: ErrInvalid, Ran: RanNo, Err: errors.Join(m...)}
}

// The forms of what travels to every provider, in paths, headers and labels.
var (
	labelKey = regexp.MustCompile(`^[a-z0-9._-]{1,63}$`)
	plainID  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// Validate reports every mistake in s that no backend could accept, as ErrInvalid. It shows names
// but no values of variables.
func (s Spec) Validate() error {
	var bad mistakes
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
		bad.add("run: max run allows %s", strings.Join(run.Exceeds(s.MaxRun), ", "))
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

// Validate reports every mistake in r that no session could accept, as ErrInvalid. It shows names
// but neither code nor values.
func (r Request) Validate() error {
	var bad mistakes
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
			bad.add("terminal: only a command has one")
		}
	case r.Code != "" || r.Language != "" || r.Context != "":
		bad.add("command excludes code, language and context")
	case r.Linger != nil:
		bad.add("command excludes linger: the end of a command leaves nothing")
	case len(r.Command) == 0 || r.Command[0] == "":
		bad.add("command: no program")
	case slices.ContainsFunc(r.Command, func(a string) bool { return !plainText(a) }):
		bad.add("command: NUL, or not UTF-8")
	}
	checkEnv(r.Env, &bad)
	if d := path.Clean(r.Dir); !plainText(r.Dir) || len(r.Dir) > 4095 {
		bad.add("dir: NUL, not UTF-8, or more than 4095 bytes")
	} else if d == ".." || strings.HasPrefix(d, "../") {
		bad.add("dir %q: a relative directory is one below %s", r.Dir, Workdir)
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

func (p Packages) check(bad *mistakes) {
	if len(p.Names) == 0 {
		bad.add("packages: none named")
	}
	for _, n := range p.Names {
		if strings.TrimSpace(n) == "" || n[0] == '-' || !utf8.ValidString(n) || strings.ContainsFunc(n, unicode.IsControl) {
			bad.add("packages: %q is not the name of a package", n)
		} else if place(n) {
			bad.add("packages: %q is an address or a file; packages are named, and come from where the backend is configured to look", n)
		}
	}
}

// place reports whether a requirement says where a package is, and not how it is called. Names of
// npm may have a scope, "@scope/name".
func place(n string) bool {
	n = strings.TrimSpace(n)
	path := strings.Contains(n, "/") && (n[0] != '@' || strings.Count(n, "/") > 1)
	return path || n[0] == '.' || strings.Contains(n, `\`) || strings.HasPrefix(n, "file:") || strings.HasPrefix(n, "git@")
}

func (l RunLimits) check(field string, bad *mistakes) {
	if l.WallTime < NoLimit {
		bad.add("%s: wall time: negative", field)
	}
	if l.OutputBytes < 0 {
		bad.add("%s: output: negative", field)
	}
}

// The bounds of ArtifactRequest.Globs. Requests come from clients too.
const (
	maxGlobs = 100
	maxGlob  = 1024
)

func (a *ArtifactRequest) check(bad *mistakes) {
	if len(a.Globs) > maxGlobs {
		bad.add("artifacts: more than %d globs", maxGlobs)
		return
	}
	for _, g := range a.Globs {
		_, err := path.Match(g, "")
		switch {
		case err != nil || g == "" || len(g) > maxGlob || !plainText(g):
			bad.add("artifacts: glob %q: not a pattern", g)
		case slices.Contains(strings.Split(g, "/"), ".."), path.IsAbs(g) && !below(g, Workdir) && strings.Count(g, "/") < 3: // no alias is so short
			bad.add("artifacts: glob %q: want one relative to %s, or below it", g, Workdir)
		}
	}
	if a.MaxFiles < 0 || a.MaxBytes < 0 {
		bad.add("artifacts: negative limit")
	}
}

func checkEnv(env map[string]string, bad *mistakes) {
	for _, k := range slices.Sorted(maps.Keys(env)) {
		switch {
		case k == "" || strings.Contains(k, "=") || !plainText(k):
			bad.add("env: name %q: empty, or with '=' or NUL, or not UTF-8", k)
		case !plainText(env[k]):
			bad.add("env: value of %q: with NUL, or not UTF-8", k)
		}
	}
}

// plainText reports whether s can be an argument or a variable on every backend: the system ends it
// at a NUL, and what is not UTF-8 does not survive JSON.
func plainText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
