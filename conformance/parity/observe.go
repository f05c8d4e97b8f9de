package parity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/compare"
)

// Fields are what a cell did, as package compare describes it.
type Fields = compare.Fields

// Difference is a field of a cell that differs.
type Difference = compare.Difference

// TypePlain is the type of the plain interpreter beside the backends, and its name.
const TypePlain = compare.TypePlain

// plainFields are those that a plain interpreter has too.
var plainFields = []string{"status", "exit code", "signal", "stdout", "errors", "artifacts"}

// wallTime bounds a cell. It is the same everywhere, so that a program that does not end says so
// everywhere.
const wallTime = 20 * time.Second

// notFound is the exit code of a command that is not there.
const notFound = 127

// A subject is what runs programs: a backend, or the plain interpreter of its image.
type subject struct {
	name, typ string
	plain     bool
	executor.Executor
}

// A sandbox is that of a subject for programs of one language, one after the other.
type sandbox struct {
	executor.Session
	programs int // that it has run
}

// key names a sandbox that a worker holds.
type key struct {
	subject  int
	language executor.Language
}

// A worker runs programs one after the other.
type worker struct {
	subjects []subject
	reuse    int // programs for each sandbox
	held     map[key]*sandbox
	errs     []error // of closing
}

// close closes what the worker holds.
func (w *worker) close() error {
	for k := range w.held {
		w.drop(k)
	}
	return errors.Join(w.errs...)
}

func (w *worker) drop(k key) {
	if s := w.held[k]; s != nil {
		delete(w.held, k)
		if err := s.Close(); err != nil {
			w.errs = append(w.errs, fmt.Errorf("%s: closing a sandbox: %w", w.subjects[k.subject].name, err))
		}
	}
}

// sandbox returns one without files and variables.
func (w *worker) sandbox(ctx context.Context, k key) (*sandbox, error) {
	if s := w.held[k]; s != nil {
		if s.programs < w.reuse && clean(ctx, s, w.subjects[k.subject].plain) == nil {
			return s, nil
		}
		w.drop(k)
	}
	session, err := w.subjects[k.subject].Create(ctx, executor.Spec{Languages: []executor.Language{k.language}})
	if err != nil {
		return nil, err
	}
	s := &sandbox{Session: session}
	w.held[k] = s
	return s, nil
}

// clean ends the interpreters and removes the files. A plain interpreter has ended with its
// command.
func clean(ctx context.Context, s *sandbox, plain bool) error {
	if !plain {
		if err := s.Reset(ctx, executor.Interpreter{}); err != nil {
			return err
		}
	}
	if !s.Info().Capabilities.Has(executor.FeatureFiles) {
		return nil
	}
	var names []string
	for f, err := range s.Files().List(ctx, executor.Workdir) {
		if err != nil {
			return err
		}
		names = append(names, f.Name)
	}
	for _, name := range names {
		if err := s.Files().Remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// observe runs a program on a subject: nil if the subject does not run such programs, or lacks the
// interpreter. What a backend refuses or fails to do is in the Fields. An error is of ctx.
func (w *worker) observe(ctx context.Context, at int, p Program) ([]Fields, error) {
	k := key{at, p.Language}
	sub := w.subjects[at]
	requests := cellRequests(p)
	if sub.plain {
		if requests = plainRequest(p); requests == nil {
			return nil, nil
		}
	}
	s, err := w.sandbox(ctx, k)
	if err != nil {
		return failed(ctx, nil, err)
	}
	s.programs++
	files := maps.Clone(p.Files)
	if sub.plain {
		if files == nil {
			files = map[string]string{}
		}
		files[requests[0].Command[1]] = p.Cells[0].Code
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := s.Files().Write(ctx, name, strings.NewReader(files[name]), 0); err != nil {
			w.drop(k)
			return failed(ctx, nil, err)
		}
	}
	artifacts := s.Info().Capabilities.HasFor(p.Language, executor.FeatureArtifacts)
	var all []Fields
	for i, req := range requests {
		req.Limits.WallTime = wallTime
		if in := p.Cells[i].Stdin; in != "" {
			req.Stdin = strings.NewReader(in)
		}
		if artifacts || sub.plain {
			req.Artifacts = &executor.ArtifactRequest{}
		}
		r, err := s.Run(ctx, req, nil)
		if err != nil {
			w.drop(k)
			return failed(ctx, all, err)
		}
		f := compare.Describe(p.Language, r)
		if sub.plain {
			if r.ExitCode == notFound {
				return nil, nil
			}
			maps.DeleteFunc(f, func(name, _ string) bool { return !slices.Contains(plainFields, name) })
		}
		all = append(all, f)
		if r.FilesLost {
			w.drop(k)
			if i < len(requests)-1 {
				break
			}
		}
	}
	return all, nil
}

func cellRequests(p Program) (all []executor.Request) {
	for _, c := range p.Cells {
		all = append(all, executor.Request{Language: p.Language, Code: c.Code})
	}
	return all
}

// plainRequest is how a program runs as a file of its own. Only one of a single cell does, in a
// language that the interpreter takes.
func plainRequest(p Program) []executor.Request {
	if len(p.Cells) != 1 || p.Language == executor.TypeScript {
		return nil
	}
	command := []string{"python3", "cell.py"}
	if p.Language == executor.JavaScript {
		command = []string{"node", "cell.js"}
		if p.Module {
			command[1] = "cell.mjs"
		}
	}
	return []executor.Request{{Command: command}}
}

// failed adds to what was observed a run that did not take place, or an end that is not known.
func failed(ctx context.Context, all []Fields, err error) ([]Fields, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return append(all, compare.Failed(err)), nil
}
