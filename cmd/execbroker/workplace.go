package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
)

// maxArtifacts is the largest number of files of a run that are saved.
const maxArtifacts = 1000

// codeOptions are the flags of the commands that run code.
type codeOptions struct {
	language string
	files    []string
	out      string
	timeout  time.Duration
	raw      bool
	packages []string
	aliases  []string
	network  reach
}

func (o *codeOptions) addTo(cmd *cobra.Command) {
	o.addSandbox(cmd, executor.DefaultWallTime)
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "save images and the files that the code creates in this `directory`")
	f.BoolVar(&o.raw, "raw", false, "let the code control the terminal; otherwise only text and colours are shown")
	must(cmd.MarkFlagDirname("out"))
}

// addSandbox adds the flags for the sandbox, without those for its output.
func (o *codeOptions) addSandbox(cmd *cobra.Command, timeout time.Duration) {
	f := cmd.Flags()
	f.StringVar(&o.language, "language", "", "the `language`, or py, js, sh (default from the file extension, otherwise the first of the backend)")
	f.StringArrayVar(&o.files, "file", nil, "copy a file into the sandbox, under its name or as DST; may be repeated (`SRC[:DST]`)")
	f.DurationVar(&o.timeout, "timeout", timeout, "stop code that runs longer than this `time`; 0 means never")
	f.StringArrayVar(&o.packages, "package", nil, "make a `package` importable, such as numpy or 'rich>=13'; may be repeated")
	f.StringArrayVar(&o.aliases, "alias", nil, "another `name` of the working directory, such as /mnt/data; may be repeated")
	o.network = reach(executor.NetworkNone)
	f.Var(&o.network, "network", "the network of the code: none or full")
	must(cmd.RegisterFlagCompletionFunc("network", cobra.FixedCompletions([]cobra.Completion{"none", "full"}, cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("file", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)))
	known := []cobra.Completion{string(executor.Python), string(executor.JavaScript), string(executor.TypeScript)}
	must(cmd.RegisterFlagCompletionFunc("language", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp)))
}

// workplace is an open backend with the settings and files for its sandboxes.
type workplace struct {
	*show
	a       *app
	b       *backends.Broker
	spec    executor.Spec // for the sandboxes; has one language
	uploads []upload
	ahead   []byte // what was typed before it is read
}

// openWorkplace opens the backend that the flags select. The caller closes it.
func (a *app) openWorkplace(ctx context.Context, o codeOptions) (*workplace, error) {
	limits, err := limitsFor(o.timeout)
	if err != nil {
		return nil, err
	}
	w := &workplace{a: a, show: &show{out: a.out, err: a.err, progress: newProgress(a.err), quiet: a.json, colours: a.colours(a.err), together: isTerminal(a.out) && isTerminal(a.err), limits: limits}}
	if !o.raw {
		w.guard()
	}
	if !a.json {
		w.graphics, w.ahead = a.graphics()
	}
	if w.uploads, err = parseUploads(o.files); err != nil {
		return nil, err
	}
	if o.out != "" {
		if w.dir, err = openOutDir(o.out); err != nil {
			return nil, err
		}
	}
	if w.b, err = a.open(ctx, backends.WithoutPools()); err != nil {
		w.close()
		return nil, err
	}
	w.spec = executor.Spec{Languages: []executor.Language{named(o.language)}, Aliases: o.aliases, Run: limits}
	w.spec.Network.Mode = executor.NetworkMode(o.network)
	if ls := w.b.Info().Capabilities.Languages; o.language == "" && len(ls) > 0 {
		w.spec.Languages[0] = ls[0].Language
	}
	if len(o.packages) > 0 {
		w.spec.Packages = []executor.Packages{{Language: w.language(), Names: o.packages}}
	}
	return w, nil
}

func (w *workplace) close() {
	if w.b != nil {
		w.a.closing(w.progress, "closing", w.b.Close)
	}
	for _, d := range []*outDir{w.dir, w.charts} {
		if d != nil {
			d.close()
		}
	}
}

func (w *workplace) language() executor.Language { return w.spec.Languages[0] }

