package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// maxListed is the largest number of files that ListFiles returns.
const maxListed = 1000

// Capabilities returns the current capabilities of the backend.
func (t *Tool) Capabilities() executor.Capabilities { return t.x.Info().Capabilities }

// Options returns those of New, with defaults for zero fields, limited to what the backend can do
// now.
func (t *Tool) Options() Options { return t.o.with(t.Capabilities()) }

// Specs returns the Specs of the sessions of a tool with o on a backend with c, without the data of
// a user: one Spec, or one for each language if the backend cannot mix them.
func (o Options) Specs(c executor.Capabilities) (specs []executor.Spec) {
	t := &Tool{o: o}
	for _, l := range o.with(c).Languages {
		s := t.spec(Conversation{}, l, c)
		if !slices.ContainsFunc(specs, func(had executor.Spec) bool { return slices.Equal(had.Languages, s.Languages) }) {
			specs = append(specs, s)
		}
	}
	return specs
}

// FileLanguages returns the languages whose files WriteFile, ReadFile and ListFiles can use. The
// first is the default. If the backend can mix languages, they share their files.
func (t *Tool) FileLanguages() (ls []executor.Language) {
	caps := t.Capabilities()
	for _, l := range interpreters(t.o.with(caps).Languages) {
		if caps.HasFor(l, executor.FeatureFiles) {
			ls = append(ls, l)
		}
	}
	return ls
}

// Install makes packages importable for later calls of a conversation. An empty language means the
// first of the tool. The Output and the error are like those of Call.
func (t *Tool) Install(ctx context.Context, c Conversation, p executor.Packages) (out Output, err error) {
	caps := t.Capabilities()
	k := checker{in: Input{Language: t.language(p.Language), Packages: p.Names}, c: caps, o: t.o.with(caps)}
	switch {
	case !k.o.takes(caps, k.in.Language):
		k.add("The language %.40q is not available. Use %s.", k.in.Language, words(k.o.Languages, "or"))
	case len(p.Names) == 0:
		k.add(`The argument "packages" is empty. Name what to install.`)
	default:
		k.packages()
	}
	if len(k.problems) > 0 {
		return refused(k.in.Language, &InputError{k.problems}), nil
	}
	lease, err := t.acquire(ctx, c, k.in.Language, caps)
	if err != nil {
		return refused(k.in.Language, err), err
	}
	defer func() { err = errors.Join(err, lease.Release()) }()
	out, ok, err := furnish(ctx, lease, k.in)
	if ok {
		out = Output{Success: true, Language: k.in.Language}
	}
	return out, err
}

// ListPackages returns the version of a language (empty: the first of the tool) and its installed
// packages with their versions, in the session of a conversation. Unknown versions are empty. For
// errors see Explain.
func (t *Tool) ListPackages(ctx context.Context, c Conversation, l executor.Language) (version string, packages map[string]string, err error) {
	caps := t.Capabilities()
	o := t.o.with(caps)
	l = caps.Interpreter(t.language(l))
	if l == Bash || !o.takes(caps, l) {
		return "", nil, &InputError{[]string{fmt.Sprintf("There are no packages for the language %.40q. Use %s.", l, words(interpreters(o.Languages), "or"))}}
	}
	lease, err := t.acquire(ctx, c, l, caps)
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, lease.Release()) }()
	if lease.Lost { // after a run the model would not be told of the loss; a new sandbox has what every sandbox has
		err = t.Learn(ctx)
		version, packages = t.Installed(l)
		return version, packages, err
	}
	i, _, err := inspect(ctx, lease, l, min(learnTime, o.MaxTimeout))
	return i.version, i.packages, err
}

// WriteFile writes a file to the working directory of a conversation, in its session for one of
// FileLanguages (empty: the first). If the name is wrong, the error is an *InputError. For other
// errors see Explain.
func (t *Tool) WriteFile(ctx context.Context, c Conversation, l executor.Language, f InputFile) error {
	return t.withFile(ctx, c, l, f.Name, func(s *sessions.Lease, name string) error {
		return s.Files().Write(ctx, name, bytes.NewReader(f.Content), 0)
	})
}

