package tool

import (
	"context"
	_ "embed" // the program
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// reviewProgram checks code with Python's own parser, in the sandbox.
//
//go:embed review.py
var reviewProgram string

// maxFindings is the largest number of findings of a review.
const maxFindings = 50

// Finding is a part of the code that is probably a mistake.
type Finding struct {
	Line int    `json:"line"` // from 1
	Rule string `json:"rule"` // "syntax", "module", "input", "endless", "bare-except", "mutable-default", "none", "unreachable"
	Text string `json:"text"` // text for a model
}

// Review checks Python code without running it, with Python's own parser in the sandbox of the
// conversation. The findings are advice. They do not prevent a run, and they do not say that code
// is safe: only the sandbox provides safety. Variables stay unchanged. If the tool has no Python,
// the error is an *InputError.
func (t *Tool) Review(ctx context.Context, c Conversation, code string) (found []Finding, err error) {
	caps := t.Capabilities()
	in := Input{Code: code, Language: executor.Python}
	if err := Check(in, caps, t.o); err != nil {
		return nil, err
	}
	lease, err := t.acquire(ctx, c, executor.Python, caps)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lease.Release()) }()
	return review(ctx, lease, code)
}

func review(ctx context.Context, s *sessions.Lease, code string) ([]Finding, error) {
	text, err := json.Marshal(code) // a JSON string is a string literal in Python
	if err != nil {
		return nil, err
	}
	res, err := s.Run(ctx, executor.Request{Language: executor.Python, Code: reviewProgram + "\n_execbroker_review(" + string(text) + ", " + strconv.Itoa(maxFindings) + ")\n"}, nil)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, v := range res.Outputs {
		// The value comes from the sandbox, where earlier code may have changed anything.
		if data, ok := v.Data["application/json"]; ok && v.Main && json.Unmarshal(data, &found) == nil && len(found) <= maxFindings {
			for i := range found {
				found[i].Text = cut(plain([]byte(found[i].Text)), maxCause)
				found[i].Rule = cut(plain([]byte(found[i].Rule)), maxLine)
			}
			return found, nil
		}
	}
	return nil, &executor.Error{Op: "review", Kind: executor.ErrInternal, Ran: executor.RanNo, Err: fmt.Errorf("the parser gave no answer: %w", errors.Join(res.Err()))}
}
