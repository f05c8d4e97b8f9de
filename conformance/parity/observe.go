package parity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Fields is what was observed of a cell: by name of a field, its value as text. A field that is empty is absent.
//
// The names: "refused" (what the backend lacks; then there is nothing else), "error" (of the infrastructure, by kind), "status" with its reason,
// "exit code", "exception", "stdout", "stderr", "values" (media types, and the text where there is one), "artifacts", "state".
type Fields map[string]string

// maxText bounds a field: the beginning of two outputs that long tells enough.
const maxText = 16 << 10

// wallTime bounds a cell. It is the same everywhere, so that a program that does not end says so everywhere.
const wallTime = 20 * time.Second

// observe runs a program in a sandbox of its own. A backend that refuses it has said so in the Fields. An error is of ctx.
func observe(ctx context.Context, x executor.Executor, p Program) ([]Fields, error) {
	s, err := x.Create(ctx, executor.Spec{Languages: []executor.Language{p.Language}})
	if err != nil {
		f, err := failure(ctx, err)
		return []Fields{f}, err
	}
	defer s.Close()
	artifacts := s.Info().Capabilities.HasFor(p.Language, executor.FeatureArtifacts)
	var all []Fields
	for _, c := range p.Cells {
		req := executor.Request{Language: p.Language, Code: c.Code, Limits: executor.RunLimits{WallTime: wallTime}}
		if c.Stdin != "" {
			req.Stdin = strings.NewReader(c.Stdin)
		}
		if artifacts {
			req.Artifacts = &executor.ArtifactRequest{}
		}
		r, err := s.Run(ctx, req, nil)
		if err != nil {
			f, err := failure(ctx, err)
			return append(all, f), err
		}
		all = append(all, describe(r))
	}
	return all, nil
}

// failure describes a run that did not take place, or an end that is not known.
func failure(ctx context.Context, err error) (Fields, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var e *executor.Error
	if errors.As(err, &e) && errors.Is(err, executor.ErrUnsupported) {
		return Fields{"refused": strings.Join(slices.Sorted(slices.Values(e.Missing)), ", ")}, nil
	}
	return Fields{"error": clip(err.Error())}, nil
}

// describe is what a program, or a user, sees of a result. Durations and identities differ from run to run and are left out.
func describe(r *executor.Result) Fields {
	f := Fields{}
	set := func(name, value string) {
		if value != "" {
			f[name] = clip(value)
		}
	}
	set("status", strings.TrimSpace(string(r.Status)+" "+string(r.Reason)))
	if r.ExitCode != 0 {
		set("exit code", fmt.Sprint(r.ExitCode))
	}
	set("signal", r.Signal)
	if e := r.Exception; e != nil {
		set("exception", fmt.Sprintf("%s: %s (line %d)", e.Type, e.Message, e.Line))
	}
	set("stdout", string(r.Stdout))
	set("stderr", withoutFrames(string(r.Stderr)))
	var values []string
	for _, o := range r.Outputs {
		values = append(values, value(o))
	}
	set("values", strings.Join(values, "\n"))
	var made []string
	for _, a := range r.Artifacts {
		size := fmt.Sprintf(" %d bytes", a.Size)
		if !strings.HasPrefix(a.MIME, "text/") { // compressed: the libraries' versions show in the size
			size = ""
		}
		made = append(made, a.Name+" "+a.MIME+size)
	}
	slices.Sort(made)
	set("artifacts", strings.Join(made, "\n"))
	var state []string
	for what, is := range map[string]bool{"lost": r.StateLost, "files lost": r.FilesLost} {
		if is {
			state = append(state, what)
		}
	}
	slices.Sort(state)
	set("state", strings.Join(state, ", "))
	return f
}

// value is the media types of an output, and its plain text.
func value(o executor.Output) string {
	s := strings.Join(slices.Sorted(maps.Keys(o.Data)), " ")
	if o.Main {
		s = "main " + s
	}
	if _, text, ok := o.Data.Best("text/plain"); ok {
		s += " " + string(text)
	}
	return s
}

// withoutFrames leaves out tracebacks on stderr: the exception is a field of its own, and which inner frames a language names differs
// between its versions.
func withoutFrames(stderr string) string {
	before, _, _ := strings.Cut(stderr, "Traceback (most recent call last)")
	return before
}

// clip bounds a text from a sandbox.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxText)], "�")
}

// Difference is a field of a cell that differs.
type Difference struct {
	Cell  int    `json:"cell,omitempty"` // from 1; 0: of surroundings
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// compare returns where two observations differ, in the order of cells and names.
func compare(from, to []Fields) (found []Difference) {
	for i := range max(len(from), len(to)) {
		var a, b Fields
		if i < len(from) {
			a = from[i]
		}
		if i < len(to) {
			b = to[i]
		}
		for name := range both(a, b) {
			if a[name] != b[name] {
				found = append(found, Difference{Cell: i + 1, Field: name, From: a[name], To: b[name]})
			}
		}
	}
	slices.SortFunc(found, func(a, b Difference) int { return cmp.Or(a.Cell-b.Cell, strings.Compare(a.Field, b.Field)) })
	return found
}

// both has the names of two sets of fields.
func both(a, b Fields) map[string]bool {
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	return names
}
