package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/execbroker/execbroker/executor"
)

// encode adds the variables of JavaScript to an archive, with at most limit bytes.
func (p *program) encode(ctx context.Context, made *archive, limit int64) (res *executor.Result, err error) {
	defer func() { err = errors.Join(err, p.remove(ctx, p.path)) }()
	if res, err = p.run(ctx, executor.JavaScript, makeJavaScript, map[string]any{"limit": limit}); err != nil {
		return nil, err
	}
	var head struct {
		Names   []Variable `json:"names"`
		Omitted []Omission `json:"omitted"`
	}
	graph, err := p.answer(ctx, p.path, p.opts.MaxBytes+maxManifest, &head)
	if err != nil {
		return nil, err
	}
	m := &made.manifest
	m.JavaScript, m.Omitted = head.Names, append(m.Omitted, head.Omitted...)
	if len(m.JavaScript) > 0 {
		made.graph = graph
	}
	err = m.check(int64(len(made.values)))
	if err == nil && len(m.JavaScript) > 0 && len(graph) == 0 {
		err = errors.New("there are names and no values")
	}
	if err != nil {
		return nil, p.fail(executor.ErrInvalid, fmt.Errorf("the answer of the sandbox is not valid: %w", err))
	}
	return res, nil
}

// decode restores the variables of JavaScript.
func (p *program) decode(ctx context.Context, a *archive) (omitted []Omission, err error) {
	if len(a.graph) == 0 {
		return nil, nil
	}
	if !p.has(executor.JavaScript) {
		for _, v := range a.manifest.JavaScript {
			omitted = append(omitted, Omission{v.Name, v.Kind, "the session has no JavaScript that keeps variables"})
		}
		return omitted, nil
	}
	out := p.path + ".out"
	defer func() { err = errors.Join(err, p.remove(ctx, p.path), p.remove(ctx, out)) }()
	content := io.MultiReader(bytes.NewReader([]byte("\n")), bytes.NewReader(a.graph))
	if err := p.session.Files().Write(ctx, p.path, content, 0o600); err != nil {
		return nil, err
	}
	if _, err := p.run(ctx, executor.JavaScript, restoreJavaScript, map[string]any{"all": p.opts.AllOrNothing}); err != nil {
		return nil, err
	}
	return p.omissions(ctx, out)
}

// omissions reads what a program could not restore.
func (p *program) omissions(ctx context.Context, name string) ([]Omission, error) {
	var answer struct {
		Omitted []Omission `json:"omitted"`
	}
	if _, err := p.answer(ctx, name, maxManifest, &answer); err != nil {
		return nil, err
	}
	if err := checkOmissions(answer.Omitted); err != nil {
		return nil, p.fail(executor.ErrInvalid, fmt.Errorf("the answer of the sandbox is not valid: %w", err))
	}
	return answer.Omitted, nil
}
