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

// reviewProgram looks at code with Python's own parser, in the sandbox.
//
//go:embed review.py
var reviewProgram string

// maxFindings bounds what a review returns.
const maxFindings = 50

// Finding is something in code that is probably not meant.
type Finding struct {
	Line int    `json:"line"` // from 1
	Rule string `json:"rule"` // "syntax", "module", "input", "endless", "bare-except", "mutable-default", "none", "unreachable"
	Text string `json:"text"` // in words for a model
}

// Review looks at Python code without running it, with Python's own parser in the sandbox of the
// conversation. What it finds is advice: it neither keeps anything from running nor says that code
// is safe, which only the sandbox takes care of. Variables stay as they are. Where the tool has no
// Python it is an *InputError.
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
	text, err := json.Marshal(code) // a string in JSON is one in Python
	if err != nil {
		return nil, err
	}
	res, err := s.Run(ctx, executor.Request{Language: executor.Python, Code: reviewProgram + "\n_execbroker_review(" + string(text) + ", " + strconv.Itoa(maxFindings) + ")\n"}, nil)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, v := range res.Outputs {
		// The value comes from the sandbox, where earlier code may have changed what it likes.
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
