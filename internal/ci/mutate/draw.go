package mutate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A Mutation replaces a part of one file.
type Mutation struct {
	Subject  string // of the table below
	File     string // slash-separated, within the module
	Line     int
	Operator string // what kind of change it is
	Package  string // the directory of the Go package that has or embeds the file

	start, end int // bytes
	with       string
	was        string
}

func (m Mutation) String() string {
	short := func(s string) string {
		s = strings.Join(strings.Fields(s), " ")
		if r := []rune(s); len(r) > 60 {
			s = string(r[:57]) + "..."
		}
		return "`" + s + "`"
	}
	if strings.TrimSpace(m.with) == "" {
		return fmt.Sprintf("%s:%d: %s: %s", m.File, m.Line, m.Operator, short(m.was))
	}
	return fmt.Sprintf("%s:%d: %s: %s to %s", m.File, m.Line, m.Operator, short(m.was), short(m.with))
}

// apply returns the changed text of the file.
func (m Mutation) apply(text []byte) []byte {
	return slices.Concat(text[:m.start], []byte(m.with), text[m.end:])
}

// subjects are what is changed. Directories of Python are embedded by the package before them.
var subjects = map[string][]string{
	"runner":  {"runner", "runner/internal/program", "internal/cell"},
	"docker":  {"docker"},
	"e2b":     {"e2b"},
	"confine": {"pyodide/internal/confine"},
	"router":  {"executor/router"},
}

// files returns the sources of a subject below root, those of this system and no tests.
func files(ctx context.Context, root, subject string) (found []source, err error) {
	dirs, ok := subjects[subject]
	if !ok {
		return nil, fmt.Errorf("%s: want one of runner, docker, e2b, confine, router", subject)
	}
	for _, dir := range dirs {
		cmd := exec.CommandContext(ctx, "go", "list", "-f", `{{range .GoFiles}}{{.}} {{end}}{{range .EmbedFiles}}{{.}} {{end}}`, "./"+dir)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) && strings.Contains(string(exit.Stderr), "no Go files") {
				continue
			}
			return nil, fmt.Errorf("go list %s: %w", dir, err)
		}
		for _, name := range strings.Fields(string(out)) {
			if ext := filepath.Ext(name); ext == ".go" || ext == ".py" {
				found = append(found, source{subject, dir, dir + "/" + name})
			}
		}
	}
	slices.SortFunc(found, func(a, b source) int { return strings.Compare(a.file, b.file) })
	found = slices.CompactFunc(found, func(a, b source) bool { return a.file == b.file })
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no sources", subject)
	}
	return found, nil
}

// source is a file that may be changed.
type source struct{ subject, pkg, file string }

// candidates returns every change of a subject, in order.
func candidates(ctx context.Context, root, subject string) (all []Mutation, err error) {
	sources, err := files(ctx, root, subject)
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(s.file)))
		if err != nil {
			return nil, err
		}
		find := ofGo
		if filepath.Ext(s.file) == ".py" {
			find = ofPython
		}
		found, err := find(ctx, text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.file, err)
		}
		for _, m := range found {
			m.Subject, m.Package, m.File = s.subject, s.pkg, s.file
			m.was = string(text[m.start:m.end])
			m.Line = 1 + bytes.Count(text[:m.start], []byte("\n"))
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b Mutation) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), strings.Compare(a.with, b.with))
	})
	return all, nil
}

// draw returns changes in random order without end: each is of a random subject, so that a small
// one is drawn as often as a large one, and no change comes twice.
func draw(seed uint64, all map[string][]Mutation) func() (Mutation, bool) {
	r := rand.New(rand.NewPCG(seed, 0))
	left := map[string][]Mutation{}
	for name, ms := range all {
		left[name] = slices.Clone(ms)
	}
	return func() (Mutation, bool) {
		names := make([]string, 0, len(left))
		for name, ms := range left {
			if len(ms) > 0 {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			return Mutation{}, false
		}
		slices.Sort(names)
		name := names[r.IntN(len(names))]
		i := r.IntN(len(left[name]))
		m := left[name][i]
		left[name] = slices.Delete(left[name], i, i+1)
		return m, true
	}
}

// copyTree copies the files that git knows of, as they are in the working tree.
func copyTree(ctx context.Context, root, to string) error {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		from, dest := filepath.Join(root, name), filepath.Join(to, name)
		i, err := os.Stat(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			return err
		}
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(dest), 0o755)
		}
		if err == nil {
			err = os.WriteFile(dest, text, i.Mode().Perm())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