// session creates a sandbox with the files in it. The caller removes it.
func (w *workplace) session(ctx context.Context) (executor.Session, error) {
	cctx, end := w.progress.begin(ctx, "starting a sandbox of "+w.b.Info().Name)
	s, err := w.b.Create(cctx, w.spec)
	end()
	if err != nil {
		return nil, err
	}
	for _, u := range w.uploads {
		if err := w.upload(ctx, s, u); err != nil {
			w.remove(s)
			return nil, err
		}
	}
	return s, nil
}

func (w *workplace) remove(s executor.Session) {
	w.a.closing(w.progress, "removing the sandbox", s.Close)
}

// run executes code, shows its output, and saves the files that it creates.
func (w *workplace) run(ctx context.Context, s executor.Session, req executor.Request) (*executor.Result, error) {
	req.Language, req.Limits = w.language(), w.limits
	w.shown, w.outputs, w.files = 0, 0, nil
	if req.Keep = -1; w.quiet {
		req.Keep = executor.DefaultOutputBytes // everything, for the document
	}
	if w.dir != nil {
		req.Artifacts = &executor.ArtifactRequest{Contents: true, MaxFiles: maxArtifacts}
	}
	rctx, end := w.progress.begin(ctx, "")
	r, err := s.Run(rctx, req, w.event)
	err = errors.Join(err, w.ended())
	end()
	if err != nil || w.dir == nil {
		return r, err
	}
	var errs []error
	shown := r.Shown()
	for i := range r.Artifacts {
		a := &r.Artifacts[i]
		f, err := w.dir.saveArtifact(ctx, s, *a)
		switch {
		case err == nil:
			w.keep(f)
			if image, ok := w.files[shown[i]]; ok { // save it only once, under the name that the code has chosen
				errs = append(errs, w.discard(image))
				delete(w.files, shown[i])
			}
			a.Data = nil // the file has it
		case ctx.Err() != nil:
			return r, err
		default: // try the other files
			errs = append(errs, w.missed(a.Name, err))
		}
	}
	if r.ArtifactsOmitted > 0 {
		w.note("%s not saved; the limit is %d for a run", count(r.ArtifactsOmitted, "more file"), maxArtifacts)
	}
	return r, errors.Join(errs...)
}

func limitsFor(timeout time.Duration) (executor.RunLimits, error) {
	switch {
	case timeout < 0:
		return executor.RunLimits{}, usage("--timeout %v: negative", timeout)
	case timeout == 0:
		timeout = executor.NoLimit
	}
	return executor.RunLimits{WallTime: timeout}, nil
}

// upload is a file to copy into the sandbox.
type upload struct{ src, dst string }

// parseUploads parses SRC[:DST]. A colon may also be part of the name of an existing file, or
// follow a drive letter.
func parseUploads(args []string) (ups []upload, err error) {
	for _, arg := range args {
		u := upload{src: arg}
		if _, err := os.Stat(arg); errors.Is(err, fs.ErrNotExist) {
			volume := filepath.VolumeName(arg)
			src, dst, _ := strings.Cut(arg[len(volume):], ":")
			u = upload{volume + src, dst}
		}
		if u.dst == "" {
			u.dst = filepath.Base(u.src)
		}
		switch info, err := os.Stat(u.src); {
		case err != nil:
			return nil, usage("--file: %w", err)
		case !info.Mode().IsRegular():
			return nil, usage("--file: %s is not a regular file", plain(u.src))
		}
		ups = append(ups, u)
	}
	return ups, nil
}

// upload copies a file into the sandbox.
func (v *show) upload(ctx context.Context, s executor.Session, u upload) error {
	ctx, end := v.progress.begin(ctx, "copying "+u.src)
	defer end()
	f, err := os.Open(u.src)
	if err != nil {
		return usage("%w", err)
	}
	defer f.Close()
	mode := fs.FileMode(0o644)
	if info, err := f.Stat(); err == nil {
		mode = info.Mode().Perm() | 0o600 // the code can change its copy
	}
	return s.Files().Write(ctx, u.dst, f, mode)
}