// ReadFile returns a file of the working directory if it has at most most bytes. The rules for l
// and errors are those of WriteFile.
func (t *Tool) ReadFile(ctx context.Context, c Conversation, l executor.Language, name string, most int64) (content []byte, err error) {
	err = t.withFile(ctx, c, l, name, func(s *sessions.Lease, clean string) error {
		r, err := s.Files().Read(ctx, clean)
		if err != nil {
			return err
		}
		defer r.Close()
		if content, err = io.ReadAll(io.LimitReader(r, most+1)); err != nil {
			return err
		}
		if int64(len(content)) > most {
			content = nil
			return &InputError{[]string{fmt.Sprintf("The file %.80q has more than %d bytes, the most that can be passed on. Let code make a smaller one.", name, most)}}
		}
		return nil
	})
	return content, err
}

// ListFiles returns the contents of a directory below the working directory ("" and "." mean the
// working directory), and whether there is more. The names are those that code has chosen: use
// QuoteName where a model sees them. The rules for l and errors are those of WriteFile.
func (t *Tool) ListFiles(ctx context.Context, c Conversation, l executor.Language, dir string) (files []executor.FileInfo, more bool, err error) {
	list := func(s *sessions.Lease, name string) error {
		for f, err := range s.Files().List(ctx, name) {
			if err != nil {
				return err
			}
			if len(files) == maxListed {
				more = true
				return nil
			}
			files = append(files, f)
		}
		return nil
	}
	if dir == "" || dir == "." || dir == executor.Workdir || slices.Contains(t.Options().Spec.Aliases, dir) {
		err = t.use(ctx, c, l, func(s *sessions.Lease) error { return aboutFile(dir, list(s, ".")) })
	} else {
		err = t.withFile(ctx, c, l, dir, list)
	}
	return files, more, err
}

// withFile calls f with a clean name that is below the working directory.
func (t *Tool) withFile(ctx context.Context, c Conversation, l executor.Language, name string, f func(s *sessions.Lease, clean string) error) error {
	clean, ok := t.Options().fileName(name)
	if !ok {
		return &InputError{[]string{fmt.Sprintf("%.80q is no name for a file: names are relative to %s and do not leave it.", name, executor.Workdir)}}
	}
	return t.use(ctx, c, l, func(s *sessions.Lease) error { return aboutFile(name, f(s, clean)) })
}

// aboutFile tells a model what is wrong with a file. It returns errors that are not about the file
// unchanged.
func aboutFile(name string, err error) error {
	for kind, text := range map[error]string{
		fs.ErrNotExist:   "does not exist",
		fs.ErrExist:      "exists already as something else",
		fs.ErrPermission: "must not be used by the code, and so not here",
		fs.ErrInvalid:    "is not a regular file, or the name is no good",
	} {
		if errors.Is(err, kind) {
			return &InputError{[]string{fmt.Sprintf("The file %.80q %s.", UnquoteName(name), text)}}
		}
	}
	return err
}

// language returns l, or the first of the tool if it is empty.
func (t *Tool) language(l executor.Language) executor.Language {
	if ls := t.Options().Languages; l == "" && len(ls) > 0 {
		return ls[0]
	}
	return l
}

// use calls f with the session of a conversation. The effects of f stay even if the session cannot
// be released without an error.
func (t *Tool) use(ctx context.Context, c Conversation, l executor.Language, f func(*sessions.Lease) error) (err error) {
	l = t.Capabilities().Interpreter(l)
	switch ls := t.FileLanguages(); {
	case len(ls) == 0:
		return &InputError{[]string{"Files cannot be passed here."}}
	case l == "":
		l = ls[0]
	case !slices.Contains(ls, l):
		return &InputError{[]string{fmt.Sprintf("There are no files for the language %.40q. Use %s.", l, words(ls, "or"))}}
	}
	lease, err := t.acquire(ctx, c, l, t.Capabilities())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Release()) }()
	return f(lease)
}

// acquire leases the session of a conversation for a language.
func (t *Tool) acquire(ctx context.Context, c Conversation, l executor.Language, caps executor.Capabilities) (*sessions.Lease, error) {
	if c.ID == "" { // otherwise strangers would share a sandbox
		return nil, &executor.Error{Op: "tool", Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: errors.New("conversation: empty ID")}
	}
	lease, err := t.lease(ctx, c, caps.Interpreter(l), caps)
	if err != nil || c.Mirror == nil {
		return lease, err
	}
	if err := c.Mirror.Enter(ctx, lease); err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	return lease, nil
}
