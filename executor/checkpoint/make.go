package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

//go:embed make.py
var makePython string

//go:embed make.js
var makeJavaScript string

// minSecret is how long a value of the environment has to be to be looked for. Shorter ones are in
// everything.
const minSecret = 4

// reserve is what the ends of a tar and a manifest without its lists may take.
const reserve = 16 << 10

// Make writes an archive of the session to w. It requires executor.FeatureFiles. Variables are
// carried if the session has Python with executor.FeatureState. Either all of the archive is
// written, with one call of w.Write, or none of it. If code of the conversation stops the run, the
// error is executor.ErrInvalid and wraps an *executor.ExitError. With AllOrNothing and something
// that cannot be carried, it is executor.ErrUnsupported and wraps an *OmittedError. See the package
// comment for what Make does to the session.
func Make(ctx context.Context, s executor.Session, w io.Writer, opts Options) (_ *Report, err error) {
	const op = "checkpoint"
	if err := opts.check(); err != nil {
		return nil, failure(s, op, executor.ErrInvalid, executor.RanNo, err)
	}
	if err := missing(s, op); err != nil {
		return nil, err
	}
	p := newProgram(s, op, opts)
	made, res, err := p.make(ctx)
	if err != nil {
		return nil, err
	}
	left := opts.MaxBytes - int64(len(made.values)+len(made.graph))
	if err := p.collect(ctx, made, left); err != nil {
		return nil, err
	}
	omitted := made.manifest.Omitted
	if opts.AllOrNothing && len(omitted) > 0 {
		return nil, p.fail(executor.ErrUnsupported, &OmittedError{omitted})
	}
	if name := cmp.Or(p.secretIn([]byte(made.definitions())), p.secretIn(made.graph)); name != "" {
		return nil, p.fail(executor.ErrDenied, fmt.Errorf("a definition contains the value of %s", name))
	}
	raw, err := made.encode()
	if err != nil {
		return nil, p.fail(executor.ErrInternal, err)
	}
	if int64(len(raw)) > opts.MaxBytes {
		return nil, p.fail(executor.ErrTooLarge, errTooBig)
	}
	if _, err := w.Write(raw); err != nil {
		return nil, err
	}
	return &Report{
		Manifest: made.manifest, Files: made.names(), Bytes: int64(len(raw)),
		Omitted: omitted, Running: res.LeftRunning, Usage: res.Usage, Packages: made.manifest.Packages,
	}, nil
}

// wants reports whether the variables of a language are carried.
func (p *program) wants(l executor.Language) bool {
	return p.has(l) && (p.opts.Languages == nil || slices.Contains(p.opts.Languages, l))
}

// make has the variables written.
func (p *program) make(ctx context.Context) (made *archive, res *executor.Result, err error) {
	packages := p.packages()
	if err := checkPackages(packages); err != nil {
		return nil, nil, p.fail(executor.ErrInvalid, err)
	}
	made, res = &archive{manifest: Manifest{Version: Version, Dir: "."}}, &executor.Result{}
	if p.wants(executor.Python) {
		if made, res, err = p.pickle(ctx); err != nil {
			return nil, nil, err
		}
	}
	m := &made.manifest
	m.Packages = packages
	if res.StateFresh {
		m.omit("python", "interpreter", restarted)
	}
	if p.wants(executor.JavaScript) {
		script, err := p.encode(ctx, made, p.opts.MaxBytes-reserve-int64(len(made.values)))
		if err != nil {
			return nil, nil, err
		}
		if script.StateFresh {
			m.omit("javascript", "interpreter", restarted)
		}
		res.LeftRunning = append(res.LeftRunning, script.LeftRunning...)
	}
	return made, res, nil
}

const restarted = "it was restarted, and lost the variables of earlier runs"

