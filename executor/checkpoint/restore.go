package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/execbroker/execbroker/executor"
)

//go:embed restore.py
var restorePython string

//go:embed restore.js
var restoreJavaScript string

// A link is a symbolic link for restore.py: Files cannot make any.
type link struct {
	Name   string `json:"name"`
	Target string `json:"target"`
}

// Restore reads an archive into a fresh session. Its code runs there, so an archive of unknown
// origin is executor.ErrDenied unless Options.Spec says that it can do no harm. Restore checks all
// of the archive before it touches the session: what is not an archive is executor.ErrInvalid, more
// than MaxBytes are executor.ErrTooLarge, and an archive of a later version is
// executor.ErrUnavailable with a *VersionError: keep it for that version. Then it installs the
// packages that the archive lists, writes the files and, in one run, restores links, imports,
// definitions and values. What cannot be restored, because a package is refused, a module is
// missing or another Python refuses it, is in Report.Omitted, besides what Make omitted. With
// AllOrNothing it fails instead, with executor.ErrUnsupported and an *OmittedError, if anything of
// the archive cannot be restored. After an error the session has the names of before, but it may
// have packages and files of the archive: close it.
func Restore(ctx context.Context, s executor.Session, r io.Reader, opts Options) (*Report, error) {
	const op = "restore"
	err := opts.check()
	if err != nil {
		return nil, failure(s, op, executor.ErrInvalid, executor.RanNo, err)
	}
	if err := opts.checkOrigin(); err != nil {
		return nil, failure(s, op, executor.ErrDenied, executor.RanNo, err)
	}
	a, err := parse(r, opts.MaxBytes)
	if errors.Is(err, errTooBig) {
		return nil, failure(s, op, executor.ErrTooLarge, executor.RanNo, err)
	}
	if later := (*VersionError)(nil); errors.As(err, &later) {
		return nil, failure(s, op, executor.ErrUnavailable, executor.RanNo, fmt.Errorf("archive: %w", err))
	}
	if err != nil {
		return nil, failure(s, op, executor.ErrInvalid, executor.RanNo, fmt.Errorf("archive: %w", err))
	}
	if err := missing(s, op); err != nil {
		return nil, err
	}
	p := newProgram(s, op, opts)
	installed, unlisted, err := p.install(ctx, a.manifest.Packages)
	if err != nil {
		return nil, err
	}
	links, err := p.write(ctx, a)
	if err != nil {
		return nil, err
	}
	omitted, res, err := p.restore(ctx, a, links)
	if err != nil {
		return nil, err
	}
	more, err := p.decode(ctx, a)
	if err != nil {
		return nil, err
	}
	omitted = append(omitted, more...)
	omitted = append(unlisted, omitted...)
	if opts.AllOrNothing && len(omitted) > 0 {
		return nil, p.fail(executor.ErrUnsupported, &OmittedError{omitted})
	}
	return &Report{
		Manifest: a.manifest, Files: a.names(), Bytes: a.size,
		Omitted: append(omitted, a.manifest.Omitted...), Running: res.LeftRunning, Usage: res.Usage, Packages: installed,
	}, nil
}

// write writes the directories and the regular files, and returns the links. Links are made last,
// so that no file is written through one.
func (p *program) write(ctx context.Context, a *archive) (links []link, err error) {
	links = []link{}
	for _, e := range a.files {
		switch e.mode.Type() {
		case fs.ModeDir:
			if err = p.session.Files().Mkdir(ctx, e.name); errors.Is(err, fs.ErrExist) {
				err = nil
			}
		case fs.ModeSymlink:
			links = append(links, link{e.name, e.target})
		default:
			err = p.session.Files().Write(ctx, e.name, bytes.NewReader(e.data), e.mode)
		}
		if err != nil {
			return nil, err
		}
	}
	return links, nil
}

// unrestorable lists what needs Python, for a session that does not have it.
func (a *archive) unrestorable(links []link) (omitted []Omission) {
	const reason = "the session has no Python that keeps variables"
	for _, l := range links {
		omitted = append(omitted, Omission{l.Name, "link", reason})
	}
	for _, i := range a.manifest.Imports {
		omitted = append(omitted, Omission{cmp.Or(i.Name, i.Module), "import", reason})
	}
	for _, s := range a.manifest.Steps {
		if s.Op != OpState {
			omitted = append(omitted, Omission{s.Name, s.Kind, reason})
		}
	}
	return omitted
}

// restore restores the variables.
func (p *program) restore(ctx context.Context, a *archive, links []link) (omitted []Omission, res *executor.Result, err error) {
	if !p.has(executor.Python) {
		return a.unrestorable(links), &executor.Result{}, nil
	}
	m := &a.manifest
	plan, err := json.Marshal(map[string]any{
		"dir": m.Dir, "links": links,
		"imports": append([]Import{}, m.Imports...), "steps": append([]Step{}, m.Steps...),
	})
	if err != nil {
		return nil, nil, p.fail(executor.ErrInternal, err)
	}
	out := p.path + ".out"
	defer func() { err = errors.Join(err, p.remove(ctx, p.path), p.remove(ctx, out)) }()
	content := io.MultiReader(bytes.NewReader(plan), bytes.NewReader([]byte("\n")), bytes.NewReader(a.values))
	if err := p.session.Files().Write(ctx, p.path, content, 0o600); err != nil {
		return nil, nil, err
	}
	if res, err = p.run(ctx, executor.Python, restorePython, map[string]any{"all": p.opts.AllOrNothing}); err != nil {
		return nil, nil, err
	}
	omitted, err = p.omissions(ctx, out)
	return omitted, res, err
}