// pickle runs the program that pickles the variables of Python.
func (p *program) pickle(ctx context.Context) (made *archive, res *executor.Result, err error) {
	defer func() { err = errors.Join(err, p.remove(ctx, p.path)) }()
	env := slices.AppendSeq([]string{}, maps.Keys(p.opts.env()))
	res, err = p.run(ctx, executor.Python, makePython, map[string]any{"limit": p.opts.MaxBytes - reserve, "env": env})
	if err != nil {
		return nil, nil, err
	}
	made = &archive{}
	m := &made.manifest
	if made.values, err = p.answer(ctx, p.path, p.opts.MaxBytes+maxManifest, m); err != nil {
		return nil, nil, err
	}
	m.Version, m.Language, m.Context = Version, executor.Python, p.opts.Context
	if err := m.check(int64(len(made.values))); err != nil {
		return nil, nil, p.fail(executor.ErrInvalid, fmt.Errorf("the answer of the sandbox is not valid: %w", err))
	}
	if name := p.secretIn(made.values); name != "" {
		return nil, nil, p.fail(executor.ErrDenied, fmt.Errorf("a variable contains the value of %s", name))
	}
	return made, res, nil
}

// names returns the regular files and the links.
func (a *archive) names() (names []string) {
	for _, e := range a.files {
		if !e.mode.IsDir() {
			names = append(names, e.name)
		}
	}
	return names
}

func (m *Manifest) omit(name, kind, reason string) {
	m.Omitted = append(m.Omitted, Omission{name, kind, reason})
}

func (a *archive) definitions() string {
	var b strings.Builder
	for _, s := range a.manifest.Steps {
		b.WriteString(s.Source)
	}
	return b.String()
}

// secretIn returns the name of a value of the environment that is in data.
func (p *program) secretIn(data []byte) string {
	for name, value := range p.opts.env() {
		if len(value) >= minSecret && bytes.Contains(data, []byte(value)) {
			return name
		}
	}
	return ""
}

// collect adds the files, as far as left bytes suffice.
func (p *program) collect(ctx context.Context, a *archive, left int64) error {
	found, beyond, err := Walk(ctx, p.session.Files())
	if err != nil {
		return err
	}
	m := &a.manifest
	if beyond > 0 {
		m.omit(executor.Workdir, "files", fmt.Sprintf("%d entries exceed the bounds of a walk", beyond))
	}
	left -= reserve
	for _, s := range m.Steps {
		left -= int64(len(s.Source)) + 300
	}
	dirs := map[string]bool{".": true} // that are in the archive
	for _, f := range found {
		if strings.HasPrefix(path.Base(f.Name), part) {
			continue // not the user's
		}
		e := entry{name: f.Name, mode: f.Info.Mode.Type()}
		name, kind := printable(f.Name), "file"
		if len(m.Omitted) >= maxNames {
			return p.fail(executor.ErrTooLarge, fmt.Errorf("more than %d things cannot be carried", maxNames))
		}
		cost := int64(len(f.Name)) + 4*block
		switch {
		case !validName(f.Name) || !dirs[path.Dir(f.Name)]:
			m.omit(name, kind, "its name cannot be carried, or its directory is not")
			continue
		case e.mode == fs.ModeDir:
		case e.mode == fs.ModeSymlink:
			e.target, kind = f.Info.Target, "link"
			if !inside(f.Name, e.target) {
				m.omit(name, kind, "it leads to something outside of the working directory, or is not in its shortest form")
				continue
			}
			cost += int64(len(e.target))
		case e.mode == 0:
			e.mode = f.Info.Mode.Perm()
			cost += f.Info.Size
		default:
			m.omit(name, kind, "it is no regular file")
			continue
		}
		if cost > left || f.Info.Size < 0 {
			m.omit(name, kind, "it is larger than what is left of the bound of the archive")
			continue
		}
		if e.mode.IsRegular() {
			reason, err := p.content(ctx, &e, f.Info.Size)
			if err != nil {
				return err
			}
			if reason != "" {
				m.omit(name, kind, reason)
				continue
			}
		}
		left -= cost
		dirs[f.Name] = e.mode == fs.ModeDir
		a.files = append(a.files, e)
	}
	return nil
}

// content reads a file, or says why it is not carried.
func (p *program) content(ctx context.Context, e *entry, size int64) (reason string, err error) {
	r, err := p.session.Files().Read(ctx, e.name)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return "it cannot be read", nil
	}
	if err != nil {
		return "", err
	}
	e.data, err = io.ReadAll(io.LimitReader(r, size+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return "", err
	}
	if int64(len(e.data)) != size {
		return "it changed while it was read", nil
	}
	if name := p.secretIn(e.data); name != "" {
		return "it contains the value of the environment variable " + name, nil
	}
	return "", nil
}

// printable returns a name as an omission may have it.
func printable(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, name)
	return strings.ToValidUTF8(name[:min(len(name), maxText)], "?")
}
